"""Tests that judge a figure of time may run again, and each time shows; nothing else is ever run twice.

Where all runs on a machine with other things to do, each process may stand still for seconds at any moment, and a
figure of time then says something about the machine. So a test whose point is one carries
`@pytest.mark.flaky(reruns=n)` (pytest-rerunfailures): it passes if any of its n + 1 tries does, each with fixtures of
its own, and fails only if all do. That is for what a wrong product gets wrong each time: neither for a race that comes
about now and then, nor for a wait, which is for an event and takes as long as it takes. What ran into its time-out is
not tried again. Each rerun is counted in pytest's last line, and named above it with what failed. A run that is
expected to fail (tests/mutants) is told `--force-reruns=0`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import pytest
from pathlib import Path

def tried(name):
    with (Path(__file__).parent / name).open("a") as file:
        file.write("x")
        return file.tell()

@pytest.fixture(scope="module", autouse=True)
def of_all():
    tried("of_all")

@pytest.fixture
def of_one():
    yield
    tried("of_one")

@pytest.mark.flaky(reruns=2)
def test_never(of_one):
    tried("never")
    assert False, "never right"

@pytest.mark.flaky(reruns=2)
def test_second():
    assert tried("second") == 2

def test_unmarked():
    assert tried("unmarked") == 2

@pytest.mark.flaky(reruns=2)
@pytest.mark.timeout(1)
def test_hangs():
    tried("hangs")
    while True:
        pass
"""


def run(folder: Path, *options: str) -> tuple[str, dict[str, int]]:
    """What pytest says of TESTS under this project's settings, and how often each was tried."""
    (folder / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, f"--rootdir={folder}", *options, str(folder / "test_some.py")],
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout, {file.name: file.stat().st_size for file in folder.iterdir() if file.suffix != ".py"}


def test_only_marked_tests_run_again_and_each_time_is_told(tmp_path: Path) -> None:
    said, tries = run(tmp_path)
    assert tries == {"never": 3, "of_one": 3, "second": 2, "unmarked": 1, "hangs": 1, "of_all": 1}
    assert re.search(r"^3 failed, 1 passed, 3 rerun", said.splitlines()[-1]), said
    assert [said.count(f"RERUN test_some.py::test_{name}") for name in ("never", "second")] == [2, 1], said


def test_where_a_failure_is_wanted_nothing_runs_again(tmp_path: Path) -> None:
    said, tries = run(tmp_path, "--force-reruns=0")
    assert tries == {"never": 1, "of_one": 1, "second": 1, "unmarked": 1, "hangs": 1, "of_all": 1}
    assert re.search(r"^4 failed in", said.splitlines()[-1]), said
