"""Will the library load into this program? Answered before it starts: the dynamic loader only warns, and the program
would then run outside its share.

The program's ELF header names its loader; that loader is asked to list what it would load (`ld.so --list`, which
executes nothing of the program) with the library preloaded. A statically linked program cannot use CUDA itself; it is
let through, for what it starts inherits the environment.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

PT_INTERP = 3


def interpreter(program: Path) -> str | None:
    """The dynamic loader that a 64-bit ELF program names; None: static, or no ELF file."""
    with open(program, "rb") as file:
        header = file.read(64)
        if len(header) < 64 or header[:4] != b"\x7fELF" or header[4] != 2:
            return None
        offset, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
        for index in range(count):
            file.seek(offset + index * size)
            entry = file.read(56)
            if len(entry) == 56 and struct.unpack_from("<I", entry)[0] == PT_INTERP:
                file.seek(struct.unpack_from("<Q", entry, 8)[0])
                return file.read(struct.unpack_from("<Q", entry, 32)[0]).rstrip(b"\0").decode()
    return None


def behind_script(program: Path) -> Path:
    """The program that runs a `#!` script (through `env` too); the program itself where it is none."""
    with open(program, "rb") as file:
        first = file.readline(256)
    if not first.startswith(b"#!"):
        return program
    words = first[2:].decode(errors="replace").split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    found = shutil.which(words[0]) if words else None
    return Path(found) if found else program


def problem_of(library: Path, program: str) -> str | None:
    """One line that says why `library` cannot be preloaded into `program`, and the mend; None: it can."""
    if not library.exists():
        return f"the library {library} is not there; run make build, or reinstall the package"
    try:
        real = behind_script(Path(program))
        loader = interpreter(real)
    except OSError as error:
        return f"{program}: {error.strerror}; is it a program that you may read?"
    if loader is None or not os.path.exists(loader):
        return None
    try:
        listed = subprocess.run(
            [loader, "--list", str(real)],
            env={**os.environ, "LD_PRELOAD": str(library)},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    for line in (listed.stderr + listed.stdout).splitlines():
        if library.name not in line or "=>" in line:
            continue
        if "cannot be preloaded" in line or "Error" in line or "not found" in line:
            libc = "musl" if "musl" in loader else "its C library"
            return (
                f"the library does not load into {real} ({line.strip()}); {libc} is too old or another: "
                "run a program built for glibc 2.17 or later, or build the library on this system"
            )
    return None
