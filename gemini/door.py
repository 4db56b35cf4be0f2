"""The door of a server that strangers reach: how many connections stand, and how long a TLS handshake may take.

Nobody who opens connections and says nothing takes all descriptors from those that have something to ask. Where the
house is full the oldest goes of the address that has most of them, but none that showed a certificate: those are the
server's own callers. And no address that comes without end keeps the others in the kernel's queue: all that are there
are taken at once. Where that is a crowd, those of an address that comes too often are closed before a word is said.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable

MOST_STANDING = 256  # or half of the descriptors that the process may have
HANDSHAKE_SECONDS = 5.0
RETRY_SECONDS = 0.005  # where the machine has no descriptor left
# Of an address, in a turn of the loop after one in which a crowd came. A scheduler makes a connection for each of many
# bindings, some at a time; whoever keeps the kernel's queue full makes tens of thousands a second.
COMES_A_SECOND, COMES_AT_ONCE = 100, 1_000
CROWD, TAKEN_A_TURN = 64, 512
# This part of those that may stand is let in in one turn. An ended connection has its descriptor for a turn or two
# more, so all that are open are bounded by 1 + 3 / 8 of those that may stand.
LET_IN_A_TURN = 8
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: closed with a reset, so that nothing of it is left in the kernel


class _Guest:
    """One connection; `transport` is None until the handshake is done."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def known(self) -> bool:
        return self.transport is not None and bool(self.transport.get_extra_info("peercert"))

    @property
    def gone(self) -> bool:
        return self.transport is not None and self.transport.is_closing()

    def end(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        elif self.task is not None:
            self.task.cancel()


class _Pace:
    """How often addresses come: each has a bucket, which is forgotten when it is full again."""

    def __init__(self) -> None:
        self._full_at: dict[str, float] = {}  # when the bucket will be full
        self._tidied = 0.0

    def comes_often(self, address: str) -> bool:
        """One more came from there."""
        now = time.monotonic()
        if now - self._tidied > 1:
            self._full_at, self._tidied = {who: at for who, at in self._full_at.items() if at > now}, now
        full_at = max(self._full_at.get(address, 0.0), now) + 1 / COMES_A_SECOND
        if full_at - now > COMES_AT_ONCE / COMES_A_SECOND:
            return True
        self._full_at[address] = full_at
        return False


class Door:
    """`make`: a protocol for a connection, as loop.create_server takes it."""

    def __init__(
        self, make: Callable[[], asyncio.BaseProtocol], context: ssl.SSLContext | None, most: int = MOST_STANDING
    ) -> None:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._make, self._context, self._most = make, context, max(1, min(most, descriptors // 2))
        self._guests: dict[_Guest, None] = {}  # oldest first
        self._pace = _Pace()
        self._let_in_a_turn = max(1, self._most // LET_IN_A_TURN)

    async def keep(self, listener: socket.socket) -> None:
        """Takes connections in until it is cancelled."""
        loop = asyncio.get_running_loop()
        crowd = False
        while True:
            taken = entered = 0
            try:
                one, at = await loop.sock_accept(listener)
                while True:
                    taken += 1
                    entered += self._receive(one, at[0], crowd)
                    if taken == TAKEN_A_TURN or entered == self._let_in_a_turn:
                        break
                    one, at = listener.accept()
            except BlockingIOError:
                pass
            except OSError:
                self._make_room(len(self._guests) - 1)
                await asyncio.sleep(RETRY_SECONDS)
            crowd = taken > CROWD or entered == self._let_in_a_turn
            await asyncio.sleep(0)

    def _receive(self, taken: socket.socket, address: str, crowd: bool) -> bool:
        """Whether it was let in; else it is closed."""
        often = self._pace.comes_often(address)
        if (often and crowd) or not self._make_room(self._most - 1):
            with contextlib.suppress(OSError):
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            taken.close()
            return False
        taken.setblocking(False)
        guest = _Guest(address)
        self._guests[guest] = None
        guest.task = asyncio.get_running_loop().create_task(self._let_in(guest, taken))
        return True

    def close(self) -> None:
        """Ends those whose handshake is under way; the others are their protocols'."""
        for guest in self._guests:
            if guest.transport is None:
                guest.end()

    async def _let_in(self, guest: _Guest, taken: socket.socket) -> None:
        limits = {} if self._context is None else {"ssl_handshake_timeout": HANDSHAKE_SECONDS}
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                self._make, taken, ssl=self._context, **limits
            )
            guest.transport = transport
        except (OSError, asyncio.CancelledError):  # ssl.SSLError and time-outs are OSErrors
            self._guests.pop(guest, None)
            with contextlib.suppress(OSError):
                taken.close()

    def _make_room(self, most: int) -> bool:
        """Whether so many or fewer stand now."""
        if len(self._guests) <= most:
            return True
        for guest in [guest for guest in self._guests if guest.gone]:
            del self._guests[guest]
        while len(self._guests) > max(0, most):
            strangers = [guest for guest in self._guests if not guest.known]
            if not strangers:
                return False
            many = Counter(guest.address for guest in strangers)
            crowd = max(many.values())
            oldest = next(guest for guest in strangers if many[guest.address] == crowd)
            del self._guests[oldest]
            oldest.end()
        return True
