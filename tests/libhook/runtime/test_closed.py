"""Where the library cannot have what it needs (a thread, a descriptor, memory), calls wait and then fail: none is free.

tests/apps/starved.c takes something from itself and begins to use CUDA; the simulated card's record is the judge.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.bed import Bed, wait_for
from tests.libhook.hooks.conftest import build  # noqa: F401 - the fixture
from tests.libhook.hooks.guest import APPS, SIM, Build

GIB = 1 << 30
OUT_OF_MEMORY = 2
BOUND_MS = 10_000  # AGENT_LACKING_NS
NEEDS = {
    "clone": "a thread cannot be had here (Resource temporarily unavailable)",
    "nproc": "a thread cannot be had here (Resource temporarily unavailable)",
    "eventfd": "an eventfd cannot be had here (Operation not permitted)",
    "files": "an eventfd cannot be had here (Too many open files)",
    "socket": "a socket cannot be had here (Operation not permitted)",
    "file": "a socket cannot be had here (Too many open files)",
}


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed(sim="memory=80GiB") as bed:
        yield bed


@pytest.fixture(scope="module")
def app(build: Build) -> Path:  # noqa: F811
    return build(APPS / "starved.c", "starved", str(SIM / "libcuda.so.1"))


Starved = subprocess.Popen[str]


def start(bed: Bed, app: Path, what: str, **more: str) -> Starved:
    if what not in bed.sockets:
        bed.tenant(what, 0.05, 0.1, memory=GIB)
    return bed.spawn(
        what,
        [app, what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=more,
    )


def answer(child: Starved) -> list[int]:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        assert child.stderr is not None
        pytest.skip("no seccomp or setrlimit here") if child.wait() == 77 else pytest.fail(child.stderr.read())
    return [int(word) for word in line.split()]


def again(child: Starved) -> list[int]:
    assert child.stdin is not None
    child.stdin.write("\n")
    return answer(child)


def end(child: Starved) -> list[str]:
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0
    return str(err).splitlines()


@pytest.fixture(scope="module")
def starved(bed: Bed, app: Path) -> dict[str, Starved]:
    """All at once, for each waits ten seconds."""
    return {what: start(bed, app, what) for what in NEEDS}


@pytest.mark.parametrize("what", NEEDS)
def test_what_cannot_be_had_is_waited_for_and_then_calls_fail(bed: Bed, starved: dict[str, Starved], what: str) -> None:
    child = starved[what]
    if what == "nproc" and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    context, alloc, launch, ms = answer(child)
    assert (context, alloc, launch) == (OUT_OF_MEMORY, -1, -1)
    assert ms >= BOUND_MS * 0.99
    assert bed.timeline.memory(0).get(child.pid, 0) == 0
    if what not in ("file", "files"):  # which have descriptors in their second round
        assert again(child)[:3] == [OUT_OF_MEMORY, -1, -1]  # it tried once more
    (line,) = end(child)
    assert line.startswith(f"gemini: {NEEDS[what]}, and without it this process has no share of the GPU"), line
    assert "CUDA_ERROR_OUT_OF_MEMORY; raise RLIMIT_" in line


@pytest.mark.parametrize("what", ["files", "file"])
def test_what_can_be_had_again_ends_the_wait(bed: Bed, app: Path, what: str) -> None:
    child = start(bed, app, what)
    assert answer(child)[0] == OUT_OF_MEMORY
    rounds: list[list[int]] = []

    def got_its_share() -> bool:  # the agent looks for a socket every 100 ms
        rounds.append(again(child))
        return rounds[-1][0] == 0

    wait_for(got_its_share, 60, "context after descriptors were there again")
    assert rounds[-1][:3] == [0, 0, 0]
    assert len(end(child)) == 1


def test_a_launch_without_memory_for_its_books_fails(bed: Bed, app: Path) -> None:
    child = start(bed, app, "memory")
    context, alloc, launch, ms = answer(child)
    assert (context, alloc, launch) == (0, 0, OUT_OF_MEMORY)
    assert ms >= BOUND_MS * 0.99
    assert bed.timeline.busy(0)[1].get(child.pid, 0) == 0
    (line,) = end(child)
    assert line.startswith("gemini: no memory for the books of a launch")


def test_who_is_told_to_run_without_a_backend_runs_free_and_says_so(bed: Bed, app: Path) -> None:
    child = start(bed, app, "clone", GEMINI_ON_BACKEND_LOSS="run")
    assert answer(child)[:3] == [0, 0, 0]
    (line,) = end(child)
    assert line.startswith("gemini: a thread cannot be had here (Resource temporarily unavailable): running without")
