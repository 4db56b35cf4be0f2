"""What does a hostile tenant's flood cost the others?

    python -m bench.hostile [--seconds 4] [--runs 3] [--way NAME]

Two tenants are busy; a process in a third one's container floods the daemon in each of the ways of bench/flood.py. The
figure is what each victim has less of the card than its request, in percentage points (all three requests make up the
whole card, and the hostile tenant may have its own: some floods ask for the token and sit on it). The baseline is
`burn`, a process that does nothing to the daemon but burns a processor as the flood does: on a machine of two, that
costs them too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any

import numpy as np

from bench.bed import ROOT, Bed
from bench.flood import WAYS
from bench.jitter import Probe
from bench.report import report

ALLOWED_PP = 1.0
VICTIMS = (("a", 0.5, 1.0), ("b", 0.3, 1.0))


def measure(way: str, seconds: float) -> dict[str, Any]:
    """What the victims have less than their requests while the flood lasts."""
    with Bed() as bed:
        bed.start_loads(*VICTIMS, options=("--seconds", 0))
        path = bed.tenant("hostile", 0.2, 1.0)
        uuid = bed.timeline.devices()[0].uuid.removeprefix("GPU-").replace("-", "")
        bed.sample(1.0)
        with Probe() as probe:
            words = [sys.executable, "-m", "bench.flood", way, path, uuid]
            with subprocess.Popen(
                words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            ) as flood:
                assert flood.stdout is not None
                flood.stdout.readline()
                bed.sample(0.5)
                during = bed.sample(seconds)
                alive = flood.poll() is None
                flood.kill()
        lost = {name: 100 * (request - during.shares()[name]) for name, request, _ in VICTIMS}
        return {
            "lost_pp": lost,
            "utilization": during.utilization(),
            "worst_pp": max(lost.values()),
            "flooded": alive,
            "stalls": len(probe.stalls),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--way", action="append", choices=sorted(WAYS), help="only this one; may be repeated")
    args = parser.parse_args()
    ways = ["burn", *(way for way in args.way or WAYS if way != "burn")]
    runs = {way: [measure(way, args.seconds) for _ in range(args.runs)] for way in ways}
    worst = {way: float(np.median([run["worst_pp"] for run in found])) for way, found in runs.items()}
    for way, value in worst.items():
        print(f"{way:12} {value:+.2f} pp", file=sys.stderr)
    floor = max(0.0, worst["burn"])
    passed = {
        f"{way}: less than 1 pp beyond what burning a processor costs": worst[way] - floor < ALLOWED_PP
        for way in ways
        if way != "burn"
    }
    return report("What does a flood cost the others?", {"worst_pp": worst, "runs": runs}, passed)


if __name__ == "__main__":
    sys.exit(main())
