"""A card, a daemon of our own, and programs upon it: as tenants, under the card's native slicing, or under MPS.

The arms are compared in one run on one card. What programs got is read from the card's own record: on a real GPU the
begin and end that each gemini-load kernel stamped by %globaltimer, on a simulated one the observer.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemini.cli.control import ask
from gemini.cli.node import LOAD, Node, tenant_environment
from gemini.cli.problem import Problem
from gemini.cli.starting import start_daemon

ROOT = Path(__file__).resolve().parents[2]
GEMINI, NATIVE, MPS = "gemini", "native", "mps"


@dataclass
class Play:
    """One program of a run: whose it is, and what it wrote."""

    tenant: str
    process: subprocess.Popen[bytes]
    stamps: Path | None = None
    files: dict[str, Path] = field(default_factory=dict)


class Stage:
    """Use as a context manager; leaving ends every process that it started."""

    def __init__(self, arm: str, sim: str | None) -> None:
        self.arm = arm
        self.sim = None if sim is None else f"{sim},id=check-{os.getpid()}-{arm}"
        self.folder = Path(tempfile.mkdtemp(prefix="gemini-check-"))
        self.node = Node(self.folder / "state", self.sim)
        self.plays: list[Play] = []
        self.tenants: dict[str, dict[str, str]] = {}
        self._daemon: subprocess.Popen[bytes] | None = None
        self._mps_environment: dict[str, str] = {}

    def __enter__(self) -> Stage:
        try:
            if self.arm == GEMINI:
                self.node.prepare()
                self._daemon = start_daemon(self.node)
            elif self.arm == MPS:
                self._start_mps()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for play in self.plays:
            if play.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(play.process.pid, signal.SIGKILL)
            play.process.wait()
        if self._mps_environment:
            subprocess.run(
                ["nvidia-cuda-mps-control"], input=b"quit\n", env={**os.environ, **self._mps_environment}, timeout=20,
                capture_output=True, check=False,
            )  # fmt: skip
        if self._daemon is not None:
            self._daemon.terminate()
            try:
                self._daemon.wait(5)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()
        if self.sim is not None:
            for path in Path("/dev/shm").glob(f"gemini-sim-*check-{os.getpid()}-{self.arm}*"):
                path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_mps(self) -> None:
        if self.sim is not None:
            raise Problem("the simulated card has no MPS")
        if shutil.which("nvidia-cuda-mps-control") is None:
            raise Problem("nvidia-cuda-mps-control is not installed")
        self._mps_environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.folder / "mps"),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "mps-log"),
        }
        for path in self._mps_environment.values():
            Path(path).mkdir()
        done = subprocess.run(
            ["nvidia-cuda-mps-control", "-d"],
            env={**os.environ, **self._mps_environment},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        if done.returncode != 0:
            raise Problem(f"MPS does not start: {(done.stderr or done.stdout).strip() or done.returncode}")

    def tenant(
        self, name: str, request: float, limit: float = 1.0, memory_bytes: int = 0, *, latency: bool = False
    ) -> None:
        """Make a tenant known (nothing to do under the other arms)."""
        self.tenants[name] = {}
        if self.arm == GEMINI:
            spec: dict[str, Any] = {"name": name, "request": request, "limit": limit, "memory_bytes": memory_bytes}
            spec["latency"] = latency
            made = ask(self.node, "POST", "/tenants", spec)
            self.tenants[name] = tenant_environment(self.node, made["socket"], (request, limit), memory_bytes)

    def environment(self, tenant: str) -> dict[str, str]:
        base = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "GEMINI_SOCKET")}
        return {**base, **self.node.environment(), **self._mps_environment, **self.tenants.get(tenant, {})}

    def spawn(
        self, tenant: str, command: Sequence[str | Path], more: Mapping[str, str] | None = None, **files: Path
    ) -> Play:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=ROOT,
            env=self.environment(tenant) | dict(more or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        play = Play(tenant, process, files=files)
        self.plays.append(play)
        return play

    def load(self, tenant: str, *options: object) -> Play:
        """A gemini-load that stamps its kernels; stamps are there once it has ended."""
        number = len(self.plays)
        stamps, report = self.folder / f"{number}.stamps", self.folder / f"{number}.json"
        words = [str(LOAD), f"--json={report}", *map(str, options)]
        if self.sim is None and not any(word.startswith("--graph") for word in words):
            words.append(f"--stamps={stamps}")
        play = self.spawn(tenant, words, report=report)
        play.stamps = stamps
        return play

    def torch(self, tenant: str, *options: object, **environment: str) -> Play:
        """A PyTorch program of torch_work.py; its report is JSON."""
        return self._python(tenant, "torch_work.py", options, environment)

    def driver(self, tenant: str, *options: object) -> Play:
        """A program over the driver API of driver_work.py; its report is JSON."""
        return self._python(tenant, "driver_work.py", options, {})

    def _python(self, tenant: str, script: str, options: Sequence[object], environment: Mapping[str, str]) -> Play:
        report = self.folder / f"{len(self.plays)}.json"
        words: list[str | Path] = [
            sys.executable,
            Path(__file__).with_name(script),
            *map(str, options),
            "--json",
            report,
        ]
        return self.spawn(tenant, words, environment, report=report)

    def finish(self, seconds: float) -> None:
        """Wait for all programs to end; Problem names one that does not, or that failed."""
        deadline = time.monotonic() + seconds
        for play in self.plays:
            try:
                status = play.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Problem(f"{play.tenant} did not end within {seconds:g} s under {self.arm}") from None
            if status != 0:
                raise Problem(f"{play.tenant} ended with status {status} under {self.arm}")

    def state(self) -> Any:
        return ask(self.node, "GET", "/state")
