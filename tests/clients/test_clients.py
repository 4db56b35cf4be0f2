"""NVIDIA's own clients of the driver, unchanged, on the bare simulated driver (`make test` installs them)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libhook.observer import Timeline

HERE = Path(__file__).resolve().parent
LIB = HERE.parents[1] / "libhook" / "lib"
MIB = 1 << 20


class Bed:
    """A machine of its own, and its timeline."""

    def __init__(self) -> None:
        self.name = f"clients-{uuid.uuid4().hex[:10]}"
        self.timeline = Timeline(f"memory=1GiB,id={self.name}")

    def run(self, program: str, *arguments: object) -> tuple[dict[str, Any], int]:
        """What the program printed, and the nanoseconds of compute engine that the card saw it use."""
        environment = {**os.environ, "GEMINI_SIM": f"id={self.name}", "LD_LIBRARY_PATH": str(LIB / "sim")}
        process = subprocess.Popen(
            [sys.executable, HERE / program, *map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        output, _ = process.communicate(timeout=250)
        assert process.returncode == 0
        return json.loads(output), self.timeline.busy()[1][process.pid]


@pytest.fixture
def bed() -> Iterator[Bed]:
    made = Bed()
    yield made
    made.timeline.close()
    for path in Path("/dev/shm").glob(f"gemini-sim-*-{made.name}*"):
        path.unlink(missing_ok=True)


def test_cuda_bindings_launches_captures_copies_and_runs_out_of_memory(bed: Bed) -> None:
    pytest.importorskip("cuda.bindings")
    said, busy = bed.run("bindings_program.py", 0.3, 200, 2 << 30)
    assert said["same"]
    assert said["event_ms"] >= 0.2
    assert busy == said["gpu_ns"]
    assert said["refusal"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert said["allocated"] <= 992 * MIB < said["allocated"] + 4 * MIB
    assert said["total"] == 1024 * MIB
    assert bed.timeline.memory() == {}


def test_cuda_core_compiles_loads_and_launches(bed: Bed) -> None:
    pytest.importorskip("cuda.core")
    said, busy = bed.run("core_program.py", 0.3, 200)
    assert said["bytes"] == MIB
    assert busy == said["gpu_ns"]


def test_numba_cuda_compiles_loads_and_launches(bed: Bed) -> None:
    pytest.importorskip("numba.cuda")
    said, busy = bed.run("numba_program.py", 0.3)
    assert said["same"]
    assert busy == said["launches"] * 10_000  # the simulator's time for a kernel it knows nothing of
    assert said["total"] == 1024 * MIB
