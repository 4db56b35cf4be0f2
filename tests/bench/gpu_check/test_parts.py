"""The parts of gpu-check that need no card: which wheels fit, what it brings along, what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu_check.__main__ import NEEDED, fits

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
    wanted = {line.split(">=")[0] for line in project["dependencies"]}
    assert wanted - {"rich"} <= set(NEEDED.values())


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
