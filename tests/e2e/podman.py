"""Podman and buildah in mount and process namespaces of their own, whatever the machine has. Needs root.

They are the machine's, or Debian's laid over its /usr and /etc for whoever looks from inside. What they write goes to
the test's folder; /run and /var/lib are the inside's own. One kill of the namespaces' first process ends every
container, and cgroups are all that is left to remove; process ids inside differ from those outside.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.node import _children, _hierarchies, _Inside, _make_cgroup, _remove_cgroup
from tests.e2e.plane import PREFIX
from tests.e2e.process import Process, until

NODE_INIT = Path(__file__).with_name("node_init.py")
# What a container may not do on a machine that gives few rights: raise its limits, have a network set up for it.
MODEST = ("--ulimit", "host", "--network", "none")


class Podman:
    """Use as a context. `programs`: the folder of build.py's part `containers`; `folder`: where it may write, in
    `where`; `name`: of one of several at a time; `driver`: how layers are stored, by vfs in whole copies."""

    def __init__(
        self, programs: Path, logs: Path, name: str = "podman", where: Path | None = None, driver: str = "vfs"
    ) -> None:
        self._programs, self._logs, self._name = programs, logs, name
        self.folder = Path(tempfile.mkdtemp(prefix="gp-", dir=where))  # short: sockets of a daemon lie here too
        self._cgroup = f"{PREFIX}{os.getpid()}-{name}"
        self._store = [
            "--root", self.folder / "store", "--runroot", "/run/podman", "--storage-driver", driver,
        ]  # fmt: skip
        self._podman = [
            "podman", *self._store, "--tmpdir", "/run/podman-tmp", "--runtime", "runc", "--cgroup-manager", "cgroupfs",
            "--events-backend", "none",
        ]  # fmt: skip

    def __enter__(self) -> Podman:
        for hierarchy in _hierarchies():
            _make_cgroup(hierarchy, self._cgroup)
        self._init = Process(
            f"{self._name}-init",
            ["unshare", "-m", "-p", "-f", "--kill-child=SIGKILL", "--mount-proc", "--propagation", "private",
             sys.executable, NODE_INIT, self.folder],
            self._logs, notify=True,
        )  # fmt: skip
        try:
            self._init.wait_notified()
            if (root := self._programs / "root").is_dir():
                for part in ("usr", "etc"):
                    layers = f"lowerdir={root / part}:/{part}"
                    self.output(["mount", "-t", "overlay", "-o", layers, "overlay", f"/{part}"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._init.kill()  # and with it all that runs inside
        for hierarchy in _hierarchies():
            until(functools.partial(_remove_cgroup, hierarchy / self._cgroup), f"the end of {self._cgroup}")
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Process:
        """A program inside; its log is among the test's."""
        return _Inside(name, self._inside(command), self._logs, environment)

    def output(self, command: Sequence[str | Path], check: bool = True, seconds: float = 120) -> str:
        """What a program says that runs inside and ends; with its complaints where it may fail."""
        done = subprocess.run(
            self._inside(command),
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if not check:
            return done.stdout + done.stderr
        assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def podman(self, *words: str | Path, check: bool = True, seconds: float = 120) -> str:
        return self.output([*self._podman, *words], check, seconds)

    def run(self, *words: str | Path, check: bool = True) -> str:
        """`podman run`, with what this machine does not allow left out."""
        return self.podman("run", "--cgroup-parent", f"/{self._cgroup}", *MODEST, *words, check=check)

    @property
    def buildah(self) -> list[str | Path]:
        """buildah on this store, to be continued."""
        return ["buildah", *self._store]

    def _inside(self, command: Sequence[str | Path]) -> list[str]:
        (init,) = _children(self._init.pid)
        return ["nsenter", "-t", str(init), "-m", "-p", "--", *map(str, command)]
