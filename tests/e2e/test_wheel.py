"""The wheel of `make wheel` in bare Debians that have a Python and no compiler: it installs, checks and shares a card.

The wheels of what it needs are fetched by this machine's pip, so that there is no network inside.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu_check.bundle import PLATFORMS
from libhook import build, info
from tests.e2e.build import DEBIANS, Builder, CannotBuild
from tests.e2e.node import lacking
from tests.e2e.room import Room

PIP = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
GEMINI = "/opt/gemini/bin/gemini"
# A system that lacks a library which numpy wants; $1: a command.
WITHOUT_CXX = """
library=$(echo /usr/lib/*/libstdc++.so.6); mv $library /mnt/kept
"$@" 2>&1; echo "status $?"
mv /mnt/kept $library
"""

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("release", DEBIANS)
def test_in_a_bare_debian_it_installs_without_a_compiler_and_shares_a_card(
    release: str, wheel: Path, tmp_path: Path
) -> None:
    if why := lacking():
        pytest.skip(why.replace("a kubelet", "a root file system of one's own"))
    try:
        root = Builder().debian(release)
    except CannotBuild as why_not:
        pytest.skip(str(why_not))
    room = Room(root, tmp_path / "room")
    python = (root / "usr/bin/python3").readlink().name.removeprefix("python")
    assert wheel.name.endswith(f"-cp311-abi3-manylinux_{build.FLOOR[0]}_{build.FLOOR[1]}_x86_64.whl")
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    only = ["--only-binary=:all:", "--python-version", python, *platforms]
    subprocess.run([*PIP, "download", *only, "-d", str(room.shared), str(wheel)], check=True)

    room.run("/usr/bin/python3", "-m", "venv", "/opt/gemini")
    room.run("/opt/gemini/bin/pip", "-q", "install", "--no-index", "--find-links", "/mnt", f"/mnt/{wheel.name}")
    assert room.run("/opt/gemini/bin/pip", "check") == "No broken requirements found.\n"
    built = info.build()
    said = room.run(GEMINI, "--version")
    assert said == f"gemini {built['version']} (commit {built['commit']}, library {built['library']})\n"

    checked = room.run(GEMINI, "check", "--sim")
    assert {line.split()[0] for line in checked.splitlines()} == {"ok"}, checked
    assert f"Python {python}." in checked
    broken = room.run("/bin/sh", "-c", WITHOUT_CXX, "sh", GEMINI, "check", "--sim").splitlines()
    missing = "numpy does not load: libstdc++.so.6: cannot open shared object file: No such file or directory"
    assert f"FAIL  package: {missing}; install what is missing" in broken
    assert broken[-1] == "status 1"

    demo = (GEMINI, "demo", "--sim", "--seconds", "1", "--json", "/mnt/demo.json")
    assert "without Gemini" in room.run(*demo)
    tenants = json.loads((room.shared / "demo.json").read_text())["tenants"]
    assert len(tenants) == 3
    assert all(tenant["busy"] > 0 for tenant in tenants)
