"""A hostile process in a container: `python -m bench.flood WAY SOCKET UUID` floods the daemon until it is ended.

Each way does what anybody can who sees the tenant's sockets; `burn` only burns as much processor time, and is what the
others are compared with. All speak ZMTP by hand on one thread, as quickly as the daemon takes it: a polite library
would be busy with itself most of the time. It prints "ready" when it begins.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator

from libhook import core
from libhook.core import ffi, lib

STANDING_AT_ONCE, STANDING_A_SECOND = 450, 40  # connections that `standing` opens: no more than a tenant may
CLIENTS = 64  # connections that `many` and `recalls` keep, each with its own name

# ZMTP 3.1, NULL mechanism: what a DEALER says; libzmq takes messages only once it has said its own part.
_READY = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER" + b"\x08Identity" + struct.pack(">I", 0)
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
OPENING = _GREETING + b"\x04" + bytes([len(_READY)]) + _READY


def frame(message: bytes) -> bytes:
    """One ZMTP message of one frame."""
    if len(message) < 256:
        return b"\x00" + bytes([len(message)]) + message
    return b"\x02" + struct.pack(">Q", len(message)) + message


def hello(uuid: bytes, nonce: int) -> bytes:
    message = core.new(lib.WIRE_HELLO, 1, client_nonce=nonce, pid=os.getpid(), program=b"hostile", device_count=1)
    ffi.memmove(message.uuid[0], uuid, 16)
    return core.encode(message)


def connected(path: str) -> socket.socket:
    """A connection, or one that never came to be: the next call on it says so."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(0.5)
    with contextlib.suppress(OSError):
        connection.connect(path)
    return connection


