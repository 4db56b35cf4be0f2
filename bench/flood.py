"""A hostile process in a container: `python -m bench.flood WAY SOCKET UUID` floods the daemon until it is ended.

Each way does what anybody can who sees the tenant's sockets; `burn` only burns as much processor time, and is what the
others are compared with. It prints "ready" when it begins.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import sys
from collections.abc import Callable, Iterator

import zmq

from libhook import core
from libhook.core import ffi, lib


class Client:
    """One connection that has said Hello, and has a page where it could."""

    def __init__(self, path: str, uuid: bytes) -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, 1000)
        nonce = secrets.randbits(63)
        self.page = page(path, nonce)
        self.socket.connect(f"ipc://{path}")
        hello = core.new(lib.WIRE_HELLO, 1, client_nonce=nonce, pid=os.getpid(), program=b"hostile", device_count=1)
        ffi.memmove(hello.uuid[0], uuid, 16)
        self.socket.send(core.encode(hello))

    def close(self) -> None:
        self.socket.close()
        self.page.close()


def page(path: str, nonce: int) -> socket.socket:
    """A page connection on which the hello was said."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(0.5)
    with contextlib.suppress(OSError):
        connection.connect(f"{path}.page")
        connection.send(struct.pack("<IIQ", lib.WIRE_MAGIC, lib.WIRE_VERSION, nonce))
    return connection


def burn(path: str, uuid: bytes) -> Iterator[None]:
    while True:
        sum(range(1000))
        yield


def messages(path: str, uuid: bytes) -> Iterator[None]:
    """Requests for the token without end on one connection."""
    client = Client(path, uuid)
    frame = core.encode(core.new(lib.WIRE_TOKEN_REQUEST, 9, device=0))
    while True:
        with contextlib.suppress(zmq.ZMQError):
            client.socket.send(frame, zmq.NOBLOCK)
        yield


def hellos(path: str, uuid: bytes) -> Iterator[None]:
    """Ever new processes, as it says."""
    while True:
        client = Client(path, uuid)
        yield
        client.close()


def drained(path: str, uuid: bytes) -> Iterator[None]:
    """Words for the carrier's thread: nothing of an epoch runs any more."""
    while True:
        client = Client(path, uuid)
        with contextlib.suppress(OSError):
            while True:
                client.page.send(struct.pack("<IIQ", lib.WIRE_MAGIC, 0, secrets.randbits(40)))
                yield
        client.close()


def connections(path: str, uuid: bytes) -> Iterator[None]:
    """Connect, say nonsense, leave."""
    while True:
        for way in (path, f"{path}.page"):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as one:
                one.settimeout(0.5)
                one.connect(way)
                one.send(os.urandom(80))
        yield


def pages(path: str, uuid: bytes) -> Iterator[None]:
    """The page under ever new names: a pidfd each, if they were kept; and what garbage can be done with it."""
    while True:
        with page(path, secrets.randbits(63)) as one, contextlib.suppress(OSError):
            _, fds, _, _ = socket.recv_fds(one, 64, 1)
            for fd in fds:
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, 0)
                with contextlib.suppress(OSError):
                    os.pwrite(fd, os.urandom(64), 0)
                os.close(fd)
        yield


def nonsense(path: str, uuid: bytes) -> Iterator[None]:
    """Frames that are no messages, each on a connection of its own, as the last one was closed for it."""
    while True:
        one: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        one.setsockopt(zmq.LINGER, 50)
        one.connect(f"ipc://{path}")
        one.send(os.urandom(64))
        one.close()
        yield


def memory(path: str, uuid: bytes) -> Iterator[None]:
    """Reservations and reports of memory."""
    client = Client(path, uuid)
    asked = core.new(lib.WIRE_MEM_RESERVE, 9, device=0, **{"bytes": 1 << 40})
    told = core.new(lib.WIRE_MEM_RELEASE, 9, device=0, flags=lib.WIRE_MEM_RELEASE_WHOLE, **{"bytes": 1 << 30})
    while True:
        for message in (asked, told):
            with contextlib.suppress(zmq.ZMQError):
                client.socket.send(bytes(ffi.buffer(message)), zmq.NOBLOCK)
        with contextlib.suppress(zmq.ZMQError):
            client.socket.recv(zmq.NOBLOCK)
        yield


WAYS: dict[str, Callable[[str, bytes], Iterator[None]]] = {
    way.__name__: way for way in (burn, messages, hellos, drained, connections, pages, nonsense, memory)
}


def main() -> int:
    flood = WAYS[sys.argv[1]](sys.argv[2], bytes.fromhex(sys.argv[3]))
    next(flood)
    print("ready", flush=True)
    for _ in flood:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
