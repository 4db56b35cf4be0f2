"""Is a memory limit exact, over processes and kinds of allocation, and what does the accounting cost?

    python -m bench.memory_limit [--runs 5]

Two processes of one tenant with 1 GiB allocate 4 MiB blocks of different kinds until the driver refuses; what the card
then holds is read from the observer. The cost is the time of an allocate-and-free pair. Baseline in the same run: the
same programs without the library (a smaller card stands for the limit).
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
from bench.report import ROOT, report

GIB, BLOCK = 1 << 30, 4 << 20
KINDS = ("alloc", "pool", "vmm", "array")


def compile_probe() -> Path:
    """Build memory_limit.c when it is newer than its program."""
    source, program = ROOT / "bench" / "memory_limit.c", ROOT / "build" / "bench" / "memory_limit"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(["gcc", *flags, "-o", str(program), str(source), "-ldl"], check=True)
    return program


def fill(program: Path, kinds: tuple[str, str], tokens: bool) -> dict[str, Any]:
    """Two processes, one after the other, take what they can get; bytes on the card at the end."""
    with Bed(tokens=tokens, sim="memory=80GiB" if tokens else "memory=1GiB") as bed:
        bed.tenant("m", 0.5, 1.0, memory=GIB)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        children: list[Any] = [
            bed.spawn("m", [program, "fill", kind, str(BLOCK)], text=True, **pipes) for kind in kinds
        ]
        for child in children:  # both have their contexts, which count too, before either fills up
            child.stdout.readline()
        got = []
        for child in children:
            child.stdin.write("x")
            child.stdin.flush()
            got.append(json.loads(child.stdout.readline()))
        held = sum(bed.timeline.memory(0).values())
    return {
        "kinds": kinds,
        "blocks": [answer["blocks"] for answer in got],
        "codes": [a["code"] for a in got],
        "bytes": held,
    }


def pair_ns(program: Path, kind: str, tokens: bool) -> float:
    """Median time of an allocate-and-free pair."""
    with Bed(tokens=tokens) as bed:
        bed.tenant("m", 0.5, 1.0, memory=GIB)
        child = bed.spawn("m", [program, "time", kind, str(BLOCK), "200"], stdout=subprocess.PIPE, text=True)
        answer = json.loads(child.communicate(timeout=60)[0])
    return float(np.median(answer["pair_ns"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    program = compile_probe()
    filled = [fill(program, (kind, KINDS[(i + 1) % len(KINDS)]), True) for i, kind in enumerate(KINDS)]
    bare = fill(program, ("alloc", "vmm"), False)
    cost: dict[str, Any] = {}
    for kind in KINDS:
        with_, without = [], []
        for _ in range(args.runs):
            with_.append(pair_ns(program, kind, True))
            without.append(pair_ns(program, kind, False))
        cost[kind] = {"pair_ns": with_, "no library": without, "added_ns": float(np.median(with_) - np.median(without))}
    passed = {"never above the limit": all(run["bytes"] <= GIB for run in filled)}
    passed["refused at the edge and not before"] = all(run["bytes"] > GIB - BLOCK for run in filled)
    passed["refused with CUDA_ERROR_OUT_OF_MEMORY"] = all(code == 2 for run in filled for code in run["codes"])
    figures = {"limit_bytes": GIB, "filled": filled, "no library": bare, "cost": cost}
    return report("Is a memory limit exact, and what does the accounting cost?", figures, passed)


if __name__ == "__main__":
    sys.exit(main())
