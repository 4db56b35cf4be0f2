"""Shares as CDI devices (Container Device Interface): `podman run --device gemini.io/share=NAME`, docker's same flag.

A CDI spec is a JSON file in a folder that container runtimes read when a container starts; it says what a device name
brings into the container: environment, mounts, device nodes. `edits` and `spec` build one, for the device plugin too;
`Folder` is the daemon's Publisher: it keeps one file, of its shares and no others.

One file a daemon, replaced in one step, so that whatever was left of before (a daemon killed between two words, shares
that another one removed) is gone with the next word. It stays when the daemon ends: a container that starts before the
next daemon waits for that one, as a running container does. A file of a daemon whose state directory is gone would let
containers fail on its mounts; whoever starts on the same folder clears it away.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gemini.kube import names
from scheduler_backend import private
from scheduler_backend.core.tenant import share_text
from scheduler_backend.devices import Gpu
from scheduler_backend.publisher import Share

log = logging.getLogger("gemini.cdi")

VERSION = "0.5.0"  # the oldest that podman 4 and docker 25 read; nothing newer is needed
STANDARD = Path("/var/run/cdi")  # where runtimes look without being told, besides /etc/cdi
_SOCKETS = str(PurePosixPath(names.SOCKET_PATH).parent)
_PREFIX = "gemini-shares-"
CONTAINER_FILE = f"{names.CDI_KIND.replace('/', '-')}_{{}}.json"  # the device plugin's, of one container
FILES = (f"{_PREFIX}*.json", CONTAINER_FILE.format("*"))  # all of ours in a folder

Edits = dict[str, Any]


def edits(environment: Mapping[str, str], mounts: Iterable[tuple[str, str]], nodes: Sequence[str] = ()) -> Edits:
    """What a device brings. `mounts`: (on the host, in the container), read-only but for /dev/shm."""
    said: Edits = {
        "env": [f"{key}={value}" for key, value in environment.items()],
        "mounts": [
            {"hostPath": host, "containerPath": inside, "options": ["bind", *([] if inside == "/dev/shm" else ["ro"])]}
            for host, inside in mounts
        ],
    }
    if nodes:
        said["deviceNodes"] = [{"path": node} for node in nodes]
    return said


def spec(devices: Mapping[str, Edits]) -> str:
    """The text of a CDI file with these devices, by name."""
    listed = [{"name": name, "containerEdits": said} for name, said in devices.items()]
    return json.dumps({"cdiVersion": VERSION, "kind": names.CDI_KIND, "devices": listed}, indent=1) + "\n"


@dataclass(frozen=True)
class Place:
    """What this node gives to every share: paths on the host of the library and of an ld.so.preload that names it;
    of a simulated machine the folder of its driver and its GEMINI_SIM; `nodes`: the device nodes of cards."""

    library: Path
    preload: Path
    sim: tuple[Path, str] | None = None
    nodes: Callable[[Sequence[Gpu]], Sequence[str]] = lambda _: ()

    def describe(self, share: Share) -> Edits:
        """What a container of this share gets."""
        promised, cards = share.spec, ",".join(gpu.uuid for gpu in share.gpus)
        environment = {
            names.ENV_PRELOAD: names.LIBRARY_PATH,
            names.ENV_SOCKET: f"ipc://{names.SOCKET_PATH}",
            names.ENV_REQUEST: share_text(promised.request_ppm),
            names.ENV_LIMIT: share_text(promised.limit_ppm),
        }
        if promised.memory_bytes:
            card = min(gpu.memory_bytes for gpu in share.gpus)
            environment[names.ENV_MEMORY_LIMIT] = str(promised.memory_bytes)
            environment[names.ENV_MEMORY_FRACTION] = f"{min(1.0, promised.memory_bytes / card):.4g}"
        if share.narrowed:
            environment["CUDA_VISIBLE_DEVICES"] = cards
        # The folder, not the socket in it: the next daemon's socket is another file.
        mounts = [(str(self.library), names.LIBRARY_PATH), (str(share.folder), _SOCKETS)]
        mounts.append((str(self.preload), names.PRELOAD_FILE))  # env -i and podman exec are inside too
        if self.sim is None:
            environment[names.ENV_VISIBLE_DEVICES] = cards  # for NVIDIA's runtime, which brings the driver's libraries
        else:
            driver, machine = self.sim
            environment |= {names.ENV_SIM: machine, "LD_LIBRARY_PATH": names.SIM_PATH}
            mounts += [(str(driver), names.SIM_PATH), ("/dev/shm", "/dev/shm")]
        return edits(environment, mounts, self.nodes(share.gpus))


class Folder:
    """The daemon's CDI file in `folder`. `describe` says what a share brings into a container."""

    def __init__(self, folder: Path, state_dir: Path, describe: Callable[[Share], Edits]) -> None:
        self.where = str(folder)
        self.problem: str | None = None
        self.file = folder / f"{_PREFIX}{hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:8]}.json"
        self._describe = describe
        self._text: str | None = None  # what stands there; None: no shares, so no file
        self._stamp: tuple[int, int, int] | None = None

    def publish(self, shares: Sequence[Share]) -> None:
        self._text = spec({share.spec.name: self._describe(share) for share in shares}) if shares else None
        self._clear_others()
        self._write()

    def look(self) -> None:
        if self._stamp != _stamp(self.file):
            log.warning("cdi-made-anew file=%s", self.file)
            self._write()
        elif self.problem is not None:
            self._write()

    def _write(self) -> None:
        try:
            if self._text is None:
                self.file.unlink(missing_ok=True)
            else:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                private.replace_file(self.file, self._text.encode())  # its draft's name is none that runtimes read
            self._said(None)
        except OSError as error:
            self._said(f"{self.file}: {error.strerror}; give gemini serve another --cdi-dir")
        self._stamp = _stamp(self.file)

    def _said(self, problem: str | None) -> None:
        if problem is not None and problem != self.problem:
            log.error("cdi-unwritable reason=%s", problem)
        self.problem = problem

    def _clear_others(self) -> None:
        for other in self.file.parent.glob(f"{_PREFIX}*.json"):
            if other != self.file and (state := _state_dir(other)) is not None and not state.exists():
                log.warning("cdi-left-over file=%s state_dir=%s", other, state)
                with contextlib.suppress(OSError):
                    other.unlink()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _state_dir(file: Path) -> Path | None:
    """The state directory whose tenants a CDI file of ours names; None where it names none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        for device in json.loads(file.read_text())["devices"]:
            for mount in device["containerEdits"]["mounts"]:
                if mount["containerPath"] == _SOCKETS:
                    return Path(mount["hostPath"]).parents[1]  # STATE_DIR/tenants/NAME
    return None
