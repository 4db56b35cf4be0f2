"""A tenant's sockets, its page and its clients: the place, and who may come in. It reads no message.

libzmq accepts whoever comes, on a thread of its own and without end, so a tenant that connects ever anew would burn a
processor of everybody's. So the socket's monitor tells of each connection that was accepted, and the file of a socket
whose tenant has used up what it may make a second is moved to where its containers do not see it, for a while.
Connections that stand are not touched by that. Who kept another way to the file finds the listener gone, and all
connections of its tenant with it (libzmq ends them with their listener). The same befalls a tenant with too many
connections that stand, until it has fewer; what libzmq keeps unread of each is little, the rest stays in the kernel.

No ZMTP heartbeats: libzmq 4.3.5 sends one on a connection whose other end has gone while its messages were not being
read, and ends the process over it (stream_engine_base.cpp, out_event: assertion !_io_error). A death is seen by the
pidfd, a client without one is asked each second.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from pathlib import Path

import zmq

from scheduler_backend import descriptors, wire
from scheduler_backend.allowance import Allowance
from scheduler_backend.page import TokenPage
from scheduler_backend.peers import PageListener, Peer
from scheduler_backend.tally import Counters

CONNECTIONS_A_SECOND, CONNECTIONS_AT_ONCE = 50, 512  # of one tenant
MOST_STANDING = 512  # connections of one tenant: twice its processes, as all may come back before the old ones end
MOST_UNREAD = 16  # messages of one connection that libzmq keeps; each may take 8 KiB, in the buffer that it came in
LONGEST_UNREAD_NS, LATE_A_SECOND = 5_000_000_000, 2  # so many new connections then, until all is read
MESSAGES_A_SECOND, MESSAGES_AT_ONCE = 1000, 1000  # who takes and gives back memory 400 times a second says 800
MOST_UNHEARD = 4096  # connections of one tenant that are remembered as closed
HELLOS_A_SECOND, HELLOS_AT_ONCE = 20, 300  # of one tenant: each costs as much as twenty other messages
COMPLAINTS_A_SECOND = 5  # about one tenant, in the log
_BACKLOG = 512  # whoever waits there comes in, also after the file was hidden
_MOST_QUEUED = 2 * _BACKLOG  # in it, and before the file was hidden
_NOBLOCK, _ACCEPTED = int(zmq.NOBLOCK), int(zmq.EVENT_ACCEPTED)
_MONITORED = struct.Struct("=HI")  # zmq_socket_monitor(3): the event, and the connection's descriptor


class Client:
    """One process of a tenant, from its first Hello to its death; it may reconnect in between."""

    __slots__ = (
        "devices", "gpus", "hello_serial", "library", "nonce", "number", "peer", "pid", "program", "proven_pid",
        "returned", "route", "taken", "tenant", "told", "uuids",
    )  # fmt: skip

    def __init__(self, number: int, tenant: str, nonce: int) -> None:
        self.number = number
        self.tenant = tenant
        self.nonce = nonce
        self.route: bytes | None = None  # its connection, as the ROUTER names it
        self.hello_serial = 0  # of the Hello that was said there
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


def _add(routes: dict[bytes, None], route: bytes) -> None:
    while len(routes) >= MOST_UNHEARD:
        del routes[next(iter(routes))]
    routes[route] = None


class Endpoint:
    """One tenant's sockets. Raises OSError or ZMQError where they cannot be made."""

    def __init__(
        self,
        name: str,
        number: int,
        folder: Path,
        context: zmq.Context[zmq.Socket[bytes]],
        affinity: int,
        incarnation: int,
        owner: int | None,
    ) -> None:
        self.name = name
        self.number = number  # counts tenants; for the carrier
        self.owner = owner  # the only user who gets in, besides root and us; None: whoever sees the folder
        self.folder = folder
        self.users = frozenset() if owner is None else frozenset({owner, os.getuid(), 0})
        self.by_route: dict[bytes, Client] = {}
        self.by_nonce: dict[int, Client] = {}
        self.peers: dict[int, Peer] = {}  # nonce -> process that has not said Hello yet
        self.unheard: dict[bytes, None] = {}  # connections of which nothing is taken any more, the oldest first
        self.left: dict[bytes, None] = {}  # of which nothing is taken before the next Hello
        self.counters = Counters()
        self.listener: PageListener | None = None
        self.draining = False  # a look at the socket is already due
        self.allowance = Allowance(MESSAGES_A_SECOND, MESSAGES_AT_ONCE)
        self.hellos = Allowance(HELLOS_A_SECOND, HELLOS_AT_ONCE)
        self.connections = Allowance(CONNECTIONS_A_SECOND, CONNECTIONS_AT_ONCE)
        self.complaints = Allowance(COMPLAINTS_A_SECOND, 4 * COMPLAINTS_A_SECOND)
        self.pauses = 0  # how often it was not read, or not listened to, for having said too much
        self.paused = False
        self.behind_ns = 0  # since when there has been something unread that it may not say yet; 0: all is read
        self.shut = True  # nobody new is let in for now
        self._bound = False
        self.came = 0  # connections since the server looked last; it writes 0
        self._standing: set[int] = set()  # libzmq's descriptors of the connections there are
        self.said_hello = False  # just now
        self.told_ungated = False
        self.router: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        self._monitor: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        try:
            self._configure(affinity)
            self.open()
            self.page = TokenPage(name, incarnation)
        except (OSError, zmq.ZMQError):
            self._monitor.close(0)
            self.router.close(0)
            raise
        self.fd = int(self.router.getsockopt(zmq.FD))
        self.monitor_fd = int(self._monitor.getsockopt(zmq.FD))

    def hear_no_more(self, route: bytes) -> None:
        """Whatever still comes on this connection is passed over."""
        _add(self.unheard, route)

    def leave(self, route: bytes) -> None:
        """It is closed, or left for another: what is still to be read there is passed over. A client that chose its
        routing id may come back with it, and says Hello then."""
        _add(self.left, route)

    def _configure(self, affinity: int) -> None:
        router = self.router
        router.setsockopt(zmq.AFFINITY, affinity)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a send to who is gone is an error, not a loss
        router.setsockopt(zmq.ROUTER_HANDOVER, 1)  # who comes back with its routing id gets it
        router.setsockopt(zmq.MAXMSGSIZE, wire.MAX_SIZE)  # libzmq closes the connection that sends more
        router.setsockopt(zmq.LINGER, 200)
        router.setsockopt(zmq.RCVHWM, MOST_UNREAD)
        for user in self.users:
            router.setsockopt(zmq.IPC_FILTER_UID, user)
        address = f"inproc://{self.name}-{id(self)}"
        self._monitor.setsockopt(zmq.RCVHWM, 0)  # or libzmq's thread would wait for us to read it
        router.monitor(address, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._monitor.connect(address)

    @property
    def socket_path(self) -> Path:
        """What the tenant gets as GEMINI_SOCKET."""
        return self.folder / "tenant.sock"

    @property
    def page_path(self) -> Path:
        """Where its page is handed out."""
        return self.folder / "tenant.sock.page"

    @property
    def _hidden(self) -> Path:
        """Where the file is while nobody new is let in: beside the folder, which is all that a container sees."""
        return self.folder.with_name(f".{self.name}.shut")

    def complete(self) -> bool:
        """Are the files of its sockets there?"""
        return (self.shut or self.socket_path.exists()) and self.page_path.exists()

    # --- the door ---------------------------------------------------------------------------------------------------
    def open(self) -> None:
        """Let processes in, if they are not. Raises OSError, ZMQError."""
        if not self.shut:
            return
        if self._bound and self._hidden.exists():
            self._hidden.rename(self.socket_path)
        else:
            self.wall_up()
            self._bind()
        self.shut = False

    def _bind(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755 if self.owner is None else 0o700)
        if self.owner is not None and os.getuid() == 0:
            os.chown(self.folder, self.owner, -1)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listening.bind(str(self.socket_path))
            self.socket_path.chmod(0o666)  # who may reach it is decided by who sees the folder
            listening.listen(min(_BACKLOG, descriptors.reserve() // 2))
            self.router.setsockopt(zmq.USE_FD, listening.fileno())  # else libzmq removes the file, some time later
            self.router.bind(f"ipc://{self.socket_path}")
        except (OSError, zmq.ZMQError):
            listening.close()
            raise
        listening.detach()  # libzmq's, which closes it
        self._bound = True

    def shut_out(self) -> None:
        """Let nobody new in; connections stay."""
        with contextlib.suppress(OSError):  # somebody removed it
            self.socket_path.rename(self._hidden)
        self.shut = True

    def wall_up(self) -> None:
        """Nobody gets in, whatever way to the socket he has; connections end."""
        if self._bound:
            self.router.unbind(f"ipc://{self.socket_path}")
        self._bound = False
        self._unlink()
        self.shut = True
        self._heed()
        self._standing.clear()  # of those that end with their listener nothing is told

    def _unlink(self) -> None:
        for path in (self.socket_path, self._hidden):
            with contextlib.suppress(OSError):
                path.unlink()

    def knocks(self) -> bool:
        """Count who has come in since the last look; whether they may go on like that."""
        self._heed()
        return self.connections.left >= 1 and not self.crowded()

    def _heed(self) -> None:
        """Take in what the monitor tells."""
        now_ns, came = time.monotonic_ns(), 0
        with contextlib.suppress(zmq.ZMQError):
            while told := self._monitor.recv(_NOBLOCK):
                event, descriptor = _MONITORED.unpack(told)
                self._monitor.recv(_NOBLOCK)  # the address
                if event == _ACCEPTED:
                    came += 1
                    self._standing.add(descriptor)
                else:
                    self._standing.discard(descriptor)
        late = self.behind_ns and now_ns - self.behind_ns > LONGEST_UNREAD_NS
        self.connections.rate = LATE_A_SECOND if late else CONNECTIONS_A_SECOND
        self.connections.whole(now_ns)
        self.connections.take(came)
        self.came += came

    def crowded(self) -> bool:
        """Had it as many connections as it may have, at the last look?"""
        return len(self._standing) >= MOST_STANDING

    def knocks_on(self) -> bool:
        """Does somebody come in still, although the file is hidden (more than were in the kernel's queue)?"""
        return self.connections.left < -_MOST_QUEUED or len(self._standing) >= MOST_STANDING + _MOST_QUEUED

    # --- the end ----------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Close all that was made here; what was sent lingers."""
        self.router.disable_monitor()
        self._monitor.close(0)
        self.router.close()
        if self.listener is not None:
            self.listener.close()
        self.page.close()
        self._unlink()
