"""Processes that come and go at once: each has a seat of its own on the machine (libhook/sim/model/machine.c)."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

import pytest

LIB = Path(__file__).resolve().parents[3] / "libhook" / "lib"


@pytest.fixture
def machine() -> str:
    name = f"seats-{uuid.uuid4().hex[:8]}"
    yield name
    for path in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
        path.unlink()


def test_a_seat_that_was_just_claimed_is_not_taken_for_a_dead_ones(machine: str) -> None:
    """A claimer was its seat's owner before its start time stood there: others read the time of the one before, gave
    the seat away again, and two live processes wrote one ring."""
    env = {**os.environ, "GEMINI_SIM": f"id={machine}", "LD_LIBRARY_PATH": str(LIB / "sim")}
    command = [str(LIB / "gemini-load"), "--seconds", "0.03", "--kernel-us", "50"]
    for _ in range(12):
        loads = [subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) for _ in range(4)]
        try:
            assert [load.wait(60) for load in loads] == [0] * 4
        finally:
            for load in loads:
                load.kill()
