"""Who is on the cards without the library: processes that NVML lists there and that are no client of this daemon.

A static program, a cleared environment, an image without the library: their work runs whoever holds the token, so no
share can be kept against it. Whose it is, is told by what such a process cannot lose: the tenant's folder that is
mounted into its container, the socket in its first environment, or the process it descends from. Where a tenant is one
user's, only that user's processes and root's are found to be its. What is none of these is a stranger. Looked at when
somebody asks how things are, at most once a second, and from a thread: the driver may take its time, and a process can
keep whoever reads its memory (/proc/PID/environ) waiting for ever. Who asks then gets what is known. There may be many,
and each may make its files as long as it likes. So a look takes so much of a processor and no more, for the loop has
the same interpreter: those it does not come to have their turn in the next. Nothing is done about them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scheduler_backend import devices
from scheduler_backend.aside import Aside
from scheduler_backend.devices import Gpu

log = logging.getLogger("gemini.outside")

LOOK_NS = 1_000_000_000
LOOK_TAKES_NS = 30_000_000  # of a processor; at most once in LOOK_NS
ONE_TAKES_NS = 5_000_000  # of that; it does for ten thousand mounts, and a container has some tens
PATIENCE_SECONDS = 1.0  # for one look; the next ones do not wait for one that hangs
_GENERATIONS = 16  # of ancestors that are looked at
_MOST_BYTES = 512 << 10  # of a file that a process fills as it likes; more of it would be held in our memory at once
_EVER_NS = 1 << 62
_MARK = b"\0GEMINI_SOCKET="


class Stray(NamedTuple):
    """A process on a card that runs past us; `tenant` None: a stranger."""

    gpu: int
    pid: int
    tenant: str | None


class Outside:
    """The last look. `tenants` says name -> user whose it is, None: anybody's. `clients` and `registrants` say
    pid -> tenant: of the clients, and of those processes for whose lifetime a tenant was registered."""

    def __init__(
        self,
        gpus: Sequence[Gpu],
        folder: Path,
        tenants: Callable[[], dict[str, int | None]],
        clients: Callable[[], dict[int, str]],
        running: Callable[[Gpu], list[int]] = devices.running,
        proc: Path = Path("/proc"),
    ) -> None:
        self._gpus, self._folder, self._proc = gpus, folder, proc
        self._tenants, self._clients, self._running = tenants, clients, running
        self.registrants: Callable[[], dict[int, str]] = dict
        self._looked_ns: int | None = None
        self._looking = asyncio.Lock()
        self._aside = Aside("gemini-outside")
        self._under_way: asyncio.Task[list[Stray]] | None = None
        self._hangs = False
        self._told: dict[int, str | None] = {}  # by pid, whose it was found to be; who was looked at last stands last
        self._counts: Counter[tuple[str | None, int]] = Counter()
        self.strays: list[Stray] = []

    async def look(self) -> None:
        """Bring `strays` up to date, as far as that can be done in time."""
        async with self._looking:
            now_ns = time.monotonic_ns()
            if self._looked_ns is not None and now_ns - self._looked_ns < LOOK_NS:
                return
            if self._under_way is None:
                clients, registrants, tenants = self._clients(), self.registrants(), self._tenants()
                look = self._aside.do(lambda: self._look(clients, registrants, tenants))
                self._under_way = asyncio.get_running_loop().create_task(look)
            await asyncio.wait([self._under_way], timeout=0 if self._hangs else PATIENCE_SECONDS)
            self._looked_ns = time.monotonic_ns()
            if not self._under_way.done():
                if not self._hangs:
                    log.warning("look-hangs seconds=%.0f what=processes-on-the-cards", PATIENCE_SECONDS)
                self._hangs = True
                return
            found, self._under_way, self._hangs = self._under_way.result(), None, False
            known = self._clients()  # one may have said Hello meanwhile
            self.strays = [stray for stray in found if stray.pid not in known]
            self._counts = Counter((stray.tenant, stray.gpu) for stray in self.strays)

    def count(self, tenant: str | None, gpu: int | None = None) -> int:
        """How many of them a tenant has, on one GPU or on all; strangers with None."""
        gpus = [one.index for one in self._gpus] if gpu is None else [gpu]
        return sum(self._counts[tenant, index] for index in gpus)

    def _look(
        self, clients: dict[int, str], registrants: dict[int, str], tenants: dict[str, int | None]
    ) -> list[Stray]:
        shown = [
            (gpu.index, pid)
            for gpu in self._gpus
            for pid in self._running(gpu)
            # One that is not in our /proc is in another's pid namespace: it may well be a client.
            if pid not in clients and (self._proc / str(pid)).exists()
        ]
        pids = dict.fromkeys(pid for _, pid in shown)
        self._told = {pid: tenant for pid, tenant in self._told.items() if pid in pids}
        owners = {**registrants, **clients}
        until_ns = time.thread_time_ns() + LOOK_TAKES_NS
        for pid in [*(pid for pid in pids if pid not in self._told), *self._told]:  # who is new comes first
            now_ns = time.thread_time_ns()
            if now_ns >= until_ns:
                break
            self._told.pop(pid, None)
            self._told[pid] = tenant_of(pid, self._folder, tenants, owners, self._proc, now_ns + ONE_TAKES_NS)
        return [Stray(gpu, pid, self._told.get(pid)) for gpu, pid in shown]


def tenant_of(
    pid: int,
    folder: Path,
    tenants: Mapping[str, int | None],
    owners: Mapping[int, str],
    proc: Path = Path("/proc"),
    until_ns: int = _EVER_NS,
) -> str | None:
    """Whose process this is, out of `tenants`, whose folders lie in `folder`; None: nobody's, or it does not show
    before this thread has had so much of a processor (time.thread_time_ns)."""
    uid = _user_of(pid, proc)
    if uid is None:
        return None
    may = {name for name, owner in tenants.items() if owner is None or uid in (0, owner)}
    return (
        _mounted(pid, folder, may, proc, until_ns)
        or _told(pid, folder, may, proc, until_ns)
        or _descends(pid, owners, proc)
    )


def _user_of(pid: int, proc: Path) -> int | None:
    """Its real user; not the owner of its folder in /proc, which is root where it may not be looked into."""
    try:
        text = (proc / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return None
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Uid:")), None)


def _begun(path: Path, until_ns: int) -> bytes:
    """How a file of /proc begins. The kernel makes it in pieces, each of which may take it long: mounts that lie on one
    another by the thousand cost it a walk through all for each line. Raises OSError."""
    with path.open("rb", buffering=0) as file:
        found, size = [], 0
        while size < _MOST_BYTES and time.thread_time_ns() < until_ns and (part := file.read(_MOST_BYTES - size)):
            found.append(part)
            size += len(part)
    return b"".join(found)


def _mounted(pid: int, folder: Path, tenants: Collection[str], proc: Path, until_ns: int) -> str | None:
    """The tenant whose folder is mounted into the process's container. The fourth field of mountinfo is where the mount
    lies in its file system, which may begin anywhere on our path to it."""
    try:
        text = _begun(proc / str(pid) / "mountinfo", until_ns)
    except OSError:
        return None
    mark = os.fsencode(f"/{folder.name}/")
    for line in text.splitlines() if mark in text else ():
        if mark not in line:
            continue
        fields = line.decode(errors="replace").split(None, 4)
        parts = fields[3].rsplit("/", 2) if len(fields) > 4 else []
        if parts[1:2] == [folder.name] and parts[2] in tenants and str(folder / parts[2]).endswith(fields[3]):
            return parts[2]
    return None


def _told(pid: int, folder: Path, tenants: Collection[str], proc: Path, until_ns: int) -> str | None:
    """The tenant whose socket stands in the environment that the process was started with."""
    try:
        words = b"\0" + _begun(proc / str(pid) / "environ", until_ns)
    except OSError:
        return None
    at = words.find(_MARK)
    if at < 0:
        return None
    path = Path(words[at + len(_MARK) :].partition(b"\0")[0].decode(errors="replace").removeprefix("ipc://"))
    return path.parent.name if path.parent.parent == folder and path.parent.name in tenants else None


def _descends(pid: int, owners: Mapping[int, str], proc: Path) -> str | None:
    """The tenant of its nearest ancestor that is known."""
    for _ in range(_GENERATIONS):
        try:
            stat = (proc / str(pid) / "stat").read_bytes()
        except OSError:
            return None
        pid = int(stat[stat.rindex(b")") + 2 :].split()[1])
        if pid in owners:
            return owners[pid]
        if pid <= 1:
            return None
    return None
