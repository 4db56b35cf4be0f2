"""How soon does the card go on that waits for a value in memory, when another process stores it?

    python -m bench.release [--runs 5] [--rounds 500]

A stream waits for a word (cuStreamWaitValue32) and writes another one behind it. A process without CUDA stores the
first and spins until it sees the second (release.c). `store` is a store alone; with `wake` the storer also wakes
whoever sleeps on the word as on a futex. The simulated card has to look for a store, and says here how late it is
beside the time that the key `release` names (docs/simulator.md). `used_us` is the processor time of the waiting
process, a round of 0.3 to 0.5 ms.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from bench.arms import compile_program
from bench.bed import LIB, ROOT
from bench.jitter import Probe
from bench.report import report

WAYS = ("store", "wake")


def measure(program: Path, rounds: int, way: str) -> dict[str, Any]:
    name = f"release-{uuid.uuid4().hex[:8]}"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(LIB / "sim"), "GEMINI_SIM": f"id={name}"}
    with Probe() as probe:
        ran = subprocess.run([program, str(rounds), way], env=environment, capture_output=True, text=True, check=False)
    for path in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
        path.unlink(missing_ok=True)
    if ran.returncode:
        raise RuntimeError(f"release ended with {ran.returncode}: {ran.stderr[-500:]}")
    *took, used_ns = map(int, ran.stdout.split())
    took_us = np.array(took) / 1e3
    percentiles = {f"p{q}": float(np.percentile(took_us, q)) for q in (10, 50, 99)}
    return {"seen_us": percentiles, "used_us": used_ns / 1e3, "stalls": len(probe.stalls)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.release", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=500)
    asked = parser.parse_args()
    program = compile_program(ROOT / "bench" / "release.c", ROOT / "build" / "bench" / "release")
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(asked.runs):
        for way in WAYS:
            runs[way].append(measure(program, asked.rounds, way))
    return report("release of a stream by a store", {"runs": runs}, {"every store was seen": True})


if __name__ == "__main__":
    sys.exit(main())
