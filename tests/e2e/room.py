"""A place to work in on a root file system that stays as it is. Needs root."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Room:
    """What commands change lies in `folder`; /mnt inside is `shared` outside. Each has namespaces of its own."""

    def __init__(self, root: Path, folder: Path) -> None:
        for name in ("upper", "work", "root", "mnt"):
            (folder / name).mkdir(parents=True)
        self.shared = folder / "mnt"
        self._script = f"""
set -e
mount -t overlay -o lowerdir={root},upperdir={folder}/upper,workdir={folder}/work overlay {folder}/root
cd {folder}/root
mkdir -p proc dev sys tmp mnt run
mount -t proc proc proc; mount --rbind /dev dev; mount --rbind /sys sys
mount -t tmpfs tmpfs tmp; mount -t tmpfs tmpfs run; mount --bind {folder}/mnt mnt
exec chroot . "$@"
"""

    def run(self, *command: str, seconds: float = 240) -> str:
        """What a command says; what it leaves running ends with it."""
        own = ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--propagation", "private"]
        clean = ["/usr/bin/env", "-i", "HOME=/root", "PATH=/usr/bin:/bin", "LANG=C.UTF-8"]
        done = subprocess.run(
            [*own, "sh", "-c", self._script, "sh", *clean, *command],
            capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        said = (done.stdout + done.stderr)[-4000:]
        assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}: {said}"
        return done.stdout
