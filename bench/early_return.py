"""How soon does a holder with nothing to run give the token back?

    python -m bench.early_return [--seconds 8] [--runs 5] [--case NAME]

One tenant comes and goes beside one that is always busy. The figure is the time from its last work on the device's own
timeline to its return as the daemon heard it. Where the gap that is to be expected is longer than a hand-over the token
should come back at once. Where gaps are short the token is kept over them, and what counts is how soon it comes back
when the program stays away for once (pauses.c). Baselines in the same run: a plain lock handed round robin, and no
library, where the card works meanwhile anyway: there the idle time of the card after the guest's last work is shown.
"""

from __future__ import annotations

import bisect
import itertools
import sys
from typing import Any, NamedTuple

import numpy as np

from bench import story
from bench.arms import GEMINI, LOCK, NONE, Runs, compile_program, middle, open_bed
from bench.bed import ROOT
from bench.cases import run_cases
from bench.goals import Claim, claim
from bench.jitter import Probe


class Case(NamedTuple):
    """Bursts of so long, gaps of so long, and after every `stretch` bursts a pause; which goal, at which quantile."""

    burst_us: int
    gap_us: int
    stretch: int
    pause_us: int
    goal: str
    quantile: str


CASES = {
    "5 ms bursts, 20 ms gaps": Case(5000, 20_000, 1 << 30, 0, "return.long_gap", "p50"),
    "1 ms bursts, 2 ms gaps": Case(1000, 2000, 1 << 30, 0, "return.long_gap", "p50"),
    "0.5 ms bursts, 0.1 ms gaps, then away": Case(500, 100, 12, 30_000, "return.short_gap", "p99"),
    "1 ms bursts, 0.4 ms gaps, then away": Case(1000, 400, 8, 30_000, "return.short_gap", "p99"),
}
KERNEL_US = 100


def measure(case: Case, arm: str, seconds: float) -> dict[str, Any]:
    """One run: milliseconds from the guest's last work to the token's return, and to the next work of the other."""
    program = compile_program(ROOT / "bench" / "pauses.c", ROOT / "build" / "bench" / "pauses")
    with open_bed(arm) as bed:
        bed.tenant("guest", 0.3, 1.0)
        bed.tenant("busy", 0.7, 1.0)
        other = bed.load("busy", "--seconds", 0, "--kernel-us", KERNEL_US)
        bed.until_busy("busy")
        words = (case.burst_us, case.gap_us, case.stretch, case.pause_us)
        guest = bed.spawn("guest", [program, *map(str, words)])
        bed.until_busy("guest")
        bed.sample(1.0)
        sequence = bed.timeline.segments(0, 0)[0]
        with Probe() as probe:
            record = bed.sample(seconds)
        segments = bed.timeline.segments(0, sequence)[1]
        bed.end()
        own = story.work(segments, {guest.pid})
        given_back = returned(bed, own, record.at_ns) if bed.tokens else []
    to_other = switches_ms(own, [segment.start_ns for segment in story.work(segments, {other.pid})], case)
    answer: dict[str, Any] = {"utilization": record.utilization(), "stalls": len(probe.stalls)}
    for key, found in (("return_ms", given_back), ("other_works_ms", to_other)):
        if found:
            answer[key] = {"p50": np.percentile(found, 50), "p99": np.percentile(found, 99), "count": len(found)}
    return answer


def returned(bed: Any, own: list[Any], at_ns: np.ndarray) -> list[float]:
    """For each grant of the guest that came back within the record: milliseconds since its last work."""
    epochs = {turn.epoch for turn in story.turns(bed.trace) if turn.tenant == "guest"}
    ends = [segment.end_ns for segment in own]
    found = []
    for now_ns, epoch in story.returns(bed.trace):
        at = bisect.bisect_right(ends, now_ns) - 1
        if epoch in epochs and at >= 0 and at_ns[0] < now_ns < at_ns[-1]:
            found.append((now_ns - ends[at]) / 1e6)
    return found


def switches_ms(own: list[Any], others: list[int], case: Case) -> list[float]:
    """For each time that the guest stayed away: milliseconds from its last work to the other's next."""
    away_ns = (case.pause_us or case.gap_us) * 800
    found = []
    for before, after in itertools.pairwise(own):
        if after.start_ns - before.end_ns > away_ns:
            at = bisect.bisect_left(others, before.end_ns)
            if at < len(others) and others[at] < after.start_ns:
                found.append((others[at] - before.end_ns) / 1e6)
    return found


def judge(name: str, case: Case, runs: Runs) -> list[Claim]:
    shown = [middle(runs[GEMINI], "return_ms", quantile) for quantile in ("p50", "p99")]
    print(f"{name:40} {shown} ms", file=sys.stderr)
    return [claim(case.goal, middle(runs[GEMINI], "return_ms", case.quantile), name)]


def main() -> int:
    question = "How soon does an idle holder give the token back?"
    return run_cases(__doc__, question, CASES, (GEMINI, LOCK, NONE), measure, judge, seconds=8)


if __name__ == "__main__":
    sys.exit(main())
