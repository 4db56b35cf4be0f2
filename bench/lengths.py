"""What does a program cost its neighbour whose kernels' lengths nothing foretells?

    python -m bench.lengths [--seconds 8] [--runs 5] [--case NAME]

Persistent kernels keep one function and grid for all sizes (lengths.c). Beside an always-busy tenant, each with half of
the card: the longest turn may pass the quota by the one kernel that was under way, and the card stays busy. Where
lengths change by the second the turn of the first change is told apart: nothing foretells that one. A grant beside
others is no turn and has no quota to pass (who is kept from filling the card may be taken for a host-bound one). A
program of new functions, each of which the driver loads for 20 ms before its first launch, gets what a fluid server
gives it, and without the loads (alone) a first sight costs next to nothing. One that never waits for its short work
costs its neighbour no more than that server says. All from the device's own timeline, from the program's first launch.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any, NamedTuple

from bench import gps, story
from bench.arms import GEMINI, Runs, compile_program, middle, open_bed
from bench.bed import ROOT
from bench.cases import run_cases
from bench.goals import Claim, claim
from bench.jitter import Probe

LONG_MS = 5  # the kernel that was under way when the quota ended
LOAD_MS, FUNCTIONS = 20, 40
CHANGED_NS = 1_020_000_000  # the length has changed for the first time, and a turn has begun since
SPARSE_MS, PERIOD_MS = 0.5, 40


class Case(NamedTuple):
    """The words of lengths.c, and what is claimed of the run."""

    words: tuple[str, ...]
    claims: str


CASES = {
    "20 us, then 5 ms": Case(("grow", "1"), "turns"),
    "20 us, then 5 ms, 40 functions": Case(("grow", "40"), "turns"),
    "20 us or 5 ms, each second": Case(("change", "1"), "turns"),
    "20 us or 5 ms, each second, 40 functions": Case(("change", "40"), "turns"),
    "40 new functions": Case(("first", "40"), "sight"),
    "40 new functions that load for 20 ms": Case(("steady", "40"), "loads"),
    "0.5 ms every 40 ms, never waits": Case(("sparse",), "sparse"),
}


def measure(case: Case, arm: str, seconds: float) -> dict[str, Any]:
    """One run."""
    program = compile_program(ROOT / "bench" / "lengths.c", ROOT / "build" / "bench" / "lengths")
    sim = f"memory=80GiB,load={LOAD_MS if case.claims == 'loads' else 0}ms"
    with open_bed(arm, sim=sim) as bed:
        bed.tenant("one", 0.5, 1.0)
        if case.claims == "sight":
            child = bed.spawn("one", [program, *case.words], stdout=subprocess.PIPE, text=True)
            unknown, known = map(int, child.communicate(timeout=60)[0].split())
            return {"first_sight_us": (unknown - known) / 1e3 / FUNCTIONS}
        bed.tenant("busy", 0.5, 1.0)
        bed.load("busy", "--seconds", 0)
        bed.until_busy("busy")
        sequence = bed.timeline.segments(0, 0)[0]
        one = bed.spawn("one", [program, *case.words])
        bed.until_busy("one")
        with Probe() as probe:
            record = bed.sample(seconds)
        segments = bed.timeline.segments(0, sequence)[1]
        bed.end()
        granted = [turn for turn in story.turns(bed.trace) if turn.tenant == "one"]
    work = story.work(segments, {one.pid})
    every = zip(granted, story.observed_overuse_ns(granted, work), strict=False)
    turns = [(turn.granted_ns - work[0].start_ns, ns / 1e6) for turn, ns in every if not turn.beside]
    first = [ms for at_ns, ms in turns if case.words[0] == "change" and at_ns < CHANGED_NS]
    return {
        "past_quota_ms": max((ms for _at_ns, ms in turns[len(first) :]), default=None),
        "first_past_ms": max(first, default=None),
        "turns": len(turns),
        "beside_others": len(granted) - 1 - len(turns),
        "seconds": seconds,
        "shares": record.shares(),
        "utilization": record.utilization(),
        "stalls": len(probe.stalls),
    }


def fluid(case: Case, seconds: float) -> list[float]:
    """What a fluid server gives the program and the busy one."""
    if case.claims == "sparse":
        rest_ns = round((PERIOD_MS - SPARSE_MS) * 1e6)
        programs = [gps.Program(0.5, 1.0, round(SPARSE_MS * 1e6), rest_ns), gps.Program(0.5, 1.0, 1_000_000, 0)]
        return gps.shares(programs, 2)
    loading = (FUNCTIONS - 1) * LOAD_MS / 1e3 / seconds  # the first was loaded before it was seen to work
    return [0.5 * (1 - loading), 0.5 * (1 + loading)]


def judge(name: str, case: Case, runs: Runs) -> list[Claim]:
    found = runs[GEMINI]
    if case.claims == "sight":
        cost = middle(found, "first_sight_us")
        print(f"{name:42} {cost:.1f} us", file=sys.stderr)
        return [claim("lengths.sight", cost, name)]
    past, busy = middle(found, "past_quota_ms"), middle(found, "utilization")
    one, other = middle(found, "shares", "one"), middle(found, "shares", "busy")
    assert past is not None
    assert busy is not None
    assert one is not None
    assert other is not None
    print(f"{name:42} past {past:.1f} ms, busy {busy:.3f} = {one:.3f} + {other:.3f}", file=sys.stderr)
    if case.claims == "turns":
        first = middle(found, "first_past_ms")
        surprise = [claim("lengths.first", first - LONG_MS, name)] if first is not None else []
        return [claim("lengths.past", past - LONG_MS, name), *surprise, claim("lengths.busy", busy, name)]
    owed = fluid(case, found[0]["seconds"])
    if case.claims == "sparse":
        return [claim("lengths.neighbour", 100 * (owed[1] - other), name)]
    return [claim("lengths.share", 100 * abs(one / busy - owed[0]), name)]


def main() -> int:
    question = "What does a program cost its neighbour whose kernels' lengths nothing foretells?"
    return run_cases(__doc__, question, CASES, (GEMINI,), measure, judge, seconds=8)


if __name__ == "__main__":
    sys.exit(main())
