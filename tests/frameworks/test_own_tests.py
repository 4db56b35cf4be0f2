"""The same of PyTorch's own tests for CUDA pass with and without Gemini: on two simulated cards, under a limit."""

from __future__ import annotations

import fnmatch
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemini.cli.node import sim_environment, sim_front
from tests.frameworks.environment import cache_folder, python_of
from tests.frameworks.own_left_out import LEFT_OUT, left_out
from tests.frameworks.own_source import MODULES, place
from tests.frameworks.own_tests import Runner

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1800)]
SECONDS = 240  # of silence
# What torch.cuda._sleep launches, in nanoseconds: the tests wait by it for streams that are busy.
SLEEPS = "_ZN2at4cuda40_GLOBAL__N__758183f4_8_Sleep_cu_088d913f11spin_kernelEl 50000000\n"


@pytest.fixture(scope="module")
def parts() -> tuple[Path, Path]:
    """The interpreter that has PyTorch, and the folder of its tests."""
    python, folder = python_of("torch-own-tests"), place(cache_folder())
    if python is None:
        pytest.fail("torch-own-tests is not there; make frameworks fetches it")
    if not folder.exists():
        pytest.skip("PyTorch's own tests are not there; make frameworks takes them from a mirror of Debian")
    return python, folder


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[str]:
    name = f"frameworks-{uuid.uuid4().hex[:10]}"
    (tmp_path / "sleeps").write_text(SLEEPS)
    yield f"profile=h200,gpus=2,context=32MiB,growth=0,memory=16GiB,kernels={tmp_path / 'sleeps'},id={name}"
    for path in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("module", MODULES)
def test_the_same_pass_with_and_without_a_share(
    module: str, parts: tuple[Path, Path], spec: str, tmp_path: Path
) -> None:
    gemini = [sys.executable, "-m", "gemini", "run", f"--sim={spec}", "--state-dir", str(tmp_path)]
    simulated = {**sim_environment(spec), "LD_PRELOAD": " ".join(sim_front())}
    alone = Runner([], *parts, simulated)
    shared = Runner([*gemini, "--gpus", "2", "--memory", "12GiB", "--"], *parts, {})
    every = alone.names([module])
    wanted = [name for name in every if left_out(name) is None]
    said = alone.run(wanted, tmp_path / "alone", SECONDS)
    ran = {name: ended for name, ended in said.items() if ended.how in ("passed", "aside", "skipped")}
    assert {name: ended for name, ended in said.items() if name not in ran} == {}, "each that does not pass is left out"
    assert any(ended.how != "skipped" for ended in ran.values())
    got = shared.run(wanted, tmp_path / "shared", SECONDS)
    differ = {name: (ended, got[name]) for name, ended in said.items() if ended.how != got[name].how}
    assert differ == {}


def test_what_is_left_out_is_there(parts: tuple[Path, Path], spec: str) -> None:
    names = Runner([], *parts, {**sim_environment(spec), "LD_PRELOAD": " ".join(sim_front())}).names(MODULES)
    unknown = [row for row in LEFT_OUT if not fnmatch.filter(names, row)]
    assert unknown == []
