"""Clients that others wrote as tenants, unchanged: their share and their memory limit hold as they do for a C program.

The whole path is real but the card: the library in front, ZeroMQ, the daemon; shares are those of the card's timeline.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.bed import LIB, Bed

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
KERNEL = {"drjit": "1ms", "taichi": "1ms"}  # their hosts take longer than others' for a launch
PROGRAMS = {
    "bindings": ("cuda.bindings", "bindings_program.py", (200, 2 << 30)),
    "core": ("cuda.core", "core_program.py", (200,)),
    "numba": ("numba.cuda", "numba_program.py", ()),
    "drjit": ("drjit", "drjit_program.py", ()),
    "taichi": ("taichi", "taichi_program.py", ()),
}


def nvrtc_folder() -> str:
    """Where the wheel of NVRTC keeps its library."""
    found = importlib.util.find_spec("nvidia")
    places = [Path(place) / "cu13" / "lib" for place in (found.submodule_search_locations or [])] if found else []
    return next((str(place) for place in places if place.is_dir()), "")


@pytest.mark.flaky(reruns=2)
@pytest.mark.timeout(600)
def test_tinygrad_trains_under_the_gate_within_its_limit(tmp_path: Path) -> None:
    pytest.importorskip("tinygrad")
    if not nvrtc_folder():
        pytest.skip("no NVRTC to compile with")
    with Bed(sim="memory=8GiB,kernel=200us") as bed:
        bed.tenant("client", 0.2, 0.3, memory=1024 * MIB)
        env = {"LD_LIBRARY_PATH": f"{LIB / 'sim'}:{nvrtc_folder()}", "CACHEDB": str(tmp_path / "cache.db")}
        command = [sys.executable, HERE / "tinygrad_program.py", 2.0]
        process = bed.spawn("client", command, env=env, stdout=subprocess.PIPE, text=True)
        bed.until_busy("client", seconds=200)
        record = bed.sample(1.0)
        output, _ = process.communicate(timeout=200)
        assert process.returncode == 0
        said = json.loads(output)
        assert said["device"] == "CUDA"
        assert said["steps"] > 4
        assert said["back"] == 3.0  # what no kernel wrote comes back as it went
        assert max(record.windows("client", 0.5)) < 0.35


def client_of(name: str) -> Any:
    """One whose host takes long lacks what it is owed in every window where a machine has other things to do."""
    marks = (pytest.mark.alone, pytest.mark.flaky(reruns=2)) if name in KERNEL else ()
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("client", [client_of(name) for name in PROGRAMS])
def test_a_client_has_its_share_and_its_memory(client: str) -> None:
    module, program, arguments = PROGRAMS[client]
    pytest.importorskip(module)
    with Bed(sim=f"memory=8GiB,kernel={KERNEL.get(client, '200us')}") as bed:
        bed.tenant("client", 0.7, 1.0, memory=1024 * MIB)
        bed.tenant("busy", 0.3, 1.0)
        bed.load("busy", "--seconds", 0)
        command = [sys.executable, HERE / program, 600.0, *arguments]
        process = bed.spawn("client", command, stdout=subprocess.PIPE, text=True)
        bed.until_busy("client", "busy", seconds=120)  # numba compiles first
        wanted = {"client": 0.7, "busy": 0.3}
        if client in KERNEL:
            bed.until_shares(wanted, 0.01, window_s=3.0)
        else:
            bed.until_shares(wanted, 0.04)
        process.terminate()  # it ends its work and says what it saw
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        said: dict[str, Any] = json.loads(output.splitlines()[-1])  # Taichi greets its user first
        if "arch" in said:
            assert said["arch"] == "Arch.cuda"
        if "total" in said:
            assert said["total"] == 1024 * MIB
            assert said["free"] < 1024 * MIB
        if "refusal" in said:
            assert "OUT_OF_MEMORY" in said["refusal"] or "out of memory" in said["refusal"]
            assert 950 * MIB < said["allocated"] < 1024 * MIB


def test_warp_is_shown_its_limit_and_stops_in_the_runtime_that_it_brings(tmp_path: Path) -> None:
    """NVIDIA's runtime library inside of it runs on real cards alone (docs/simulator.md)."""
    pytest.importorskip("warp")
    with Bed(sim="memory=8GiB") as bed:
        bed.tenant("client", 0.7, 1.0, memory=1024 * MIB)
        env = {"WARP_CACHE_PATH": str(tmp_path)}
        process = bed.spawn(
            "client", [sys.executable, HERE / "warp_program.py"], stdout=subprocess.PIPE, text=True, env=env
        )
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        said = json.loads(output.splitlines()[-1])
        assert said["device"] == "NVIDIA H200 (simulated)"
        assert said["total"] == 1024 * MIB
        assert said["refusal"].startswith("Failed to allocate 262144 bytes")
