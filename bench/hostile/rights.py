"""Attacks by descriptors that are passed to the daemon and take long to end: who drops the last one has to wait."""

from __future__ import annotations

import array
import contextlib
import os
import secrets
import socket
import struct
import time
from collections.abc import Iterator

from bench.flood import OPENING, connected
from bench.hostile.table import LOCAL, TENANT, Attack, Place, Steps, attack
from libhook.core import lib

HOUR = 3600
MOST_KEPT = 64
LARGE_BYTES = 512 << 20


@contextlib.contextmanager
def lingering(seconds: int = HOUR) -> Iterator[socket.socket]:
    """A TCP connection whose last close() waits for so long, for its other end reads nothing. Close it by `let_go`."""
    with socket.socket() as listening:
        one = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        one.connect(listening.getsockname())
        one.setblocking(False)
        other, _ = listening.accept()
        with other:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
            with contextlib.suppress(BlockingIOError):
                while True:
                    one.send(bytes(65536))
            yield one
            let_go(one, False)


def let_go(one: socket.socket, passed: bool) -> None:
    """Close it; where nobody else has it without waiting."""
    if one.fileno() >= 0:
        if not passed:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()


def pass_along(connection: socket.socket, octets: bytes, *files: int, flags: int = 0) -> bool:
    """Say this, and pass descriptors with it; whether the kernel let it."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
    try:
        connection.sendmsg([octets], rights, flags)
    except OSError:
        return False
    return True


def page_hello() -> bytes:
    return struct.pack("<IIQ", lib.WIRE_MAGIC, lib.WIRE_VERSION, secrets.randbits(63))


def _passing(path: str, before: bytes, octets: bytes, kept: list[contextlib.ExitStack]) -> None:
    """Have a child pass a lingering socket behind some bytes, and end at once: who ends does not wait for it."""
    kept.append(contextlib.ExitStack())
    one = kept[-1].enter_context(lingering())  # while its other end is there
    begin, go = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.read(begin, 1)
            connection = connected(path)
            if before:
                connection.sendall(before)
                time.sleep(0.005)
            for _ in range(3):
                pass_along(connection, octets, one.fileno())
        os._exit(0)
    let_go(one, True)
    os.write(go, b"!")
    os.waitpid(child, 0)
    os.close(begin)
    os.close(go)
    if len(kept) > MOST_KEPT:
        kept.pop(0).close()


@attack(TENANT)
def lingering_sockets(place: Place) -> Steps:
    """Passes TCP connections that linger for an hour, with the first bytes and behind them, to both sockets"""
    kept: list[contextlib.ExitStack] = []
    while True:
        for path, octets in ((place.socket, OPENING), (place.page, page_hello())):
            for before in (b"", octets):
                _passing(path, before, octets, kept)
                yield None


@attack(TENANT)
def large_files(place: Place) -> Steps:
    """Passes files in memory of half a GiB, each of which takes long to be given back, to both sockets"""
    while True:
        for path in (place.socket, place.page):
            file = os.memfd_create("large")
            try:
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file, 0, LARGE_BYTES)
                with connected(path) as connection:
                    pass_along(connection, b"\xff", file)
            finally:
                os.close(file)
            yield None


@attack(LOCAL)
def lingering_requests(place: Place) -> Steps:
    """Passes TCP connections that linger for an hour to the control socket, within a request and behind it"""
    request = b"GET /healthz HTTP/1.1\r\nHost: gemini\r\n\r\n"
    kept: list[contextlib.ExitStack] = []
    while True:
        for before, octets in ((b"", request), (request[:20], request[20:]), (request, request)):
            _passing(place.control, before, octets, kept)
            yield None


ATTACKS: tuple[Attack, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Attack))