def send(connection: socket.socket, octets: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(octets)


def greeted(path: str) -> socket.socket:
    """A connection on which messages may be sent, if the daemon answered."""
    connection = connected(path)
    with contextlib.suppress(OSError):
        connection.sendall(OPENING)
        heard = b""
        while b"Identity" not in heard and (more := connection.recv(4096)):
            heard += more
    return connection


class Client:
    """One connection that has said Hello, and has a page where it could."""

    def __init__(self, path: str, uuid: bytes) -> None:
        nonce = secrets.randbits(63)
        self.page = page(path, nonce)
        self.socket = greeted(path)
        send(self.socket, frame(hello(uuid, nonce)))
        self.socket.setblocking(False)
        self._left = b""

    def say(self, message: bytes) -> bool:
        """Send as much as goes; whether the connection is still there. What comes is thrown away."""
        octets = self._left or frame(message)
        try:
            self._left = octets[self.socket.send(octets) :]
        except BlockingIOError:
            self._left = octets
        except OSError:
            return False
        with contextlib.suppress(BlockingIOError, ConnectionError):
            return self.socket.recv(65536) != b""
        return True

    def close(self) -> None:
        self.socket.close()
        self.page.close()


def page(path: str, nonce: int) -> socket.socket:
    """A page connection on which the hello was said."""
    connection = connected(f"{path}.page")
    send(connection, struct.pack("<IIQ", lib.WIRE_MAGIC, lib.WIRE_VERSION, nonce))
    return connection


def burn(path: str, uuid: bytes) -> Iterator[None]:
    while True:
        sum(range(1000))
        yield


def talk(path: str, uuid: bytes, *messages: bytes) -> Iterator[None]:
    """These messages without end on one connection, and a new one when that is closed."""
    while True:
        client = Client(path, uuid)
        while all([client.say(message) for message in messages]):
            yield
        client.close()
        yield


def messages(path: str, uuid: bytes) -> Iterator[None]:
    """Requests for the token without end on one connection."""
    return talk(path, uuid, core.encode(core.new(lib.WIRE_TOKEN_REQUEST, 9, device=0)))


def memory(path: str, uuid: bytes) -> Iterator[None]:
    """Reservations and reports of memory."""
    asked = core.new(lib.WIRE_MEM_RESERVE, 9, device=0, **{"bytes": 1 << 40})
    told = core.new(lib.WIRE_MEM_RELEASE, 9, device=0, flags=lib.WIRE_MEM_RELEASE_WHOLE, **{"bytes": 1 << 30})
    return talk(path, uuid, *(bytes(ffi.buffer(message)) for message in (asked, told)))


def many(path: str, uuid: bytes) -> Iterator[None]:
    """The same from many processes, as it says, each of which asks again and again."""
    asked = core.encode(core.new(lib.WIRE_TOKEN_REQUEST, 9, device=0))
    clients = [Client(path, uuid) for _ in range(CLIENTS)]
    while True:
        for number, client in enumerate(clients):
            if not client.say(asked):
                client.close()
                clients[number] = Client(path, uuid)
        yield


def recalls(path: str, uuid: bytes) -> Iterator[None]:
    """One process asks for more memory than there is, again and again, and all others are asked for theirs."""
    asked = core.encode(core.new(lib.WIRE_MEM_RESERVE, 9, device=0, **{"bytes": 1 << 40}))
    holds = core.encode(core.new(lib.WIRE_MEM_RELEASE, 9, device=0, flags=lib.WIRE_MEM_RELEASE_WHOLE, **{"bytes": 1}))
    answer = core.encode(core.new(lib.WIRE_MEM_RELEASE, 9, device=0, flags=lib.WIRE_MEM_RELEASE_RECALLED))
    clients: list[Client] = []
    while True:
        for number in range(CLIENTS):
            if number == len(clients):
                clients.append(Client(path, uuid))
                clients[number].say(holds)
            elif not (clients[0].say(asked) and clients[number].say(answer)):
                for client in clients:
                    client.close()
                clients = []
                break
        yield


def standing(path: str, uuid: bytes) -> Iterator[None]:
    """Connections that stay, slowly ever more of them, each full of what waits to be read behind what another says."""
    octets = frame(core.encode(core.new(lib.WIRE_STATS, 9, device=0)))
    held: list[socket.socket] = []
    busy = Client(path, uuid)
    asked = core.encode(core.new(lib.WIRE_TOKEN_REQUEST, 9, device=0))
    next_ns = 0
    while True:
        if len(held) < STANDING_AT_ONCE or time.monotonic_ns() >= next_ns:
            next_ns = time.monotonic_ns() + 1_000_000_000 // STANDING_A_SECOND
            held.append(greeted(path))
            held[-1].setblocking(False)
        for one in held:
            with contextlib.suppress(OSError):
                one.send(octets)
        held = [one for one in held if stands(one)]
        if not busy.say(asked):
            busy.close()
            busy = Client(path, uuid)
        yield


def stands(connection: socket.socket) -> bool:
    """Is it still there? What comes is thrown away."""
    try:
        return connection.recv(65536) != b""
    except (BlockingIOError, TimeoutError):
        return True
    except OSError:
        return False


def hellos(path: str, uuid: bytes) -> Iterator[None]:
    """Ever new processes, as it says."""
    while True:
        with greeted(path) as one:
            send(one, frame(hello(uuid, secrets.randbits(63))))
        yield


def drained(path: str, uuid: bytes) -> Iterator[None]:
    """Words for the carrier's thread: nothing of an epoch runs any more."""
    while True:
        client = Client(path, uuid)
        with contextlib.suppress(OSError):
            while True:
                client.page.send(struct.pack("<IIQ", lib.WIRE_MAGIC, 0, secrets.randbits(40)))
                yield
        client.close()
        yield


def connections(path: str, uuid: bytes) -> Iterator[None]:
    """Connect, say nonsense, leave."""
    while True:
        for way in (path, f"{path}.page"):
            with connected(way) as one:
                send(one, os.urandom(80))
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
        with greeted(path) as one:
            send(one, frame(os.urandom(64)))
        yield


WAYS: dict[str, Callable[[str, bytes], Iterator[None]]] = {
    way.__name__: way
    for way in (burn, messages, many, hellos, drained, connections, pages, nonsense, memory, recalls, standing)
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
