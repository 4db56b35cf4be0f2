"""The parts of gpu-check that need no card: which wheels fit, how stamps become shares and idle times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.gpu_check.__main__ import NEEDED, fits
from bench.gpu_check.stage import Play, idle_between, record_of, stamped
from gemini import shares

ROOT = Path(__file__).resolve().parents[3]
HERE = f"cp{sys.version_info.major}{sys.version_info.minor}"


@pytest.mark.parametrize(
    ("tag", "fitting"),
    [
        (f"{HERE}-{HERE}-manylinux_2_17_x86_64.manylinux2014_x86_64", True),
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        ("cp38-abi3-manylinux_2_28_x86_64", True),
        ("cp399-abi3-manylinux_2_28_x86_64", False),
        ("cp27-cp27m-manylinux1_x86_64", False),
        (f"{HERE}-{HERE}-manylinux_2_17_aarch64", False),
        (f"{HERE}-{HERE}-musllinux_1_2_x86_64", False),
    ],
)
def test_only_wheels_for_this_python_fit(tag: str, fitting: bool) -> None:
    assert fits(tag) is fitting


def test_the_list_of_packages_holds_every_dependency() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {line.split("==")[0] for line in project["dependencies"]}
    assert wanted - {"rich", "matplotlib"} <= set(NEEDED.values())


def play(folder: Path, name: str, pairs: list[tuple[int, int]]) -> Play:
    path = folder / name
    np.array(pairs, dtype=np.uint64).tofile(path)
    child = subprocess.Popen(["true"])
    child.wait()
    return Play(name, child, path)


def test_stamps_of_two_programs_become_shares_and_idle_times(tmp_path: Path) -> None:
    turn, gap = 10_000_000, 100_000  # a and b in turns of 10 ms, 0.1 ms idle between; the first second is not looked at
    begins = [i * (turn + gap) for i in range(600)]
    a = play(tmp_path, "a", [(t + 1, t + turn) for t in begins[0::2]])
    b = play(tmp_path, "b", [(t + 1, t + turn) for t in begins[1::2]] + [(0, 0)])
    segments = stamped([a, b])
    at_ns, busy_ns = record_of(segments, 2)
    got = shares.achieved(at_ns, busy_ns)
    assert got == pytest.approx([0.5 * turn / (turn + gap)] * 2, abs=0.002)
    assert idle_between(segments) == pytest.approx([gap / 1e3] * 599, abs=0.01)


def test_an_unknown_check_is_refused_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu_check.runner", "--only", "nonsense", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    assert len(done.stderr.splitlines()) == 1
