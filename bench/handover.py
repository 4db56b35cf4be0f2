"""How long does the card idle when the token goes from one tenant to the next?

    python -m bench.handover [--seconds 10] [--runs 5]

Two busy tenants. From the device's own timeline: the idle time between the last kernel of one and the first kernel of
the other, which holds all of it: the drain being seen, the token's way, and the first launch. The daemon's own figure
of drain confirmed to next grant is shown beside it. Baseline in the same run: the card's native switch, without the
library.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from bench.bed import Bed
from bench.jitter import Probe
from bench.report import report


def gaps_us(bed: Bed, seconds: float) -> tuple[list[float], list[int]]:
    """Idle times at a change of process, and when they ended."""
    sequence = bed.timeline.segments(0, 0)[0]
    last: tuple[int, int] | None = None
    gaps: list[float] = []
    ends: list[int] = []
    for _ in range(round(seconds / 0.2)):
        bed.sample(0.2)
        sequence, segments = bed.timeline.segments(0, sequence)
        for pid, start_ns, end_ns, *_ in segments:
            if last is not None and last[0] != pid:
                gaps.append((start_ns - last[1]) / 1e3)
                ends.append(start_ns)
            last = (pid, end_ns)
    return gaps, ends


def measure(tokens: bool, seconds: float) -> dict[str, Any]:
    with Bed(tokens=tokens) as bed:
        bed.start_loads(("a", 0.5, 1.0), ("b", 0.5, 1.0), options=("--seconds", 0))
        bed.sample(1.0)
        with Probe() as probe:
            gaps, ends = gaps_us(bed, seconds)
        state = bed.state() if tokens else {}
    if not gaps:
        return {"handovers": 0, "p50_us": None, "p99_us": None}
    stalled = probe.stalled(np.array(ends) - 5_000_000, 5_000_000)
    calm = np.array(gaps)[~stalled]
    return {
        "handovers": len(gaps),
        "p50_us": float(np.percentile(gaps, 50)),
        "p99_us": float(np.percentile(gaps, 99)),
        "stalled": int(stalled.sum()),
        "calm_p99_us": float(np.percentile(calm, 99)) if len(calm) else None,
        "daemon_us": state.get("handover_us"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    runs = [measure(True, args.seconds) for _ in range(args.runs)]
    middle = float(np.median([run["p50_us"] for run in runs]))
    figures = {
        "p50_us": middle,
        "p99_us": float(np.median([run["p99_us"] for run in runs])),
        "runs": runs,
        "no library": measure(False, args.seconds),
    }
    passed = {"by ZeroMQ alone p50 <= 250 us": middle <= 250}
    return report("How long does the card idle at a hand-over?", figures, passed)


if __name__ == "__main__":
    sys.exit(main())
