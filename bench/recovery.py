"""How soon do the others go on when a holder dies or freezes, or the daemon dies?

    python -m bench.recovery [--kills 20] [--freezes 5] [--restarts 3]

Two busy tenants on one card. The holder is killed (also with a forked child that lives on), or stopped; the figure is
the time to the other tenant's next work on the device's timeline, so it holds the hand-over too. The daemon is killed
and started again 0.5 s and 3 s later: both tenants must go on, keep their shares, and never hold the token at once.
Baselines in the same run: a plain lock handed round robin, and no library (where nobody holds anything).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench import story
from bench.arms import GEMINI, LOCK, NONE, compile_program, open_bed
from bench.bed import ROOT, Bed, wait_for
from bench.goals import claim
from bench.jitter import Probe
from bench.report import report

KERNEL_US = 100


def until_holding(bed: Bed, pid: int) -> None:
    """Wait until the process is at work right now."""

    def works() -> bool:
        before = bed.timeline.busy(0)[1].get(pid, 0)
        time.sleep(0.0005)
        return bool(bed.timeline.busy(0)[1].get(pid, 0) - before > 300_000)

    wait_for(works, 10, f"work of process {pid}")


def next_work_ns(bed: Bed, pid: int, since_ns: int, sequence: int, seconds: float) -> int:
    """When the process worked for the first time after `since_ns`."""
    found: list[int] = []

    def seen() -> bool:
        segments = bed.timeline.segments(0, sequence)[1]
        found[:] = [max(s.start_ns, since_ns) for s in segments if s.pid == pid and s.end_ns > since_ns]
        return bool(found)

    wait_for(seen, seconds, f"work of process {pid}")
    return min(found)


def kills(count: int, forked: bool, folder: Path, arm: str = GEMINI) -> list[float]:
    """Milliseconds from SIGKILL of the holder to the other's next work."""
    program = compile_program(ROOT / "tests" / "apps" / "fork_holder.c", folder / "fork_holder")
    found = []
    with open_bed(arm) as bed:
        bed.start_loads(("a", 0.5, 1.0), options=("--seconds", 0, "--kernel-us", KERNEL_US))
        (other,) = bed.children
        bed.tenant("b", 0.5, 1.0)
        for _ in range(count):
            orphan = 0
            if forked:
                victim = bed.spawn("b", [program], stdout=subprocess.PIPE, text=True)
                assert victim.stdout
                orphan = int(victim.stdout.readline())
                victim.stdout.readline()
            else:
                victim = bed.load("b", "--seconds", 0, "--kernel-us", KERNEL_US)
            until_holding(bed, victim.pid)
            sequence = bed.timeline.segments(0, 0)[0]
            at_ns = time.monotonic_ns()
            victim.kill()
            found.append((next_work_ns(bed, other, at_ns, sequence, 10) - at_ns) / 1e6)
            victim.wait()
            if orphan:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(orphan, signal.SIGKILL)
    return found


def freezes(count: int) -> list[dict[str, float]]:
    """SIGSTOP of the holder: ms to the other's next work; after SIGCONT, kernels that got through before its turn."""
    found = []
    with Bed() as bed:
        bed.start_loads(("a", 0.5, 1.0), ("b", 0.5, 1.0), options=("--seconds", 0, "--kernel-us", KERNEL_US))
        other, victim = bed.children
        times = []
        for _ in range(count):
            until_holding(bed, victim)
            sequence = bed.timeline.segments(0, 0)[0]
            stopped_ns = time.monotonic_ns()
            os.kill(victim, signal.SIGSTOP)
            time.sleep(0.002)  # what it had in flight
            away = (next_work_ns(bed, other, stopped_ns + 2_000_000, sequence, 10) - stopped_ns) / 1e6
            time.sleep(1.0)
            resumed_ns = time.monotonic_ns()
            os.kill(victim, signal.SIGCONT)
            bed.sample(1.0)
            times.append((sequence, resumed_ns, away))
        segments = bed.timeline.segments(0, times[0][0])[1]
        bed.end()
        turns = [turn for turn in story.turns(bed.trace) if turn.tenant == "b"]
    for _sequence, resumed_ns, away in times:
        grant_ns = min(turn.granted_ns for turn in turns if turn.granted_ns > resumed_ns)
        early = sum(
            segment.kernels
            for segment in segments
            if segment.pid == victim and segment.start_ns >= resumed_ns and segment.end_ns <= grant_ns
        )
        found.append({"free_ms": away, "launches_before_its_turn": early})
    return found


