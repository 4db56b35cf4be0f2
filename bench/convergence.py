"""How soon are shares right after somebody joined, left, or was given another share?

    python -m bench.convergence [--runs 5]

The error of each tenant in a window that ends so long after the change (0.25, 0.5 and 1.1 s), and the least share of
the one who was there before in any 100 ms. Baselines in the same run: a plain lock handed round robin, and no library
(there a change of shares changes nothing).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.arms import GEMINI, LOCK, NONE, measured, middle, open_bed
from bench.bed import Bed, Record
from bench.goals import claim
from bench.jitter import Probe
from bench.report import report
from gemini import shares
from gemini.units import entitled

MARKS_S = {0.25: "convergence.250ms", 0.5: "convergence.500ms", 1.1: "convergence.1100ms"}  # since the change -> goal
WATCHED_S = 2.0


def judge(record: Record, changed_ns: int, owed: list[float]) -> dict[str, Any]:
    """Error over the 100 ms (250 ms at 1.1 s) up to each mark, and the starvation of whoever is owed something."""
    answer: dict[str, Any] = {}
    for mark in MARKS_S:
        width_ns = 200_000_000 if mark < 1 else 1_000_000_000
        start = np.array([changed_ns + int(mark * 1e9) - min(width_ns, int(mark * 1e9))], dtype=np.int64)
        width_ns = min(width_ns, int(mark * 1e9))
        found = shares.busy_between(record.at_ns, record.busy_ns, start, width_ns) / width_ns
        answer[f"error_pp_{mark:g}s"] = float(100 * shares.errors(found, np.array(owed)).max())
    starts = np.arange(changed_ns, int(record.at_ns[-1]) - 100_000_000, 5_000_000, dtype=np.int64)
    hundred = shares.busy_between(record.at_ns, record.busy_ns, starts, 100_000_000) / 1e8
    answer["least_share_in_100ms"] = float(hundred[:, 0].min())
    return answer


def join(bed: Bed) -> tuple[Record, int, list[float]]:
    bed.start_loads(("a", 0.6, 1.0), options=("--seconds", 0))
    bed.tenant("b", 0.4, 1.0)
    bed.sample(1.0)
    bed.load("b", "--seconds", 0)
    bed.until_busy("b")
    changed_ns = time.monotonic_ns()
    return bed.sample(WATCHED_S), changed_ns, entitled([(0.6, 1.0), (0.4, 1.0)])


def leave(bed: Bed) -> tuple[Record, int, list[float]]:
    bed.start_loads(("a", 0.4, 1.0), ("b", 0.6, 1.0), options=("--seconds", 0))
    bed.sample(1.0)
    leaver = next(child for name, child in bed.children.values() if name == "b")
    leaver.kill()
    leaver.wait()
    changed_ns = time.monotonic_ns()
    return bed.sample(WATCHED_S), changed_ns, [1.0, 0.0]


def change(bed: Bed) -> tuple[Record, int, list[float]]:
    bed.start_loads(("a", 0.3, 1.0), ("b", 0.3, 1.0), options=("--seconds", 0))
    bed.sample(1.0)
    if bed.tokens:
        status, answer = bed.http("PATCH", "/tenants/a", {"request": 0.6})
        if status >= 300:
            raise RuntimeError(f"{status} {answer}")
    changed_ns = time.monotonic_ns()
    return bed.sample(WATCHED_S), changed_ns, entitled([(0.6, 1.0), (0.3, 1.0)])


CASES: dict[str, Callable[[Bed], tuple[Record, int, list[float]]]] = {"join": join, "leave": leave, "change": change}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only this one; may be repeated")
    args = parser.parse_args()
    table: dict[str, Any] = {}
    passed: dict[str, bool] = {}
    claims = []
    for name in args.case or CASES:
        play = CASES[name]

        def one(arm: str, play: Callable[[Bed], tuple[Record, int, list[float]]] = play) -> dict[str, Any]:
            with open_bed(arm) as bed, Probe() as probe:
                answer = judge(*play(bed))
            return {**answer, "stalls": len(probe.stalls)}

        table[name] = found = measured((GEMINI, LOCK, NONE), args.runs, one)
        runs = found[GEMINI]
        for mark, key in MARKS_S.items():
            error = middle(runs, f"error_pp_{mark:g}s")
            claims.append(claim(key, error, name))
            print(f"{name:8} {mark:g} s: {error:.2f} pp", file=sys.stderr)
        if name != "leave":
            least = min(run["least_share_in_100ms"] for run in runs)
            passed[f"{name}: no 100 ms in which the first gets nothing"] = least > 0
    return report("How soon are shares right after a change?", {"cases": table}, passed, claims)


if __name__ == "__main__":
    sys.exit(main())
