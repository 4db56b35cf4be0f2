"""The library in a root file system of the oldest Debian that can be had, with nothing there but its own C library.

The root is made once by mmdebstrap and kept in the user's cache folder; without root rights or a Debian
mirror the test is skipped. That the library needs nothing newer than glibc 2.17 is checked by its symbols
(tests/libhook/hooks/test_guest.py).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.bed import HOOK, Bed
from tests.e2e.build import Builder, CannotBuild
from tests.libhook.processes.conftest import enter

RELEASES = ("buster", "bullseye")  # oldest first; a mirror drops the old ones in time
PYTHONS = {"buster": "python3.7", "bullseye": "python3.9"}
MIRROR = os.environ.get("GEMINI_DEBIAN_MIRROR")  # else mmdebstrap's own choice
HERE = Path(__file__).resolve().parent


def made(release: str, cache: Path, program: str) -> bool:
    """Is the release's root in the cache, or could it be made?"""
    done = cache / release
    if done.is_dir():
        return True
    cache.mkdir(parents=True, exist_ok=True)
    fresh = cache / f".{release}-{os.getpid()}"
    packages = f"{PYTHONS[release]}-minimal,lib{PYTHONS[release]}-stdlib"
    options = ["--variant=extract", "--skip=download/empty", f"--include={packages}", "--quiet"]
    command = [program, *options, release, str(fresh), *filter(None, [MIRROR])]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=90, stdin=subprocess.DEVNULL)
        fresh.rename(done)
    except (subprocess.SubprocessError, OSError):
        shutil.rmtree(fresh, ignore_errors=True)
    return done.is_dir()


@pytest.fixture(scope="module")
def old_root(may_mount: None) -> tuple[Path, str]:
    try:
        program = Builder().mmdebstrap()
    except CannotBuild as why:
        pytest.skip(str(why))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gemini-old-systems"
    for release in RELEASES:
        if made(release, cache, program):
            return cache / release, f"/usr/bin/{PYTHONS[release]}"
    pytest.skip("no Debian mirror has one of " + ", ".join(RELEASES))


@pytest.mark.timeout(300)
def test_on_an_old_debian_it_loads_gates_and_counts(old_root: tuple[Path, str], tmp_path: Path) -> None:
    root, python = old_root
    preload = tmp_path / "ld.so.preload"
    preload.write_text("/opt/gemini/libgemini_hook.so\n")
    with Bed(sim="memory=8GiB") as bed:
        bed.tenant("t", 0.5, 1.0, memory=1 << 30)
        binds: list[tuple[Path | str, str]] = [
            ("/dev", "/dev"),
            ("/proc", "/proc"),
            (HOOK.parent, "/opt/gemini"),
            (HOOK.parent / "sim", "/opt/driver"),
            (HERE, "/opt/program"),
            (Path(bed.sockets["t"]).parent, "/run/gemini"),
            (preload, "/etc/ld.so.preload"),
        ]
        command = enter(root, binds, python, "/opt/program/old_driver.py")
        env = {"GEMINI_SOCKET": "", "LD_PRELOAD": "", "LD_LIBRARY_PATH": "/opt/driver"}
        process = bed.spawn("t", command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
        said = json.loads(out)
        assert set(said["codes"]) == {0}
        assert 960 << 20 >= said["taken"] >= 896 << 20  # of 1 GiB, less the context
        assert tuple(map(int, said["glibc"].split("."))) < (2, 33)  # libpthread and libdl on their own
        assert bed.busy()[1]["t"] == 50 * 1_000_000
        bed.end()
        assert bed.trace.read_text().count('"ClientJoined",["t"') == 1
