"""Who may come in, without a server."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from scheduler_backend.bounds import CONNECTIONS_AT_ONCE
from tests.scheduler_backend.server_parts import server_parts, until


def knock(path: Path) -> socket.socket:
    """A process that wants to come in."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    return connection


def test_one_that_knocks_is_let_in(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            endpoint = parts.tenant("a")
            with knock(endpoint.socket_path):
                parts.doors.knock(endpoint)
                assert len(endpoint.connections) == 1

    asyncio.run(run())


def test_a_tenant_whose_processes_come_too_often_is_not_listened_to_for_a_while(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            endpoint = parts.tenant("a")
            endpoint.newcomers.take(CONNECTIONS_AT_ONCE)
            parts.doors.knock(endpoint)
            assert (endpoint.shut, endpoint.pauses, len(endpoint.connections)) == (True, 1, 0)
            await until(lambda: not endpoint.shut)

    asyncio.run(run())


def test_a_socket_that_somebody_removed_is_made_anew(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            endpoint = parts.tenant("a")
            endpoint.socket_path.unlink()
            parts.doors.look_after()
            with knock(endpoint.socket_path):
                parts.doors.knock(endpoint)
                assert len(endpoint.connections) == 1

    asyncio.run(run())


def test_there_is_room_for_a_page_where_descriptors_are_left(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            assert parts.doors.has_room_for_page(parts.tenant("a"))

    asyncio.run(run())
