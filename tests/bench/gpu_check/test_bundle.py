"""The archive of gpu-bundle, unpacked elsewhere: all is in it but what the machine's Python has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from bench.gpu_check import bundle
from libhook import compiled, info

MOST_FILES = 8  # that have to be brought back from a machine with a card


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as it is unpacked, without wheels: the packages are those of this Python."""
    folder = tmp_path_factory.mktemp("bundle")
    made = folder / "made" / bundle.PLACE.name
    made.mkdir(parents=True)
    bundle.bring_c_parts(made)
    bundle.take(made, bundle.ROOT, compiled.SUFFIX)
    archive = bundle.pack(made)
    if archive is None:
        pytest.skip("this tree is no checkout of git")
    elsewhere = folder / "elsewhere"
    with tarfile.open(archive) as file:
        file.extractall(elsewhere, filter="data")
    return elsewhere / bundle.TOP


def run(tree: Path, *words: str, gcc: bool) -> subprocess.CompletedProcess[str]:
    """By nobody in particular: with next to no environment, and only those programs that are asked for."""
    programs = tree.parent / ("programs" if gcc else "few")
    programs.mkdir(exist_ok=True)
    for name in ("as", "ld", "gcc") if gcc else ():
        found = shutil.which(name)
        if found and not (programs / name).exists():
            (programs / name).symlink_to(found)
    environment = {"PATH": str(programs), "HOME": "/nonexistent", "LANG": "C"}
    return subprocess.run(
        [sys.executable, "-m", "bench.gpu_check", *words], cwd=tree, env=environment, capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("gcc", [True, False], ids=["gcc", "no gcc"])
def test_what_is_unpacked_runs_checks_and_leaves_few_files(unpacked: Path, gcc: bool) -> None:
    out = unpacked / "out" / f"checked-{gcc}"
    done = run(unpacked, "--sim", "--only=identify", "--only=coverage", "--scale=0.2", f"--out={out}", gcc=gcc)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((out / "results.json").read_text())
    assert results["whole"]
    assert [answer["check"] for answer in results["checks"]] == ["identify", "coverage"]
    assert len([path for path in out.rglob("*") if path.is_file()]) <= MOST_FILES


def test_it_names_its_commit_and_runs_the_compiled_daemon(unpacked: Path) -> None:
    out = unpacked / "out" / "named"
    done = run(unpacked, "--sim", "--only=identify", f"--out={out}", gcc=False)
    assert json.loads((out / "results.json").read_text())["commit"] == info.commit()
    if all(path.exists() for path in compiled.outputs("scheduler_backend")):
        assert "the daemon is compiled" in done.stdout
    assert str(bundle.ROOT) not in "".join(os.fsdecode(path) for path in unpacked.glob("libhook/*.so"))


@pytest.mark.parametrize("python", ["", "/nonexistent/python3.12", "/bin/false"])
def test_a_python_that_does_not_run_is_none(python: str) -> None:
    assert bundle.asked_of(python) is None


def test_a_python_says_what_it_is() -> None:
    found = bundle.asked_of(sys.executable)
    assert found is not None
    assert (found["version"], found["suffix"]) == (bundle.HERE, compiled.SUFFIX)
