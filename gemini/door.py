"""The door of a server that strangers reach: how many connections stand, and how long a TLS handshake may take.

Nobody who opens connections and says nothing takes all descriptors from those that have something to ask. Where the
house is full the oldest goes of the address that has most of them, but none that showed a certificate: those are the
server's own callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable

MOST_STANDING = 256  # or half of the descriptors that the process may have
HANDSHAKE_SECONDS = 5.0
RETRY_SECONDS = 0.005  # where the machine has no descriptor left


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


class Door:
    """`make`: a protocol for a connection, as loop.create_server takes it."""

    def __init__(
        self, make: Callable[[], asyncio.BaseProtocol], context: ssl.SSLContext | None, most: int = MOST_STANDING
    ) -> None:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._make, self._context, self._most = make, context, max(1, min(most, descriptors // 2))
        self._guests: dict[_Guest, None] = {}  # oldest first

    async def keep(self, listener: socket.socket) -> None:
        """Takes connections in until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, at = await loop.sock_accept(listener)
            except OSError:
                self._make_room(len(self._guests) - 1)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if not self._make_room(self._most - 1):
                taken.close()
                continue
            guest = _Guest(at[0])
            self._guests[guest] = None
            guest.task = loop.create_task(self._let_in(guest, taken))

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
