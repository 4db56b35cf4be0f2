"""Does a tenant that comes and goes get the card at once, and does it give it back at once?

    python -m bench.come_and_go [--seconds 10] [--runs 3]

One tenant (request 0.3) works 5 ms, synchronises, and rests 20 ms on the host; beside it one that is always busy (0.7).
Its wait at a burst is the burst as the program saw it, less its 5 ms of GPU time; bursts in which the jitter probe was
stalled are counted among all of them and apart. The return of its token is the time from its last work on the device's
timeline to the Return that the daemon heard. Baseline: the same without the library.
"""

from __future__ import annotations

import argparse
import bisect
import sys
from typing import Any

import numpy as np

from bench import story
from bench.bed import Bed
from bench.jitter import Probe
from bench.report import report

BURST_MS, GAP_MS, KERNEL_US = 5, 20, 100


def measure(tokens: bool, seconds: float) -> dict[str, Any]:
    with Bed(tokens=tokens) as bed:
        bed.tenant("guest", 0.3, 1.0)
        bed.tenant("busy", 0.7, 1.0)
        out = bed.state_dir / "guest.bursts"
        burst = BURST_MS * 1000 // KERNEL_US
        bed.load("busy", "--seconds", 0, "--kernel-us", KERNEL_US)
        bed.until_busy("busy")
        guest = bed.load(
            "guest", "--seconds", seconds + 1, "--kernel-us", KERNEL_US, "--burst", burst, "--gap-us", GAP_MS * 1000,
            "--bursts", out,
        )  # fmt: skip
        bed.until_busy("guest")
        bed.sample(0.5)
        sequence = bed.timeline.segments(0, 0)[0]
        with Probe() as probe:
            record = bed.sample(seconds)
        segments = story.work(bed.timeline.segments(0, sequence)[1], {guest.pid})
        guest.wait(20)
        bursts = np.fromfile(out, dtype=np.uint64).reshape(-1, 2).astype(np.int64)
        bed.end()
        given_back: list[float] = []
        if tokens:
            epochs = {turn.epoch for turn in story.turns(bed.trace) if turn.tenant == "guest"}
            ends = [segment.end_ns for segment in segments]
            for now_ns, epoch in story.returns(bed.trace):
                at = bisect.bisect_right(ends, now_ns) - 1
                if epoch in epochs and at >= 0 and record.at_ns[0] < now_ns < record.at_ns[-1]:
                    given_back.append((now_ns - ends[at]) / 1e6)
    bursts = bursts[(bursts[:, 0] >= record.at_ns[0]) & (bursts[:, 1] <= record.at_ns[-1])]
    waits_ms = (bursts[:, 1] - bursts[:, 0]) / 1e6 - BURST_MS
    stalled = probe.stalled(bursts[:, 0], bursts[:, 1] - bursts[:, 0])
    found: dict[str, Any] = {
        "wait_ms": spread(waits_ms),
        "wait_ms_calm": spread(waits_ms[~stalled]),
        "bursts": {"all": len(bursts), "stalled": int(stalled.sum())},
        "utilization": record.utilization(),
        "shares": record.shares(),
        "stalls": len(probe.stalls),
    }
    if given_back:
        found["return_ms"] = spread(np.array(given_back))
        found["returns"] = len(given_back)
    return found


def spread(values: np.ndarray) -> dict[str, float] | None:
    return {f"p{part}": float(np.percentile(values, part)) for part in (50, 99)} if len(values) else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    runs = [measure(True, args.seconds) for _ in range(args.runs)]

    def middle(*keys: str) -> float:
        picked: list[Any] = runs
        for key in keys:
            picked = [run[key] for run in picked]
        return float(np.median(picked))

    passed = {
        "waits at most 4 ms at a burst (p99)": middle("wait_ms", "p99") <= 4,
        "its token comes back within 0.5 ms of its last work (median)": middle("return_ms", "p50") <= 0.5,
        "the card is at least 95 % busy": middle("utilization") >= 0.95,
    }
    figures = {"runs": runs, "no library": measure(False, args.seconds)}
    return report("Does a tenant that comes and goes get and give back the card at once?", figures, passed)


if __name__ == "__main__":
    sys.exit(main())
