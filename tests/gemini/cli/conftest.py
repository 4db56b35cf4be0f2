"""A place of its own for each test: a short state directory, a simulated machine of its own id, and no leftovers."""

from __future__ import annotations

import contextlib
import os
import shutil
import socketserver
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gemini.cli.control import ask
from gemini.cli.node import Node
from gemini.cli.problem import Problem


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


class Place:
    """Runs `gemini` here: on one state directory and one simulated machine."""

    def __init__(self) -> None:
        self.id = f"cli-{uuid.uuid4().hex[:8]}"
        self.sim = f"memory=8GiB,id={self.id}"
        self.dir = Path(tempfile.mkdtemp(prefix="gm-"))  # tmp_path is too long for a socket
        self.node = Node(self.dir / "s", self.sim)
        self.started: list[subprocess.Popen[str]] = []

    def words(self, command: str, *words: str) -> list[str]:
        place = ["--state-dir", str(self.node.state_dir)]
        sim = [] if command == "trace" else [f"--sim={self.sim}"]
        return [sys.executable, "-m", "gemini", command, *(place if command != "trace" else []), *sim, *words]

    @staticmethod
    def environment() -> dict[str, str]:
        return {k: v for k, v in os.environ.items() if not k.startswith("GEMINI_")}

    def gemini(self, command: str, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(command, *words),
            capture_output=True,
            text=True,
            env=self.environment(),
            timeout=timeout,
            check=False,
        )

    def start(self, command: str, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.words(command, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def state(self) -> Any:
        return ask(self.node, "GET", "/state")

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        with contextlib.suppress(Problem):
            ask(self.node, "POST", "/shutdown")
        for path in Path("/dev/shm").glob(f"gemini-sim-*{self.id}*"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def place() -> Iterator[Place]:
    here = Place()
    yield here
    here.close()


class Server(socketserver.UnixStreamServer):
    def get_request(self) -> tuple[object, tuple[str, int]]:  # type: ignore[override]
        return super().get_request()[0], ("local", 0)
