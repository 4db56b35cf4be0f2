"""A simulated machine of a test's own, whose NVML a process of its own looks at."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SIM = Path(__file__).parents[3] / "libhook/lib/sim"
Ask = Callable[[str], str]


def simulated(machine: str) -> dict[str, str]:
    return {**os.environ, "GEMINI_SIM": machine, "LD_LIBRARY_PATH": str(SIM)}


@pytest.fixture
def machine() -> Iterator[str]:
    name = f"report-{uuid.uuid4().hex[:8]}"
    yield f"id={name},gpus=4,memory=80GiB,name=NVIDIA H200"
    for left in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
        left.unlink()


@pytest.fixture
def ask(machine: str) -> Ask:
    """What a program prints that runs with the simulated NVML."""

    def run(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program], env=simulated(machine), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
