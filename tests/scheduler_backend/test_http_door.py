"""What strangers may do to the daemon's HTTP: no more than the door allows, and at nobody else's cost."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from bench.tenants import resident_bytes
from scheduler_backend import bounds
from scheduler_backend.http_door import ACCEPTED_AT_ONCE, Door, DoorBounds, _key
from scheduler_backend.status import ABSENCE_SECONDS
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


def test_no_body_is_inflated(rig: Rig) -> None:
    body = gzip.compress(json.dumps({"name": "inflated", "request": 0.1}).encode())
    head = b"POST /tenants HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(60)
        one.connect(str(rig.state_dir / "control.sock"))
        one.sendall(head + body)
        answer = b"".join(iter(lambda: one.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 422 "), answer
    assert b"the body is no JSON object" in answer


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


class _Says(asyncio.Protocol):
    """Answers whatever is said, and ends."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"ok")
        self.transport.close()


def test_an_address_that_asks_too_often_waits_and_nobody_else_does() -> None:
    bound = DoorBounds(connections=8, of_one=8, seconds=60, grace_seconds=60, bytes=100, a_second=0.001, at_once=2)

    async def asks(address: tuple[str, int], source: str) -> bytes:
        read, write = await asyncio.open_connection(*address, local_addr=(source, 0))
        write.write(b"?")
        said = await read.read()
        write.close()
        return said

    async def play() -> None:
        door = Door(asyncio.get_running_loop(), listening := socket.create_server(("127.0.0.1", 0)), _Says, bound)
        address = listening.getsockname()
        assert [await asks(address, "127.0.0.1") for _ in range(2)] == [b"ok", b"ok"]
        third = asyncio.create_task(asks(address, "127.0.0.1"))
        assert [await asks(address, "127.0.0.2") for _ in range(2)] == [b"ok", b"ok"]
        assert not third.done()
        third.cancel()
        door.close()

    asyncio.run(play())


def test_who_has_many_addresses_has_no_more_than_all_may_have_together() -> None:
    bound = DoorBounds(
        connections=9, of_one=9, seconds=60, grace_seconds=60, bytes=100, a_second=100, at_once=100,
        all_a_second=0.001, all_at_once=4,
    )  # fmt: skip

    async def play() -> None:
        door = Door(asyncio.get_running_loop(), listening := socket.create_server(("127.0.0.1", 0)), _Says, bound)
        answered = [asyncio.create_task(asks(listening.getsockname(), f"127.0.0.{host}")) for host in range(2, 10)]
        while sum(task.done() for task in answered) < 4:
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)  # as long as forty of the others took
        assert sum(task.done() for task in answered) == 4
        for task in answered:
            task.cancel()
        door.close()

    async def asks(address: tuple[str, int], source: str) -> None:
        read, write = await asyncio.open_connection(*address, local_addr=(source, 0))
        write.write(b"?")
        assert await read.read() == b"ok"
        write.close()

    asyncio.run(play())


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_all_addresses_of_a_network_of_ipv6_are_one() -> None:
    with socket.socket(socket.AF_INET6) as one:
        hosts = ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1", "fe80::1%lo")
        keys = [_key(one, (host, 1, 0, 0)) for host in hosts]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_who_has_all_places_of_one_is_refused_at_once_and_nobody_else() -> None:
    bound = DoorBounds(connections=4, of_one=2, seconds=60, grace_seconds=60, bytes=100, a_second=100, at_once=100)

    async def play() -> None:
        door = Door(asyncio.get_running_loop(), listening := socket.create_server(("127.0.0.1", 0)), _Says, bound)
        address = listening.getsockname()
        idle = [await asyncio.open_connection(*address, local_addr=("127.0.0.1", 0)) for _ in range(2)]
        for _ in range(3 * ACCEPTED_AT_ONCE):
            read, write = await asyncio.open_connection(*address, local_addr=("127.0.0.1", 0))
            said = await read.read()
            assert said.startswith(b"HTTP/1.1 429 ")
            assert b'{"error": "2 connections of yours are open already' in said
            write.close()
        read, write = await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0))
        write.write(b"?")
        assert await read.read() == b"ok"
        write.close()
        for _read, write in idle:
            write.close()
            await write.wait_closed()
        while b"429" in (said := await asks(address)):
            pass  # the door has not seen yet that they are gone
        assert said == b"ok"
        door.close()

    async def asks(address: tuple[str, int]) -> bytes:
        read, write = await asyncio.open_connection(*address, local_addr=("127.0.0.1", 0))
        write.write(b"?")
        said = await read.read()
        write.close()
        return said

    asyncio.run(play())


