"""How much longer does a latency tenant's service take beside a batch tenant than alone, and what does the batch keep?

    python -m bench.latency_class [--seconds 10] [--runs 5] [--case NAME]

The latency tenant (request 0.4, class latency) launches a burst of 100 us kernels, synchronises, and stays away; its
service is the time from the first launch to the end of the synchronisation, as the program itself sees it. Beside it a
batch tenant (request 0.6) is always busy with 250 us kernels. Alone is the same program under the same daemon, in the
same run. What is left for the batch is the time in which the latency tenant has no work on the card, by the device's
own timeline. Baselines in the same run: a plain lock handed round robin, and no library (the card slices time).

The floor of this machine is measured beside each run: the same two programs without library and daemon, with nothing
between them but one word of shared memory (preempt.c). What a service waits for there nobody can take away where
kernels run to their end: one batch kernel, the batch's own wake-up, one futex wake, the card's switch. Services during
which the jitter probe was stalled are counted among all, and left out of "calm".
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


def count_of(case: Case, seconds: float) -> int:
    """So many services take about so long."""
    return int(seconds * 1000 / (case.service_ms + case.away_ms))


def services(out: str) -> np.ndarray:
    """What pauses.c and preempt.c print: (start, took) of each service, nanoseconds."""
    return np.array([[int(word) for word in line.split()] for line in out.splitlines()], dtype=np.int64)


def spread(found: np.ndarray, probe: Probe) -> dict[str, Any]:
    """Of these services in milliseconds; "calm": of those during which the machine did not stall."""
    stalled = probe.stalled(found[:, 0], found[:, 1])
    answer: dict[str, Any] = {**quantiles(found), "stalled": int(stalled.sum())}
    if stalled.any() and not stalled.all():
        answer["calm"] = quantiles(found[~stalled])
    return answer


def quantiles(found: np.ndarray) -> dict[str, float]:
    took_ms = found[:, 1] / 1e6
    return {"p50": np.percentile(took_ms, 50), "p99": np.percentile(took_ms, 99), "count": len(took_ms)}


def by_alone(alone: dict[str, Any], beside: dict[str, Any]) -> dict[str, Any]:
    calm_alone, calm_beside = alone.get("calm", alone), beside.get("calm", beside)
    return {
        "alone_ms": alone,
        "beside_ms": beside,
        "p50_by_alone": beside["p50"] / alone["p50"],
        "p99_by_alone": beside["p99"] / alone["p99"],
        "p99_by_alone_calm": calm_beside["p99"] / calm_alone["p99"],
        "more_ms_p50": beside["p50"] - alone["p50"],
    }


def served(bed: Any, case: Case, seconds: float) -> tuple[np.ndarray, Any]:
    """The latency tenant's services, and a record of the card meanwhile."""
    program = compile_program(ROOT / "bench" / "pauses.c", ROOT / "build" / "bench" / "pauses")
    words = (case.service_ms * 1000, case.away_ms * 1000, 1 << 30, 0, count_of(case, seconds) + WARM_UP)
    child = bed.spawn("latency", [program, *map(str, words)], stdout=subprocess.PIPE, text=True)
    record = bed.sample(seconds * 0.9)
    out, _ = child.communicate(timeout=10 * seconds + 30)
    return services(out)[WARM_UP:], record


def floor(case: Case, seconds: float) -> dict[str, Any]:
    """The same two programs with one shared word between them and nothing else."""
    program = compile_program(ROOT / "bench" / "preempt.c", ROOT / "build" / "bench" / "preempt")
    count = count_of(case, seconds)
    with open_bed(NONE) as bed, Probe() as probe:
        words = (case.service_ms * 1000, case.away_ms * 1000, count, BATCH_KERNEL_US)
        child = bed.spawn("floor", [program, *map(str, words)], stdout=subprocess.PIPE, text=True)
        out, _ = child.communicate(timeout=20 * seconds + 30)
    found = services(out)
    return by_alone(spread(found[:count], probe), spread(found[count:], probe))


def measure(case: Case, arm: str, seconds: float) -> dict[str, Any]:
    """One run of one arm: alone, then beside the batch tenant."""
    with open_bed(arm) as bed, Probe() as probe:
        bed.tenant("latency", 0.4, 1.0, latency=True)
        bed.tenant("batch", 0.6, 1.0)
        alone, _ = served(bed, case, max(3.0, seconds / 2))
        bed.load("batch", "--kernel-us", BATCH_KERNEL_US, "--seconds", 0)
        bed.until_busy("batch")
        beside, record = served(bed, case, seconds)
    shares = record.shares()
    answer = {
        **by_alone(spread(alone, probe), spread(beside, probe)),
        "latency_busy": shares["latency"],
        "batch_busy": shares["batch"],
        "batch_of_what_is_left": shares["batch"] / (1 - shares["latency"]),
        "stalls": len(probe.stalls),
    }
    return answer | ({"floor": floor(case, seconds / 2)} if arm == GEMINI else {})


def judge(name: str, case: Case, runs: Runs) -> list[Claim]:
    own = runs[GEMINI]
    least = middle(own, "floor", "p99_by_alone")
    for arm, found in runs.items():
        print(
            f"{name:20} {arm:18} p99 {middle(found, 'p99_by_alone'):.2f} x alone, "
            f"batch {middle(found, 'batch_of_what_is_left'):.3f} of what is left",
            file=sys.stderr,
        )
    print(f"{name:20} {'floor':18} p99 {least:.2f} x alone", file=sys.stderr)
    cause = (
        f"a service waits {middle(own, 'more_ms_p50'):.2f} ms more than alone at the median, "
        f"{middle(own, 'floor', 'more_ms_p50'):.2f} of them for what the floor has too (a batch kernel that runs, two "
        "wake-ups, the switch); the rest lies between the request and the end of the revoked holder's work"
    )
    return [
        claim("latency.p99", middle(own, "p99_by_alone"), name, cause, least),
        claim("latency.batch", middle(own, "batch_of_what_is_left"), name),
    ]


def main() -> int:
    question = "How much longer does a latency tenant's service take beside a batch tenant?"
    return run_cases(__doc__, question, CASES, (GEMINI, LOCK, NONE), measure, judge, seconds=10)


if __name__ == "__main__":
    sys.exit(main())
