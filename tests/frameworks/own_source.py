"""PyTorch's own tests, out of the source package of Debian, for wheels do not have them.

It is fetched by apt from $GEMINI_DEBIAN_MIRROR, else from where this system's packages come from, and is known by its
SHA-256. Only the files of MODULES are kept, in the cache of environment.py. Its version is that of the environment
torch-own-tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

VERSION = "2.6.0"
ARCHIVE = f"pool/main/p/pytorch/pytorch_{VERSION}+dfsg.orig.tar.xz"
SHA256 = "099a9601bc40d67656e75735c44abedb0fbe92d08817852ab7472eebb7e6ddff"
MODULES = (
    "test_cuda",
    "test_cuda_multigpu",
    "test_cuda_nvml_based_avail",
    "test_cuda_primary_ctx",
    "test_cuda_trace",
)
HELPERS = ("/usr/lib/apt/apt-helper", "/usr/libexec/apt-helper")


class CannotFetch(RuntimeError):
    """The source is not to be had here; the text says why, in one line."""


def place(cache: Path) -> Path:
    return cache / f"torch-own-tests-source-{SHA256[:12]}"


def mirrors() -> list[str]:
    named = os.environ.get("GEMINI_DEBIAN_MIRROR")
    if named:
        return [named]
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    listed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    return list(dict.fromkeys(listed.split()))


def fetch(cache: Path) -> None:
    """Fetch it, unless it is there; CannotFetch where it cannot be had."""
    if place(cache).exists():
        return
    helper = next(filter(os.path.exists, HELPERS), None)
    if helper is None or shutil.which("apt-get") is None:
        raise CannotFetch("no apt here to take it from")
    said = "apt knows no mirror"
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        archive, kept = Path(folder) / "archive", Path(folder) / "kept"
        for mirror in mirrors():
            print(f"  APT  {ARCHIVE}, in {place(cache)}", flush=True)
            address = f"{mirror.rstrip('/')}/{ARCHIVE.replace('+', '%2b')}"
            words = [helper, "download-file", address, str(archive), f"SHA256:{SHA256}"]
            got = subprocess.run(words, capture_output=True, text=True, check=False)
            if got.returncode == 0:
                break
            said = " ".join((got.stderr or got.stdout).split())[-200:]
        else:
            raise CannotFetch(said)
        kept.mkdir()
        wanted = {f"test/{module}.py" for module in MODULES}
        with tarfile.open(archive) as files:
            for member in files:
                name = member.name.partition("/")[2]
                if name in wanted and (content := files.extractfile(member)) is not None:
                    (kept / Path(name).name).write_bytes(content.read())
        kept.rename(place(cache))
