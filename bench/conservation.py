"""How much of the card's time is lost by sharing it?

    python -m bench.conservation [--seconds 8] [--runs 5] [--case NAME]

Work of two or more busy tenants together, by the device's own timeline, over the work of one alone without the library
in the same time, measured right before. Arms in the same run: with the token page, by ZeroMQ alone, a plain lock handed
round robin, and the card's native time slicing without the library. The loss is hand-overs (one a quota) and whatever
the machine stalls, which the jitter probe shows.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.arms import GEMINI, LOCK, NONE, ZEROMQ, Runs, middle, open_bed
from bench.cases import run_cases
from bench.goals import Claim, claim
from bench.jitter import Probe

CASES: dict[str, tuple[list[float], int]] = {  # requests, kernel_us
    "2 equal": ([0.5] * 2, 100),
    "8 equal": ([0.125] * 8, 100),
    "0.7 and 0.3, 2 ms kernels": ([0.7, 0.3], 2000),
}
SETTLE_SECONDS = 1.0


def utilization(arm: str, requests: list[float], kernel_us: int, seconds: float) -> tuple[float, int]:
    """Part of the time in which the card worked, and how often the machine stalled meanwhile."""
    with open_bed(arm) as bed:
        tenants = [(f"t{i}", request, 1.0) for i, request in enumerate(requests)]
        bed.start_loads(*tenants, options=("--seconds", 0, "--kernel-us", kernel_us))
        bed.sample(SETTLE_SECONDS)
        with Probe() as probe:
            record = bed.sample(seconds)
    return record.utilization(), len(probe.stalls)


def measure(case: tuple[list[float], int], arm: str, seconds: float) -> dict[str, Any]:
    requests, kernel_us = case
    alone, stalls_alone = utilization(NONE, [1.0], kernel_us, seconds)
    shared, stalls = utilization(arm, requests, kernel_us, seconds)
    return {
        "of_exclusive": shared / alone,
        "shared": shared,
        "exclusive": alone,
        "stalls": stalls,
        "stalls_exclusive": stalls_alone,
    }


def judge(name: str, case: tuple[list[float], int], runs: Runs) -> list[Claim]:
    for arm in runs:
        print(f"{name:28} {arm:18} {middle(runs[arm], 'of_exclusive'):.4f}", file=sys.stderr)
    return [
        claim("conservation.page", middle(runs[GEMINI], "of_exclusive"), name),
        claim("conservation.zeromq", middle(runs[ZEROMQ], "of_exclusive"), name),
    ]


def main() -> int:
    question = "How much of the card's time is lost by sharing it?"
    return run_cases(__doc__, question, CASES, (GEMINI, ZEROMQ, LOCK, NONE), measure, judge, seconds=8)


if __name__ == "__main__":
    sys.exit(main())
