"""How far are always-busy tenants from what they are owed?

    python -m bench.fairness [--seconds 12] [--runs 5] [--case NAME]

|busy_i - entitled_i x min(1, sum busy / sum entitled)| over all sliding windows of 1 s and 10 s, from the device's own
timeline, in percentage points, the worst tenant's. What the card loses in switches between processes of one tenant is
that tenant's (bench/spent.py). One that only wakes now and then is owed nothing here, but must be served; the others
share what is its. Baselines in the same run: a plain round-robin lock (the same daemon, ordering fifo), and no library
at all (the card's native time slicing), one shorter run of each. All runs are shown; the figure is their median.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bench.arms import GEMINI, LOCK, NONE, open_bed
from bench.goals import claim
from bench.jitter import Probe
from bench.report import report
from bench.spent import watch_all
from gemini import shares
from gemini.units import entitled


class Tenant(NamedTuple):
    """What is promised to one, and what it does: a process of `gemini load` with each of these options."""

    request: float
    limit: float = 1.0
    loads: Sequence[str] = ("",)
    duty: float = 1.0  # the part of the time in which it has work; below 1 it comes and goes


BURSTS = "--kernel-us 50 --burst 1 --gap-us 1000"
BESIDE_ONE = "a busy process and 3 of 50 us each ms, beside one"
Case = list[Tenant]
CASES: dict[str, Case] = {
    "2 equal": [Tenant(0.5)] * 2,
    "0.7 and 0.3": [Tenant(0.7), Tenant(0.3)],
    "4 equal": [Tenant(0.25)] * 4,
    "8 equal": [Tenant(0.125)] * 8,
    "32 equal": [Tenant(0.03125)] * 32,
    "one at 0.5 and 31 at 0.016": [Tenant(0.5)] + [Tenant(0.016)] * 31,
    "graphs, kernels of 2 ms and 0.05, one that wakes now and then": [
        Tenant(0.4, loads=["--graph 20"]),
        Tenant(0.3, loads=["--kernel-us 2000"]),
        Tenant(0.2, loads=["--kernel-us 50"]),
        Tenant(0.1, loads=["--burst 1 --gap-us 200000"], duty=100 / 200_100),
    ],
    "1, 2 and 4 processes": [Tenant(0.5), Tenant(0.3, loads=[""] * 2), Tenant(0.2, loads=[""] * 4)],
    BESIDE_ONE: [Tenant(0.5, loads=["", *[BURSTS] * 3]), Tenant(0.5)],
    "0.5, 0.3 and 0.2, as in the demo": [Tenant(0.5, 0.6), Tenant(0.3), Tenant(0.2, 0.2)],
    "limits that bind": [Tenant(0.3, 0.4), Tenant(0.2), Tenant(0.1, 0.1)],
    "best effort beside 0.5 and 0.3": [Tenant(0.0), Tenant(0.5, 0.5), Tenant(0.3, 0.3)],
    "best effort beside 0.1 and 0.2 without limits": [Tenant(0.0), Tenant(0.1), Tenant(0.2)],
}
BINDING = ("limits that bind", "best effort beside 0.5 and 0.3")
COMPARED = (GEMINI, LOCK, NONE)
SETTLE_SECONDS = 1.5
BASELINE_SECONDS = 4.0  # at most; one run tells enough of what is not ours
SERVED = 0.8  # of its duty, for each burst waits for its turn
ONE_TURN = "a turn of 10 ms that lies just inside of 10 s, or just outside, is 0.1 pp of them by itself"


def measure(case: Case, arm: str, seconds: float) -> dict[str, Any]:
    """One run of one case under one arm."""
    parts = iter(entitled([(tenant.request, tenant.limit) for tenant in case if tenant.duty == 1]))
    owed = np.array([next(parts) if tenant.duty == 1 else 0.0 for tenant in case])
    with open_bed(arm) as bed:
        for number, tenant in enumerate(case):
            bed.tenant(f"t{number}", tenant.request, tenant.limit)
            for load in tenant.loads:
                bed.load(f"t{number}", "--seconds", 0, *load.split())
        bed.until_busy(*(f"t{number}" for number in range(len(case))))
        time.sleep(SETTLE_SECONDS)
        with Probe() as probe:
            record = watch_all(bed, seconds)
    answer: dict[str, Any] = {"utilization": record.utilization(), "stalls": len(probe.stalls)}
    answer["whole_run_pp"] = float(100 * shares.errors(shares.achieved(record.at_ns, record.busy_ns), owed).max())
    found_of = zip(case, shares.achieved(record.at_ns, record.busy_ns), strict=True)
    answer["served"] = [float(share / tenant.duty) for tenant, share in found_of if tenant.duty < 1]
    for window_s in (1, 10):
        window_ns = window_s * 10**9
        starts = shares.sliding(record.at_ns, window_ns, 10_000_000)
        if not len(starts):
            continue
        found = 100 * shares.errors(
            shares.busy_between(record.at_ns, record.busy_ns, starts, window_ns) / window_ns, owed
        )
        stalled = probe.stalled(starts, window_ns)
        answer[f"{window_s}s"] = summary(found)
        answer[f"{window_s}s"]["windows"] = len(starts)
        answer[f"{window_s}s"]["windows_stalled"] = int(stalled.sum())
        if stalled.any() and not stalled.all():
            answer[f"{window_s}s"]["calm"] = summary(found[~stalled])
    return answer


def summary(found: np.ndarray) -> dict[str, Any]:
    """Mean and 99th percentile over the windows, the worst tenant's."""
    return {"mean_pp": float(found.mean(axis=0).max()), "p99_pp": float(np.percentile(found, 99, axis=0).max())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only this one; may be repeated")
    parser.add_argument("--arm", action="append", choices=sorted(COMPARED), help="only this one; may be repeated")
    args = parser.parse_args()
    table: dict[str, Any] = {}
    claims = []
    passed: dict[str, bool] = {}
    for name in args.case or CASES:
        table[name] = {}
        for arm in args.arm or COMPARED:
            count, seconds = (args.runs, args.seconds) if arm == GEMINI else (1, min(args.seconds, BASELINE_SECONDS))
            runs = [measure(CASES[name], arm, seconds) for _ in range(count)]
            middle = {key: float(np.median([run["1s"][key] for run in runs])) for key in ("mean_pp", "p99_pp")}
            table[name][arm] = {"median": middle, "runs": runs}
            print(f"{name:32} {arm:18} mean {middle['mean_pp']:6.2f}  p99 {middle['p99_pp']:6.2f} pp", file=sys.stderr)
            if arm == GEMINI:
                served = [part for run in runs for part in run["served"]]
                if served:
                    passed[f"{name}: who comes and goes is served"] = min(served) >= SERVED
                tens = [run["10s"]["p99_pp"] for run in runs if "10s" in run]
                claims += [
                    claim("share.1s.mean", middle["mean_pp"], name),
                    claim("share.1s.p99.limits" if name in BINDING else "share.1s.p99", middle["p99_pp"], name),
                    claim("share.10s.p99", float(np.median(tens)) if tens else None, name, ONE_TURN),
                ]
    return report("How far are always-busy tenants from what they are owed?", {"cases": table}, passed, claims)


if __name__ == "__main__":
    sys.exit(main())
