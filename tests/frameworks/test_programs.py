"""Published frameworks print the same with and without Gemini: PyTorch whichever allocator it takes its memory by."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gemini.cli.node import sim_environment, sim_front
from tests.frameworks.environment import maker, python_of

pytestmark = pytest.mark.frameworks
HERE = Path(__file__).parent
SECONDS = 240


class Framework(NamedTuple):
    """A program, the environment that it runs in, how many lines it prints, and what its users would set."""

    environment: str
    program: str
    lines: int
    settings: tuple[tuple[str, str], ...] = ()
    nodes: bool = False  # whether it looks for the device nodes of NVIDIA's kernel module

    def allocating_by(self, how: str) -> Framework:
        return self._replace(settings=(("PYTORCH_CUDA_ALLOC_CONF", how),))


# JAX looks for cuPTI, which is closed; without the second it would take the processor where there is no card.
JAX = (("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1"), ("JAX_PLATFORMS", "cuda"), ("TF_CPP_MIN_LOG_LEVEL", "3"))
# A /dev of the program's own, in the folder $0, with an empty file where the node of the first card would be.
NODES = """
mount -t tmpfs none "$0" && touch "$0/nvidia0" && mkdir "$0/shm" && mount --rbind /dev/shm "$0/shm" || exit
for node in null zero full random urandom tty; do touch "$0/$node" && mount --bind "/dev/$node" "$0/$node" || exit; done
ln -s /proc/self/fd "$0/fd" && mount --rbind "$0" /dev && exec "$@"
"""
TORCH_13 = Framework("torch-cu13", "torch_program.py", 17)
FRAMEWORKS = {
    "torch-cu13": TORCH_13,
    "torch-cu13, expandable": TORCH_13.allocating_by("expandable_segments:True"),
    "torch-cu13, async": TORCH_13.allocating_by("backend:cudaMallocAsync"),
    "torch-cu12": TORCH_13._replace(environment="torch-cu12"),
    "torch, a newer Python": TORCH_13._replace(environment="torch-newer-python"),
    "triton": Framework("torch-cu13", "triton_program.py", 4),
    "bitsandbytes": Framework("bitsandbytes", "bitsandbytes_program.py", 5),
    "onnx": Framework("onnx", "onnx_program.py", 5),
    "vllm": Framework("vllm", "vllm_program.py", 3),
    "jax": Framework("jax", "jax_program.py", 6, JAX, nodes=True),
}


@pytest.fixture
def card() -> Iterator[str]:
    name = f"frameworks-{uuid.uuid4().hex[:10]}"
    yield name
    for path in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
        path.unlink(missing_ok=True)


def run(command: list[str], environment: dict[str, str]) -> list[str]:
    whole = {**os.environ, **environment, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=whole, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    return [
        line for line in done.stdout.splitlines() if not line.startswith("[Gloo] ")
    ]  # that of PyTorch 2.8 tells more


def with_nodes(place: Path) -> list[str]:
    (place / "dev").mkdir()
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", "--propagation", "private", *user, "sh", "-c", NODES, str(place / "dev")]


@pytest.mark.timeout(2 * SECONDS + 30)
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_program_prints_the_same_with_and_without_a_share(name: str, card: str, tmp_path: Path) -> None:
    what = FRAMEWORKS[name]
    python = python_of(what.environment)
    if maker(what.environment) is None:
        pytest.skip("no Python newer than this one is on PATH or of pyenv; GEMINI_NEWER_PYTHON names one")
    if python is None:
        pytest.fail(f"{what.environment} is not there; make frameworks fetches it")
    spec, settings = f"profile=h200,context=32MiB,growth=0,memory=16GiB,id={card}", dict(what.settings)
    command = [*(with_nodes(tmp_path) if what.nodes else []), str(python), str(HERE / what.program)]
    simulated = {**settings, **sim_environment(spec), "LD_PRELOAD": " ".join(sim_front())}
    alone = run(command, simulated)
    gemini = [sys.executable, "-m", "gemini", "run", f"--sim={spec}", "--state-dir", str(tmp_path), "--memory", "2GiB"]
    shared = run([*gemini, "--", *command], settings)
    assert len(alone) == what.lines
    assert shared == alone


@pytest.mark.timeout(2 * SECONDS + 30)
def test_workers_of_torch_multiprocessing_are_within_a_share_of_the_python_api(card: str, tmp_path: Path) -> None:
    python = python_of("torch-cu13")
    if python is None:
        pytest.fail("torch-cu13 is not there; make frameworks fetches it")
    spec = f"profile=h200,context=32MiB,growth=0,memory=16GiB,id={card}"
    ours = {
        **sim_environment(spec),
        "PLACE": str(tmp_path),
        "PYTHONPATH": str(HERE.parents[1]),
        "OURS": sysconfig.get_path("purelib"),
    }
    serve = [sys.executable, "-m", "gemini", "serve", f"--sim={spec}", "--state-dir", str(tmp_path)]
    with subprocess.Popen([*serve, "--ready-file", str(tmp_path / "ready")]) as daemon:
        try:
            while not (tmp_path / "ready").exists() and daemon.poll() is None:
                time.sleep(0.05)
            said = run([str(python), str(HERE / "torch_workers.py")], ours)
        finally:
            daemon.terminate()
    assert said == [f"{number} a 16 out of memory" for number in range(2)]
