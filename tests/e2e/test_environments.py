"""The wheel in environments of other people: what they have stays and works, with the lowest and the newest of what the
package asks for; and in environments of its own, by pipx and uv from its file.

Packages come from PyPI. numba stands for what holds on to a numpy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.gemini.cli.conftest import Place
from tests.gemini.cli.conftest import place as place

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("plots", "dashboards")  # of one machine
JITTED = "import numba, numpy; print(int(numba.njit(lambda a: a.sum())(numpy.arange(5))), numpy.__version__)"
# Those that stand on what the packages of others do, not on ours alone.
TESTS = (
    "tests/gemini/test_shares.py", "tests/gemini/placement/test_scan.py",
    "tests/scheduler_backend/test_http_door.py", "tests/scheduler_backend/test_metrics.py",
    "tests/scheduler_backend/test_wire.py",
)  # fmt: skip
CLUSTER_TESTS = (
    "tests/gemini/kube/test_client.py", "tests/gemini/plugin/test_kubelet.py", "tests/gemini/extender/test_codec.py",
    "tests/gemini/placement/test_standing.py", "tests/gemini/test_serving.py",
)  # fmt: skip
TOOLS = ("pytest", "pytest-timeout", "pytest-rerunfailures", "hypothesis", "pyzmq", "cryptography")

pytestmark = pytest.mark.timeout(900)


def done(command: Sequence[str | Path], **environment: str) -> str:
    made = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**Place.environment(), **environment}, check=False
    )
    assert made.returncode == 0, f"{command}: {made.stdout}{made.stderr}"
    return made.stdout


def gemini_works(bin_dir: Path, place: Place) -> None:
    at = ["--state-dir", str(place.node.state_dir), f"--sim={place.sim}"]
    checked = done([bin_dir / "gemini", "check", *at])
    assert {line.split()[0] for line in checked.splitlines()} == {"ok"}, checked
    load = [str(bin_dir / "gemini"), "load", "--seconds", "0.5"]
    assert "launches" in done([bin_dir / "gemini", "run", *at, "--request", "0.5", "--", *load])


class Environment:
    """A virtual environment in a folder."""

    def __init__(self, folder: Path, python: str | Path = sys.executable) -> None:
        done([python, "-m", "venv", folder])
        self.bin = folder / "bin"

    def pip(self, *words: str) -> str:
        return done([self.bin / "python", "-m", "pip", "--disable-pip-version-check", "--no-input", *words])

    def python(self, *words: str) -> str:
        return done([self.bin / "python", *words])


def bounds(end: str, extras: Sequence[str], folder: Path) -> list[str]:
    """pip's words for the lowest or the newest of each package that is asked for with these extras."""
    lines = [*PROJECT["dependencies"], *(line for name in extras for line in PROJECT["optional-dependencies"][name])]
    lowest: dict[str, Version] = {}
    for one in map(Requirement, lines):
        version = Version(next(iter(one.specifier)).version)
        lowest[one.name] = max(version, lowest.get(one.name, version))
    held = folder / "bounds.txt"
    held.write_text("".join(f"{name}=={version}\n" for name, version in lowest.items() if end == "lowest"))
    return ["-c", str(held)]


@pytest.mark.parametrize(
    ("end", "numpy", "kept"), [("lowest", "numpy==1.26.0", "1.26.0"), ("newest", "numpy>=2", "2.")]
)
def test_what_an_environment_has_stays_and_all_of_it_works(
    end: str, numpy: str, kept: str, wheel: Path, place: Place, tmp_path: Path
) -> None:
    theirs = Environment(tmp_path / "theirs")
    theirs.pip("install", "-q", numpy, "numba")
    before = theirs.python("-c", JITTED)
    assert before.startswith(f"10 {kept}")

    held = bounds(end, EXTRAS, tmp_path)
    theirs.pip("install", "-q", *held, f"{wheel}[{','.join(EXTRAS)}]")
    assert theirs.pip("check").strip() == "No broken requirements found."
    assert theirs.python("-c", JITTED) == before

    gemini_works(theirs.bin, place)
    plot = tmp_path / "demo.png"
    done([theirs.bin / "gemini", "demo", "--sim", "--seconds", "1", "--plot", plot])
    assert plot.read_bytes()[:4] == b"\x89PNG"
    done([theirs.bin / "gemini", "dashboards", "--out", tmp_path / "monitoring"])
    assert sorted(path.suffix for path in (tmp_path / "monitoring").iterdir()) == [".json", ".json", ".json", ".yaml"]
    theirs.pip("install", "-q", *held, *TOOLS)
    theirs.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS)


@pytest.mark.parametrize("end", ["lowest", "newest"])
def test_the_parts_of_a_cluster_work_with_both_ends_of_what_they_ask_for(end: str, wheel: Path, tmp_path: Path) -> None:
    own = Environment(tmp_path / "own")
    held = bounds(end, ["cluster"], tmp_path)
    own.pip("install", "-q", *held, f"{wheel}[cluster]", *TOOLS)
    assert own.pip("check").strip() == "No broken requirements found."
    own.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *CLUSTER_TESTS)


def pythons() -> dict[str, Path]:
    """Other Pythons of this machine that the package is for, by version; those of pyenv too."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = {}
    for minor in range(11, 30):
        there = [*sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python3.{minor}")), shutil.which(f"python3.{minor}")]
        if minor != sys.version_info.minor and (one := next(filter(None, there), None)) is not None:
            found[f"3.{minor}"] = Path(one)
    return found


@pytest.mark.parametrize("version", sorted(pythons()))
def test_it_works_under_each_python(version: str, wheel: Path, place: Place, tmp_path: Path) -> None:
    theirs = Environment(tmp_path / "theirs", pythons()[version])
    theirs.pip("install", "-q", f"{wheel}[{','.join(EXTRAS)}]")
    assert theirs.pip("check").strip() == "No broken requirements found."
    gemini_works(theirs.bin, place)


def test_pipx_and_uv_install_it_from_its_file(wheel: Path, place: Place, tmp_path: Path) -> None:
    tools = Environment(tmp_path / "tools")
    tools.pip("install", "-q", "pipx", "uv")
    homes = {
        "PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "pipx-bin"), "UV_PYTHON": sys.executable,
        "UV_TOOL_DIR": str(tmp_path / "uv"), "UV_TOOL_BIN_DIR": str(tmp_path / "uv-bin"),
        "PATH": f"{tools.bin}:{os.environ['PATH']}",
    }  # fmt: skip
    version = f"gemini {PROJECT['version']} "
    assert done(["pipx", "run", "--spec", str(wheel), "gemini", "--version"], **homes).startswith(version)
    done(["pipx", "install", str(wheel)], **homes)
    done(["uv", "tool", "install", str(wheel)], **homes)
    for folder in ("pipx-bin", "uv-bin"):
        gemini_works(tmp_path / folder, place)
