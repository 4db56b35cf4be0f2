"""The bed that benches and end-to-end tests lie in: a simulated machine, a daemon, tenants, and an observer.

Everything is real but the card: processes under LD_PRELOAD, ZeroMQ, the daemon as its own process. Shares are read from
the device's timeline by an observer, never from the daemon. Each bed has a machine and a state directory of its own, so
that several may run at once; leaving the `with` block, or SIGTERM, ends every process that it started.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemini import shares
from libhook.build import preloaded
from libhook.observer import Timeline

ROOT = Path(__file__).resolve().parent.parent
LIB = ROOT / "libhook" / "lib"
HOOK = LIB / "libgemini_hook.so"
LOAD = LIB / "gemini-load"
CARD = "GEMINI_BENCH_CARD"  # environment: more keys of GEMINI_SIM for every bed, such as profile=h200


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """The first true answer of `condition`, asked every 2 ms; TimeoutError names `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {seconds} s")
        time.sleep(0.002)


def until_shares(
    look: Callable[[], dict[str, float]], wanted: dict[str, float], within: float, *, least: float = 0.0, seconds: float
) -> None:
    """Look again and again, until each name has its part of what all had together, give or take `within`.

    `look` watches for a while and says which part of the card's time each name had; in all that must be `least`. Where
    the machine has other things to do a tenant may be kept from asking for what it is owed, and that window says
    nothing; a share that is wrong is wrong in each of them. AssertionError shows all windows after `seconds`.
    """
    deadline, seen = time.monotonic() + seconds, []
    while time.monotonic() < deadline:
        had = look()
        total = sum(had.values())
        seen.append({name: round(part, 3) for name, part in had.items()})
        if total > least and all(abs(had[name] / total - part) <= within for name, part in wanted.items()):
            return
    raise AssertionError(f"not {wanted} within {within} in any window of {seconds} s: {seen}")


@dataclass
class Record:
    """Cumulative GPU time per name, sampled from the timeline."""

    names: list[str]
    at_ns: np.ndarray
    busy_ns: np.ndarray

    def shares(self) -> dict[str, float]:
        return dict(zip(self.names, map(float, shares.achieved(self.at_ns, self.busy_ns)), strict=True))

    def utilization(self) -> float:
        return float(shares.achieved(self.at_ns, self.busy_ns).sum())

    def error_pp(self, entitled: Sequence[float]) -> dict[str, float]:
        """Error of the whole record, percentage points."""
        found = shares.errors(shares.achieved(self.at_ns, self.busy_ns), np.array(entitled)) * 100
        return dict(zip(self.names, map(float, found), strict=True))

    def windows(self, name: str, window_s: float, step_s: float = 0.01) -> np.ndarray:
        """Share of `name` in all sliding windows."""
        starts = shares.sliding(self.at_ns, int(window_s * 1e9), int(step_s * 1e9))
        between = shares.busy_between(self.at_ns, self.busy_ns, starts, int(window_s * 1e9))
        return np.asarray(between[:, self.names.index(name)] / (window_s * 1e9))


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def leave(number: int, _frame: object) -> None:
    """End by way of each __exit__, which another SIGTERM may not break off. A signal handler."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)


class Bed:
    """A simulated machine; with `tokens` also a daemon. Use as a context manager."""

    around: Sequence[str] = ()  # words before those that start the daemon

    def __init__(self, *, sim: str = "memory=80GiB", tokens: bool = True, config: str = "", page: bool = True) -> None:
        self.id = f"bed-{uuid.uuid4().hex[:8]}"
        self.sim = ",".join([sim, *filter(None, [os.environ.get(CARD)]), f"id={self.id}"])
        self.state_dir = Path(tempfile.mkdtemp(prefix="gemini-bed-"))
        self.tokens = tokens
        self.config = config
        self.page = page  # false: no page socket, so that messages alone must do
        self.daemon: subprocess.Popen[bytes] | None = None
        self.children: dict[int, tuple[str, subprocess.Popen[Any]]] = {}
        self.sockets: dict[str, str] = {}
        self._timeline: Timeline | None = None

    def __enter__(self) -> Bed:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, leave)
        if self.tokens:
            self.start_daemon()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for path in Path("/dev/shm").glob(f"gemini-sim-*{self.id}*"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.state_dir, ignore_errors=True)

    def end(self) -> None:
        """End all processes; what they left in the state directory (the trace) can still be read."""
        for _name, child in self.children.values():
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(signal.SIGCONT)
                    child.kill()
        for _name, child in self.children.values():
            child.wait()
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            try:
                self.daemon.wait(30)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()

    @property
    def trace(self) -> Path:
        return self.state_dir / "trace.jsonl"

    def environment(self, tenant: str | None = None, hooked: bool = True) -> dict[str, str]:
        """The environment of a process on this machine; with a tenant's name, of one of its processes."""
        env = {**os.environ, "GEMINI_SIM": self.sim, "LD_LIBRARY_PATH": str(LIB / "sim")}
        env.pop("GEMINI_SOCKET", None)
        env["LD_PRELOAD"] = preloaded()
        if hooked and tenant is not None and self.tokens:
            env |= {"LD_PRELOAD": preloaded(HOOK), "GEMINI_SOCKET": self.sockets[tenant]}
        return env

    def start_daemon(self) -> None:
        """Start (again) the daemon on this bed's state directory and wait until it answers."""
        config = self.state_dir / "gemini.toml"
        config.write_text(self.config)
        serve = [sys.executable, "-m", "gemini", "serve", "--state-dir", str(self.state_dir), "--config", str(config)]
        with (self.state_dir / "daemon.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                [*self.around, *serve],
                cwd=ROOT,
                env=self.environment(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

        def answers() -> bool:
            assert self.daemon
            if self.daemon.poll() is not None:
                raise RuntimeError(f"the daemon ended: {(self.state_dir / 'daemon.log').read_text()[-2000:]}")
            try:
                return self.http("GET", "/healthz")[0] == 200
            except OSError:
                return False

        wait_for(answers, 60, "answer of the daemon")

    def http(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One call on the daemon's control socket: (status, JSON or text)."""
        connection = _UnixConnection(self.state_dir / "control.sock")
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
            return answer.status, json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text
        finally:
            connection.close()

    def state(self) -> Any:
        return self.http("GET", "/state")[1]

    def tenant(self, name: str, request: float, limit: float, *, memory: int = 0, latency: bool = False) -> str:
        """Register a tenant; returns its socket's path."""
        body: dict[str, Any] = {"name": name, "request": request, "limit": limit, "latency": latency}
        if memory:
            body["memory_bytes"] = memory
        if self.tokens:
            status, answer = self.http("POST", "/tenants", body)
            if status >= 300:
                raise RuntimeError(f"tenant {name}: {status} {answer}")
            self.sockets[name] = answer["socket"]
            if not self.page:
                page = Path(f"{answer['socket']}.page")
                page.unlink()
                page.touch()  # there is something, so it is not made anew, but nobody listens
        return self.sockets.get(name, "")

    def spawn(self, name: str, command: Sequence[str | Path], **more: Any) -> subprocess.Popen[Any]:
        """Start `command` as a process of tenant `name`."""
        env = self.environment(name) | more.pop("env", {})
        more.setdefault("stdout", subprocess.DEVNULL)
        more.setdefault("stdin", subprocess.DEVNULL)
        child: subprocess.Popen[Any] = subprocess.Popen([str(c) for c in command], env=env, **more)
        self.children[child.pid] = (name, child)
        return child

    def load(self, name: str, *options: object, **more: Any) -> subprocess.Popen[Any]:
        """Start gemini-load as a process of tenant `name`."""
        return self.spawn(name, [LOAD, *map(str, options)], **more)

    @property
    def timeline(self) -> Timeline:
        if self._timeline is None:
            self._timeline = Timeline(self.sim)
        return self._timeline

    def busy(self, device: int = 0) -> tuple[int, dict[str, int]]:
        """(now_ns, GPU time per tenant so far) by the device's own record."""
        now_ns, by_pid = self.timeline.busy(device)
        totals: dict[str, int] = {}
        for pid, (name, _child) in self.children.items():
            totals[name] = totals.get(name, 0) + by_pid.get(pid, 0)
        return now_ns, totals

    def until_busy(self, *names: str, seconds: float = 60) -> None:
        """Wait until each of the named tenants has been given some GPU time."""
        wait_for(lambda: all(self.busy()[1].get(n, 0) > 0 for n in names), seconds, f"GPU time of {', '.join(names)}")

    def until_shares(
        self, wanted: dict[str, float], within: float, *, window_s: float = 1.5, seconds: float = 60
    ) -> None:
        """Wait until the tenants have these parts of what all had; see the function of this name."""
        until_shares(lambda: self.sample(window_s).shares(), wanted, within, seconds=seconds)

    def start_loads(self, *tenants: tuple[str, float, float], options: Sequence[object] = ()) -> None:
        """One busy load per (name, request, limit); returns when all have been given GPU time."""
        for name, request, limit in tenants:
            self.tenant(name, request, limit)
        for name, *_ in tenants:
            self.load(name, *options)
        self.until_busy(*(name for name, *_ in tenants))

    def sample(self, seconds: float, step_s: float = 0.005, device: int = 0) -> Record:
        """Watch the timeline for `seconds`."""
        names = list(dict.fromkeys(name for name, _child in self.children.values()))
        at: list[int] = []
        rows: list[list[int]] = []
        last: dict[str, int] = dict.fromkeys(names, 0)
        due = time.monotonic_ns()
        end = due + int(seconds * 1e9)
        while due < end:
            now_ns, totals = self.busy(device)
            for name in names:  # a process that ended leaves the timeline; what it had been given stays
                last[name] = max(last[name], totals.get(name, 0))
            at.append(now_ns)
            rows.append([last[name] for name in names])
            due = max(due + int(step_s * 1e9), time.monotonic_ns())
            time.sleep(max(0.0, (due - time.monotonic_ns()) / 1e9))
        return Record(names, np.array(at, dtype=np.int64), np.array(rows, dtype=np.int64))
