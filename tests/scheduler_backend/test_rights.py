"""Descriptors that strangers pass to the daemon's sockets: their end is never the daemon's to wait for.

Each passes a TCP connection that lingers for an hour, of which the daemon would drop the last descriptor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.flood import OPENING, connected
from bench.hostile.rights import let_go, lingering, page_hello, pass_along
from tests.scheduler_backend.rig import Rig, wait_for

HEAD = b"GET /healthz HTTP/1.1\r\nHost: gemini\r\n"


@pytest.fixture(params=[(), ("--rights-are-sought",)], ids=["as-it-is", "before-linux-6.16"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with Rig(*request.param) as made:
        for name in ("victim", "hostile"):
            made.tenant(name, request=0.4)
        yield made


def is_served(rig: Rig) -> None:
    """Everybody else is answered."""
    client = rig.client("victim")
    client.ask()
    client.give_back(client.grant().epoch)
    client.close()
    assert rig.http("GET", "/healthz")[0] == 200
    rig.of("victim")


def path_of(rig: Rig, door: str) -> Path:
    return rig.state_dir / "control.sock" if door == "control" else rig.state_dir / "tenants" / "hostile" / door


@contextlib.contextmanager
def stopped(rig: Rig) -> Iterator[None]:
    """The daemon reads nothing meanwhile."""
    assert rig.daemon is not None
    stat = Path(f"/proc/{rig.daemon.pid}/stat")
    rig.daemon.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", what="stop")
        yield
    finally:
        rig.daemon.send_signal(signal.SIGCONT)


def throw(rig: Rig, one: socket.socket, octets: bytes, *connections: socket.socket, flags: int = 0) -> None:
    """Pass it along all of them, and have none oneself when the daemon looks."""
    with stopped(rig):
        let_go(one, any([pass_along(each, octets, one.fileno(), flags=flags) for each in connections]))


def say(connection: socket.socket, octets: bytes) -> None:
    with contextlib.suppress(OSError):  # it may be over already
        connection.sendall(octets)


@pytest.mark.parametrize(
    ("door", "before", "octets"),
    [
        ("tenant.sock", b"", OPENING),
        ("tenant.sock", OPENING, b"\x00\x05hello"),
        ("tenant.sock.page", b"", page_hello()),
        ("control", b"", HEAD),
        ("control", HEAD, b"\r\n"),
    ],
    ids=["first", "after-the-greeting", "page", "control", "within-a-request"],
)
def test_what_is_passed_to_it_keeps_nobody_waiting(rig: Rig, door: str, before: bytes, octets: bytes) -> None:
    path = str(path_of(rig, door))
    with lingering() as one, lingering() as two, connected(path) as connection, connected(path) as other:
        for each in (connection, other):
            say(each, before)
        is_served(rig)  # and so what was said before is read
        throw(rig, one, octets, connection)
        is_served(rig)
        throw(rig, two, b"\xff", other)
        say(other, octets)
        other.close()
        is_served(rig)


def test_what_is_passed_to_the_carriers_thread_keeps_nobody_waiting(rig: Rig) -> None:
    with lingering() as one:
        hostile = rig.client("hostile")
        assert hostile.page_socket is not None
        throw(rig, one, bytes(16), hostile.page_socket)
        is_served(rig)
        hostile.close()
        is_served(rig)


@pytest.mark.parametrize("door", ["tenant.sock", "tenant.sock.page"])
def test_what_waits_in_the_queue_of_a_tenant_that_ends_keeps_nobody_waiting(rig: Rig, door: str) -> None:
    path = str(path_of(rig, door))
    with lingering() as one, contextlib.ExitStack() as stack:
        burst = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(600)]  # more than are taken in
        for connection in burst:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                connection.connect(path)
        throw(rig, one, b"\xff", *burst)
        assert rig.http("DELETE", "/tenants/hostile")[0] == 200
        is_served(rig)
        assert rig.stop() == 0, rig.log()


def test_what_is_passed_with_an_urgent_byte_keeps_nobody_waiting(rig: Rig) -> None:
    with lingering() as one, connected(str(path_of(rig, "tenant.sock"))) as connection:
        say(connection, OPENING)
        is_served(rig)
        throw(rig, one, b"!", connection, flags=socket.MSG_OOB)
        say(connection, b"\x00\x05hello")
        is_served(rig)


def test_what_was_passed_does_not_stay_with_the_daemon(rig: Rig) -> None:
    def count() -> int:
        assert rig.daemon is not None
        return len(os.listdir(f"/proc/{rig.daemon.pid}/fd"))

    rig.state()
    before = count()
    for _ in range(20):
        with lingering() as one, connected(str(path_of(rig, "tenant.sock"))) as connection:
            throw(rig, one, OPENING, connection)
            rig.state()
    wait_for(lambda: count() <= before, what="end of what was opened")