def restarts(count: int) -> list[dict[str, Any]]:
    """kill -9 of the daemon, a new start after `away` seconds; shares after that, and work inside another's turn."""
    found = []
    for away in [0.5, 3.0, 1.0][:count]:
        with Bed() as bed:
            bed.start_loads(("a", 0.7, 1.0), ("b", 0.3, 1.0), options=("--seconds", 0, "--kernel-us", KERNEL_US))
            bed.sample(0.5)
            assert bed.daemon
            sequence = bed.timeline.segments(0, 0)[0]
            bed.daemon.kill()
            bed.daemon.wait()
            killed_ns = time.monotonic_ns()
            time.sleep(away)
            bed.start_daemon()
            again_ns = until_all_work(bed)
            bed.sample(1.0)
            record = bed.sample(3.0)
            alive = all(child.poll() is None for _name, child in bed.children.values())
            segments = bed.timeline.segments(0, sequence)[1]
            owners = {pid: name for pid, (name, _child) in bed.children.items()}
            bed.end()
            turns = story.turns(bed.trace)
        found.append(
            {
                "away_s": away,
                "both_work_again_s": (again_ns - killed_ns) / 1e9,
                "shares": record.shares(),
                "error_pp": record.error_pp([0.7, 0.3]),
                "alive": alive,
                "work_in_anothers_turn_ms": story.foreign_ns(turns, segments, owners) / 1e6,
            }
        )
    return found


def until_all_work(bed: Bed) -> int:
    """Wait until every tenant has been given GPU time from now on; returns when that was."""
    before = bed.busy()[1]

    def work() -> bool:
        now = bed.busy()[1]
        return all(now[name] > before[name] for name in before)

    wait_for(work, 20, "work of all tenants")
    return time.monotonic_ns()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--freezes", type=int, default=5)
    parser.add_argument("--restarts", type=int, default=3, choices=(0, 1, 2, 3))
    args = parser.parse_args()
    with Probe() as probe, tempfile.TemporaryDirectory(prefix="gemini-recovery-") as folder:
        plain, forked = (kills(args.kills, forked, Path(folder)) for forked in (False, True))
        baselines = {arm: kills(max(1, args.kills // 4), False, Path(folder), arm) for arm in (LOCK, NONE)}
        frozen = freezes(args.freezes)
        restarted = restarts(args.restarts)
    figures = {
        "stalls": [(end - begin) / 1e6 for begin, end in probe.stalls],
        "killed_ms_baselines": baselines,
        "killed_ms": {"median": np.median(plain), "worst": max(plain), "all": plain},
        "killed_with_living_child_ms": {"median": np.median(forked), "worst": max(forked), "all": forked},
        "frozen": frozen,
        "daemon_killed": restarted,
    }
    claims = [
        claim("dead.killed.median", float(np.median(plain)), "killed"),
        claim("dead.killed.worst", max(plain), "killed"),
        claim("dead.killed.median", float(np.median(forked)), "killed, its forked child lives"),
        claim("dead.killed.worst", max(forked), "killed, its forked child lives"),
        claim("dead.frozen.worst", max((case["free_ms"] for case in frozen), default=None)),
    ]
    passed = {
        "woken: at most one launch gets through": all(case["launches_before_its_turn"] <= 1 for case in frozen),
        "daemon killed: nobody dies, shares hold": all(
            case["alive"] and max(case["error_pp"].values()) <= 1 for case in restarted
        ),
        "daemon killed: no two hold the token at once": all(
            case["work_in_anothers_turn_ms"] == 0 for case in restarted
        ),
    }
    return report("How soon do the others go on after a fault?", figures, passed, claims)


if __name__ == "__main__":
    sys.exit(main())
