"""Events to the node and its deadlines, without a server."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.tenant import TenantSpec
from tests.scheduler_backend.server_parts import server_parts, until


def test_what_the_node_says_is_done_by_those_whose_it_is(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            endpoint = parts.tenant("a")
            client = parts.client(endpoint)
            parts.handovers.handle(ev.TokenAsked(client.number, 0))
            machine = parts.node.machines[0]
            assert endpoint.page.load(0) == machine.epoch > 0
            assert parts.tally.seats["a", 0].grants == 1
            parts.handovers.handle(ev.TokenReturned(client.number, 0, machine.epoch, busy_ns=5, launches=2))
            assert endpoint.page.load(0) == 0
            assert parts.tally.seats["a", 0].charged.launches == 2

    asyncio.run(run())


def test_a_clients_fault_is_its_own(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            with pytest.raises(ev.RemoteProtocolError):
                parts.handovers.handle(ev.TokenAsked(99, 0))
            parts.handovers.handle(ev.TenantAdded(TenantSpec("b")))
            assert list(parts.node.tenants) == ["b"]

    asyncio.run(run())


def test_a_deadline_is_kept_without_an_event(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            client = parts.client(parts.tenant("a"))
            parts.handovers.handle(ev.TokenAsked(client.number, 0))
            await until(lambda: parts.tally.seats["a", 0].leases_lost == 1)

    asyncio.run(run())


def test_where_we_stood_still_clients_are_heard_before_leases_lapse(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            client = parts.client(parts.tenant("a"))
            heard: list[tuple[str, int]] = []
            seat = parts.tally.seats["a", 0]
            parts.handovers.look_again = lambda endpoint: heard.append((endpoint.name, seat.leases_lost))
            parts.handovers.handle(ev.TokenAsked(client.number, 0))
            lease_ns = parts.node.policy.alone_lease_ns
            time.sleep(2 * lease_ns / 1e9)  # the loop does not run
            await until(lambda: seat.leases_lost == 1)
            assert heard == [("a", 0)]

    asyncio.run(run())


def test_an_order_without_a_page_that_is_read_is_not_carried_out(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            a, b = (parts.client(parts.tenant(name), number) for number, name in enumerate("ab", start=1))
            parts.handovers.handle(ev.TokenAsked(a.number, 0))
            parts.handovers.handle(ev.TokenAsked(b.number, 0))
            assert parts.node.machines[0].prepared is not None
            assert not parts.handovers.is_behind(0)
            parts.handovers.catch_up()
            assert (parts.handovers.carried, b.told) == (0, {})

    asyncio.run(run())
