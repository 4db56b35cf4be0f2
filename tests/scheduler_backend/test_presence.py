"""What the daemon keeps of a process ends with it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from libhook.core import lib
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.server import Server
from scheduler_backend.trace import Recorder
from tests.scheduler_backend.rig import Client
from tests.scheduler_backend.serve import GPUS
from tests.scheduler_backend.server_parts import server_parts, until


def say_of_both_and_go(path: Path) -> None:
    """One process, which says in a later Hello that it sees no card any more."""
    client = Client(path, page=False)
    for device in range(len(GPUS)):
        client.send(lib.WIRE_STATS, device=device, launches=5, busy_ns=7)
    client.send(lib.WIRE_HELLO, client_nonce=client.nonce, program=b"fake", device_count=0)
    client.expect(lib.WIRE_WELCOME)
    client.close()


def test_what_a_process_said_of_a_card_is_forgotten_with_it_whatever_its_last_hello_named(tmp_path: Path) -> None:
    """Else each that comes so leaves something behind, and a tenant's processes come twenty a second."""

    async def run() -> None:
        loop, now_ns = asyncio.get_running_loop(), time.monotonic_ns()
        server = Server(
            loop, tmp_path, GPUS, Policy(), Recorder(None, {}), last_epoch=1, started_ns=now_ns, incarnation=1
        )
        try:
            path = server.start_tenant(TenantSpec("a", 100_000, gpus=(0, 1))).socket_path
            await asyncio.to_thread(say_of_both_and_go, path)
            while server.clients:
                await asyncio.sleep(0.01)
            assert [server.tallies["a", gpu].work.launches for gpu in (0, 1)] == [5, 5]
            assert [server.tallies["a", gpu].told for gpu in (0, 1)] == [0, 0]
        finally:
            server.close()

    asyncio.run(run())


def test_one_that_was_known_before_a_restart_is_awaited_until_it_is_gone(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            gone: list[tuple[int, str]] = []
            parts.presence.on_gone = lambda pid, tenant: gone.append((pid, tenant))
            endpoint = parts.tenant("a")
            parts.presence.remember(endpoint, 5, os.getpid(), 7)  # its process has ended, and the number is another's
            assert parts.roster.clients == {}
            parts.presence.remember(endpoint, 6, 0, 0)  # nobody knows which it is
            (client,) = parts.roster.clients.values()
            assert parts.node.machines[0].restart.unheard == {client.number}
            parts.presence.gone(endpoint, client)
            parts.presence.gone(endpoint, client)
            assert parts.node.machines[0].restart.unheard == set()
            assert gone == [(0, "a")]

    asyncio.run(run())


def test_changes_are_kept_soon_and_many_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            kept: list[int] = []
            parts.presence.on_change = lambda: kept.append(len(parts.roster.clients))
            endpoint = parts.tenant("a")
            for number in (1, 2):
                client = parts.client(endpoint, number)
                parts.presence.gone(endpoint, client)
            assert kept == []
            await until(lambda: kept == [0])

    asyncio.run(run())
