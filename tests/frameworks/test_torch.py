"""PyTorch as published prints the same with and without Gemini, whichever allocator it takes its memory by."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemini.cli.node import sim_environment, sim_front
from tests.frameworks.environment import python_of

pytestmark = pytest.mark.frameworks
PROGRAM = Path(__file__).with_name("torch_program.py")
SECONDS = 240
ALLOCATORS = {"native": "", "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}


@pytest.fixture
def spec() -> Iterator[str]:
    name = f"frameworks-{uuid.uuid4().hex[:10]}"
    yield f"profile=h200,memory=16GiB,id={name}"
    for path in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
        path.unlink(missing_ok=True)


def run(command: list[str], environment: dict[str, str]) -> list[str]:
    whole = {**os.environ, **environment, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=whole, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout.splitlines()


@pytest.mark.timeout(2 * SECONDS + 30)
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_a_program_prints_the_same_with_and_without_a_share(allocator: str, spec: str, tmp_path: Path) -> None:
    python = python_of("torch-cu13")
    if python is None:
        pytest.fail("PyTorch is not there; make frameworks fetches it")
    settings = {"PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[allocator]} if ALLOCATORS[allocator] else {}
    command = [str(python), str(PROGRAM)]
    alone = run(command, {**settings, **sim_environment(spec), "LD_PRELOAD": " ".join(sim_front())})
    gemini = [sys.executable, "-m", "gemini", "run", f"--sim={spec}", "--state-dir", str(tmp_path), "--memory", "2GiB"]
    shared = run([*gemini, "--", *command], settings)
    assert len(alone) == 17
    assert shared == alone
