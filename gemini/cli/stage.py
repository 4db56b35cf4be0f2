"""What the demo plays on: a node, a card, and one load per tenant upon it.

Cumulative GPU time comes from the device's own record. On a simulated card that is its observer, as the run goes on. On
a real one it is the stamps of the kernels, once the loads have ended (live, the daemon's account of the time held has
to do). No figure of a simulated run comes from the daemon.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gemini import shares, stamps
from gemini.cli.bound import bound_to_us
from gemini.cli.control import ask
from gemini.cli.node import LOAD, Node, tenant_environment
from gemini.cli.problem import Problem

SAMPLE_SECONDS = 0.01
SHOWN_SECONDS = 0.5  # between two pictures of the live table
SETTLE_SECONDS = 1.0  # from the last tenant's first kernel to the measured part: one window
START_SECONDS = 30.0

Show = Callable[[list[int], list[list[int]]], None]  # is given the samples so far: moments, and GPU time per tenant


@dataclass(frozen=True)
class Tenant:
    name: str
    request: float
    limit: float


@dataclass
class Record:
    """A measured part: gemini/shares.py says what at_ns and busy_ns are; idle times at changes of tenant."""

    at_ns: shares.Times
    busy_ns: shares.Times
    idle_us: Sequence[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return float(self.at_ns[-1] - self.at_ns[0]) / 1e9


def read_until(asked_ns: int, stops_ns: Sequence[int]) -> int:
    """Return the moment up to which pieces of the card's record that were asked for at `asked_ns` are all there are.

    The reader runs when nobody else wants the processor: between its clock and its question seconds may pass.
    """
    return max([asked_ns, *stops_ns])


def _yield_to_all() -> None:
    """This thread is the last to run. Linux keeps priorities per thread.

    Nice alone is not enough: it counts within a session or container only, and each tenant is one of its own.
    """
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class Stage:
    """Use as a context manager: it has a folder for what the loads write."""

    def __init__(self, node: Node, tenants: Sequence[Tenant], kernel_us: float) -> None:
        self.node, self.tenants, self.kernel_us = node, tenants, kernel_us
        self.loads: dict[str, subprocess.Popen[bytes]] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="gemini-demo-"))
        self.timeline: Any = None
        if node.sim is not None:
            from libhook.observer import Timeline

            self.timeline = Timeline(node.sim)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        if self.timeline is not None:
            self.timeline.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def play(self, governed: bool, seconds: float, show: Show) -> Record:
        """Run all loads, with `governed` as tenants, else as plain processes; measure for so long; end them."""
        with self._playing(governed):
            if self.timeline:
                self._until_all_run(self._by_timeline)
                time.sleep(SETTLE_SECONDS)
                return self._out_of_the_way(lambda ended: self._watch(seconds, show, ended))
            if governed:
                self._until_all_run(self._by_daemon)
                self._follow(seconds + SETTLE_SECONDS, show)
            else:
                time.sleep(seconds + 2 * SETTLE_SECONDS)
        return self._stamped(governed)

    @contextmanager
    def _playing(self, governed: bool) -> Iterator[None]:
        try:
            for tenant in self.tenants:
                self.loads[tenant.name] = self._start(tenant, governed)
            yield
        finally:
            self._stop(governed)

    def _start(self, tenant: Tenant, governed: bool) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self.node.environment()}
        for name in ("LD_PRELOAD", "GEMINI_SOCKET"):
            environment.pop(name, None)
        if governed:
            spec = {"name": tenant.name, "request": tenant.request, "limit": tenant.limit, "pid": os.getpid()}
            made = ask(self.node, "POST", "/tenants", spec)
            environment |= tenant_environment(self.node, made["socket"], (tenant.request, tenant.limit))
        words = [str(LOAD), f"--kernel-us={self.kernel_us:g}", "--seconds=0"]
        words.append(f"--json={self._file(tenant.name, governed, 'json')}")
        if self.timeline is None:
            words.append(f"--stamps={self._file(tenant.name, governed, 'stamps')}")
        return subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is ours to pass on
            preexec_fn=bound_to_us(),
        )

    def _stop(self, governed: bool) -> None:
        for load in self.loads.values():
            if load.poll() is None:
                load.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 10
        for name, load in self.loads.items():
            try:
                load.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                load.kill()
                load.wait()
            if governed:
                with suppress(Problem):
                    ask(self.node, "DELETE", f"/tenants/{name}")
        self.loads.clear()

    def _file(self, name: str, governed: bool, kind: str) -> Path:
        return self.folder / f"{name}-{'tenant' if governed else 'plain'}.{kind}"

    def report(self, name: str) -> dict[str, Any]:
        """What the load of a tenant counted itself; empty where it could not."""
        try:
            answer: dict[str, Any] = json.loads(self._file(name, True, "json").read_text())
        except (OSError, ValueError):
            return {}
        return answer

    def _by_timeline(self) -> tuple[int, list[int]]:
        now_ns, busy = self.timeline.busy(0)
        return now_ns, [busy.get(load.pid, 0) for load in self.loads.values()]

    def _by_daemon(self) -> tuple[int, list[int]]:
        state = ask(self.node, "GET", "/state")
        held = {tenant["name"]: int(tenant.get("held_ns", 0)) for tenant in state["tenants"]}
        return time.monotonic_ns(), [held.get(name, 0) for name in self.loads]

    def _stamped(self, governed: bool) -> Record:
        files = [self._file(tenant.name, governed, "stamps") for tenant in self.tenants]
        try:
            segments = stamps.read(files, round(self.kernel_us * 1000))
            at_ns, busy_ns = stamps.record(segments, len(files), int(SETTLE_SECONDS * 1e9))
        except (OSError, ValueError) as error:
            raise Problem(f"the loads' own record of the card cannot be used: {error}; see gemini check") from None
        return Record(at_ns, busy_ns, [float(us) for us in stamps.idle_us(segments)])

    def _check_alive(self) -> None:
        for name, load in self.loads.items():
            if load.poll() is not None:
                raise Problem(f"the load of tenant {name} ended early with status {load.returncode}; see gemini check")

    def _until_all_run(self, source: Callable[[], tuple[int, list[int]]]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not all(busy := source()[1]):
            self._check_alive()
            if time.monotonic() > deadline:
                idle = [name for name, ns in zip(self.loads, busy, strict=True) if not ns]
                raise Problem(f"no kernel of {', '.join(idle)} ran within {START_SECONDS:g} s; see gemini check")
            time.sleep(SAMPLE_SECONDS)

    @staticmethod
    def _out_of_the_way(work: Callable[[threading.Event], Record]) -> Record:
        """Do this at the lowest priority, in a thread, for a process cannot take its priority back.

        To read and draw takes some 20 ms at a time; a tenant's thread that wakes up meanwhile must not wait for it.
        """
        ended = threading.Event()
        with ThreadPoolExecutor(1, initializer=_yield_to_all) as quietly:
            try:
                return quietly.submit(work, ended).result()
            finally:
                ended.set()

    def _watch(self, seconds: float, show: Show, ended: threading.Event) -> Record:
        """Measure on a simulated card: all pieces of work from now on, which give shares over any window exactly."""
        numbers = {load.pid: index for index, load in enumerate(self.loads.values())}
        pieces: list[tuple[int, int, int]] = []
        sequence = self.timeline.segments(0, 0)[0]
        lost = self.timeline.lost
        begin_ns = time.monotonic_ns()
        end_ns = begin_ns + int(seconds * 1e9)
        at, busy = [begin_ns], [[0] * len(numbers)]
        while at[-1] < end_ns:
            show(at, busy)
            if ended.wait(max(0.001, min(SHOWN_SECONDS, (end_ns - at[-1]) / 1e9))):
                raise KeyboardInterrupt
            self._check_alive()
            asked_ns = time.monotonic_ns()
            sequence, segments = self.timeline.segments(0, sequence)
            at.append(read_until(asked_ns, [stop_ns for _, _, stop_ns, *_ in segments]))
            row = list(busy[-1])
            for pid, start_ns, stop_ns, *_ in segments:
                if pid in numbers:
                    pieces.append((start_ns, stop_ns, numbers[pid]))
                    row[numbers[pid]] += stop_ns - start_ns
            busy.append(row)
        show(at, busy)
        if self.timeline.lost > lost:
            raise Problem(
                "pieces of the card's record were overwritten before they were read; give a larger --kernel-us"
            )
        every = np.array(sorted(pieces), dtype=np.int64).reshape(-1, 3)
        grid = np.arange(begin_ns, end_ns + 1, stamps.STEP_NS, dtype=np.int64)
        columns = [stamps.worked(every[every[:, 2] == index], grid) for index in range(len(numbers))]
        return Record(grid, np.stack(columns, axis=1), [float(us) for us in stamps.idle_us(every)])

    def _follow(self, seconds: float, show: Show) -> None:
        """Pass the time on a real card: what is shown is the daemon's account, the record comes from the stamps."""
        at: list[int] = []
        busy: list[list[int]] = []
        while not at or at[-1] - at[0] < seconds * 1e9:
            now_ns, row = self._by_daemon()
            at.append(now_ns)
            busy.append(row)
            self._check_alive()
            show(at, busy)
            time.sleep(SHOWN_SECONDS)
