"""How far past its quota does a tenant's work run, and is all of it charged?

    python -m bench.overuse [--seconds 8] [--runs 5]

Two busy tenants that launch as fast as they can and never synchronise, with kernels of 0.1 ms and of 30 ms. Overuse is
taken from the device's timeline (the last work of a turn against the end of its quota) and set beside the daemon's own
figure. All of it is charged when what the daemon charged is at least what the timeline shows as worked. Baselines in
the same run: a plain lock handed round robin, and no library, where there is no quota: how long one kept the card.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from bench import story
from bench.arms import GEMINI, LOCK, NONE, measured, middle, open_bed
from bench.goals import claim
from bench.jitter import Probe
from bench.report import report
from libhook.observer import Segment

CASES = {"0.1 ms kernels": (100, "overuse.short"), "30 ms kernels": (30_000, "overuse.long")}  # kernel_us, goal


def longest_turn_ms(segments: list[Segment]) -> float:
    """The longest that one process had the card before another one did."""
    longest, began, owner = 0, 0, 0
    for segment in sorted(segments, key=lambda one: one.start_ns):
        if segment.pid != owner:
            owner, began = segment.pid, segment.start_ns
        longest = max(longest, segment.end_ns - began)
    return longest / 1e6


def measure(kernel_us: int, seconds: float, arm: str = GEMINI) -> dict[str, Any]:
    """Overuse of both tenants in one run, milliseconds."""
    with open_bed(arm) as bed:
        bed.start_loads(("a", 0.5, 1.0), ("b", 0.5, 1.0), options=("--seconds", 0, "--kernel-us", kernel_us))
        bed.sample(1.0)
        sequence = bed.timeline.segments(0, 0)[0]
        with Probe() as probe:
            record = bed.sample(seconds)
        segments = bed.timeline.segments(0, sequence)[1]
        pids = {name: {pid for pid, (own, _child) in bed.children.items() if own == name} for name in ("a", "b")}
        bed.end()
        if arm == NONE:
            return {"longest_turn_ms": longest_turn_ms(segments), "stalls": len(probe.stalls)}
        turns = [t for t in story.turns(bed.trace) if record.at_ns[0] < t.granted_ns < record.at_ns[-1]]
    overuse: list[float] = []
    ends: list[int] = []
    charged = worked = 0
    for name in ("a", "b"):
        own = [turn for turn in turns if turn.tenant == name]
        overuse += [ns / 1e6 for ns in story.observed_overuse_ns(own, story.work(segments, pids[name]))]
        ends += [turn.ended_ns for turn in own[:-1]]
        charged += sum(turn.held_ns for turn in own)
        worked += int(record.busy_ns[-1, record.names.index(name)] - record.busy_ns[0, record.names.index(name)])
    stalled = probe.stalled(np.array(ends) - 20_000_000, 20_000_000)
    calm = np.array(overuse)[~stalled]
    return {
        "turns": len(overuse),
        "longest_turn_ms": longest_turn_ms(segments),
        "overuse_ms": {"p50": np.percentile(overuse, 50), "p99": np.percentile(overuse, 99), "max": max(overuse)},
        "calm_p99_ms": np.percentile(calm, 99) if len(calm) else None,
        "stalled_turns": int(stalled.sum()),
        "daemon_p99_ms": np.percentile([turn.overuse_ns / 1e6 for turn in turns], 99),
        "charged_over_worked": charged / worked,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    claims = []
    for case, (kernel_us, key) in CASES.items():

        def one(arm: str, kernel_us: int = kernel_us) -> dict[str, Any]:
            return measure(kernel_us, args.seconds, arm)

        figures[case] = runs = measured((GEMINI, LOCK, NONE), args.runs, one)
        claims.append(claim(key, middle(runs[GEMINI], "overuse_ms", "p99")))
        claims.append(claim("overuse.charged", min(run["charged_over_worked"] for run in runs[GEMINI]), case))
    return report("How far past its quota does work run?", {"cases": figures}, {}, claims)


if __name__ == "__main__":
    sys.exit(main())
