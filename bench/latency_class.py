"""How much longer does a latency tenant's service take beside a batch tenant than alone, and what does the batch keep?

    python -m bench.latency_class [--seconds 10] [--runs 5] [--case NAME]

The latency tenant (request 0.4, class latency) launches a burst of 100 us kernels, synchronises, and stays away; its
service is the time from the first launch to the end of the synchronisation, as the program itself sees it. Beside it a
batch tenant (request 0.6) is always busy with 250 us kernels. Alone is the same program under the same daemon, in the
same run. What is left for the batch is the time in which the latency tenant has no work on the card, by the device's
own timeline. Baselines in the same run: a plain lock handed round robin, and no library (the card slices time).
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np

from bench.arms import GEMINI, LOCK, NONE, Runs, compile_program, middle, open_bed
from bench.bed import ROOT
from bench.cases import run_cases
from bench.goals import Claim, claim
from bench.jitter import Probe


class Case(NamedTuple):
    """One service takes `service_ms` of the card, and comes again `away_ms` after it was done."""

    service_ms: int
    away_ms: int


CASES = {"6 ms, away 14 ms": Case(6, 14), "12 ms, away 20 ms": Case(12, 20)}
BATCH_KERNEL_US = 250
WARM_UP = 10  # services that are not counted: lengths of kernels are being learned


def served(bed: Any, case: Case, seconds: float) -> tuple[dict[str, float], Any]:
    """The latency tenant's service times in milliseconds, and a record of the card meanwhile."""
    program = compile_program(ROOT / "bench" / "pauses.c", ROOT / "build" / "bench" / "pauses")
    count = int(seconds * 1000 / (case.service_ms + case.away_ms)) + WARM_UP
    words = (case.service_ms * 1000, case.away_ms * 1000, 1 << 30, 0, count)
    child = bed.spawn("latency", [program, *map(str, words)], stdout=subprocess.PIPE)
    record = bed.sample(seconds * 0.9)
    out, _ = child.communicate(timeout=10 * seconds + 30)
    found = np.array([int(line) for line in out.split()][WARM_UP:]) / 1e6
    return {"p50": np.percentile(found, 50), "p99": np.percentile(found, 99), "count": len(found)}, record


def measure(case: Case, arm: str, seconds: float) -> dict[str, Any]:
    """One run of one arm: alone, then beside the batch tenant."""
    with open_bed(arm) as bed:
        bed.tenant("latency", 0.4, 1.0, latency=True)
        bed.tenant("batch", 0.6, 1.0)
        alone, _ = served(bed, case, max(3.0, seconds / 2))
        bed.load("batch", "--kernel-us", BATCH_KERNEL_US, "--seconds", 0)
        bed.until_busy("batch")
        with Probe() as probe:
            beside, record = served(bed, case, seconds)
    shares = record.shares()
    return {
        "alone_ms": alone,
        "beside_ms": beside,
        "p50_by_alone": beside["p50"] / alone["p50"],
        "p99_by_alone": beside["p99"] / alone["p99"],
        "latency_busy": shares["latency"],
        "batch_busy": shares["batch"],
        "batch_of_what_is_left": shares["batch"] / (1 - shares["latency"]),
        "stalls": len(probe.stalls),
    }


def judge(name: str, case: Case, runs: Runs) -> list[Claim]:
    for arm, found in runs.items():
        print(
            f"{name:20} {arm:18} p99 {middle(found, 'p99_by_alone'):.2f} x alone, "
            f"batch {middle(found, 'batch_of_what_is_left'):.3f} of what is left",
            file=sys.stderr,
        )
    cause = "a batch kernel that runs is waited for, and the hand-over to and from the holder adds wake-ups"
    return [
        claim("latency.p99", middle(runs[GEMINI], "p99_by_alone"), name, cause),
        claim("latency.batch", middle(runs[GEMINI], "batch_of_what_is_left"), name),
    ]


def main() -> int:
    question = "How much longer does a latency tenant's service take beside a batch tenant?"
    return run_cases(__doc__, question, CASES, (GEMINI, LOCK, NONE), measure, judge, seconds=10)


if __name__ == "__main__":
    sys.exit(main())
