"""The library as a guest: what it needs, what it exports, and that it does nothing in processes without CUDA."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.libhook.hooks.guest import APPS, HOOK, ROOT, Build, inside

NEWEST_GLIBC = (2, 17)
# What libc.so.6 itself had of threads before libpthread became a part of it (glibc 2.17, its forwarding functions).
THREADS_IN_OLD_LIBC = {
    "pthread_attr_destroy",
    "pthread_attr_init",
    "pthread_attr_setdetachstate",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_self",
    "pthread_setcancelstate",
}


def symbols() -> list[tuple[str, str]]:
    """(kind, name@version) of the library's dynamic symbols, as nm shows them."""
    out = subprocess.run(["nm", "-D", str(HOOK)], capture_output=True, text=True, check=True).stdout
    return [(fields[-2], fields[-1]) for line in out.splitlines() if len(fields := line.split()) >= 2]


def test_it_needs_the_c_library_only() -> None:
    out = subprocess.run(["readelf", "-d", str(HOOK)], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"NEEDED.*\[(.*)\]", out) == ["libc.so.6"]


def test_it_loads_on_glibc_2_17() -> None:
    needed = {name for kind, name in symbols() if kind in "Uw" and "@" in name}
    too_new = {
        name
        for name in needed
        if (version := re.search(r"@GLIBC_([\d.]+)$", name)) is None
        or tuple(map(int, version[1].split("."))) > NEWEST_GLIBC
    }
    assert not too_new, "newer than the floor: see libhook/driver/floor.h"


def test_what_old_systems_may_lack_is_a_weak_need() -> None:
    strong = {name.split("@")[0] for kind, name in symbols() if kind == "U"}
    assert {name for name in strong if name.startswith(("dl", "sem_"))} <= {"dl_iterate_phdr"}  # never in libdl
    assert {name for name in strong if name.startswith("pthread_")} <= THREADS_IN_OLD_LIBC


def test_it_exports_the_hooked_functions_and_what_looks_them_up_and_nothing_else() -> None:
    exported = {name.split("@")[0] for kind, name in symbols() if kind in "TWBDVi"}
    rows = set()
    for table in ("cuda_hooks.h", "nvml_hooks.h"):
        rows |= set(re.findall(r"^HOOK\((\w+)", (ROOT / "libhook" / "driver" / table).read_text(), re.M))
    assert exported == rows | {"dlsym", "dlopen", "dlmopen"}
    assert len(rows) > 150


PROGRAMS = {
    "bash": ["bash", "-c", "true"],
    "python": [sys.executable, "-c", "pass"],
    "ls": ["ls", "/"],
    "java": ["java", "-Xshare:auto", "-version"],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_process_without_cuda_is_left_alone(name: str, shared: Build, tmp_path: Path) -> None:
    command = PROGRAMS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    leaving = shared(APPS / "leaving.c", "libleaving.so")
    seen = []
    for preload in [(leaving,), (HOOK, leaving)]:
        path = tmp_path / f"seen{len(seen)}"
        env = inside(*preload, LEAVING=str(path), GEMINI_SOCKET=str(tmp_path / "nobody.sock"))
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        threads = sorted(set(path.read_text().splitlines()))
        output = re.sub(r"\(build .*\)", "", done.stdout + done.stderr)
        seen.append((done.returncode, output, threads if name != "java" else [t.split(" ", 1)[1:] for t in threads]))
    assert seen[0] == seen[1]


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
@pytest.mark.parametrize("name", ["bash", "python", "ls"])
def test_its_system_calls_are_those_of_being_loaded(name: str, tmp_path: Path) -> None:
    """Beside opening and mapping the file nothing is added: no thread, no socket, no other file."""
    counts = []
    for preload in ("", str(HOOK)):
        log = tmp_path / "strace"
        env = inside(GEMINI_SOCKET=str(tmp_path / "nobody.sock"))
        env.pop("LD_PRELOAD")
        preloaded = ["-E", f"LD_PRELOAD={preload}"] if preload else []
        command = ["strace", "-f", *preloaded, "-o", str(log), *PROGRAMS[name]]
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
        calls: dict[str, int] = {}
        for line in log.read_text().splitlines():
            if (call := re.match(r"\d+\s+(\w+)\(", line)) is not None:
                calls[call[1]] = calls.get(call[1], 0) + 1
        counts.append(calls)
    plain, guest = counts
    added = {call: guest[call] - plain.get(call, 0) for call in guest if guest[call] > plain.get(call, 0)}
    assert set(added) <= {"openat", "open", "read", "pread64", "fstat", "newfstatat", "mmap", "mprotect", "close",
                          "access", "brk"}, added  # fmt: skip
    assert sum(added.values()) <= 16, added
