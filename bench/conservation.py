"""How much of the card's time is lost by sharing it?

    python -m bench.conservation [--seconds 8] [--runs 5] [--case NAME]

Work of two or more busy tenants together, by the device's own timeline, over the work of one alone without the library
in the same time, measured right before. Arms in the same run: with the token page, by ZeroMQ alone, a plain lock handed
round robin, and the card's native time slicing without the library. The loss is hand-overs (one a quota) and whatever
the machine stalls, which the jitter probe shows. The floor is what as many hand-overs would have left at the bare way
of a token on this machine and the card's own switch (bench/handover.py), measured in the same run.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from bench.arms import GEMINI, LOCK, NONE, ZEROMQ, Runs, middle, open_bed
from bench.cases import run_cases
from bench.goals import Claim, claim
from bench.handover import SWITCH_US, floors_us, switches
from bench.jitter import Probe

CASES: dict[str, tuple[list[float], int]] = {  # requests, kernel_us
    "2 equal": ([0.5] * 2, 100),
    "8 equal": ([0.125] * 8, 100),
    "0.7 and 0.3, 2 ms kernels": ([0.7, 0.3], 2000),
}
SETTLE_SECONDS = 1.0


def utilization(arm: str, requests: list[float], kernel_us: int, seconds: float) -> dict[str, Any]:
    """Part of the time in which the card worked, hand-overs a second, and how often the machine stalled meanwhile."""
    with open_bed(arm) as bed:
        tenants = [(f"t{i}", request, 1.0) for i, request in enumerate(requests)]
        bed.start_loads(*tenants, options=("--seconds", 0, "--kernel-us", kernel_us))
        bed.sample(SETTLE_SECONDS)
        sequence = bed.timeline.segments(0, 0)[0]
        with Probe() as probe:
            record = bed.sample(seconds)
        found = switches(bed.timeline.segments(0, sequence)[1])
    rate = len(found) * 1e9 / (record.at_ns[-1] - record.at_ns[0])
    return {"worked": record.utilization(), "handovers_a_second": float(rate), "stalls": len(probe.stalls)}


def measure(case: tuple[list[float], int], arm: str, seconds: float) -> dict[str, Any]:
    requests, kernel_us = case
    alone = utilization(NONE, [1.0], kernel_us, seconds)
    shared = utilization(arm, requests, kernel_us, seconds)
    return {"of_exclusive": shared["worked"] / alone["worked"], "shared": shared, "exclusive": alone}


@functools.cache
def bare_us() -> dict[str, float]:
    """What one hand-over costs the card at least, for the arms that have a goal."""
    found = floors_us()
    return {GEMINI: found["way"]["p50"] + SWITCH_US, ZEROMQ: found["messages"]["p50"] + SWITCH_US}


def judge(name: str, case: tuple[list[float], int], runs: Runs) -> list[Claim]:
    claims = []
    for arm in runs:
        print(f"{name:28} {arm:18} {middle(runs[arm], 'of_exclusive'):.4f}", file=sys.stderr)
    for arm, key in ((GEMINI, "conservation.page"), (ZEROMQ, "conservation.zeromq")):
        worked, rate = middle(runs[arm], "of_exclusive"), middle(runs[arm], "shared", "handovers_a_second")
        if worked is None or not rate:
            claims.append(claim(key, worked, name))
            continue
        cause = (
            f"{rate:.0f} hand-overs a second cost {1e6 * (1 - worked) / rate:.0f} us each, with what the machine "
            f"stalled; bare {bare_us()[arm]:.0f} us"
        )
        claims.append(claim(key, worked, name, cause, 1 - rate * bare_us()[arm] / 1e6))
    return claims


def main() -> int:
    question = "How much of the card's time is lost by sharing it?"
    return run_cases(__doc__, question, CASES, (GEMINI, ZEROMQ, LOCK, NONE), measure, judge, seconds=8)


if __name__ == "__main__":
    sys.exit(main())
