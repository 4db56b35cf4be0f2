"""One file of libhook/runtime at a time, called from Python: its hidden functions by name (seams.c)."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
FILES = (
    "account",
    "away",
    "behind",
    "belief",
    "captures",
    "context",
    "devices",
    "gate",
    "gate_thread",
    "link",
    "log",
    "page",
    "segments",
    "thread",
    "visit",
    "waited",
)


class Seams:
    """A library with its own static data: copy the file to have another."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._find = library.seam
        self._find.restype, self._find.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
        self._kept: list[Any] = []

    def address(self, name: str) -> int:
        """Return where a function, a variable or an entry of `real` stands."""
        found = self._find(name.encode())
        assert found, f"{name} is not in seams.c"
        return int(found)

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """Return the function of that name."""
        return ctypes.CFUNCTYPE(result, *arguments)(self.address(name))

    def set_real(self, symbol: str, call: Callable[..., int], *arguments: Any) -> None:
        """Let the table of the driver's functions lead to `call`."""
        self.set_pointer(f"real.{symbol}", call, *arguments)

    def set_pointer(self, name: str, call: Callable[..., int | None], *arguments: Any) -> None:
        """Let a pointer to a function, of any table, lead to `call`."""
        callback = ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(call)
        self._kept.append(callback)
        ctypes.c_void_p.from_address(self.address(name)).value = ctypes.cast(callback, ctypes.c_void_p).value


def build(path: Path) -> Path:
    """Compile the files whose functions seams.c names, and what they call, into one library."""
    runtime = (ROOT / "libhook" / "runtime" / f"{name}.c" for name in FILES)
    sources = [Path(__file__).with_name("seams.c"), *runtime, *sorted((ROOT / "libhook" / "core").glob("*.c"))]
    flags = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-Wl,-z,defs", f"-I{ROOT}"]
    flags.append('-DTLS_MODEL="global-dynamic"')  # each test has a copy, and one process runs them all
    extra = os.environ.get("GEMINI_CFLAGS", "").split()
    subprocess.run(["gcc", *flags, *extra, "-o", str(path), *map(str, sources), "-lpthread"], check=True)
    return path
