"""One daemon for a card, whoever starts it, on whatever state directory: two of them would promise it twice.

Each card has a lock by its UUID in two forms, both of which end with the process, however it ends:
- a listening socket of an abstract name, which all users of a network namespace see; it says who has the card
- a record lock (OFD) on a file that whoever uses the card has mapped: the driver's NVML library, which containers
  are given from the host, or the simulated machine's memory. So containers of other networks are seen as well.

Anybody may take either, as anybody may run a daemon: then nobody else can, and the refusal names that process. The file
can be read in every container, so any tenant can hold the record, and any user of the machine the name while the daemon
is away for a moment. A daemon that had the card in this boot of the machine goes on beside a record all the same. If it
is root's, it goes on beside a name that is not root's, too. A warning names the process in either case: no tenant may
keep the daemon from coming back.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import select
import socket
import struct
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scheduler_backend import rights
from scheduler_backend.allowance import Allowance
from scheduler_backend.bounds import HOLDER_QUESTIONS_A_SECOND, HOLDER_QUESTIONS_AT_ONCE
from scheduler_backend.devices import Gpu
from scheduler_backend.problem import Problem
from scheduler_backend.users import user_name

log = logging.getLogger("gemini.cardlock")

ENDING_SECONDS = 5.0  # that one which is ending may take; it holds the card to the last
ANSWER_SECONDS = 1.0  # a daemon that is alive has said whose it is by then
SEARCH_SECONDS = 1.0  # for the process that has a card's record; it is only named
_LONGEST_ANSWER = 4096
_LONGEST_FDINFO = 64 << 10  # characters; a process may have as many locks, or watches, as it likes
_FLOCK = struct.Struct("@hhqqi0q")  # struct flock
_UCRED = struct.Struct("3i")
_LOCK = re.compile(r"lock:\s*\d+: OFDLCK\s+\S+\s+\S+\s+-?\d+\s+[0-9a-f]+:[0-9a-f]+:(\d+)\s+(\d+)\s+(\d+|EOF)")
_SIM_ID = re.compile(r"(?:^|,)id=([^,]+)")


class Holder(NamedTuple):
    """The daemon that has a card, as far as that can be seen from here."""

    pid: int  # 0: of another container
    uid: int  # -1: not known
    state_dir: str  # "": it does not say
    program: str = ""  # of one that has the record of the card's file

    def told(self) -> str:
        """As a person reads it."""
        if self.program:
            who = f"process {self.pid} ({self.program}) of user {user_name(self.uid)}"
            return f"a daemon in another container, or what has locked its file as one would: {who}"
        who = "in another container" if self.uid < 0 else f"of user {user_name(self.uid)}"
        number = f", process {self.pid}" if self.pid else ""
        return f"a daemon {who}{number}" + (f", on {self.state_dir}" if self.state_dir else "")


def machine_file(sim: str | None) -> Path | None:
    """The file that stands for this machine's cards, which this process has mapped; None: there is none."""
    if sim is not None:
        found = _SIM_ID.search(sim)
        end = f"-{found[1] if found else 'default'}"
        return next((path for path in _mapped("/dev/shm/gemini-sim-") if path.name.endswith(end)), None)
    return next(iter(_mapped("/", "libnvidia-ml.so")), None)


def _mapped(begin: str, part: str = "") -> list[Path]:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = [fields[5] for line in lines if len(fields := line.split(None, 5)) == 6]
    return [Path(path) for path in dict.fromkeys(paths) if path.startswith(begin) and part in path]


def address(gpu: Gpu, file: Path) -> bytes:
    """The abstract name of a card's socket. Simulated machines of one name may be several: their memory is not."""
    name = f"gemini-card-{gpu.uuid}"
    if gpu.simulated:
        found = file.stat()
        name += f"-{found.st_dev:x}-{found.st_ino:x}"
    return b"\0" + name.encode()


