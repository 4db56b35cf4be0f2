"""Who is there, by itself."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from scheduler_backend.bounds import COMPLAINTS_A_SECOND
from scheduler_backend.endpoint import Client
from scheduler_backend.roster import Roster
from tests.scheduler_backend.server_parts import server_parts


def test_nobody_is_there_at_first_and_one_that_is_gone_may_complain() -> None:
    roster = Roster()
    assert (roster.owners(), roster.pids(), roster.descriptors_of(None)) == ({}, {}, 0)
    assert all(roster.may_complain("gone") for _ in range(100))


def test_a_tenant_fills_so_many_lines_of_the_log(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            parts.tenant("a")
            said = [parts.roster.may_complain("a") for _ in range(4 * COMPLAINTS_A_SECOND + 1)]
            assert said == [True] * (4 * COMPLAINTS_A_SECOND) + [False]

    asyncio.run(run())


def test_owners_processes_and_descriptors_are_told(tmp_path: Path) -> None:
    async def run() -> None:
        async with server_parts(tmp_path) as parts:
            mine, other = parts.tenant("mine", owner=os.getuid()), parts.tenant("other")
            assert parts.roster.owners() == {"mine": os.getuid(), "other": None}
            proven, unproven = Client(1, "mine", 5), Client(2, "other", 6)
            proven.proven_pid, unproven.pid = 77, 78
            parts.roster.clients.update({1: proven, 2: unproven})
            assert parts.roster.pids() == {77: "mine"}
            mine.by_nonce[5] = proven
            assert parts.roster.descriptors_of(mine.person) == mine.descriptors == 1
            assert parts.roster.is_there(other)
            del parts.roster.endpoints["other"]
            assert not parts.roster.is_there(other)
            other.close()

    asyncio.run(run())
