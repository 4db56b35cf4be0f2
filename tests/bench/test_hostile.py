"""Every attack of bench/hostile, short: the daemon lives on, with no more memory, descriptors or threads than before.

What it costs the others is judged by `python -m bench.hostile`: a second of a busy machine says nothing about shares.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from bench.bed import wait_for
from bench.hostile.__main__ import closed_folder
from bench.hostile.attacks import ATTACKS, listing
from bench.hostile.judge import NAME, Range, control, late, used
from bench.hostile.table import WHO, may_play
from tests.bench.running import ROOT, answer_of

QUICK = (  # one of each way in, and what ended the daemon or made it grow while libzmq listened for it
    "ping-and-hang-up", "short-pings", "endless-tiny-frames", "noise", "slow-greetings", "greatest-lengths",
    "flood-of-messages", "wrong-epochs", "writes-to-the-page", "page-hellos-in-pieces", "huge-heads", "wrong-orders",
    "frozen-holders", "second-daemon", "links-exchanged", "inflated-bodies", "sizes-of-blanks", "tenants-come-and-go",
    "wishes-of-many", "tenants-that-stay", "zeros-for-an-environment", "mounts-on-one-another",
)  # fmt: skip


def test_there_are_forty_attacks_and_each_says_what_it_does() -> None:
    assert len(ATTACKS) >= 40
    for one in ATTACKS.values():
        assert one.who in WHO
        assert one.what, one.name
        assert "|" not in one.what, one.name
    assert {1, 2, 3, 4, 5, 6, 7, 9} <= {one.finding for one in ATTACKS.values()}


def test_the_list_is_the_table() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.hostile", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == listing()


def test_what_burns_a_processor_ends_with_a_bench_that_is_killed() -> None:
    words = "import signal\nfrom bench.hostile.judge import burner\nprint(burner().pid, flush=True)\nsignal.pause()"
    with subprocess.Popen([sys.executable, "-c", words], cwd=ROOT, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        burning = Path(f"/proc/{int(bench.stdout.readline())}")
        assert burning.exists()
        bench.kill()
    wait_for(lambda: not burning.exists(), 60, "end of what burns a processor")


def test_a_checkout_that_others_may_not_enter_is_seen_before_anything_is_played(tmp_path: Path) -> None:
    """A run of a quarter of an hour ended with an attack that could not be played."""
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    inner.parent.chmod(0o700)
    assert closed_folder(inner) == inner.parent
    assert closed_folder(Path("/usr/bin")) is None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name in QUICK if may_play(ATTACKS[name])])
def test_the_daemon_is_what_it_was_after(name: str) -> None:
    answer, said = answer_of("bench.hostile", "--liveness", "--seconds=1", f"--attack={name}")
    assert answer["results"][name]["failed"] == [], said


def test_a_file_that_goes_again_is_not_left_behind() -> None:
    """The daemon writes its state beside the old one: a look in that moment said that an attack had left a file."""
    with Range() as place:
        before, files = used(place.daemon.pid), place._files()
        folder = Path(place.bed.tenant(NAME, 0.0, 0.1)).parent
        passing = Path(place.bed.state_dir) / "state.passing"
        passing.touch()
        goes = threading.Timer(1.0, passing.unlink)
        goes.start()
        assert place._left(before, files, folder) == []
        goes.join()


@pytest.mark.timeout(300)
def test_a_daemon_stands_random_connections() -> None:
    answer, said = answer_of("bench.strangers", "--connections=4000", "--tenants=8")
    assert all(answer["passed"].values()), said


def test_a_pidfd_of_a_process_that_stays_is_no_attacks() -> None:
    with subprocess.Popen(["sleep", "inf"]) as child:
        before = used(os.getpid(), {child.pid})
        pidfd = os.pidfd_open(child.pid)
        try:
            assert used(os.getpid(), {child.pid}) == before
            assert used(os.getpid())["descriptors"] == before["descriptors"] + 1
        finally:
            os.close(pidfd)
            child.kill()


def window(a: float, b: float, wait_ms: float) -> dict[str, Any]:
    waits = {"p50": wait_ms, "p90": wait_ms, "p99": 99.0}
    return {"shares": {"a": a, "b": b}, "wait_ms": {"a": waits, "b": waits}, "daemon_percent": 1.0}


def test_what_is_lost_of_a_share_and_what_is_waited_longer_is_told() -> None:
    calm = window(0.599, 0.398, 10)
    assert late(window(0.595, 0.394, 11.9), calm) == []
    assert late(window(0.59, 0.398, 10), calm) == ["a lost 0.90 pp"]
    assert "b waits 3.0 ms longer (p50)" in late(window(0.599, 0.398, 13), calm)


def test_more_than_is_promised_is_nobodys_loss() -> None:
    assert late(window(0.6, 0.4, 10), window(0.7, 0.4, 10)) == []


def test_calm_is_judged_as_attacks_are() -> None:
    even = [window(0.599, 0.399, 10) for _ in range(9)]
    assert control(even, 3) == {"windows": 9, "off": 0, "medians": 3, "medians_off": 0, "said": []}
    rough = [*even, window(0.58, 0.399, 10)]
    assert control(rough, 3) == {"windows": 10, "off": 1, "medians": 3, "medians_off": 0, "said": []}
    rough[0] = rough[1] = window(0.58, 0.399, 10)
    assert control(rough, 3) == {
        "windows": 10, "off": 3, "medians": 3, "medians_off": 1, "said": ["a lost 1.90 pp"]
    }  # fmt: skip
    assert control([window(0.6, 0.4, 10)], 3) == {
        "windows": 0, "off": 0, "medians": 0, "medians_off": 0, "said": []
    }  # fmt: skip
