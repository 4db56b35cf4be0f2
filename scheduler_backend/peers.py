"""The plain Unix socket beside each tenant's ZeroMQ socket: who is the peer really, and when is it dead.

A client connects, sends struct wire_page_hello, and gets the token page's descriptor. From the connection the daemon
takes the peer's pidfd (SO_PEERPIDFD, Linux 6.5; else pidfd_open of SO_PEERCRED's pid). The pidfd becomes readable when
that process has ended, also when forked children of it keep the connection open: end of file does not do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

from libhook.core import ffi, lib
from scheduler_backend import rights
from scheduler_backend.allowance import Allowance
from scheduler_backend.bounds import MOST_PAGES, PAGE_BACKLOG, PAGES_A_SECOND, PAGES_AT_ONCE
from scheduler_backend.page import SIZE, TokenPage
from scheduler_backend.sockets import listen_at

log = logging.getLogger("gemini.peers")

_SO_PEERPIDFD = 77
_HELLO_SIZE: int = ffi.sizeof("struct wire_page_hello")
_PAUSE_SECONDS = 0.1
_ACCEPTED_A_TURN = 4  # of the loop; the others have their turn between


def start_time(pid: int) -> int:
    """The process's start time in clock ticks since boot (field 22 of /proc/PID/stat); 0 where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


class Peer:
    """A process, held by its pidfd."""

    def __init__(self, pid: int, pidfd: int, uid: int = -1) -> None:
        self.pid = pid
        self.uid = uid  # -1: not asked
        self.pidfd = pidfd
        self.start_time = start_time(pid)
        self.channel = -1  # its page connection, as the carrier numbers it
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def of_connection(cls, connection: socket.socket) -> Peer:
        """The process that made this connection. Raises OSError where it is gone already."""
        pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        try:
            pidfd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError:
            pidfd = os.pidfd_open(pid)
        return cls(pid, pidfd, uid)

    @classmethod
    def of_pid(cls, pid: int, started: int) -> Peer | None:
        """The process of this pid if it lives and is the one that started then; else None."""
        try:
            peer = cls(pid, os.pidfd_open(pid))
        except (OSError, ValueError):
            return None
        if started and peer.start_time == started:
            return peer
        peer.close()
        return None

    def watch(self, loop: asyncio.AbstractEventLoop, on_death: Callable[[], None]) -> None:
        """Call `on_death` once when the process has ended."""
        self._loop = loop

        def ended() -> None:
            loop.remove_reader(self.pidfd)
            on_death()

        loop.add_reader(self.pidfd, ended)

    def close(self) -> None:
        """Stop watching; may be called twice."""
        if self.pidfd >= 0:
            if self._loop is not None:
                self._loop.remove_reader(self.pidfd)
            os.close(self.pidfd)
            self.pidfd = -1


class PageListener:
    """One tenant's `.page` socket. `on_peer(nonce, peer)` gives the peer that is kept (that one, or
    the same process known before) or None; `listen(peer, connection)` says whether the carrier listens from now on.
    Where `users` is not empty a process of another user is turned away, and the socket is `owner`'s. `room` is asked
    before each connection is accepted whether there are descriptors for it; they wait in the backlog meanwhile."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: Path,
        page: TokenPage,
        incarnation: int,
        on_peer: Callable[[int, Peer], Peer | None],
        listen: Callable[[Peer, socket.socket], bool],
        users: frozenset[int] = frozenset(),
        room: Callable[[], bool] = lambda: True,
        owner: int | None = None,
    ) -> None:
        self._users, self._room, self._owner = users, room, owner
        self._allowance = Allowance(PAGES_A_SECOND, PAGES_AT_ONCE)
        self._loop, self._path, self._page, self._incarnation = loop, path, page, incarnation
        self._on_peer, self._listen = on_peer, listen
        self._connections: dict[int, socket.socket] = {}
        self._socket = self._open()

    def _open(self) -> socket.socket:
        listening = listen_at(self._path, PAGE_BACKLOG, self._owner)
        self._loop.add_reader(listening.fileno(), self._accept)
        return listening

    def reopen(self) -> None:
        """Its file is gone: listen at a new one; connections stay. Raises OSError."""
        listening = self._open()
        self._loop.remove_reader(self._socket.fileno())
        rights.end(self._socket)
        self._socket = listening

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_A_TURN):
            if self._allowance.whole(time.monotonic_ns()) < 1 or not self._room():
                self._pause()
                return
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError:  # out of descriptors
                self._pause()
                return
            self._allowance.take()
            connection.setblocking(False)
            if len(self._connections) >= MOST_PAGES:
                rights.close(connection)
                continue
            self._connections[connection.fileno()] = connection
            self._loop.add_reader(connection.fileno(), self._read, connection)

    def _pause(self) -> None:
        """They wait in the backlog, and we do not spin over it meanwhile."""
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(_PAUSE_SECONDS, self._resume, self._socket)

    def _resume(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening.fileno(), self._accept)

    def _read(self, connection: socket.socket) -> None:
        """The hello; after it nothing but the end of the connection, or what the carrier could not take."""
        try:
            hello = rights.recv(connection, _HELLO_SIZE + 1)
        except BlockingIOError:
            return
        except OSError:
            hello = b""
        if len(hello) != _HELLO_SIZE:
            self._drop(connection)
        elif not self._offer(connection, hello):
            self._drop(connection, carried=True)

    def _offer(self, connection: socket.socket, frame: bytes) -> bool:
        hello = ffi.new("struct wire_page_hello *")
        ffi.memmove(hello, frame, _HELLO_SIZE)
        if hello.magic != lib.WIRE_MAGIC or hello.version != lib.WIRE_VERSION or self._page.fd < 0:
            return False  # it goes on by messages alone
        offer = ffi.new(
            "struct wire_page_offer *",
            {"magic": lib.WIRE_MAGIC, "version": lib.WIRE_VERSION, "incarnation": self._incarnation, "size": SIZE},
        )
        try:
            peer = Peer.of_connection(connection)
        except OSError:
            return False
        if self._users and peer.uid not in self._users:
            log.warning("another-user path=%s pid=%d uid=%d", self._path, peer.pid, peer.uid)
            peer.close()
            return False
        kept = self._on_peer(int(hello.client_nonce), peer)
        if kept is None:
            peer.close()
            return False
        try:
            socket.send_fds(connection, [bytes(ffi.buffer(offer))], [self._page.fd])
        except OSError:
            return False
        return not self._listen(kept, connection)  # from here on the carrier has a copy of its own

    def _drop(self, connection: socket.socket, carried: bool = False) -> None:
        """`carried`: the carrier may have a copy."""
        self._loop.remove_reader(connection.fileno())
        self._connections.pop(connection.fileno(), None)
        (rights.leave if carried else rights.close)(connection)

    def __len__(self) -> int:
        """How many connections stand."""
        return len(self._connections)

    def close(self) -> None:
        """Close all connections and remove the socket's file."""
        self._loop.remove_reader(self._socket.fileno())
        rights.end(self._socket)
        for connection in list(self._connections.values()):
            self._drop(connection)
        with contextlib.suppress(OSError):
            self._path.unlink()
