"""The connection to the daemon: it comes up, carries messages, goes down, and comes back, each told once."""

from __future__ import annotations

import ctypes
import errno
import select
import socket
import time
from collections.abc import Callable, Iterator
from ctypes import CFUNCTYPE, c_char_p, c_int, c_short, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.libhook.runtime.seams import Seams

MS = 1_000_000
FIRST_NS, LAST_NS, HANDSHAKE_NS = 5 * MS, 100 * MS, 2000 * MS  # of link.c
FD = 108  # where the path ends
NEVER = 2**64 - 1


class Events(ctypes.Structure):
    """struct link_events of link.h."""

    _fields_ = (
        ("on_up", CFUNCTYPE(None, c_void_p)),
        ("on_message", CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)),
        ("on_down", CFUNCTYPE(None, c_void_p, c_int)),
    )


class Link:
    """A link on a clock of its own; `told` is what it said, in order."""

    def __init__(self, seams: Seams, path: Path) -> None:
        self._seams, self.now_ns = seams, 10**12
        self.told: list[object] = []
        self._struct = ctypes.create_string_buffer(int(seams.function("link_size", c_size_t)()))
        self._events = Events(
            Events._fields_[0][1](lambda _: self.told.append("up")),
            Events._fields_[1][1](lambda _, at, size: self.told.append(ctypes.string_at(at, size))),
            Events._fields_[2][1](lambda _, error: self.told.append(error)),
        )
        at = ctypes.addressof(self._events)
        self.call("open", None, (c_char_p, str(path).encode()), (c_void_p, at), (c_void_p, None))

    def call(self, name: str, result: Any, *arguments: tuple[Any, Any]) -> Any:
        types = [c_void_p, *(kind for kind, _ in arguments)]
        values = (value for _, value in arguments)
        return self._seams.function(f"link_{name}", result, *types)(ctypes.addressof(self._struct), *values)

    @property
    def fd(self) -> int:
        return c_int.from_buffer(self._struct, FD).value

    def step(self, after_ns: int = 0) -> None:
        """What the agent does when the descriptor is ready, or the time has come."""
        self.now_ns += after_ns
        ready = 0
        if self.fd >= 0:
            poller = select.poll()
            poller.register(self.fd, select.POLLIN)
            ready = sum(event for _, event in poller.poll(0))
        self.call("step", None, (c_short, ready), (c_uint64, self.now_ns))

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, self.told
            self.step()
            time.sleep(0.001)

    def send(self, message: bytes) -> int:
        return int(self.call("send", c_int, (c_char_p, message), (c_size_t, len(message))))

    def due_ns(self) -> int:
        """In how long it wants to be looked at again."""
        return int(self.call("deadline", c_uint64)) - self.now_ns


@pytest.fixture
def link(seams: Seams, tmp_path: Path) -> Iterator[Link]:
    link = Link(seams, tmp_path / "daemon.sock")
    yield link
    link.call("close", None)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[zmq.Socket[bytes]]:
    context = zmq.Context()
    with context.socket(zmq.ROUTER) as router:
        router.rcvhwm = 1
        router.bind(f"ipc://{tmp_path / 'daemon.sock'}")
        yield router
    context.term()


def test_where_nobody_listens_it_is_told_once_and_tried_again_ever_less_often(link: Link) -> None:
    waits = []
    for _ in range(7):
        link.step()
        waits.append(link.due_ns())
        link.now_ns += link.due_ns()
    assert link.told == [-errno.ENOENT]
    assert waits == [FIRST_NS, 2 * FIRST_NS, 4 * FIRST_NS, 8 * FIRST_NS, 16 * FIRST_NS, LAST_NS, LAST_NS]


def test_before_its_time_it_is_not_tried_again(link: Link, tmp_path: Path) -> None:
    link.step()
    before = link.due_ns()
    link.step(before - 1)
    assert link.due_ns() == 1


def test_messages_go_both_ways(link: Link, daemon: zmq.Socket[bytes]) -> None:
    assert link.send(b"early") == -errno.ENOTCONN
    link.until(lambda: link.told == ["up"])
    assert link.due_ns() == NEVER - link.now_ns
    assert link.send(b"hello") == 0
    assert daemon.poll(60_000)
    peer, message = daemon.recv_multipart()
    assert message == b"hello"
    daemon.send_multipart([peer, b"welcome"])
    link.until(lambda: link.told == ["up", b"welcome"])


def test_a_peer_that_never_answers_is_given_up(link: Link, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "daemon.sock"))
        listener.listen()
        link.step()
        assert (link.told, link.due_ns()) == ([], HANDSHAKE_NS)
        link.step(HANDSHAKE_NS)
        assert (link.told, link.fd) == ([-errno.ETIMEDOUT], -1)


def test_one_that_was_dropped_comes_back_after_the_wait_that_was_asked_for(
    link: Link, daemon: zmq.Socket[bytes]
) -> None:
    link.until(lambda: link.told == ["up"])
    link.call("drop", None, (c_uint64, link.now_ns), (c_uint64, 1000 * MS))
    assert (link.told, link.due_ns(), link.fd) == (["up", -errno.ECONNREFUSED], 1000 * MS, -1)
    link.step(999 * MS)
    assert link.fd == -1
    link.step(MS)
    link.until(lambda: link.told[2:] == ["up"])


def test_a_daemon_that_reads_no_more_is_no_longer_written_to(link: Link, daemon: zmq.Socket[bytes]) -> None:
    link.until(lambda: link.told == ["up"])
    sent = [link.send(b"x" * 256) for _ in range(20_000)]
    assert sent[0] == 0
    assert -errno.ENOBUFS in sent
    link.until(lambda: len(link.told) == 2)
    assert isinstance(link.told[1], int)
    assert link.told[1] < 0
