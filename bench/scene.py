"""A scene of the fault campaign: a bed with busy tenants whose memory comes and goes, and what must be so at its end.

The judge looks at those tenants that are still alive. Over half a second that begins one second after the fault is over
(or was detected) each is within 2 percentage points of its share (bench/spent.py). What the daemon counts of its memory
is what the simulated driver holds, at three moments in a row. Where a share is off by no more than the stalls of the
machine itself, as the jitter probe saw them, can have done, the window is listed, and another is taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.arms import compile_program
from bench.bed import HOOK, ROOT, Bed, wait_for
from bench.jitter import Probe
from bench.spent import watch
from gemini import shares
from gemini.units import entitled
from scheduler_backend import trace
from scheduler_backend.problem import Problem

BUILD = ROOT / "build" / "bench"
MIB = 1 << 20
SETTLE_SECONDS, WINDOW_SECONDS, ALLOWED_PP = 1.0, 0.5, 2.0
MOST_WINDOWS = 6  # in which a machine that stalls may show a calm one

# Workloads: name of a tenant -> (request, limit, memory in MiB or 0, arguments of churn for each of its processes).
Workload = dict[str, tuple[float, float, int, list[tuple[int, ...]]]]
WORKLOADS: dict[str, Workload] = {
    "two busy": {
        "a": (0.6, 1.0, 0, [(100, 16, 8)]),
        "b": (0.4, 1.0, 0, [(100, 16, 8)]),
    },
    "limits and memory": {
        "a": (0.3, 0.4, 1024, [(200, 64, 32)]),
        "b": (0.3, 1.0, 2048, [(100, 64, 16), (100, 64, 16)]),
        "c": (0.1, 0.1, 1024, [(100, 32, 16)]),
    },
    "many processes": {
        "a": (0.4, 1.0, 0, [(1000, 16, 8), (100, 16, 8)]),
        "b": (0.3, 1.0, 0, [(300, 16, 0), (300, 16, 4), (100, 16, 4), (50, 16, 0, 1000)]),
        "c": (0.2, 1.0, 0, [(100, 16, 8)]),
        "d": (0.1, 1.0, 0, [(50, 16, 8)]),
    },
}


class Scene:
    """One workload on a bed of its own; tenant `a` is the one that faults are done to."""

    def __init__(
        self, bed: Bed, workload: str, *, proxied: bool = False, paged: bool = True, wallclock: bool = False
    ) -> None:
        self.bed, self.workload, self.proxied, self.paged = bed, WORKLOADS[workload], proxied, paged
        self.program = compile_program(ROOT / "bench" / "churn.c", BUILD / "churn")
        self.shares = {name: (request, limit) for name, (request, limit, *_) in self.workload.items()}
        self.dead: set[int] = set()  # processes that the fault ended
        self.proxy: subprocess.Popen[str] | None = None
        self.env: dict[str, str] = {}
        self.notes: dict[str, Any] = {}
        if wallclock:
            shim = compile_program(ROOT / "bench" / "wallclock.c", BUILD / "wallclock.so", "-shared", "-fPIC")
            self.clock = bed.state_dir / "wallclock"
            self.clock.write_bytes(b"\0" * 8)
            self.env = {"GEMINI_WALLCLOCK": str(self.clock), "LD_PRELOAD": f"{shim}:{HOOK}"}

    def start(self) -> None:
        """All tenants and their processes; returns when each tenant is at work."""
        for name, (request, limit, memory, processes) in self.workload.items():
            self.bed.tenant(name, request, limit, memory=memory * MIB)
            if name == "a" and self.proxied:
                self._open_proxy()
            for words in processes:
                self.spawn(name, words)
        self.bed.until_busy(*self.workload)
        time.sleep(0.3)

    def spawn(self, name: str, words: tuple[int, ...] | None = None) -> int:
        """One more process of a tenant; its pid."""
        env = dict(self.env)
        if name == "a" and self.proxied:
            env["GEMINI_SOCKET"] = str(self.bed.state_dir / "proxy" / "tenant.sock")
        words = words or self.workload[name][3][0]
        log = (self.bed.state_dir / "programs.log").open("ab")
        with log:
            return self.bed.spawn(name, [self.program, *map(str, words)], env=env, stderr=log).pid

    def _open_proxy(self) -> None:
        folder = self.bed.state_dir / "proxy"
        folder.mkdir()
        target = self.bed.sockets["a"]
        if self.paged:
            (folder / "tenant.sock.page").symlink_to(f"{target}.page")  # page and credentials stay the process's own
        command = [sys.executable, "-m", "bench.proxy", str(folder / "tenant.sock"), target]
        self.proxy = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        wait_for((folder / "tenant.sock").exists, 10, "socket of the proxy")

    def tell_proxy(self, order: dict[str, Any]) -> int:
        """A new order; how often the one before was carried out."""
        assert self.proxy is not None
        assert self.proxy.stdin is not None
        assert self.proxy.stdout is not None
        self.proxy.stdin.write(json.dumps(order) + "\n")
        return int(json.loads(self.proxy.stdout.readline())["applied"])

    def pids(self, name: str) -> list[int]:
        """Living processes of a tenant that the campaign started."""
        return [
            pid
            for pid, (own, child) in self.bed.children.items()
            if own == name and pid not in self.dead and child.poll() is None
        ]

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """End a process of the workload for good."""
        self.dead.add(pid)
        os.kill(pid, number)
        self.bed.children[pid][1].wait()

    def leave(self, name: str) -> None:
        """The tenant has no processes any more, and no share."""
        self.shares.pop(name)

    # --- the judge --------------------------------------------------------------------------------------------------
    def judge(self) -> dict[str, Any]:
        """What must be so once the fault is over; "failed" lists what is not."""
        over = time.monotonic()
        failed: list[str] = []
        with Probe() as probe:
            time.sleep(SETTLE_SECONDS)
        before = probe.last_second()
        names = list(self.shares)
        owed = np.array(entitled(list(self.shares.values())))
        windows = []
        for _ in range(MOST_WINDOWS):
            with Probe() as probe:
                took = watch(self.bed, WINDOW_SECONDS)
            seen = [(end - begin) / 1e6 for begin, end in probe.stalls]
            found = 100 * shares.errors(np.array([took[name] for name in names]), owed)
            worst = float(found.max())
            windows.append({"error_pp": dict(zip(names, map(float, found), strict=True)), "stalls_ms": seen})
            if worst <= ALLOWED_PP or not probe.excuses(worst - ALLOWED_PP, WINDOW_SECONDS, before):
                break
            before = probe.last_second(before)
        if worst > ALLOWED_PP:
            failed.append(f"a share is off by {worst:.2f} pp")
        if (differs := self._ledger()) is not None:
            failed.append(differs)
        for pid, (name, child) in self.bed.children.items():
            if pid not in self.dead and child.poll() is not None:
                failed.append(f"process {pid} of {name} ended with {child.returncode}")
        return {"failed": failed, "windows": windows, "judged_after_s": time.monotonic() - over, **self.notes}

    def _ledger(self) -> str | None:
        """The daemon's book of each living tenant against the driver's; None where they agree within 3 s.

        At three moments in a row, for memory comes and goes: a block too many could be one that is under way at one.
        """
        books: dict[str, tuple[int, int]] = {}
        agreed = 0

        def agree() -> bool:
            nonlocal agreed
            held = self.bed.timeline.memory(0)
            for tenant in self.bed.state()["tenants"]:
                name = tenant["name"]
                if name in self.shares:
                    real = sum(size for pid, size in held.items() if self.bed.children.get(pid, ("",))[0] == name)
                    books[name] = (tenant["memory_bytes"], real)
            again = self.bed.timeline.memory(0)
            if again != held:
                return False
            same = len(books) == len(self.shares) and all(daemon == real for daemon, real in books.values())
            agreed = agreed + 1 if same else 0
            return agreed >= 3

        try:
            wait_for(agree, 3, "agreement of the books")
        except TimeoutError:
            return f"memory by the daemon and by the driver: {books}"
        return None

    def close(self) -> None:
        if self.proxy is not None:
            self.proxy.kill()
            self.proxy.communicate()


def replays(bed: Bed) -> list[str]:
    """What is wrong with the traces that this bed's daemons left: each must give the same actions again."""
    wrong = []
    for path in (bed.trace, bed.trace.with_name("trace.jsonl.1")):
        if path.exists() and path.stat().st_size:  # a daemon that was killed at once wrote nothing
            try:
                count, difference = trace.replay(path)
            except Problem as error:
                wrong.append(str(error))
                continue
            if difference is not None:
                wrong.append(f"{path.name} parts from its replay after {count} events: {difference}")
    return wrong


def keep(bed: Bed, folder: Path) -> None:
    """Leave behind what a failure can be looked at with: traces to replay, the daemon's log, what programs said."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("trace.jsonl", "trace.jsonl.1", "daemon.log", "programs.log", "state.json"):
        with contextlib.suppress(OSError):
            shutil.copy(bed.state_dir / name, folder / name)
