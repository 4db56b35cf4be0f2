"""The ZMTP 3.1 codec: against libzmq's ROUTER, in any chunks, and against bytes that are no ZMTP."""

from __future__ import annotations

import ctypes
import random
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

ROOT = Path(__file__).parents[3]
MAX = 1024
ROOM = 65536
DEALER, ROUTER = 0, 1


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("zmtp") / "zmtp.so"
    source = ROOT / "libhook" / "core" / "zmtp.c"
    command = ["gcc", "-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}"]
    subprocess.run([*command, "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library))


ON_MESSAGE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)


class Codec:
    def __init__(self, library: ctypes.CDLL, role: int = DEALER) -> None:
        self.library = library
        # struct zmtp and its room for output, each with a guard behind it
        self.memory = ctypes.create_string_buffer(b"\xa5" * 4000, 4000)
        self.out = ctypes.create_string_buffer(b"\xa5" * (ROOM + 2000), ROOM + 2000)
        self.messages: list[bytes] = []
        self.callback = ON_MESSAGE(lambda _, data, size: self.messages.append(data[:size]))
        library.zmtp_pending.restype = ctypes.c_size_t
        library.zmtp_start(self.memory, role, self.out, ctypes.c_size_t(ROOM))

    @property
    def state(self) -> int:
        return int.from_bytes(self.memory.raw[4:8], "little")

    def receive(self, chunk: bytes) -> int:
        return int(self.library.zmtp_receive(self.memory, chunk, ctypes.c_size_t(len(chunk)), self.callback, None))

    def send(self, message: bytes) -> int:
        return int(self.library.zmtp_send(self.memory, message, ctypes.c_size_t(len(message))))

    def pending(self) -> bytes:
        data = ctypes.c_void_p()
        size = self.library.zmtp_pending(self.memory, ctypes.byref(data))
        taken = ctypes.string_at(data, size)
        self.library.zmtp_sent(self.memory, ctypes.c_size_t(size))
        return taken

    def guard_is_whole(self) -> bool:
        return self.memory.raw[2000:] == b"\xa5" * 2000 and self.out.raw[ROOM:] == b"\xa5" * 2000


@pytest.fixture
def router() -> Iterator[tuple[zmq.Socket[bytes], str]]:
    with tempfile.TemporaryDirectory(prefix="gemini-") as folder:
        path = f"{folder}/s"
        router = zmq.Context.instance().socket(zmq.ROUTER)
        router.setsockopt(zmq.HEARTBEAT_IVL, 50)
        router.setsockopt(zmq.HEARTBEAT_TIMEOUT, 60_000)  # this process may stand still
        router.bind(f"ipc://{path}")
        yield router, path
        router.close(0)


class Connected:
    """The codec on a real socket to libzmq."""

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self.codec = Codec(library)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.flush()
        while self.codec.state != 2:
            self.pump()

    def flush(self) -> bytes:
        data = self.codec.pending()
        self.socket.sendall(data)
        return data

    def pump(self) -> None:
        data = self.socket.recv(4096)
        assert data, "libzmq closed the connection"
        assert self.codec.receive(data) == 0
        self.flush()


def test_messages_pass_both_ways_and_heartbeats_are_answered(
    codec: ctypes.CDLL, router: tuple[zmq.Socket[bytes], str]
) -> None:
    zmq_socket, path = router
    peer = Connected(codec, path)
    sizes = [0, 1, 16, 254, 255, 256, 257, 1023, MAX]
    for size in sizes:
        assert peer.codec.send(bytes([size % 251]) * size) == 0
    peer.flush()
    identities = set()
    for size in sizes:
        identity, body = zmq_socket.recv_multipart()
        identities.add(identity)
        assert body == bytes([size % 251]) * size
    assert len(identities) == 1
    for size in sizes:
        zmq_socket.send_multipart([identities.copy().pop(), b"x" * size])
    while len(peer.codec.messages) < len(sizes):
        peer.pump()
    assert peer.codec.messages == [b"x" * size for size in sizes]
    pings = pongs = 0
    while pings < 5:  # libzmq pings every 50 ms
        data = peer.socket.recv(4096)
        pings += data.count(b"\x04PING")
        assert data
        assert peer.codec.receive(data) == 0
        pongs += peer.flush().count(b"\x04PONG")
    assert pongs == pings


def test_a_message_in_two_frames_ends_the_connection(codec: ctypes.CDLL, router: tuple[zmq.Socket[bytes], str]) -> None:
    zmq_socket, path = router
    peer = Connected(codec, path)
    peer.codec.send(b"hello")
    peer.flush()
    identity, _ = zmq_socket.recv_multipart()
    zmq_socket.send_multipart([identity, b"one", b"two"])
    while peer.codec.receive(peer.socket.recv(4096)) == 0:
        pass
    assert peer.codec.state == 3
    assert peer.codec.receive(b"\x00\x01x") < 0


def recorded(codec: ctypes.CDLL, path: str, zmq_socket: zmq.Socket[bytes]) -> bytes:
    """What libzmq's ROUTER sends to a DEALER: greeting, READY, and messages of many sizes."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(path)
    mine = Codec(codec)
    stream = b""
    connection.sendall(mine.pending())
    while mine.state != 2:
        data = connection.recv(4096)
        stream += data
        assert mine.receive(data) == 0
        connection.sendall(mine.pending())
    mine.send(b"here")
    connection.sendall(mine.pending())
    identity, _ = zmq_socket.recv_multipart()
    for size in range(0, MAX + 1, 31):
        zmq_socket.send_multipart([identity, bytes([size % 256]) * size])
    done = threading.Event()
    total = len(range(0, MAX + 1, 31))
    while len(mine.messages) < total:
        data = connection.recv(4096)
        stream += data
        assert mine.receive(data) == 0
    done.set()
    return stream


def test_any_chunks_give_the_same_messages_and_any_damage_is_survived(
    codec: ctypes.CDLL, router: tuple[zmq.Socket[bytes], str]
) -> None:
    zmq_socket, path = router
    stream = recorded(codec, path, zmq_socket)
    rng = random.Random(4)
    expected = [bytes([size % 256]) * size for size in range(0, MAX + 1, 31)]
    for step in (1, 2, 7, 64, 1000, 0):
        mine, at = Codec(codec), 0
        while at < len(stream):
            size = step or rng.randrange(1, 300)
            assert mine.receive(stream[at : at + size]) == 0
            at += size
        assert mine.messages == expected
    refused = 0
    for _ in range(1500):
        damaged = bytearray(stream)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        mine, at, error = Codec(codec), 0, 0
        while at < len(damaged) and not error:
            size = rng.randrange(1, 600)
            error = mine.receive(bytes(damaged[at : at + size]))
            mine.pending()
            at += size
        refused += bool(error)
        assert all(len(message) <= MAX for message in mine.messages)
        assert mine.guard_is_whole()
    assert refused > 20
    for _ in range(300):
        mine = Codec(codec)
        assert mine.receive(rng.randbytes(200)) < 0


@pytest.mark.parametrize(
    "frame",
    [
        b"\x02" + (MAX + 1).to_bytes(8, "big"),
        b"\x02" + b"\xff" * 8,
        b"\x02\x80" + b"\0" * 7,
        b"\x06" + (1 << 40).to_bytes(8, "big"),
        b"\x08\x00",
        b"\x05\x05\x04PING",
        b"\x04\x00",
        b"\x04\x02\x09x",
        b"\x04\x05\x04PING",  # no time to live
        b"\x04\x1a\x04PING\0\0" + b"c" * 19,
        b"\x04\x06\x05ERROR",
    ],
)
def test_frames_that_end_the_connection(
    codec: ctypes.CDLL, router: tuple[zmq.Socket[bytes], str], frame: bytes
) -> None:
    peer = Connected(codec, router[1])
    assert peer.codec.receive(frame) < 0
    assert peer.codec.send(b"x") < 0
    assert peer.codec.guard_is_whole()


def test_nothing_is_sent_before_the_handshake_and_a_full_buffer_says_so(
    codec: ctypes.CDLL, router: tuple[zmq.Socket[bytes], str]
) -> None:
    assert Codec(codec).send(b"early") < 0
    peer = Connected(codec, router[1])
    assert peer.codec.send(b"x" * (MAX + 1)) < 0
    count = 0
    while peer.codec.send(b"x" * MAX) == 0:
        count += 1
    assert 60 <= count <= 64


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


def ready(kind: bytes = b"DEALER", identity: bytes = b"") -> bytes:
    body = b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    body += b"\x08Identity" + len(identity).to_bytes(4, "big") + identity
    return (b"\x04" + bytes([len(body)]) if len(body) < 256 else b"\x06" + len(body).to_bytes(8, "big")) + body


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        (GREETING + ready(), True),
        (GREETING[:11] + b"\x01" + GREETING[12:] + ready(identity=b"i" * 255), True),
        (GREETING[:11] + b"\x07" + GREETING[12:] + ready(), True),
        (GREETING[:10] + b"\x02" + GREETING[11:], False),
        (GREETING[:32] + b"\x01" + GREETING[33:], False),
        (GREETING[:12] + b"PLAIN".ljust(20, b"\0") + bytes(32), False),
        (GREETING + ready(identity=b"i" * 256), False),
        (GREETING + ready(b"ROUTER"), False),
        (GREETING + ready(b"REQ"), False),
        (GREETING + b"\x04\x06\x05READY", False),
        (GREETING + b"\x04\x08\x04PING\0\0x", False),
        (GREETING + b"\0\x01x", False),
        (GREETING + ready() + b"\x01\x01x", False),
        (GREETING + ready() + b"\x04\x08\x07UNKNOWN", False),
        (GREETING + ready() + b"\x04\x05\x04PING", False),
    ],
)
def test_the_daemons_side_takes_a_dealer_and_nothing_else(codec: ctypes.CDLL, said: bytes, taken: bool) -> None:
    for step in (1, len(said)):
        door = Codec(codec, ROUTER)
        error = 0
        for at in range(0, len(said), step):
            error = error or door.receive(said[at : at + step])
        assert (error == 0) == taken
        assert door.state == (2 if taken else 3)
        assert door.guard_is_whole()


def test_the_daemons_side_echoes_what_a_ping_carries_and_not_a_byte_more(codec: ctypes.CDLL) -> None:
    for context in (b"", b"x", b"c" * 16):
        door = Codec(codec, ROUTER)
        assert door.receive(GREETING + ready()) == 0
        door.pending()
        assert door.receive(b"\x04" + bytes([7 + len(context)]) + b"\x04PING\0\x07" + context) == 0
        assert door.pending() == b"\x04" + bytes([5 + len(context)]) + b"\x04PONG" + context
