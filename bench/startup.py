"""What does the library add to a process's start, and to 200 of one tenant that start at once?

    python -m bench.startup [--runs 5] [--processes 200]

Each process makes a context, runs one kernel of 0.1 ms and ends. Baseline in the same run, interleaved: the same
processes on a machine of their own without library and daemon. The library's CPU time in a process is what the kernel
accounted to it, all threads and the loading included, less the median of the bare ones; the worst process counts. Shown
beside: how far the bare ones themselves lie apart, and what the daemon used for each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.arms import GEMINI, NONE, Runs, compile_program, middle, open_bed
from bench.bed import HOOK, ROOT, Bed
from bench.goals import claim
from bench.jitter import Probe
from bench.report import report
from libhook.build import preloaded


def cpu_of_daemon(bed: Bed) -> int:
    """CPU time that the bed's daemon has used, ns; 0 where there is none."""
    if bed.daemon is None:
        return 0
    fields = Path(f"/proc/{bed.daemon.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 10**9 // os.sysconf("SC_CLK_TCK")


def start(arm: str, processes: int) -> dict[str, Any]:
    """So many processes at once: {"wall_ns", "cpu_ns", "failed"}."""
    program = compile_program(ROOT / "bench" / "startup.c", ROOT / "build" / "bench" / "startup", "-ldl")
    with open_bed(arm, sim="memory=80GiB") as bed:
        bed.tenant("t", 1.0, 1.0)
        preload = preloaded(HOOK) if bed.tokens else ""
        environment = {**bed.environment("t"), "LD_PRELOAD": ""}
        before_ns = cpu_of_daemon(bed)
        ran = subprocess.run(
            [str(program), "many", str(processes), preload], env=environment, capture_output=True, text=True
        )
        if ran.returncode or not ran.stdout:
            raise RuntimeError(f"startup ended with {ran.returncode}: {ran.stderr[-500:]}")
        answer: dict[str, Any] = json.loads(ran.stdout)
        answer["daemon_cpu_ns"] = cpu_of_daemon(bed) - before_ns
        bed.end()  # the trace's last lines are written when there is time
        said = re.findall(r'"ClientJoined",\["t",(\d+),', bed.trace.read_text()) if bed.tokens else []
        answer["joined"] = len(set(said))  # on a busy machine some say Hello twice, for the daemon was long silent
    return answer


def figures(run: dict[str, Any], bare: dict[str, Any], processes: int) -> dict[str, Any]:
    """One run against the baseline beside it: CPU time added per process and wall time added to each, in ms."""
    bare_ms = np.array(bare["cpu_ns"]) / 1e6
    added = (np.array(run["cpu_ns"]) - np.median(bare["cpu_ns"])) / 1e6
    return {
        "cpu_ms": {name: float(np.percentile(added, q)) for name, q in (("p50", 50), ("p99", 99), ("worst", 100))},
        "bare_cpu_ms": {name: float(np.percentile(bare_ms, q)) for name, q in (("p50", 50), ("worst", 100))},
        "daemon_cpu_each_ms": run["daemon_cpu_ns"] / 1e6 / processes,
        "wall_ms": run["wall_ns"] / 1e6,
        "bare_wall_ms": bare["wall_ns"] / 1e6,
        "wall_each_ms": (run["wall_ns"] - bare["wall_ns"]) / 1e6 / processes,
        "failed": run["failed"] + bare["failed"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--processes", type=int, default=200)
    asked = parser.parse_args()
    with Probe() as probe:
        found: Runs = {NONE: [], GEMINI: []}
        for _ in range(asked.runs):
            for arm, runs in found.items():
                runs.append(start(arm, asked.processes))
    runs = [figures(run, bare, asked.processes) for run, bare in zip(found[GEMINI], found[NONE], strict=True)]
    return report(
        "start-up that the library adds to a process",
        {"processes": asked.processes, "runs": runs, "stalls": len(probe.stalls)},
        {
            "every process ended well": not any(run["failed"] for run in runs),
            "every process came to the daemon": all(run["joined"] == asked.processes for run in found[GEMINI]),
        },
        [
            claim("startup.cpu", middle(runs, "cpu_ms", "worst"), f"worst of {asked.processes}"),
            claim("startup.wall", middle(runs, "wall_each_ms"), f"{asked.processes} at once"),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