def holder(name: bytes) -> Holder | None:
    """Who has the card of this name, by its socket; None: nobody."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        rights.refuse(connection)
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(name)
        except (ConnectionRefusedError, FileNotFoundError):
            return None
        except OSError:  # more ask than it answers
            return Holder(0, -1, "")
        pid, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        said = _answer(connection)
    finally:
        rights.close(connection)
    try:
        where = json.loads(said)["state_dir"]
    except (ValueError, KeyError, TypeError):
        where = ""
    return Holder(pid, uid, where if isinstance(where, str) and where.isprintable() else "")


def _answer(connection: socket.socket) -> bytes:
    """What it says within ANSWER_SECONDS, whoever it is and however slowly."""
    until, said, ready = time.monotonic() + ANSWER_SECONDS, b"", select.poll()
    ready.register(connection, select.POLLIN)
    with contextlib.suppress(OSError):
        while len(said) < _LONGEST_ANSWER and (left := until - time.monotonic()) > 0 and ready.poll(1000 * left):
            if not (part := rights.recv(connection, _LONGEST_ANSWER)):
                break
            said += part
    return said


def holders(gpus: Sequence[Gpu], sim: str | None) -> list[Holder | None]:
    """Who has each of these cards, which this process has seen by NVML or as a simulated machine's."""
    file = machine_file(sim)
    if file is None:
        return [None] * len(gpus)
    found = []
    for gpu in gpus:
        with contextlib.suppress(OSError):
            one = holder(address(gpu, file))
            found.append(one if one is not None or not _elsewhere(file, gpu) else locker(file, gpu))
            continue
        found.append(None)
    return found


def _key(gpu: Gpu) -> int:
    """The byte of the file that stands for a card."""
    return zlib.crc32(gpu.uuid.encode())


def _record(gpu: Gpu, kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, _key(gpu), 1, 0)


def _elsewhere(file: Path, gpu: Gpu, descriptor: int | None = None) -> bool:
    """Is there a record lock on this card, besides that of our own descriptor?"""
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else descriptor
    try:
        found = fcntl.fcntl(opened, fcntl.F_OFD_GETLK, _record(gpu, fcntl.F_WRLCK))
    finally:
        if descriptor is None:
            os.close(opened)
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


def locker(file: Path, gpu: Gpu) -> Holder:
    """Which process has the record of a card, other than this one, as far as it can be seen from here, and soon: who
    opens a million files keeps nobody waiting, and may stay unnamed."""
    key, wanted, until = _key(gpu), os.stat(file), time.monotonic() + SEARCH_SECONDS
    for fdinfo in Path("/proc").glob("[0-9]*/fdinfo"):
        if time.monotonic() > until:
            break
        process = fdinfo.parent
        with contextlib.suppress(OSError, ValueError):
            if int(process.name) == os.getpid() or not _locks(fdinfo, wanted, key, until):
                continue
            program = (process / "comm").read_text(errors="replace").strip()
            return Holder(int(process.name), process.stat().st_uid, "", "".join(filter(str.isprintable, program)))
    return Holder(0, -1, "")


def _locks(fdinfo: Path, file: os.stat_result, key: int, until: float) -> bool:
    """Has a descriptor of this process a record lock that covers the key?"""
    with os.scandir(fdinfo) as descriptors:
        for descriptor in descriptors:
            if time.monotonic() > until:
                return False
            with contextlib.suppress(OSError), open(descriptor.path, errors="replace") as told:
                for line in told.read(_LONGEST_FDINFO).splitlines():
                    found = _LOCK.match(line)
                    if found is None or int(found[1]) != file.st_ino:
                        continue
                    if int(found[2]) <= key and (found[3] == "EOF" or key <= int(found[3])):
                        return True
    return False


