"""What clients say, and who comes in, without a server."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from libhook.core import lib
from scheduler_backend.core import events as ev
from scheduler_backend.endpoint import Endpoint
from tests.scheduler_backend.rig import PATIENCE_S, Client
from tests.scheduler_backend.server_parts import ServerParts, server_parts, until


def opened(parts: ServerParts, name: str) -> Endpoint:
    """A tenant that is read, and into which connections come."""
    endpoint = parts.tenant(name)
    parts.intake.on_knock = parts.doors.knock
    parts.outbox.on_gone = parts.presence.gone
    parts.intake.begin(endpoint)
    return endpoint


def test_a_hello_is_answered_and_a_question_is_an_event(tmp_path: Path) -> None:
    def play(path: Path) -> int:
        client = Client(path, page=False)
        try:
            client.ask()
            return int(client.grant().epoch)
        finally:
            client.close()

    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            path = opened(parts, "a").socket_path
            epoch = await asyncio.to_thread(play, path)
            assert epoch == parts.node.machines[0].epoch
            await until(lambda: not parts.roster.clients)  # its connection ended, and it has no page

    asyncio.run(run())


def test_one_that_talks_nonsense_loses_its_connection_and_its_tenant_none_else(tmp_path: Path) -> None:
    def talk(path: Path) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(path))
            connection.send(b"GET / HTTP/1.1\r\n\r\n" * 8)
            said = b""
            while more := connection.recv(4096):
                said += more
            return said

    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            endpoint = opened(parts, "a")
            await asyncio.to_thread(talk, endpoint.socket_path)
            assert sum(parts.intake.refused.values()) == 1
            client = await asyncio.to_thread(Client, endpoint.socket_path, page=False)
            assert len(parts.roster.clients) == 1
            client.close()

    asyncio.run(run())


def test_what_the_node_takes_for_a_fault_costs_the_connection(tmp_path: Path) -> None:
    def play(path: Path) -> int:
        client = Client(path, page=False)
        try:
            client.give_back(1 << 60)  # an epoch that never was
            return int(client.expect(lib.WIRE_ERROR).code)
        finally:
            client.close()

    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            endpoint = opened(parts, "a")
            assert await asyncio.to_thread(play, endpoint.socket_path) > 0
            assert parts.intake.refused == {"EPROTO": 1}
            assert parts.roster.clients == {}

    asyncio.run(run())


def test_an_event_of_nobody_is_worth_nothing_more_than_a_look(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            endpoint = parts.tenant("a")
            parts.client(endpoint)
            parts.handovers.handle(ev.ClientDied(1))
            parts.intake.begin(endpoint)
            parts.intake.look_again(endpoint)
            assert endpoint.draining
            await until(lambda: not endpoint.draining)

    asyncio.run(run())
