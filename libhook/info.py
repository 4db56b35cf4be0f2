"""What this build is: version, commit, and the build id of the library, for `--version`, /state, /version and metrics.

The commit is in lib/commit, which setup.py writes when it makes a wheel; in a checkout git is asked. The build id is
read out of the library itself: it names the very file that is loaded into strangers' processes.
"""

from __future__ import annotations

import functools
import struct
import subprocess
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent
LIBRARY = ROOT / "lib" / "libgemini_hook.so"
COMMIT = ROOT / "lib" / "commit"
UNKNOWN = "unknown"
BUILD = ("version", "commit", "library")  # what `build` tells
_SHT_NOTE, _BUILD_ID = 7, 3


@functools.cache
def build() -> dict[str, str]:
    """BUILD, each `unknown` where it cannot be told; the library by its build id."""
    return dict(zip(BUILD, (version(), commit(), build_id(LIBRARY)), strict=True))


def version() -> str:
    """The installed package's."""
    try:
        return metadata.version("gemini-gpu")
    except metadata.PackageNotFoundError:
        return UNKNOWN


def commit() -> str:
    """Short, with a `+` behind it where the tree had changes of its own."""
    if not (ROOT.parent / ".git").exists():
        return COMMIT.read_text().strip() if COMMIT.exists() else UNKNOWN
    command = ["git", "-C", str(ROOT.parent), "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return said or UNKNOWN


def build_id(path: Path) -> str:
    """The GNU build id of a 64-bit little-endian ELF file, in hexadecimal."""
    try:
        content = path.read_bytes()
        if content[:6] != b"\x7fELF\x02\x01":
            return UNKNOWN
        (table,) = struct.unpack_from("<Q", content, 40)
        size, count = struct.unpack_from("<HH", content, 58)
        for index in range(count):
            kind, at, length = struct.unpack_from("<4xI16xQQ", content, table + index * size)
            if kind != _SHT_NOTE or length < 16:
                continue
            owner, described, note = struct.unpack_from("<III", content, at)
            if note == _BUILD_ID and content[at + 12 : at + 16] == b"GNU\0":
                return content[at + 12 + owner : at + 12 + owner + described].hex()
    except (OSError, struct.error):
        pass
    return UNKNOWN
