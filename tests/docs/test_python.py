"""The programs on the page about Python run as they stand, each as a user's program on a simulated card of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemini.cli.node import SIM
from tests.docs.blocks import blocks, steps
from tests.libhook.processes.conftest import may_mount as may_mount

PAGE = Path(__file__).resolve().parents[2] / "docs/python.md"
PROGRAMS = [step for block in blocks(PAGE) if block.language == "python" for step in steps(block)]
# The reader's own: it takes memory of the card, and says in which share it did.
WORK = """
import ctypes, gemini

def step(number):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0
    return number, gemini.current().request
"""
SAID = {
    "workers.py": r"\[\(0, 0\.3\), \(1, 0\.3\), \(2, 0\.3\), \(3, 0\.3\)\]\n",
    "search.py": r"\[\(0, 0\.2\), .*\]\n\[\(0, 0\.4\), .*\]\n",
    "side_by_side.py": r"(NVIDIA H200 \(simulated\): \d+ launches .*\n){2}",
    "alone.py": r"\(1, 0\.3\) alone\n",
}
# A machine whose /run is the reader's own: the daemon's sockets lie there.
ENTER = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]


@pytest.fixture
def machine() -> Iterator[dict[str, str]]:
    name = f"docs-{uuid.uuid4().hex[:8]}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GEMINI_", "XDG_"))}
    yield {**kept, "PATH": path, "GEMINI_SIM": f"id={name}", "LD_LIBRARY_PATH": str(SIM)}
    for left in Path("/dev/shm").glob(f"gemini-sim-*{name}*"):
        left.unlink(missing_ok=True)


def test_each_program_of_the_page_is_tried() -> None:
    assert [step.file for step in PROGRAMS] == list(SAID)


@pytest.mark.parametrize("name", SAID)
def test_a_program_of_the_page_runs_as_it_stands(
    name: str, machine: dict[str, str], tmp_path: Path, may_mount: None
) -> None:
    [step] = [one for one in PROGRAMS if one.file == name]
    (tmp_path / name).write_text(step.content)
    (tmp_path / "work.py").write_text(WORK)
    done = subprocess.run(
        [*ENTER, sys.executable, name], cwd=tmp_path, env=machine, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(SAID[name], done.stdout), done.stdout
