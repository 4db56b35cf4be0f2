"""What the node says, done, without a server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from scheduler_backend import wire
from scheduler_backend.core import events as ev
from tests.scheduler_backend.server_parts import server_parts


def test_an_epoch_is_shown_in_the_page_of_its_tenant(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            endpoint = parts.tenant("a")
            for action in (ev.Page("a", 3, 77), ev.Page("gone", 3, 78)):
                parts.outbox.performers[ev.Page](action)
            assert (endpoint.page.load(3), endpoint.page.load(0)) == (77, 0)

    asyncio.run(run())


def test_who_cannot_be_reached_is_told_nothing_and_counted(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            client = parts.client(parts.tenant("a"))
            revoke = ev.Revoke(client.number, 0, 7, ev.LEASE)
            assert not parts.outbox.to_client(client.number, wire.revoke, revoke)
            parts.outbox.revoke(revoke)
            parts.outbox.revoke(revoke._replace(client=99))
            parts.outbox.welcome(ev.Welcome(client.number))
            assert parts.tally.seats["a", 0].revokes == 1

    asyncio.run(run())


def test_a_refusal_is_counted_and_what_was_to_be_told_goes_with_one_answer(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            client = parts.client(parts.tenant("a"))
            parts.outbox.to_tell = 5
            parts.outbox.performers[ev.MemReply](ev.MemReply(client.number, 0, 1, False, 0, 0, 0))
            assert (parts.tally.mem_refusals, parts.outbox.to_tell) == ({"a": 1}, 0)

    asyncio.run(run())


def test_a_mark_is_never_zero_and_each_tenant_and_card_has_its_own(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            a, b = (parts.client(parts.tenant(name, (0, 1)), number) for number, name in enumerate("ab", start=1))
            marks = [parts.outbox.mark_of(client, gpu) for client in (a, b) for gpu in (0, 1)]
            assert len(set(marks)) == 4
            assert all(marks)
            assert parts.outbox.mark_of(a, 0) == marks[0]

    asyncio.run(run())
