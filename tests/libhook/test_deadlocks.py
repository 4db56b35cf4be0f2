"""Programs that deadlock where a token is let go only after all work has drained, beside one that is always busy."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.bed import LIB, ROOT, Bed
from scheduler_backend import trace

SECONDS = 3.0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("deadlocks") / "deadlocks"
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}", "-o", str(binary)]
    source = ROOT / "tests" / "apps" / "deadlocks.c"
    subprocess.run([*command, str(source), f"-L{LIB / 'sim'}", "-l:libcuda.so.1", "-lpthread"], check=True)
    return binary


@pytest.fixture
def bed() -> Iterator[Bed]:
    """Two cards, shared half and half between `stuck` and `busy`."""
    with Bed(sim="gpus=2,memory=8GiB") as bed:
        bed.tenant("stuck", 0.5, 1.0)
        bed.tenant("busy", 0.5, 1.0)
        yield bed


def rounds(child: subprocess.Popen[Any]) -> int:
    out, err = child.communicate(timeout=30)
    assert child.returncode == 0, err
    return int(out)


def run(bed: Bed, *programs: list[object], devices: tuple[int, ...] = (0,)) -> tuple[list[int], list[float], bool]:
    """How often each of `stuck`'s programs went round, what `busy` had of the time that anybody had of each card
    meanwhile (what nobody had is the hand-overs', not the other tenant's), and whether this machine ran evenly enough
    for points of a share to count."""
    for device in devices:
        bed.load("busy", "--device", device)
    bed.until_busy("busy")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    children = [bed.spawn("stuck", list(map(str, one)), **pipes) for one in programs]
    bed.until_busy("stuck")
    before = [bed.busy(device) for device in devices]
    record = bed.sample(SECONDS - 0.5)
    after = [bed.busy(device) for device in devices]
    shares = []
    for (_, had), (_, has) in zip(before, after, strict=True):
        busy_ns, stuck_ns = has["busy"] - had["busy"], has["stuck"] - had["stuck"]
        shares.append(busy_ns / (busy_ns + stuck_ns))
    even = len(record.stalls_ns) <= len(record.at_ns) * 0.01
    return [rounds(child) for child in children], shares, even


def longest_pause(bed: Bed, pid: int, seconds: float) -> float:
    """Of a process on the card, in seconds; with the one that is still going on at the end."""
    start_ns, found = time.monotonic_ns(), []
    seen, _ = bed.timeline.segments(0, 0)
    while time.monotonic_ns() < start_ns + seconds * 1e9:
        seen, new = bed.timeline.segments(0, seen)
        found += [one for one in new if one.pid == pid]
        time.sleep(0.05)
    edges = [start_ns, *(edge for one in found for edge in (one.start_ns, one.end_ns)), time.monotonic_ns()]
    return max(later - earlier for earlier, later in pairwise(edges)) / 1e9


def keeps_its_half(share: float, even: bool) -> None:
    """Within 2 points; where even a lone program would not get its time for sure, as far as one can say."""
    assert share >= (0.48 if even else 0.35)


def test_a_collective_launched_on_one_gpu_after_the_other_runs_to_its_end(bed: Bed, program: Path) -> None:
    (count,), shares, even = run(bed, [program, "collective", int(SECONDS * 1000)], devices=(0, 1))
    assert count >= 5 * SECONDS
    for share in shares:
        keeps_its_half(share, even)


def test_one_call_that_launches_on_two_gpus_passes_both_gates(bed: Bed, program: Path) -> None:
    (count,), shares, even = run(bed, [program, "together", int(SECONDS * 1000)], devices=(0, 1))
    assert count >= 5 * SECONDS
    for share in shares:
        keeps_its_half(share, even)
    metrics = bed.http("GET", "/metrics")[1]
    launches = [
        float(number)
        for tenant, number in re.findall(r'^gemini_launches_total\{.*tenant="(\w+)".*\} (\S+)$', metrics, re.MULTILINE)
        if tenant == "stuck"
    ]
    assert len(launches) == 2
    assert all(count * 0.7 <= one <= count for one in launches)  # those of the last grant are not told


def test_a_stream_that_waits_for_a_second_process_runs_to_its_end(bed: Bed, program: Path, tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_bytes(bytes(4096))
    both = [[program, kind, int(SECONDS * 1000), words] for kind in ("waits", "writes")]
    counts, (share,), even = run(bed, *both)
    assert min(counts) >= 5 * SECONDS
    keeps_its_half(share, even)


@pytest.mark.parametrize("mode", ["global", "thread", "relaxed"])
def test_a_capture_stays_whole_while_tokens_change_hands(bed: Bed, program: Path, mode: str) -> None:
    (count,), (share,), even = run(bed, [program, "capture", int(SECONDS * 1000), mode])
    assert count >= 5 * SECONDS
    keeps_its_half(share, even)
    assert share <= (0.52 if even else 0.65)  # the other one is as busy


def told(bed: Bed, name: str) -> list[str]:
    """The tenants of such actions in the daemon's record."""
    actions = [action for entry in trace.read(bed.trace)[1] for action in entry.actions]
    return [fields[0] for kind, fields in actions if kind == name]


def test_a_kernel_that_never_ends_holds_the_others_up_for_an_overrun_and_is_named(program: Path) -> None:
    for _ in range(5):
        with Bed(sim="memory=8GiB", config="overrun_ms = 500\nlease_margin_ms = 200\n") as bed:
            bed.tenant("stuck", 0.5, 1.0)
            bed.tenant("busy", 0.5, 1.0)
            busy = bed.load("busy")
            bed.until_busy("busy")
            endless = bed.spawn("stuck", [program, "endless", "0"])
            bed.until_busy("stuck")
            pause = longest_pause(bed, busy.pid, 2)
            assert endless.poll() is None
            metrics = bed.http("GET", "/metrics")[1]
            share = bed.sample(1).shares()["busy"]
            bed.end()
            log = (bed.state_dir / "daemon.log").read_text()
            assert pause <= 0.6  # from the end of its quota, and what this machine adds
            if told(bed, "LeaseLost"):
                continue  # this machine was too busy for it to say in time that it lives
            assert pause > 0.4
            assert share >= 0.2  # the card slices between the two, and switching costs
            assert told(bed, "Overran") == ["stuck"]
            assert "overran tenant=stuck" in log
            assert "tenant=busy" not in log
            assert re.search(r'^gemini_overruns_total\{.*tenant="stuck".*\} 1\.0$', metrics, re.MULTILINE)
            assert not re.search(r'^gemini_overruns_total\{.*tenant="busy".*\} [^0]', metrics, re.MULTILINE)
            return
    pytest.fail("a lease of 200 ms ran out five times: this machine stands still too often to say more")
