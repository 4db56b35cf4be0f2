"""One plugin after another."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from gemini.plugin.turn import Turn


def test_who_comes_second_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    async def main() -> None:
        first, second = Turn(tmp_path / "lock"), Turn(tmp_path / "lock")
        await first.take()
        assert not first.waiting
        waits = asyncio.Event()
        taking = asyncio.create_task(second.take(waits.set))
        await waits.wait()
        assert (second.waiting, taking.done()) == (True, False)
        first.give()
        first.give()
        async with asyncio.timeout(60):
            await taking
        assert not second.waiting
        second.give()

    asyncio.run(main())


def test_who_is_told_to_end_while_it_waits_leaves_the_turn_to_others(tmp_path: Path) -> None:
    async def main() -> None:
        first, second, third = (Turn(tmp_path / "lock") for _ in range(3))
        await first.take()
        taking = asyncio.create_task(second.take())
        while not second.waiting:
            await asyncio.sleep(0)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        second.give()
        first.give()
        async with asyncio.timeout(60):
            await third.take()

    asyncio.run(main())


def test_nobody_else_may_read_the_file_and_so_take_the_turn_for_ever(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch(0o644)  # of a plugin of before
    turn = Turn(lock)
    asyncio.run(turn.take())
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    turn.give()


def test_no_link_leads_the_turn_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        asyncio.run(Turn(tmp_path / "lock").take())
    assert not (tmp_path / "other").exists()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(Turn(tmp_path / "none" / "lock").take())
