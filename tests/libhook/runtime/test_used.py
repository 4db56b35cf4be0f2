"""What a process says that it used beside others: the daemon charges a limit by it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.arms import compile_program
from bench.bed import ROOT, Bed, wait_for
from bench.hostbound import LINK

LIMIT = 0.3
WATCHED_S = 4.0
COUNTED_S = 12.0  # a process says once a second or so what all of it came to


@pytest.mark.alone
@pytest.mark.flaky(reruns=3)
def test_programs_with_pauses_of_the_host_stay_within_their_limits_beside_each_other(tmp_path: Path) -> None:
    """Others delay an event on an idle stream, and what follows it seems shorter than it is."""
    program = compile_program(ROOT / "bench" / "hostbound.c", tmp_path / "hostbound", *LINK)
    with Bed(sim="memory=8GiB") as bed:
        names = ["a", "b", "c"]
        for name in names:
            bed.tenant(name, LIMIT, LIMIT)
            bed.spawn(name, [program, "200", "200", "20", "0", "0", "0"], stdout=subprocess.DEVNULL)
        bed.until_busy(*names)
        bed.sample(1.0)
        record = bed.sample(WATCHED_S)
        highest = max(float(record.windows(name, 1.0).max()) for name in names)
    assert highest <= LIMIT + 0.015  # a second has a quota beyond it, and what was in flight


TWO_THREADS = (ROOT / "tests" / "apps" / "two_launchers.c", "40 60 50")
NEVER_WAITS = (ROOT / "bench" / "hostbound.c", "50 100 0 5000 5000 0")


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize(("source", "words"), [TWO_THREADS, NEVER_WAITS], ids=["two threads", "it never waits"])
def test_what_is_launched_beside_others_is_counted_once(tmp_path: Path, source: Path, words: str) -> None:
    """Two threads launch into one stream, as PyTorch does: their chunks lie across each other on a card of others, too,
    and half was counted nowhere. Who never waits leaves it to the library's own thread to see the end of its
    work, which counted what was over anew each time, and its owner once more."""
    program = compile_program(source, tmp_path / source.stem, *LINK)
    with Bed(sim="memory=8GiB") as bed:
        names = ["a", "b"]

        def seen() -> dict[str, tuple[int, int]]:
            said = {tenant["name"]: tenant["reported_busy_ns"] for tenant in bed.state()["tenants"]}
            had = bed.busy()[1]
            return {name: (had[name], said[name]) for name in names}

        for name in names:
            bed.tenant(name, 0.5, 1.0)
            bed.spawn(name, [program, *words.split()], stdout=subprocess.DEVNULL)
        bed.until_busy(*names)
        wait_for(lambda: all(tenant["duty"] for tenant in bed.state()["tenants"]), 30, "a duty of both")
        bed.sample(1.0)
        before = seen()
        bed.sample(COUNTED_S)
        after = seen()
    for name in names:
        had_ns, counted_ns = (now - then for now, then in zip(after[name], before[name], strict=True))
        assert 0.8 < counted_ns / had_ns < 1.3
