"""Plain requests over HTTP/1.1, answered without ceremony: bytes of the body in, status and bytes out.

For the calls that every pod costs: kube-scheduler asks the extender two or three times about each, and a full server
spends more on the request than the extender on its answer. Only what such a caller sends is read here: POST to one of
the known paths, a length, and header fields that change nothing. A connection on which anything else comes is
aiohttp's from its first unread byte on, with its limits and its errors; so there is no second way to be lenient. One
request at a time is under way on a connection: what comes meanwhile waits, and so does a peer that reads no answers.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import cast

Answer = tuple[int, bytes]  # status and JSON
Plain = Callable[[bytes], Answer | Awaitable[Answer]]  # raises nothing

LONGEST_HEAD = 8 << 10
LONGEST_BODY = 4 << 20  # 100,000 names; whole Node objects of a large cluster are aiohttp's
# Field names that say nothing about where a request ends, or what must be done besides answering it.
HARMLESS = frozenset({b"host", b"user-agent", b"content-type", b"accept", b"accept-encoding"})


def read_head(head: bytes) -> tuple[str, int] | None:
    """Path and length of the body of a plain request, by all that comes before the empty line. None: it is none."""
    first, *lines = head.split(b"\r\n")
    if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
        return None
    words = first.split(b" ")
    if len(words) != 3 or words[0] != b"POST" or words[2] != b"HTTP/1.1" or not words[1].isascii():
        return None
    length: int | None = None
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.lower()
        if name == b"content-length":
            value = value.strip(b" \t")
            if length is not None or not value.isdigit() or len(value) > 9:
                return None
            length = int(value)
        elif not colon or name not in HARMLESS:
            return None
    return None if length is None else (words[1].decode(), length)


@lru_cache(maxsize=1)
def _date(_: int) -> str:
    return formatdate(usegmt=True)


def write_answer(answer: Answer) -> bytes:
    status, body = answer
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nDate: {_date(int(time.time()))}\r\n\r\n"
    )
    return head.encode() + body


class Connection(asyncio.Protocol):
    """One peer. `rest`: makes the protocol that takes over what is not plain."""

    def __init__(
        self, verbs: Mapping[str, Plain], rest: Callable[[], asyncio.Protocol], open_: set[Connection], known: bool
    ) -> None:
        """`open_`: all that are served here; `known`: only peers with a certificate are, the others are `rest`'s."""
        self._verbs, self._rest, self._open, self._known = verbs, rest, open_, known
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._needed = 0  # bytes; with fewer there is nothing to look at
        self._task: asyncio.Task[None] | None = None
        self._stopped = False  # the peer reads no answers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by their class
        if self._known and transport.get_extra_info("peercert") is None:
            self._hand_over()
            return
        self._open.add(self)
        if (sock := transport.get_extra_info("socket")) is not None:  # one that is gone without a word is noticed
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._open.discard(self)

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        self._serve()
        if self._transport is not None and not self._free() and len(self._received) > LONGEST_BODY:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._stopped = True

    def resume_writing(self) -> None:
        self._stopped = False
        self._go_on()

    def _go_on(self) -> None:
        if self._free():
            assert self._transport is not None
            if not self._transport.is_reading():
                self._transport.resume_reading()
            self._serve()

    def _free(self) -> bool:
        """Whether the next request may be looked at."""
        there = self._transport is not None and not self._transport.is_closing()
        return there and self._task is None and not self._stopped

    def _serve(self) -> None:
        """Answers what has come whole, until an answer has to be waited for."""
        while self._free():
            assert self._transport is not None
            received = self._received
            if not received or len(received) < self._needed:
                return
            end = received.find(b"\r\n\r\n", 0, LONGEST_HEAD)
            if end < 0:
                if len(received) >= LONGEST_HEAD:
                    self._hand_over()
                return
            plain = read_head(received[:end])
            if plain is None or plain[0] not in self._verbs or plain[1] > LONGEST_BODY:
                self._hand_over()
                return
            self._needed = end + 4 + plain[1]
            if len(received) < self._needed:
                return
            body, self._received = received[end + 4 : self._needed], received[self._needed :]
            self._needed = 0
            answer = self._verbs[plain[0]](body)
            if isinstance(answer, tuple):
                self._transport.write(write_answer(answer))
            else:
                self._task = asyncio.get_running_loop().create_task(self._answer(answer))

    async def _answer(self, awaited: Awaitable[Answer]) -> None:
        answer = await awaited
        self._task = None
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(write_answer(answer))
            self._go_on()

    def _hand_over(self) -> None:
        transport, received = self._transport, self._received
        assert transport is not None
        self._open.discard(self)
        self._transport, self._received = None, b""
        protocol = self._rest()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if received:
            protocol.data_received(received)

    async def end(self) -> None:
        """Closes the connection, after the answer that is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._transport is not None:
            self._transport.close()
