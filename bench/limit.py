"""Does a limit hold, at every scale?

    python -m bench.limit [--seconds 10] [--runs 5]

A tenant alone, and beside another one, with a limit below what it could take. Over any window W its busy time stays
`limit x W + quota + overuse`: 1.1 percentage points above the limit at one second. Alone at 0.5 it gets all of that
too, within 1.5 points of it in either direction over any 1 s (99th percentile), and never pauses for over 20 ms. Where
the limits leave the card idle, each has its own whole. Baselines in the same run: a plain lock handed round robin, and
no library.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from typing import Any

import numpy as np

from bench.arms import GEMINI, LOCK, NONE, measured, middle, open_bed
from bench.goals import claim
from bench.jitter import Probe
from bench.report import report

CASES: dict[str, list[tuple[float, float]]] = {  # (request, limit); the first one is judged
    "alone, limit 0.5": [(0.3, 0.5)],
    "alone, limit 0.1": [(0.1, 0.1)],
    "limit 0.3 beside a busy one": [(0.3, 0.3), (0.5, 1.0)],
    "alone, limit 0.3": [(0.3, 0.3)],
    "four whose limits leave half of the card idle": [(0.2, 0.25), (0.1, 0.15), (0.05, 0.1), (0.02, 0.03)],
}
WINDOWS = {"limit.100ms": 0.1, "limit.1s": 1.0}  # goal -> window in seconds


def measure(case: list[tuple[float, float]], arm: str, seconds: float) -> dict[str, Any]:
    with open_bed(arm) as bed:
        names = [f"t{i}" for i in range(len(case))]
        bed.start_loads(*((n, *pair) for n, pair in zip(names, case, strict=True)), options=("--seconds", 0))
        bed.sample(1.0)
        sequence = bed.timeline.segments(0, 0)[0]
        with Probe() as probe:
            record = bed.sample(seconds)
        first = next(iter(bed.children))  # its pid
        own = [segment for segment in bed.timeline.segments(0, sequence)[1] if segment.pid == first]
    had = [record.shares()[name] / limit for name, (_, limit) in zip(names, case, strict=True)]
    answer: dict[str, Any] = {"share": record.shares()[names[0]], "stalls": len(probe.stalls), "had": min(had)}
    for window_s in WINDOWS.values():
        over = 100 * (record.windows(names[0], window_s) - case[0][1])
        answer[f"over_limit_pp_{window_s:g}s"] = {"p99": float(np.percentile(over, 99)), "max": float(over.max())}
        answer[f"off_limit_pp_{window_s:g}s"] = {"p99": float(np.percentile(np.abs(over), 99))}
    pauses = [(after.start_ns - before.end_ns) / 1e6 for before, after in itertools.pairwise(own)]
    answer["longest_pause_ms"] = max(pauses, default=0.0)
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only this one; may be repeated")
    args = parser.parse_args()
    table: dict[str, Any] = {}
    passed: dict[str, bool] = {}
    claims = []
    for name in args.case or CASES:
        case = CASES[name]

        def one(arm: str, case: list[tuple[float, float]] = case) -> dict[str, Any]:
            return measure(case, arm, args.seconds)

        table[name] = found = measured((GEMINI, LOCK, NONE), args.runs, one)
        runs = found[GEMINI]
        for key, window_s in WINDOWS.items():
            worst = middle(runs, f"over_limit_pp_{window_s:g}s", "p99")
            claims.append(claim(key, worst, name))
            print(f"{name:32} {window_s:g} s: p99 {worst:+.2f} pp above the limit", file=sys.stderr)
        if sum(limit for _, limit in case) < 1:
            had = middle(runs, "had")
            claims.append(claim("limit.had", had, name))
            print(f"{name:32} {had:.3f} of its limit, who had least", file=sys.stderr)
        if name == "alone, limit 0.5":
            pause = float(np.median([run["longest_pause_ms"] for run in runs]))
            passed[f"{name}: no pause above 20 ms"] = pause <= 20
            off = float(np.median([run["off_limit_pp_1s"]["p99"] for run in runs]))
            passed[f"{name}: within 1.5 pp over any 1 s (p99)"] = off <= 1.5
            print(f"{name:32} 1 s: p99 {off:.2f} pp off, in either direction", file=sys.stderr)
    return report("Does a limit hold, at every scale?", {"cases": table}, passed, claims)


if __name__ == "__main__":
    sys.exit(main())