class CardLock:
    """Has all cards of the machine, or raises Problem that says who has one. Answers who asks once it `listens`.

    `had`: UUIDs of cards that the daemon of this state directory had in this boot of the machine, and did not leave for
    want of tenants.
    """

    def __init__(self, gpus: Sequence[Gpu], state_dir: Path, sim: str | None, had: Sequence[str] = ()) -> None:
        self._answer = json.dumps({"state_dir": str(state_dir)}).encode()
        self._sockets: list[socket.socket] = []
        self._record = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._allowance = Allowance(HOLDER_QUESTIONS_A_SECOND, HOLDER_QUESTIONS_AT_ONCE)
        file = machine_file(sim)
        if file is None:  # cards that are on paper only, or a driver that cannot be looked at
            return
        try:
            for gpu in gpus:
                self._take(gpu, file, state_dir, gpu.uuid in had)
            self._take_records(gpus, file, had)
        except OSError as error:
            self.close()
            raise Problem(f"the cards cannot be locked by {file}: {error.strerror}; see that it can be read") from None
        except Problem:
            self.close()
            raise

    def _take(self, gpu: Gpu, file: Path, state_dir: Path, had: bool) -> None:
        name = address(gpu, file)
        deadline = time.monotonic() + ENDING_SECONDS
        while True:
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            rights.refuse(one)
            try:
                one.bind(name)
                one.listen(8)
                one.setblocking(False)
                self._sockets.append(one)
                return
            except OSError as error:
                one.close()
                if error.errno != errno.EADDRINUSE:
                    raise
            found = holder(name)
            # One of our own state directory is ending: we have its lock. One that does not speak may be.
            ending = found is None or not found.state_dir or found.state_dir == str(state_dir)
            if found is not None and not (ending and time.monotonic() < deadline):
                if not (had and os.geteuid() == 0 and found.uid != 0):
                    raise Problem(refusal(gpu, found))
                _warn_of(gpu, found)
                return
            time.sleep(0.01)

    def _take_records(self, gpus: Sequence[Gpu], file: Path, had: Sequence[str]) -> None:
        self._record = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        deadline = time.monotonic() + ANSWER_SECONDS
        for gpu in gpus:
            try:
                fcntl.fcntl(self._record, fcntl.F_OFD_SETLK, _record(gpu, fcntl.F_RDLCK))
            except OSError:  # a file system without locks: the socket has to do
                return
            while _elsewhere(file, gpu, self._record):
                if time.monotonic() > deadline:
                    found = locker(file, gpu)
                    if gpu.uuid not in had:
                        raise Problem(refusal(gpu, found))
                    _warn_of(gpu, found)
                    break
                time.sleep(0.01)

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on whoever asks is told whose the cards are."""
        self._loop = loop
        for one in self._sockets:
            loop.add_reader(one.fileno(), self._tell, one)

    def _tell(self, listening: socket.socket) -> None:
        assert self._loop is not None
        if not self._allowance.spend(time.monotonic_ns()):  # they wait in the backlog
            self._loop.remove_reader(listening.fileno())
            self._loop.call_later(1 / HOLDER_QUESTIONS_A_SECOND, self._resume, listening)
            return
        with contextlib.suppress(OSError):
            asking, _ = listening.accept()
            asking.setblocking(False)
            try:
                asking.send(self._answer)
            finally:
                rights.close(asking)

    def _resume(self, listening: socket.socket) -> None:
        if self._loop is not None and listening.fileno() >= 0:
            self._loop.add_reader(listening.fileno(), self._tell, listening)

    def close(self) -> None:
        """Let another daemon have them."""
        for one in self._sockets:
            if self._loop is not None:
                self._loop.remove_reader(one.fileno())
            rights.end(one)
        self._sockets.clear()
        self._loop = None
        if self._record >= 0:
            os.close(self._record)
            self._record = -1


def _warn_of(gpu: Gpu, found: Holder) -> None:
    log.warning("card-locked gpu=%d uuid=%s by=%s", gpu.index, gpu.uuid, found.told())


def refusal(gpu: Gpu, found: Holder) -> str:
    """One line: who has the card, and what helps."""
    mend = f"use that one (--state-dir {found.state_dir})" if found.state_dir else "use that one"
    return f"GPU {gpu.index} ({gpu.uuid}) is handed out by {found.told()}; {mend}, or end it first"
