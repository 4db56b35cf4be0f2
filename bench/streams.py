"""What does a program get done whose streams overlap on the card?

    python -m bench.streams [--seconds 5] [--runs 5] [--case NAME]

Kernels of 200 us and one block in eight streams run beside each other on a card, so what is in flight takes an eighth
of what its kernels take one by one. Beside an always-busy tenant, each with half of the card, such a program gets as
much done in the time that it holds the card as without the library. So it is on a card that runs one kernel at a time,
too, and where it fills one stream after the other. Work is kernels that ended, by the device's own timeline; held time
is what the daemon charged. Baseline in the same run: the program alone, without the library.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from bench import story
from bench.arms import GEMINI, NONE, Runs, compile_program, middle, open_bed
from bench.bed import ROOT
from bench.cases import run_cases
from bench.goals import Claim, claim
from bench.jitter import Probe


class Case(NamedTuple):
    streams: int
    overlap: bool
    filled: bool = False  # one stream after the other


CASES = {
    "8 streams that overlap": Case(8, True),
    "8 streams, one kernel at a time": Case(8, False),
    "2 streams that overlap": Case(2, True),
    "8 streams, filled one by one": Case(8, True, True),
    "8 streams, filled one by one, one kernel at a time": Case(8, False, True),
}


def measure(case: Case, arm: str, seconds: float) -> dict[str, Any]:
    program = compile_program(ROOT / "bench" / "streams.c", ROOT / "build" / "bench" / "streams")
    with open_bed(arm, sim=f"memory=80GiB,overlap={'on' if case.overlap else 'off'}") as bed:
        bed.tenant("one", 0.5, 1.0)
        one = bed.spawn("one", [program, str(case.streams), *(["filled"] if case.filled else [])])
        bed.until_busy("one")
        if arm == GEMINI:
            bed.tenant("busy", 0.5, 1.0)
            bed.load("busy", "--seconds", 0)
            bed.until_busy("busy")
        bed.sample(1.0)
        sequence, _ = bed.timeline.segments(0, 0)
        with Probe() as probe:
            record = bed.sample(seconds)
        segments = story.work(bed.timeline.segments(0, sequence)[1], {one.pid})
        bed.end()
        begin_ns, end_ns, held_s = int(record.at_ns[0]), int(record.at_ns[-1]), seconds
        if arm == GEMINI:
            turns = [turn for turn in story.turns(bed.trace) if turn.tenant == "one" and turn.ended_ns]
            turns = [
                turn for turn in turns if begin_ns <= turn.granted_ns and turn.ended_ns <= end_ns and not turn.beside
            ]
            if not turns:  # it was taken for one that leaves the card idle
                return {"beside_others": True, "shares": record.shares(), "stalls": len(probe.stalls)}
            begin_ns, end_ns = turns[0].granted_ns, turns[-1].ended_ns
            held_s = sum(turn.held_ns for turn in turns) / 1e9
        kernels = sum(segment.kernels for segment in segments if begin_ns <= segment.start_ns < end_ns)
    return {
        "kernels_per_held_s": kernels / held_s,
        "held_s": held_s,
        "shares": record.shares(),
        "utilization": record.utilization(),
        "stalls": len(probe.stalls),
    }


def judge(name: str, case: Case, runs: Runs) -> list[Claim]:
    del case
    rate, alone = middle(runs[GEMINI], "kernels_per_held_s"), middle(runs[NONE], "kernels_per_held_s")
    assert rate is not None
    assert alone is not None
    one = middle(runs[GEMINI], "shares", "one")
    text = f"{rate:.0f} a held second, {alone:.0f} alone: {rate / alone:.3f}; share {one:.3f}"
    print(f"{name:32} {text}", file=sys.stderr)
    return [claim("streams.work", rate / alone, name)]


def main() -> int:
    question = "What does a program get done whose streams overlap on the card?"
    return run_cases(__doc__, question, CASES, (GEMINI, NONE), measure, judge, seconds=5)


if __name__ == "__main__":
    sys.exit(main())
