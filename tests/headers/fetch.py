"""Fetch the CUDA headers that the table is compared with, out of NVIDIA's header wheels, into the user's cache.

`python -m tests.headers.fetch` is a set-up step: it asks the package index, the tests do not. Only `cuda.h` and
the lists of typedefs are kept. They are NVIDIA's and are not ours to commit.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

INTEROP = ("cudaEGLTypedefs.h", "cudaGLTypedefs.h", "cudaProfilerTypedefs.h", "cudaVDPAUTypedefs.h")
FILES = ("cuda.h", "cudaTypedefs.h", *INTEROP)
# What the table must agree with. The last is the newest it was brought up to; a newer one shows up as a named list.
RELEASES = {
    "11.8": "nvidia-cuda-runtime-cu11==11.8.89",
    "12.0": "nvidia-cuda-runtime-cu12==12.0.146",
    "12.4": "nvidia-cuda-runtime-cu12==12.4.127",
    "12.8": "nvidia-cuda-runtime-cu12==12.8.90",
    "12.9": "nvidia-cuda-runtime-cu12==12.9.79",
    "13.0": "nvidia-cuda-runtime==13.0.96",
    "13.5": "nvidia-cuda-runtime==13.5.37",
}
NEWEST = "nvidia-cuda-runtime"


def cache() -> Path:
    """Where the headers of each release lie, in a folder of its name."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gemini" / "cuda-headers"


def have(release: str) -> bool:
    return all((cache() / release / file).is_file() for file in FILES)


def newer_release() -> str | None:
    """A release in the cache that is newer than all that the table was compared with, if one was found."""
    known = max(map(_number, RELEASES))
    found = [path.name for path in cache().glob("*.*") if have(path.name) and _number(path.name) > known]
    return max(found, key=_number, default=None)


def fetch(requirement: str) -> str:
    """Download one wheel and keep its headers; returns the release, such as "13.5"."""
    with tempfile.TemporaryDirectory() as folder:
        download = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-input"]
        done = subprocess.run([*download, "--no-deps", "-d", folder, requirement], capture_output=True, text=True)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["pip says nothing"])[-1]
            raise SystemExit(f"gemini: the CUDA headers in {requirement} cannot be had: {reason}")
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            texts = {Path(name).name: archive.read(name) for name in archive.namelist() if Path(name).name in FILES}
    missing = [file for file in FILES if file not in texts]
    if missing:
        raise SystemExit(f"gemini: {requirement} holds no {', '.join(missing)} any more; look for the wheel that does")
    version = re.search(rb"^#define CUDA_VERSION (\d+)", texts["cuda.h"], re.MULTILINE)
    assert version is not None, requirement
    release = f"{int(version[1]) // 1000}.{int(version[1]) % 1000 // 10}"
    folder_of = cache() / release
    folder_of.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        part = folder_of / f"{file}.{os.getpid()}"
        part.write_bytes(text)
        part.replace(folder_of / file)
    return release


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def main() -> None:
    for release, requirement in RELEASES.items():
        if not have(release):
            fetch(requirement)
    try:
        fetch(NEWEST)
    except SystemExit as failure:  # whether there is a newer one can wait
        print(failure, file=sys.stderr)


if __name__ == "__main__":
    main()
