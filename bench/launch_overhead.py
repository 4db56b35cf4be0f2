"""What does an intercepted launch cost more than a bare one, with the gate open?

    python -m bench.launch_overhead [--batches 2000] [--runs 5] [--threads 8]

Batches of 1,000 launches through the library and past it alternate in one process (launch_overhead.c), in one thread by
the wall clock, and in eight, each on a stream of its own, by their CPU time. Who goes first alternates too. The median
is that of (with - without) over all pairs of batches. The 99th percentile is that of the batches with the library less
that of the batches without: how far the library moves the slow end. The 99th percentile of the pairs says nothing of
the library: a batch takes 50 us, and one in a hundred of either kind meets the clock's tick, or the machine's owner.
What it comes to is shown beside, with the same figure of pairs that are both without the library. Baseline: the
simulated driver's own entry, in the same run.

A real driver's launch takes 3 us, and has the processor's nearest caches for itself. With --cold-kib 64 so much of
other code and data comes before each launch: what is added then is what the library's own lines cost that are not near.
Figures with it are set against no goal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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
        subprocess.run(["gcc", *flags, "-o", str(program), str(source), "-ldl", "-lpthread"], check=True)
    return program


def measure(bed: Bed, program: Path, args: argparse.Namespace, threads: int) -> dict[str, Any]:
    """One run: what a launch costs past the library and through it, and how much more."""
    batches = max(2, args.batches // threads // 2 * 2)
    command = [program, batches, args.launches, args.kernel_ns, threads, args.cold_kib]
    child = bed.spawn("alone", list(map(str, command)), stdout=subprocess.PIPE, text=True)
    answer = json.loads(child.communicate(timeout=300)[0])
    bare, hooked = np.array(answer["bare_ns"]), np.array(answer["hooked_ns"])
    calm = (bare < STALLED * np.median(bare)) & (hooked < STALLED * np.median(hooked))
    two_calm = calm[::2] & calm[1::2]
    control = (bare[1::2] - bare[::2])[two_calm]
    bare, hooked = bare[calm], hooked[calm]
    slow_bare, slow_hooked = np.percentile(bare, 99), np.percentile(hooked, 99)
    return {
        "intercepted": answer["intercepted"],
        "threads": threads,
        "bare_ns": {"p50": np.median(bare), "p99": slow_bare},
        "hooked_ns": {"p50": np.median(hooked), "p99": slow_hooked},
        "added_ns": {"p50": np.median(hooked - bare), "p99": slow_hooked - slow_bare},
        "pairs_p99_ns": {"with, without": np.percentile(hooked - bare, 99), "both without": np.percentile(control, 99)},
        "batches": len(calm),
        "batches_stalled": int((~calm).sum()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=2000, help="of each kind (default 2000)")
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--kernel-ns", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cold-kib", type=int, default=0, help="of others' code and data before each launch")
    parser.add_argument("--threads", type=int, default=8, help="of the runs with several")
    args = parser.parse_args()
    program = compile_probe()
    counts = (1,) if args.cold_kib else (1, args.threads)
    with Bed() as bed:
        bed.tenant("alone", 0.5, 1.0)
        runs = [measure(bed, program, args, threads) for threads in counts for _ in range(args.runs)]

    def middle(many: bool, which: str) -> float:
        return float(np.median([run["added_ns"][which] for run in runs if (run["threads"] > 1) == many]))

    figures = {
        "added_ns_p50": middle(False, "p50"),
        "runs": runs,
        "launches_per_batch": args.launches,
        "cold_kib": args.cold_kib,
    }
    passed = {"the library was in the way": all(run["intercepted"] for run in runs)}
    names = [
        (many, f"launch.{'threads.' if many else ''}{which}", which)
        for many in (False, True)
        for which in ("p50", "p99")
    ]
    claims = [claim(name, middle(many, which)) for many, name, which in names if not args.cold_kib]
    return report("What does an intercepted launch cost, with the gate open?", figures, passed, claims)


if __name__ == "__main__":
    sys.exit(main())
