"""What do many tenants cost the node, and can they all come at once?

    python -m bench.tenants [--seconds 10] [--runs 5] [--tenants 64] [--joins 1]

CPU time of the daemon, all its threads, by the kernel's own nanoseconds. It is taken with 64 tenants of one idle
process each (it has launched, has its context, and rests), and with 8 that are always busy at the 10 ms quota. Then 64
tenants x 4 processes start at once beside two busy tenants: how many were served, how long the last one waited, and the
shares of the busy ones after. Baselines in the same run: for the busy tenants a plain lock handed round robin; without
the library there is no daemon, and the 256 processes start against the bare driver.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

from bench.arms import GEMINI, LOCK, NONE, measured, middle, open_bed
from bench.bed import Bed, wait_for
from bench.goals import claim
from bench.jitter import Probe
from bench.report import report

SETTLE_SECONDS = 2.0
IDLE = ("--seconds", 0, "--burst", 1, "--gap-us", 1_000_000_000)  # one launch, then 1000 s of rest
PROCESSES = 4


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process so far, nanoseconds."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that just ended
            total += int(path.read_text().split()[0])
    return total


def resident_bytes(pid: int) -> int:
    """What a process has in memory."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) << 10


def of_a_core(bed: Bed, seconds: float) -> dict[str, Any]:
    """The daemon's part of one core over so long, in percent."""
    assert bed.daemon
    with Probe() as probe:
        began_ns, before = time.monotonic_ns(), cpu_ns(bed.daemon.pid)
        time.sleep(seconds)
        spent = cpu_ns(bed.daemon.pid) - before
        elapsed = time.monotonic_ns() - began_ns
    return {"of_a_core_percent": 100 * spent / elapsed, "stalls": len(probe.stalls)}


def idle(tenants: int, seconds: float) -> dict[str, Any]:
    with open_bed(GEMINI) as bed:
        for number in range(tenants):
            bed.tenant(f"t{number}", 1 / tenants, 1.0)
            bed.load(f"t{number}", *IDLE)
        bed.until_busy(*(f"t{number}" for number in range(tenants)), seconds=60)
        time.sleep(SETTLE_SECONDS)
        return of_a_core(bed, seconds)


def busy(arm: str, tenants: int, seconds: float) -> dict[str, Any]:
    with open_bed(arm) as bed:
        bed.start_loads(*((f"t{i}", 1 / tenants, 1.0) for i in range(tenants)), options=("--seconds", 0))
        time.sleep(SETTLE_SECONDS)
        before = sum(tenant["grants"] for tenant in bed.state()["tenants"])
        answer = of_a_core(bed, seconds)
        grants = sum(tenant["grants"] for tenant in bed.state()["tenants"]) - before
        return {**answer, "grants_per_second": grants / seconds}


def join(arm: str, tenants: int) -> dict[str, Any]:
    """All processes of all tenants at once, beside two that are busy."""
    with open_bed(arm) as bed:
        bed.start_loads(("x", 0.3, 1.0), ("y", 0.3, 1.0), options=("--seconds", 0))
        names = [f"t{number}" for number in range(tenants)]
        for name in names:
            bed.tenant(name, 0.4 / tenants, 1.0)
        wanted = tenants * PROCESSES
        began = time.monotonic()
        with Probe() as probe, (bed.state_dir / "joiners.log").open("wb") as log:
            children = [bed.load(name, *IDLE, stderr=log) for _ in range(PROCESSES) for name in names]
            started = time.monotonic()

            def served() -> int:
                by_pid = bed.timeline.busy(0)[1]
                return sum(by_pid.get(child.pid, 0) > 0 for child in children)

            with contextlib.suppress(TimeoutError):
                wait_for(lambda: served() == wanted, 60, "service of all")
            ended = time.monotonic()
        record = bed.sample(1.5)  # the busy two among themselves, once all are there
        answer: dict[str, Any] = {
            "processes": wanted,
            "served": served(),
            "lines_on_stderr": len((bed.state_dir / "joiners.log").read_text().splitlines()),
            "started_s": started - began,
            "all_served_s": ended - began,
            "stalls": len(probe.stalls),
            "busy_shares_after": {name: record.shares()[name] for name in ("x", "y")},
        }
        if bed.tokens:
            answer["clients"] = sum(len(tenant["clients"]) for tenant in bed.state()["tenants"]) - 2
        return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tenants", type=int, default=64)
    parser.add_argument("--joins", type=int, default=1)
    args = parser.parse_args()
    idles = [idle(args.tenants, args.seconds) for _ in range(args.runs)]
    busies = measured((GEMINI, LOCK), args.runs, lambda arm: busy(arm, 8, args.seconds))
    joins = measured((GEMINI, NONE), args.joins, lambda arm: join(arm, args.tenants))
    figures = {"idle": idles, "busy": busies, "join": joins}
    claims = [
        claim("tenants.idle", middle(idles, "of_a_core_percent")),
        claim("tenants.busy", middle(busies[GEMINI], "of_a_core_percent")),
    ]
    passed = {}
    for run in joins[GEMINI]:
        if args.tenants * PROCESSES == 256:
            claims.append(claim("tenants.join", run["served"]))
        passed["all that joined are known to the daemon"] = run["clients"] == args.tenants * PROCESSES
        x, y = run["busy_shares_after"].values()
        passed["the busy two are within 2 pp of each other's share after"] = abs(x - y) <= 0.02
    return report("What do many tenants cost the node?", figures, passed, claims)


if __name__ == "__main__":
    sys.exit(main())
