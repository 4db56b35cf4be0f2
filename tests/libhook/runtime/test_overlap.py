"""What is in flight on several streams is counted as the card runs it, by the card's own record."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.arms import GEMINI, compile_program, open_bed
from bench.bed import ROOT, Bed, wait_for
from bench.hostile.judge import burner

KERNEL_NS = 200_000  # of bench/streams.c
IN_A_ROW = 3  # seconds: in a single one as many may happen to be in flight
LOADED_S = 6
REMEMBERED_S = 16  # what was long once is taken for possible for as long, at least


@pytest.fixture(scope="module")
def program() -> Path:
    return compile_program(ROOT / "bench" / "streams.c", ROOT / "build" / "bench" / "streams")


def at_once(bed: Bed, pid: int, sequence: int) -> tuple[float, int]:
    """How many kernels of this process ran at once of late, on average; the number of the next record."""
    following, segments = bed.timeline.segments(0, sequence)
    own = [segment for segment in segments if segment.pid == pid]
    busy_ns = sum(segment.end_ns - segment.start_ns for segment in own)
    return sum(segment.kernels for segment in own) * KERNEL_NS / max(1, busy_ns), following


def begin(bed: Bed, program: Path, words: tuple[str, ...]) -> int:
    """Eight streams of one tenant beside another that is always busy; the process id of the former."""
    bed.tenant("one", 0.5, 1.0)
    bed.tenant("busy", 0.5, 1.0)
    one = bed.spawn("one", [program, "8", *words])
    bed.load("busy", "--seconds=0")
    bed.until_busy("one", "busy")
    return one.pid


def until_at_once(bed: Bed, pid: int, least: float, most: float, seconds: float = 40) -> None:
    """Wait until so many ran at once in each of some seconds in a row."""
    seen: list[float] = []
    sequence = bed.timeline.segments(0, 0)[0]

    def as_many() -> bool:
        nonlocal sequence
        bed.sample(1.0)
        ran, sequence = at_once(bed, pid, sequence)
        seen.append(ran)
        return len(seen) >= IN_A_ROW and all(least <= one <= most for one in seen[-IN_A_ROW:])

    try:
        wait_for(as_many, seconds, "seconds in which so many ran at once")
    except TimeoutError:
        pytest.fail(f"at once, second by second: {seen}")


@pytest.mark.parametrize("words", [(), ("filled",)], ids=["in turn", "one by one"])
@pytest.mark.parametrize(("overlap", "least", "most"), [("on", 7.0, 8.1), ("off", 0.9, 1.1)])
def test_eight_streams_run_beside_each_other_while_another_tenant_waits(
    program: Path, overlap: str, least: float, most: float, words: tuple[str, ...]
) -> None:
    """5.0 at once before, where the card had room for all; where one stream is filled after the other, 1.4."""
    with open_bed(GEMINI, sim=f"memory=8GiB,overlap={overlap}") as bed:
        one = begin(bed, program, words)
        until_at_once(bed, one, least, most)
        bed.until_shares({"one": 0.5, "busy": 0.5}, 0.03)


@pytest.mark.alone
def test_a_machine_that_was_busy_for_a_while_leaves_no_streams_in_turns_for_good(program: Path) -> None:
    """What had run beside others' work and was looked at later was taken for long: two launches a stream at once.

    So it went on for half a minute after the load, or for ever: 1.3 at once, and one launch where forty had been.
    """
    with open_bed(GEMINI, sim="memory=8GiB,overlap=on") as bed:
        burners = [burner(apart=False) for _ in range(8)]
        try:
            one = begin(bed, program, ("filled",))
            bed.sample(LOADED_S)
        finally:
            for each in burners:
                each.kill()
                each.wait()
        until_at_once(bed, one, 7.0, 8.1, REMEMBERED_S - LOADED_S)
