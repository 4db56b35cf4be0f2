"""What does an intercepted launch cost more than a bare one, with the gate open?

    python -m bench.launch_overhead [--batches 400] [--runs 5]

Batches of 1,000 launches through the library and past it alternate in one process (launch_overhead.c). The figure is
the median over all batches of (with - without) per launch. Baseline: the simulated driver's own entry, in the same run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from bench.bed import Bed
from bench.goals import claim
from bench.report import ROOT, report

STALLED = 5  # a batch that took so many times the median was interrupted; it is counted apart


def compile_probe() -> Path:
    """Build launch_overhead.c when it is newer than its program."""
    source = ROOT / "bench" / "launch_overhead.c"
    program = ROOT / "build" / "bench" / "launch_overhead"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(["gcc", *flags, "-o", str(program), str(source), "-ldl"], check=True)
    return program


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--kernel-ns", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    program = compile_probe()
    runs = []
    with Bed() as bed:
        bed.tenant("alone", 0.5, 1.0)
        for _ in range(args.runs):
            child = bed.spawn(
                "alone",
                [program, str(args.batches), str(args.launches), str(args.kernel_ns)],
                stdout=subprocess.PIPE,
                text=True,
            )
            answer = json.loads(child.communicate(timeout=300)[0])
            bare, hooked = np.array(answer["bare_ns"]), np.array(answer["hooked_ns"])
            calm = (bare < STALLED * np.median(bare)) & (hooked < STALLED * np.median(hooked))
            added = (hooked - bare)[calm]
            runs.append(
                {
                    "intercepted": answer["intercepted"],
                    "bare_ns": {"p50": np.median(bare), "p99": np.percentile(bare, 99)},
                    "hooked_ns": {"p50": np.median(hooked), "p99": np.percentile(hooked, 99)},
                    "added_ns": {"p50": np.median(added), "p99": np.percentile(added, 99)},
                    "batches": len(bare),
                    "batches_stalled": int((~calm).sum()),
                }
            )
    middle = float(np.median([run["added_ns"]["p50"] for run in runs]))
    figures = {"added_ns_p50": middle, "runs": runs, "launches_per_batch": args.launches}
    passed = {"the library was in the way": all(run["intercepted"] for run in runs)}
    p99 = float(np.median([run["added_ns"]["p99"] for run in runs]))
    claims = [claim("launch.p50", middle), claim("launch.p99", p99)]
    return report("What does an intercepted launch cost, with the gate open?", figures, passed, claims)


if __name__ == "__main__":
    sys.exit(main())
