"""The door before the daemon's HTTP: how many connections there may be, and how many of one address or user, how long
each may last, how much it may say.

aiohttp answers, but bounds none of these. So the listening socket is ours: a connection is accepted where there is
room, answered once, and ended when its time is over, whatever was said on it. Where there is no room, whoever has most
connections loses the oldest of them to the next that comes, but for those that have only just come. Until then the
others wait in the kernel's queue, which costs the daemon nothing. Whoever has all the places of one is refused at once,
so that the queue is there for the others.

An answer takes most of a millisecond of the loop that hands the cards on. So an address, or a user of the control
socket, that makes more connections than its allowance waits with them, and nobody else does. All of them together have
one, too: who has many addresses makes the others' answers late, and takes no more of the loop's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, cast

from scheduler_backend import rights
from scheduler_backend.allowance import Allowances
from scheduler_backend.subids import person
from scheduler_backend.unix_transport import UnixTransport

# Then the loop's other work has its turn, and those that were ended for them give their descriptors back.
ACCEPTED_AT_ONCE = 16
PAUSE_SECONDS = 1.0  # where the kernel gives no descriptor, or no memory
_HANDED_ON = (ConnectionAbortedError, InterruptedError)  # by accept(): that one is gone again
REFUSED_PAUSE_SECONDS = 0.005  # after refusing some: a user who comes again at once does not keep the loop busy
_REFUSAL = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\n%s"
)
_UNIX_PEER = struct.Struct("3i")  # struct ucred


class DoorBounds(NamedTuple):
    """What a door allows. `grace_seconds`: a connection is not ended sooner to make room for another."""

    connections: int
    of_one: int  # of one address or user; more are refused
    seconds: float  # of one connection, to the last byte of its answer
    grace_seconds: float
    bytes: int  # that one connection may say
    a_second: float  # connections of one address or user; more wait
    at_once: int  # of one in a burst
    all_a_second: float = 1000.0  # of all together: one may have as many addresses as it likes
    all_at_once: int = 1000


class _Visit(asyncio.Protocol):
    """One connection, handed on to aiohttp as long as it keeps to the bounds."""

    def __init__(self, door: Door, key: object, inner: asyncio.Protocol, connection: socket.socket) -> None:
        self.key = key
        self.waits: socket.socket | None = connection  # until it is handed on
        self.since = door.loop.time()
        self._door = door
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._said = 0
        self._end = door.loop.call_later(door.bounds.seconds, self.abort)
        self._ended = False

    def abort(self) -> None:
        """End it at once, answered or not."""
        self._ended = True
        self._door.forget(self)
        if self._transport is not None:
            self._transport.abort()
        if self.waits is not None:
            rights.close(self.waits)
            self.waits = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._inner.connection_made(transport)
        if self._ended:  # before it began
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._said += len(data)
        if self._said > self._door.bounds.bytes:
            self.abort()
        elif not self._ended:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._end.cancel()
        self._inner.connection_lost(error)
        self._door.forget(self)


class Door:
    """Lets visitors in on one listening socket, the door's from here on. `make`: aiohttp's protocol of one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        make: Callable[[], asyncio.Protocol],
        bounds: DoorBounds,
    ) -> None:
        self.loop = loop
        self.bounds = bounds
        self._listening = listening
        self._make = make
        self._there: dict[_Visit, None] = {}  # the oldest first
        self._of: Counter[object] = Counter()  # by address or user
        self._entering: set[asyncio.Task[object]] = set()
        self._later: asyncio.TimerHandle | None = None
        self._turns = Allowances(bounds.a_second, bounds.at_once)
        self._all = Allowances(bounds.all_a_second, bounds.all_at_once)
        self._open = False
        self._refuses = False  # and rests for it
        listening.setblocking(False)
        self._listen()

    def forget(self, visit: _Visit) -> None:
        """This one is gone: there is room for another."""
        if self._there.pop(visit, self) is not None:
            return
        self._of[visit.key] -= 1
        if not self._of[visit.key]:
            del self._of[visit.key]
        if not self._open and self._later is not None and not self._refuses:
            self._listen()

    def close(self) -> None:
        """Let nobody in any more, nor those that wait for it. Those that are in are aiohttp's matter."""
        self._rest(None)
        rights.end(self._listening)
        for visit in [visit for visit in self._there if visit.waits is not None]:
            visit.abort()
        for entering in self._entering:
            entering.cancel()

    def _listen(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._open, self._refuses = True, False
        self.loop.add_reader(self._listening.fileno(), self._come)

    def _rest(self, seconds: float | None) -> None:
        """Accept nobody, for so long; for good with None."""
        if self._open:
            self.loop.remove_reader(self._listening.fileno())
        self._open = False
        if self._later is not None:
            self._later.cancel()
        self._later = None if seconds is None else self.loop.call_later(seconds, self._listen)

    def _come(self) -> None:
        refused = False
        for _ in range(ACCEPTED_AT_ONCE):
            if (wait := self._make_room()) > 0:
                self._rest(wait)
                return
            try:
                connection, address = self._listening.accept()
            except BlockingIOError:
                break
            except _HANDED_ON:
                continue
            except OSError:
                self._rest(PAUSE_SECONDS)
                return
            connection.setblocking(False)
            if self._of[key := _key(connection, address)] >= self.bounds.of_one:
                self._refuse(connection)
                refused = True
                continue
            visit = _Visit(self, key, self._make(), connection)
            self._there[visit] = None
            self._of[key] += 1
            entering = self.loop.create_task(self._enter(visit))
            self._entering.add(entering)
            entering.add_done_callback(self._entering.discard)
        if refused:
            self._rest(REFUSED_PAUSE_SECONDS)
            self._refuses = True

    def _refuse(self, connection: socket.socket) -> None:
        """Say that this one has all the places of one user or address; not heard where nobody listens."""
        why = (
            b'{"error": "%d connections of yours are open already; end some, or ask again later"}' % self.bounds.of_one
        )
        with contextlib.suppress(OSError):
            connection.send(_REFUSAL % (len(why), why))
        rights.close(connection)

    async def _enter(self, visit: _Visit) -> None:
        if wait := self._turns.wait_seconds(visit.key, time.monotonic_ns()):
            await asyncio.sleep(wait)
        if visit.waits is not None and (wait := self._all.wait_seconds(None, time.monotonic_ns())):
            await asyncio.sleep(wait)
            if visit.waits is None:
                self._all.give_back(None)
        connection, visit.waits = visit.waits, None
        if connection is None:  # it was ended, and is no debt
            self._turns.give_back(visit.key)
            return
        if connection.family == socket.AF_UNIX and rights.are_sought():
            UnixTransport(self.loop, connection, visit)
            return
        try:
            await self.loop.connect_accepted_socket(lambda: visit, connection)
        except OSError:
            rights.close(connection)
            visit.abort()

    def _make_room(self) -> float:
        """Seconds until there is room for one more; 0 where there is, if need be since another was ended for it."""
        if len(self._there) < self.bounds.connections:
            return 0.0
        most = self._of.most_common(1)[0][0]
        oldest = next(visit for visit in self._there if visit.key == most)
        wait = oldest.since + self.bounds.grace_seconds - self.loop.time()
        if wait <= 0:
            oldest.abort()
        return max(0.0, wait)


def _key(connection: socket.socket, address: object) -> object:
    """Who this is, as far as the kernel says: a user, or an address; of IPv6 the network, for each has 2^64 there."""
    if connection.family == socket.AF_UNIX:
        with contextlib.suppress(OSError):
            found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UNIX_PEER.size)
            return person(_UNIX_PEER.unpack(found)[1])
        return None
    host = address[0] if isinstance(address, tuple) else None
    if connection.family == socket.AF_INET6 and isinstance(host, str):
        return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:8]
    return host
