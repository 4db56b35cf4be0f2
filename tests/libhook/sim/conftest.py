"""Each test has a simulated machine of its own, and does its CUDA in child processes of its own."""

from __future__ import annotations

import multiprocessing
import os
import uuid
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from libhook.observer import Timeline

FORK = multiprocessing.get_context("fork")


class Child:
    """A process on the machine. `value()` waits for what its function returned, or raises what it raised."""

    def __init__(self, spec: str, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.near, far = FORK.Pipe()
        self.process = FORK.Process(target=self._run, args=(spec, work, arguments, far), daemon=True)
        self.process.start()
        far.close()
        assert self.process.pid is not None
        self.pid = self.process.pid

    @staticmethod
    def _run(spec: str, work: Callable[..., Any], arguments: tuple[Any, ...], far: Connection) -> None:
        os.environ["GEMINI_SIM"] = spec
        try:
            far.send((True, work(*arguments)))
        except BaseException as error:
            far.send((False, error))

    def value(self) -> Any:
        good, value = self.near.recv()
        self.process.join()
        if not good:
            raise value
        return value

    def told(self) -> Any:
        """Something that the work itself sent through `tell`."""
        return self.near.recv()


class Machine:
    """A simulated machine: its spec, its timeline, and processes on it."""

    def __init__(self, options: str) -> None:
        self.name = f"test-{uuid.uuid4().hex[:10]}"
        self.spec = f"{options},id={self.name}" if options else f"id={self.name}"
        self.children: list[Child] = []
        self.timeline = Timeline(self.spec)

    def start(self, work: Callable[..., Any], *arguments: Any) -> Child:
        child = Child(self.spec, work, arguments)
        self.children.append(child)
        return child

    def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return self.start(work, *arguments).value()

    def close(self) -> None:
        for child in self.children:
            if child.process.is_alive():
                child.process.kill()
            child.process.join()
        self.timeline.close()
        for path in Path("/dev/shm").glob(f"gemini-sim-*-{self.name}*"):
            path.unlink(missing_ok=True)


@pytest.fixture
def make_machine() -> Iterator[Callable[[str], Machine]]:
    made: list[Machine] = []

    def make(options: str = "") -> Machine:
        made.append(Machine(options))
        return made[-1]

    yield make
    for machine in made:
        machine.close()


@pytest.fixture
def machine(make_machine: Callable[[str], Machine]) -> Machine:
    return make_machine("memory=1GiB")
