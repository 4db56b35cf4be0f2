"""HTTP/1.1 over kept connections for small calls that are made again and again: bytes out, status and body in.

For the few calls that every pod costs (client.py): a full client spends five times as long on one of them as TLS and
JSON do together. So it knows no redirects, cookies, proxies or compression, and one request at a time is under way on
a connection. A reply whose end cannot be told from its head, or that goes on after its end, ends the connection; an
error or a time-out does too, so no reply is ever taken for that of another request. Nothing is sent twice: whether a
request that failed was carried out, its caller has to find out.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from typing import cast

LARGEST_REPLY = 8 << 20
MOST_DIGITS = 12
HEX = b"0123456789abcdefABCDEF"
IDLE_SECONDS = 30.0  # an API server closes what was idle for minutes; whatever is older may be closed at any moment


class BadReply(ConnectionError):
    """Bytes that are no reply, or end before it does."""


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    keep: bool  # whether the connection may be used again


def read_reply(received: bytes) -> Reply | None:
    """The reply at the start of what has come; None: there is more to come. Raises BadReply."""
    start = 0
    while True:
        end = received.find(b"\r\n\r\n", start)
        if end < 0:
            return None
        first, *lines = received[start:end].split(b"\r\n")
        start = end + 4
        version, _, rest = first.partition(b" ")
        if not version.startswith(b"HTTP/1.") or len(rest) < 3 or not rest[:3].isdigit():
            raise BadReply(f"{first[:40]!r} is no status line")
        status = int(rest[:3])
        if status >= 200:
            break  # those below announce another one
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip().lower()
    keep = version != b"HTTP/1.0" and fields.get(b"connection") != b"close"
    if status in (204, 304):
        return _ended(status, b"", received[start:], keep)
    coding = fields.get(b"transfer-encoding")
    if coding is not None:
        if coding != b"chunked":
            raise BadReply(f"transfer encoding {coding[:40]!r}")
        return _chunked(status, received, start, keep)
    length = fields.get(b"content-length", b"")
    if not length.isdigit() or len(length) > MOST_DIGITS:
        raise BadReply("a reply without a length")
    if len(received) - start < int(length):
        return None
    end = start + int(length)
    return _ended(status, received[start:end], received[end:], keep)


def _chunked(status: int, received: bytes, at: int, keep: bool) -> Reply | None:
    parts: list[bytes] = []
    while (end := received.find(b"\r\n", at)) >= 0:
        text = received[at:end].partition(b";")[0].strip()
        if not text or text.strip(HEX) or len(text) > MOST_DIGITS:
            raise BadReply(f"{text[:40]!r} is no size of a chunk")
        size = int(text, 16)
        if size == 0:
            if len(received) < end + 4:
                return None
            if received[end + 2 : end + 4] != b"\r\n":
                raise BadReply("fields after the last chunk")
            return _ended(status, b"".join(parts), received[end + 4 :], keep)
        at = end + 2 + size + 2
        if len(received) < at:
            return None
        if received[at - 2 : at] != b"\r\n":
            raise BadReply("a chunk that is longer than it says")
        parts.append(received[end + 2 : at - 2])
    return None


def _ended(status: int, body: bytes, left: bytes, keep: bool) -> Reply:
    if left:
        raise BadReply("a reply goes on after its end")
    return Reply(status, body, keep)


class _Connection(asyncio.Protocol):
    """One connection, and the one request that is under way on it."""

    def __init__(self) -> None:
        self.used = time.monotonic()
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._waiting: asyncio.Future[Reply] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by their class

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            self.close()  # nobody asked
            return
        self._received += data
        try:
            reply = read_reply(self._received)
            if reply is None and len(self._received) > LARGEST_REPLY:
                raise BadReply(f"a reply of more than {LARGEST_REPLY} bytes")
        except BadReply as error:
            self._waiting.set_exception(error)
            self.close()
            return
        if reply is not None:
            self._received = b""
            self._waiting.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error if isinstance(error, OSError) else BadReply("the connection was closed"))

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes) -> Reply:
        if self._transport is None:
            raise BadReply("the connection was closed")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._waiting
        finally:
            self._waiting, self.used = None, time.monotonic()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Connections:
    """Those to one server, `most` at the same time. Used on one event loop."""

    def __init__(
        self, host: str, port: int, context: ssl.SSLContext | None, server_name: str | None, most: int
    ) -> None:
        """`server_name`: whose certificate the server shows, where that is not `host`."""
        self._host, self._port, self._context = host, port, context
        self._server_name = (server_name or host) if context is not None else None
        self._turns = asyncio.Semaphore(most)
        self._idle: list[_Connection] = []

    async def exchange(self, request: bytes, seconds: float) -> Reply:
        """Sends a whole request and returns its reply. Raises OSError or TimeoutError: it may have been carried out."""
        async with asyncio.timeout(seconds), self._turns:
            connection = self._kept() or await self._open()
            try:
                reply = await connection.ask(request)
            except BaseException:
                connection.close()
                raise
            if reply.keep:
                self._idle.append(connection)
            else:
                connection.close()
            return reply

    def _kept(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()  # the one used last, so that those too many grow old
            if connection.usable and time.monotonic() - connection.used < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def _open(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            _Connection, self._host, self._port, ssl=self._context, server_hostname=self._server_name
        )
        return connection

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