def test_another_user_is_answered_while_one_holds_all_places_it_gets() -> None:
    """900 connections of another user, one more whenever it can be had: root's questions are answered."""
    code = (
        "import os,socket,sys,time\nos.setgroups([]);os.setgid(54321);os.setuid(54321);held=[]\nprint(flush=True)\n"
        "while True:\n s=socket.socket(socket.AF_UNIX);s.setblocking(False)\n"
        " try: s.connect(sys.argv[1]);held.append(s)\n except OSError: s.close();time.sleep(0.0005)\n"
        " if len(held)>900: held.pop(0).close()\n"
    )
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    with Rig() as rig:
        rig.state_dir.chmod(0o711)
        (rig.state_dir / "control.sock").chmod(0o666)
        command = [sys.executable, "-c", code, str(rig.state_dir / "control.sock")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as holds:
            assert holds.stdout is not None
            holds.stdout.readline()
            for _ in range(20):
                with socket.socket(socket.AF_UNIX) as asks:
                    for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # it may wait in the kernel
                        asks.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", 60, 0))
                    asks.connect(str(rig.state_dir / "control.sock"))
                    asks.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert asks.recv(4096).startswith(b"HTTP/1.1 200 ")
            holds.kill()


def test_a_connection_that_waits_for_its_turn_is_ended_with_its_time() -> None:
    bound = DoorBounds(connections=8, of_one=8, seconds=0.1, grace_seconds=60, bytes=100, a_second=0.001, at_once=0)

    async def play() -> None:
        door = Door(asyncio.get_running_loop(), listening := socket.create_server(("127.0.0.1", 0)), _Says, bound)
        read, write = await asyncio.open_connection(*listening.getsockname())
        write.write(b"?")
        with contextlib.suppress(ConnectionError):
            assert await read.read() == b""
        write.close()
        door.close()

    asyncio.run(play())


def test_a_user_who_makes_and_removes_tenants_without_end_waits(rig: Rig) -> None:
    """As many changes as may be at once, and twice what may be in a second: not all of them at once."""
    began = time.monotonic()
    for _ in range(bounds.CHANGES_AT_ONCE // 2 + bounds.CHANGES_A_SECOND):
        assert rig.http("POST", "/tenants", {"name": "storm", "request": 0.0})[0] == 200
        assert rig.http("DELETE", "/tenants/storm")[0] == 200
    least = 2 * bounds.CHANGES_A_SECOND / bounds.CHANGES_A_SECOND
    assert time.monotonic() - began > least - 0.5, "a bucket that is full and fills by the second"


def test_a_user_who_asks_for_the_state_without_end_waits(rig: Rig) -> None:
    """The loop's time for its answers is what may be at once and what may be in a second, whatever one costs."""
    for number in range(bounds.CHANGES_AT_ONCE // 2):
        assert rig.http("POST", "/tenants", {"name": f"many{number}", "request": 0.0})[0] == 200

    def ask() -> float:
        with contextlib.closing(http.client.HTTPConnection("localhost")) as asks:
            asks.sock = socket.socket(socket.AF_UNIX)
            asks.sock.connect(str(rig.state_dir / "control.sock"))
            asks.request("GET", "/state")
            (answer := asks.getresponse()).read()
            return float(answer.headers["Server-Timing"].partition("dur=")[2])

    ask()  # what one costs is known from here on
    began, took_ms = time.monotonic(), 0.0
    while took_ms < bounds.STATES_MS_AT_ONCE + 2 * bounds.STATES_MS_A_SECOND:
        took_ms += (last := ask())
    assert time.monotonic() - began > 2 - 2 * last / bounds.STATES_MS_A_SECOND - 0.25


def test_an_asker_that_left_while_it_waited_makes_no_tenant(rig: Rig) -> None:
    for _ in range(bounds.CHANGES_AT_ONCE // 2):
        assert rig.http("POST", "/tenants", {"name": "storm", "request": 0.0})[0] == 200
        assert rig.http("DELETE", "/tenants/storm")[0] == 200
    ghosts = 2 * bounds.CHANGES_A_SECOND
    for number in range(ghosts):
        body = json.dumps({"name": f"ghost{number}", "request": 0.0}).encode()
        with socket.socket(socket.AF_UNIX) as asks:
            asks.connect(str(rig.state_dir / "control.sock"))
            asks.sendall(b"POST /tenants HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n%s" % (len(body), body))  # fmt: skip
    assert rig.http("POST", "/tenants", {"name": "last", "request": 0.0})[0] == 200, "it comes behind them"
    made = [tenant["name"] for tenant in rig.state()["tenants"] if tenant["name"].startswith("ghost")]
    assert len(made) < ghosts, "those of them that had to wait"


def answers(rig: Rig) -> bool:
    with contextlib.suppress(OSError):
        return bool(rig.http("GET", "/healthz")[0] == 200)
    return False


def test_those_who_ask_and_leave_take_no_turn_and_no_memory(rig: Rig) -> None:
    """As many as one user may have connected come, each with a body that takes thirty times as much as objects, and
    leave when they wait; three times. Whoever comes then waits for none of them."""
    assert rig.daemon is not None
    for _ in range(bounds.CHANGES_AT_ONCE):
        rig.http("DELETE", "/tenants/nobody")
    body = b'{"name":[' + b"{}," * 21_000 + b"0]}"
    head = b"POST /tenants HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    before, most, at_once = resident_bytes(rig.daemon.pid), 0, bounds.CONTROL_DOOR.of_one - 2
    for _ in range(3):
        with contextlib.ExitStack() as here:
            for _ in range(at_once):
                asks = here.enter_context(socket.socket(socket.AF_UNIX))
                asks.connect(str(rig.state_dir / "control.sock"))
                with contextlib.suppress(BrokenPipeError):  # those of the round before may have their places still
                    asks.sendall(head + body)
            wait_for(lambda: answers(rig), what="answer behind them")
            most = max(most, resident_bytes(rig.daemon.pid))
    time.sleep(2 * ABSENCE_SECONDS)
    began = time.monotonic()
    assert rig.http("DELETE", "/tenants/nobody")[0] == 404
    assert time.monotonic() - began < at_once / bounds.CHANGES_A_SECOND
    assert most - before < 30 << 20


def test_a_list_of_cards_without_end_is_refused_before_they_are_sought(rig: Rig) -> None:
    status, answer = rig.http("POST", "/tenants", {"name": "all", "request": 0.1, "gpus": ["GPU-x"] * 5000})
    assert status == 422
    assert answer["error"].startswith("gpus has 5000 entries")
