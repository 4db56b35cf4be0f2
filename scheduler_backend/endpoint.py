"""A tenant's sockets, its page and its clients: the place, and who may come in. It hears no message.

All connections of a tenant, and its listener, lie in one epoll set of its own, which is one descriptor of the loop's.
So a tenant that may say no more for now is simply not looked at, whatever it does, and what it sends stays in the
kernel and then with its processes. The same for who wants to come in: who may not waits in the kernel's queue.

Connections have an end in number and in time. One that did not say greeting and READY in HANDSHAKE_SECONDS is closed;
where a tenant has MOST_STANDING, one that serves no process makes room for the next.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
from collections.abc import Iterable
from pathlib import Path

from scheduler_backend import descriptors, rights
from scheduler_backend.allowance import Allowance
from scheduler_backend.bounds import (
    ACCEPTED_A_TURN,
    BACKLOG,
    COMPLAINTS_A_SECOND,
    CONNECTIONS_A_SECOND,
    CONNECTIONS_AT_ONCE,
    HANDSHAKE_SECONDS,
    HELLOS_A_SECOND,
    HELLOS_AT_ONCE,
    MESSAGES_A_SECOND,
    MESSAGES_AT_ONCE,
    MOST_STANDING,
)
from scheduler_backend.connection import Connection
from scheduler_backend.page import TokenPage
from scheduler_backend.peers import PageListener, Peer
from scheduler_backend.sockets import is_socket, listen_at, make_folder, set_aside
from scheduler_backend.subids import person
from scheduler_backend.tally import Counters

_SERIALS = itertools.count(1)
DESCRIPTORS_OF_PAGE = 3  # of a page connection: its own, the process's and the carrier's
_IN, _IN_OUT, _OUT = select.EPOLLIN, select.EPOLLIN | select.EPOLLOUT, select.EPOLLOUT


class Client:
    """One process of a tenant, from its first Hello to its death; it may reconnect in between."""

    __slots__ = (
        "again", "devices", "gpus", "hello_serial", "library", "nonce", "number", "peer", "pid", "program",
        "proven_pid", "returned", "route", "taken", "tenant", "told", "uuids",
    )  # fmt: skip

    def __init__(self, number: int, tenant: str, nonce: int) -> None:
        self.number = number
        self.tenant = tenant
        self.nonce = nonce
        self.route: Connection | None = None  # where its Hello was said last
        self.hello_serial = 0  # of the Hello that was said there
        self.again = False  # it is known from an earlier daemon
        self.peer: Peer | None = None  # known by the page socket
        self.proven_pid = 0  # as the kernel says of its connection; 0: unknown
        self.pid = 0  # for people: as it says, where nothing is proven
        self.program = ""
        self.library = ""
        self.uuids: tuple[bytes, ...] = ()
        self.gpus: dict[int, int] = {}  # its device -> our GPU
        self.devices: dict[int, int] = {}  # our GPU -> its device
        self.returned: dict[int, int] = {}  # GPU -> the epoch that it gave back, until it is granted one
        self.taken: dict[int, int] = {}  # GPU -> the same, where its Return came with the word that it had drained
        self.told: dict[int, int] = {}  # GPU -> the epoch of the last grant prepared for it, on this connection


def free_number(taken: Iterable[int]) -> int:
    """The smallest number from 1 on that no tenant has: the carrier has room for so many, and counts for each."""
    known = set(taken)
    return next(number for number in itertools.count(1) if number not in known)


class Endpoint:
    """One tenant's sockets. Raises OSError where they cannot be made."""

    def __init__(self, name: str, number: int, folder: Path, incarnation: int, owner: int | None) -> None:
        self.name = name
        self.number = number  # of those that are there; for the carrier
        self.serial = next(_SERIALS)  # of all that there ever were
        self.owner = owner  # the only user who gets in, besides root and us; None: whoever sees the folder
        self.person = None if owner is None else person(owner)  # whose bounds it counts for
        self.party: object = name if self.person is None else self.person  # with whom it has a part of what is all's
        self.folder = folder
        self.users = frozenset() if owner is None else frozenset({owner, os.getuid(), 0})
        self.by_nonce: dict[int, Client] = {}
        self.kept = ""  # these as state.json has them; empty: to be told anew
        self.peers: dict[int, Peer] = {}  # nonce -> process that has not said Hello yet
        self.connections: dict[int, Connection] = {}  # by descriptor, the oldest first
        self.shaking: dict[int, Connection] = {}  # of them, those whose handshake is not over
        self.behind: dict[int, Connection] = {}  # of them, those of which something was read that is not heard yet
        self.counters = Counters()
        self.listener: PageListener | None = None
        self.draining = False  # a look at the connections is already due
        self.allowance = Allowance(MESSAGES_A_SECOND, MESSAGES_AT_ONCE)
        self.hellos = Allowance(HELLOS_A_SECOND, HELLOS_AT_ONCE)
        self.newcomers = Allowance(CONNECTIONS_A_SECOND, CONNECTIONS_AT_ONCE)
        self.complaints = Allowance(COMPLAINTS_A_SECOND, 4 * COMPLAINTS_A_SECOND)
        self.pauses = 0  # how often it was not read, or not listened to, for having said too much
        self.paused = False
        self.shut = True  # nobody new is let in for now
        self.closed = False
        self.said_hello = False  # just now
        self.told_ungated = False
        set_aside(folder)
        make_folder(folder, owner)
        self._listening = self._listen()
        with contextlib.ExitStack() as made:
            made.callback(rights.end, self._listening)
            self._ready = select.epoll()
            made.callback(self._ready.close)
            self.page = TokenPage(name, incarnation)
            made.pop_all()
        self.fd = self._ready.fileno()  # readable when one of them is, or somebody wants to come in
        self.open()

    @property
    def socket_path(self) -> Path:
        """What the tenant gets as GEMINI_SOCKET."""
        return self.folder / "tenant.sock"

    @property
    def page_path(self) -> Path:
        """Where its page is handed out."""
        return self.folder / "tenant.sock.page"

    def complete(self) -> bool:
        """Are the files of its sockets there?"""
        return is_socket(self.socket_path) and is_socket(self.page_path)

    @property
    def descriptors(self) -> int:
        """How many of ours it takes, about."""
        pages = 0 if self.listener is None else len(self.listener)
        return len(self.connections) + DESCRIPTORS_OF_PAGE * pages + len(self.by_nonce) + len(self.peers)

    # --- the door ---------------------------------------------------------------------------------------------------
    def _listen(self) -> socket.socket:
        return listen_at(self.socket_path, min(BACKLOG, descriptors.reserve() // 2), self.owner)

    def reopen(self) -> None:
        """Its files are gone: listen at new ones; connections stay. Raises OSError."""
        make_folder(self.folder, self.owner)
        if not is_socket(self.socket_path):
            listening, shut = self._listen(), self.shut
            self.shut_out()
            rights.end(self._listening)
            self._listening = listening
            if not shut:
                self.open()
        if self.listener is not None and not is_socket(self.page_path):
            self.listener.reopen()

    def open(self) -> None:
        """Let processes in."""
        if self.shut and not self.closed:
            self._ready.register(self._listening.fileno(), _IN)
            self.shut = False

    def shut_out(self) -> None:
        """Let nobody new in: they wait in the kernel's queue; connections stay."""
        if not self.shut and not self.closed:
            self._ready.unregister(self._listening.fileno())
            self.shut = True

    def ready(self, most: int) -> tuple[list[Connection], bool]:
        """Connections that have something to say, at most so many, those that are behind first; and whether somebody
        wants to come in. What could not be written before is written."""
        found = list(self.behind.values())[:most]
        knocks = False
        for fd, event in self._ready.poll(0, most):
            connection = self.connections.get(fd)
            if connection is None:
                knocks = True
                continue
            if event & _OUT and connection.unsent:
                self.settle(connection, connection.flush())
            if event & ~_OUT and connection.is_open and fd not in self.behind:
                found.append(connection)
        return found, knocks

    def accept(self, now_ns: int) -> int:
        """Take in some of those who wait, as far as the tenant may have newcomers; how many. Raises OSError where
        descriptors are short."""
        for taken in range(ACCEPTED_A_TURN):
            if self.newcomers.whole(now_ns) < 1:
                return taken
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return taken
            self.newcomers.take()
            accepted.setblocking(False)
            try:
                connection = Connection(accepted, now_ns)
            except OSError:
                rights.close(accepted)
                continue
            if self.users and connection.uid not in self.users:
                connection.close()
                continue
            self._make_room()
            self._ready.register(connection.fd, _IN)
            self.connections[connection.fd] = self.shaking[connection.fd] = connection
            self.settle(connection, connection.greet())
        return ACCEPTED_A_TURN

    def _make_room(self) -> None:
        """Where all places are taken, of those that serve no process the one that came first is closed."""
        if len(self.connections) < MOST_STANDING:
            return
        for connection in self.connections.values():
            if connection.client is None:
                self.drop(connection)
                return

    def end_slow(self, now_ns: int) -> int:
        """Close those that did not say greeting and READY in time; how many."""
        late = [one for one in self.shaking.values() if now_ns - one.since_ns > HANDSHAKE_SECONDS * 1_000_000_000]
        for connection in late:
            self.drop(connection)
        return len(late)

    def settle(self, connection: Connection, written: bool) -> bool:
        """After something was written to it: come back for what the kernel did not take, or drop it; `written`."""
        if not connection.is_open:
            return False
        if not written:
            self.drop(connection)
            return False
        if bool(connection.unsent) != connection.is_waiting:
            connection.is_waiting = bool(connection.unsent)
            self._ready.modify(connection.fd, _IN_OUT if connection.unsent else _IN)
        return True

    def drop(self, connection: Connection) -> None:
        """Close it; what its client held stays the client's."""
        if not connection.is_open:
            return
        fd, client = connection.fd, connection.client
        for table in (self.connections, self.shaking, self.behind):
            table.pop(fd, None)
        self._ready.unregister(fd)
        if client is not None and client.route is connection:
            client.route = None
        connection.close()

    # --- the end ----------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Close all that was made here."""
        if self.closed:
            return
        for connection in list(self.connections.values()):
            self.drop(connection)
        self.shut_out()
        self.closed = True
        rights.end(self._listening)
        self._ready.close()
        if self.listener is not None:
            self.listener.close()
        self.page.close()
        with contextlib.suppress(OSError):
            self.socket_path.unlink()
