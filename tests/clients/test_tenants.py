"""NVIDIA's own clients as tenants, unchanged: their share and their memory limit hold as they do for a C program.

The whole path is real but the card: the library in front, ZeroMQ, the daemon; shares are those of the card's timeline.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.bed import Bed

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
PROGRAMS = {
    "bindings": ("cuda.bindings", "bindings_program.py", (200, 2 << 30)),
    "core": ("cuda.core", "core_program.py", (200,)),
    "numba": ("numba.cuda", "numba_program.py", ()),
}


@pytest.mark.parametrize("client", PROGRAMS)
def test_a_client_has_its_share_and_its_memory(client: str) -> None:
    module, program, arguments = PROGRAMS[client]
    pytest.importorskip(module)
    with Bed(sim="memory=8GiB,kernel=200us") as bed:
        bed.tenant("client", 0.7, 1.0, memory=1024 * MIB)
        bed.tenant("busy", 0.3, 1.0)
        bed.load("busy", "--seconds", 0)
        command = [sys.executable, HERE / program, 3.0, *arguments]
        process = bed.spawn("client", command, stdout=subprocess.PIPE, text=True)
        bed.until_busy("client", "busy", seconds=60)  # numba compiles first
        bed.sample(0.5)
        record = bed.sample(1.5)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        said: dict[str, Any] = json.loads(output)
        shares = record.shares()
        assert shares["client"] / sum(shares.values()) == pytest.approx(0.7, abs=0.04), shares
        if "total" in said:
            assert said["total"] == 1024 * MIB
            assert said["free"] < 1024 * MIB
        if "refusal" in said:
            assert said["refusal"] == "CUDA_ERROR_OUT_OF_MEMORY"
            assert 950 * MIB < said["allocated"] < 1024 * MIB
