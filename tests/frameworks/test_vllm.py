"""Two vLLMs, each with nine tenths of its own memory, serve beside a training on one simulated card."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.bed import Bed
from gemini.cli.node import sim_front
from tests.frameworks.environment import python_of
from tests.frameworks.test_deaths import Process

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]
HERE = Path(__file__).parent
GIB = 1 << 30
SECONDS = 240


@pytest.mark.parametrize("how", ["eager", "default"])
def test_two_serve_within_their_memory_beside_a_training(how: str, tmp_path: Path) -> None:
    python = python_of("vllm")
    if python is None:
        pytest.fail("vllm is not there; make frameworks fetches it")
    with Bed(sim="profile=h200,context=32MiB,growth=0,memory=16GiB") as bed:
        bed.tenant("train", 0.4, 1.0, memory=2 * GIB)
        train = Process(bed, "train", "steps")
        train.says("ready")
        servers = []
        for name in ("one", "two"):
            bed.tenant(name, 0.3, 1.0, memory=6 * GIB)
            env = {
                "LD_PRELOAD": " ".join([bed.environment(name)["LD_PRELOAD"], *sim_front()]),
                "PYTHONWARNINGS": "ignore",
            }
            env |= {"VLLM_CACHE_ROOT": str(tmp_path / name)}
            with (tmp_path / f"{name}.out").open("wb") as out, (tmp_path / f"{name}.err").open("wb") as err:
                words = [python, HERE / "vllm_program.py", how]
                servers.append((name, bed.spawn(name, words, env=env, stdout=out, stderr=err)))
        for name, server in servers:
            status = server.wait(SECONDS)
            said = (tmp_path / f"{name}.out").read_text()
            assert status == 0, f"{said}\n{(tmp_path / f'{name}.err').read_text()[-3000:]}"
            assert said.splitlines() == ["answer: 16 tokens", "answer: 16 tokens", "memory: within its part"]
            train.goes_on()
        train.ends()
