"""What strangers may do to the daemon's HTTP: no more than the door allows, and at nobody else's cost."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_backend import bounds
from scheduler_backend.http_door import ACCEPTED_AT_ONCE
from tests.scheduler_backend.rig import Rig, wait_for


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig("--metrics-port", "0") as made:
        yield made


def port_of(rig: Rig) -> int:
    found = wait_for(lambda: re.search(r"metrics address=127\.0\.0\.1:(\d+)", rig.log()))
    return int(found[1])


def descriptors_of(rig: Rig) -> int:
    assert rig.daemon is not None
    return len(list(Path(f"/proc/{rig.daemon.pid}/fd").iterdir()))


def ended(connection: socket.socket) -> bool:
    """The daemon has ended this connection."""
    connection.settimeout(60)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_the_port_tells_no_stranger_who_the_tenants_are(rig: Rig) -> None:
    base = f"http://127.0.0.1:{port_of(rig)}"
    for path in ("/state", "/version", "/tenants"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(base + path, timeout=60)
        assert refused.value.code == 404
    for path in ("/metrics", "/healthz", "/readyz"):
        assert urllib.request.urlopen(base + path, timeout=60).status == 200


def test_many_idle_connections_take_no_more_descriptors_than_the_door_has_room(rig: Rig) -> None:
    before = descriptors_of(rig)
    address = ("127.0.0.1", port_of(rig))
    with contextlib.ExitStack() as stack:
        for _ in range(2 * bounds.METRICS_DOOR.connections + bounds.METRICS_BACKLOG):
            idle = stack.enter_context(socket.socket())
            idle.setblocking(False)
            idle.connect_ex(address)
        wait_for(lambda: descriptors_of(rig) >= before + bounds.METRICS_DOOR.connections)
        assert descriptors_of(rig) <= before + bounds.METRICS_DOOR.connections + ACCEPTED_AT_ONCE
        assert rig.http("GET", "/healthz")[0] == 200
        text = urllib.request.urlopen(f"http://127.0.0.1:{address[1]}/metrics", timeout=60).read()
        assert b"gemini_build_info" in text, "who asks is served all the same"


def test_a_connection_that_never_ends_its_question_is_ended(rig: Rig) -> None:
    with socket.create_connection(("127.0.0.1", port_of(rig))) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        began = time.monotonic()
        assert ended(slow)
        assert time.monotonic() - began < 60


def test_a_question_that_is_too_long_is_ended(rig: Rig) -> None:
    with socket.create_connection(("127.0.0.1", port_of(rig))) as long, contextlib.suppress(ConnectionError):
        while True:
            long.sendall(b"A" * 4096)
    assert rig.http("GET", "/healthz")[0] == 200


def test_a_connection_is_answered_once(rig: Rig) -> None:
    with socket.create_connection(("127.0.0.1", port_of(rig))) as twice:
        twice.settimeout(60)
        twice.sendall(2 * b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        with twice.makefile("rb") as answer:
            text = answer.read()
    assert text.count(b"200 OK") == 1
    assert b"Connection: close" in text


def test_many_readers_share_one_text(rig: Rig) -> None:
    """150 who ask at once, while a tenant's figures change: the daemon renders for all of them together."""
    url = f"http://127.0.0.1:{port_of(rig)}/metrics"
    texts: list[bytes] = []

    def read() -> None:
        texts.append(urllib.request.urlopen(url, timeout=60).read())

    rig.tenant("busy", request=0.3)
    busy = rig.client("busy")
    readers = [threading.Thread(target=read) for _ in range(150)]
    for reader in readers:
        reader.start()
    while any(reader.is_alive() for reader in readers):
        busy.ask()
        busy.give_back(busy.grant().epoch)
    assert len(texts) == 150
    assert len(set(texts)) < 75
