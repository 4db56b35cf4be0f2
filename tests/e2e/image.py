"""An image for containers, written by hand, for there is no registry: busybox, and some of this machine's own programs.

The static busybox makes it a usable system. The dynamic programs, with the loader and libraries that ldd names for
them, are there because a preloaded library shows in dynamic programs only. What else a test needs it mounts from the
host, whose C library is the image's.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

IMAGE = "docker.io/gemini/e2e:1"  # what a pod names; with imagePullPolicy Never
PROGRAMS = ("sh", "bash", "env", "cat", "grep", "sleep", "taskset")
# What programs and libraries that tests mount into a container may want of the C library besides libc.so.6 itself.
BESIDE_LIBC = (
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libz.so.1",
)
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n",
    "etc/group": "root:x:0:\nuser:x:1000:\n",
    "etc/nsswitch.conf": "passwd: files\n",
}
FOLDERS = ("tmp", "root", "proc", "sys", "dev", "run", "var", "usr/bin", "usr/sbin", "sbin", "bin")


def write_image(archive: Path, busybox: Path, programs: Iterable[str | Path] = PROGRAMS, name: str = IMAGE) -> None:
    """A docker-archive of one layer, as `ctr image import` reads it. Without a command of its own it just waits."""
    content = layer(busybox.resolve(), [Path(path) for program in programs if (path := shutil.which(program))])
    digest = hashlib.sha256(content).hexdigest()
    config = json.dumps(
        {
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Entrypoint": ["/bin/busybox", "sleep", "2147483647"],
                # As images of NVIDIA's say it: whoever gives out cards must override it.
                "Env": ["PATH=/usr/bin:/bin:/usr/sbin:/sbin", "NVIDIA_VISIBLE_DEVICES=all"],
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created_by": "gemini e2e"}],
        }
    ).encode()
    settings = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": settings, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for path, text in ((settings, config), (f"{digest}/layer.tar", content), ("manifest.json", manifest)):
            add(tar, path, text)


def libraries(*programs: Path) -> set[Path]:
    """The loader and the shared libraries of dynamic programs, by the paths they will look for them at."""
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    words = (word for line in listed.splitlines() for word in line.split("(")[0].split())
    found = {Path(word) for word in words if word.startswith("/") and Path(word).exists()}
    beside = {path.with_name(name) for path in found if path.name == "libc.so.6" for name in BESIDE_LIBC}
    return found | {path for path in beside if path.exists()}


def layer(busybox: Path, programs: list[Path]) -> bytes:
    """A tar of a usable system with these programs."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder in FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        wanted = {path for program in programs for path in (program, *libraries(program))}
        for path in sorted(wanted):
            add(tar, str(path).lstrip("/"), path.resolve().read_bytes(), 0o755)
        add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        applets = subprocess.check_output([busybox, "--list"], text=True).split()
        links = dict.fromkeys(applets, "/bin/busybox") | {path.name: str(path) for path in programs}
        for name, target in links.items():
            if target != f"/bin/{name}":
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, target
                tar.addfile(link)
        for name, text in FILES.items():
            add(tar, name, text.encode())
    return content.getvalue()


def add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """A file of root's."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def architecture() -> str:
    """This machine's, as images name it."""
    return "amd64" if os.uname().machine == "x86_64" else "arm64"
