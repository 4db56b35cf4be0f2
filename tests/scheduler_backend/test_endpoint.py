"""A tenant's door: who is in stays in, and who comes too often finds it shut."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from bench import flood
from scheduler_backend.endpoint import (
    CONNECTIONS_A_SECOND,
    CONNECTIONS_AT_ONCE,
    LATE_A_SECOND,
    LONGEST_UNREAD_NS,
    Endpoint,
)
from scheduler_backend.intake import Intake
from scheduler_backend.outbox import Outbox
from tests.scheduler_backend.rig import wait_for


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
    made = Endpoint("tenant", 1, tmp_path / "tenant", context, 1, 5, None)
    made.knocks()
    yield made
    made.close()
    context.term()


def answers(endpoint: Endpoint) -> bool:
    """Can somebody new come in?"""
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.connect(str(endpoint.socket_path))
        except OSError:
            return False
    return True


def heard(endpoint: Endpoint) -> list[bytes]:
    return wait_for(
        lambda: endpoint.router.get(zmq.EVENTS) & zmq.POLLIN and endpoint.router.recv_multipart(), what="message"
    )


def test_who_is_in_stays_in_while_nobody_new_comes_in(endpoint: Endpoint) -> None:
    with flood.greeted(str(endpoint.socket_path)) as one:
        one.sendall(flood.frame(b"hello"))
        route, _ = heard(endpoint)
        endpoint.shut_out()
        assert not answers(endpoint)
        endpoint.router.send_multipart([route, b"still there"])
        assert b"still there" in one.recv(100)
        assert endpoint.complete() is False, "there is no page here"
        endpoint.open()
        assert answers(endpoint)
        one.sendall(flood.frame(b"again"))
        assert heard(endpoint) == [route, b"again"]


def test_a_send_to_who_is_gone_does_not_hide_what_there_is_to_read(endpoint: Endpoint) -> None:
    """The descriptor tells of a change once; a send takes it in, and a message stayed unread until the next."""
    looked: list[Endpoint] = []
    with flood.greeted(str(endpoint.socket_path)) as one:
        one.sendall(flood.frame(b"hello"))
        heard(endpoint)  # a connection that comes shows at the descriptor, too
        endpoint.router.get(zmq.EVENTS)
        one.sendall(flood.frame(b"more"))
        wait_for(lambda: select.select([endpoint.fd], [], [], 0)[0], what="sign of a message")
        outbox = SimpleNamespace(_look_again=looked.append)
        assert not Outbox._send(outbox, endpoint, b"nobody", b"revoked")  # type: ignore[arg-type]
        wait_for(lambda: endpoint.router.get(zmq.EVENTS) & zmq.POLLIN, what="message")
    assert looked == [endpoint]


def test_a_message_that_cannot_be_handled_does_not_hide_those_behind_it(endpoint: Endpoint) -> None:
    """The descriptor tells of a change once: the next message stayed unread until one more came."""
    looked: list[Endpoint] = []

    def fault(endpoint: Endpoint, route: bytes, frames: list[bytes | zmq.Frame]) -> int:
        raise RuntimeError("a fault of ours")

    intake = SimpleNamespace(_receive=fault, _look_again=looked.append)
    with flood.greeted(str(endpoint.socket_path)) as one:
        one.sendall(flood.frame(b"first") + flood.frame(b"second"))
        wait_for(lambda: endpoint.router.get(zmq.EVENTS) & zmq.POLLIN, what="message")
        with pytest.raises(RuntimeError):
            Intake._readable(intake, endpoint)  # type: ignore[arg-type]
    assert looked == [endpoint]


def test_a_wall_ends_its_connections_and_can_be_opened(endpoint: Endpoint) -> None:
    with flood.greeted(str(endpoint.socket_path)) as one:
        one.sendall(flood.frame(b"hello"))
        heard(endpoint)
        endpoint.wall_up()
        one.setblocking(False)

        def ended() -> bool:
            endpoint.router.get(zmq.EVENTS)
            with contextlib.suppress(BlockingIOError):
                return one.recv(100) == b""
            return False

        wait_for(ended, what="end of the connection")
    assert not answers(endpoint)
    endpoint.open()
    assert answers(endpoint)


def test_those_who_come_are_counted_and_too_many_are_too_many(endpoint: Endpoint) -> None:
    for _ in range(10):
        assert answers(endpoint)
    wait_for(lambda: endpoint.knocks() and endpoint.connections.left <= CONNECTIONS_AT_ONCE - 9, what="ten counted")
    deadline = time.monotonic() + 60
    while endpoint.knocks():
        answers(endpoint)
        assert time.monotonic() < deadline, "a flood that is never noticed"
    assert endpoint.connections.lacks_seconds() > 0
    assert not endpoint.knocks_on()


def test_who_has_too_many_connections_that_stand_gets_no_more(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler_backend.endpoint.MOST_STANDING", 3)
    held = [flood.greeted(str(endpoint.socket_path)) for _ in range(3)]
    wait_for(lambda: not endpoint.knocks() and endpoint.crowded(), what="three counted")
    held.pop().close()
    wait_for(endpoint.knocks, what="one less")
    held.append(flood.greeted(str(endpoint.socket_path)))
    wait_for(lambda: not endpoint.knocks() and endpoint.crowded(), what="three counted")
    endpoint.wall_up()
    assert endpoint.knocks(), "they ended with their listener"
    for connection in held:
        connection.close()


def test_while_what_a_tenant_said_stays_unread_it_may_come_in_slowly(endpoint: Endpoint) -> None:
    endpoint.behind_ns = time.monotonic_ns() - LONGEST_UNREAD_NS - 1
    endpoint.knocks()
    assert endpoint.connections.rate == LATE_A_SECOND
    endpoint.router.get(zmq.EVENTS)
    readers = SimpleNamespace(_look_again=lambda endpoint: None)
    Intake._readable(readers, endpoint)  # type: ignore[arg-type]
    endpoint.knocks()
    assert (endpoint.behind_ns, endpoint.connections.rate) == (0, CONNECTIONS_A_SECOND), (
        "there was nothing left to read"
    )


def test_a_file_that_somebody_removed_is_made_anew(endpoint: Endpoint) -> None:
    endpoint.socket_path.unlink()
    assert not endpoint.complete()
    endpoint.shut = True
    endpoint.open()
    assert answers(endpoint)
