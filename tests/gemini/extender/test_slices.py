"""A search in slices: others are answered between them, and it ends with what it found, or as its caller does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from gemini.extender.slices import in_slices

Pause = Callable[[], None]


def test_others_are_answered_between_slices_and_never_during_one() -> None:
    inside = False
    seen: list[int] = []

    def search(pause: Pause) -> int:
        nonlocal inside
        for step in range(50):
            inside = True
            seen.append(-1)
            inside = False
            pause()
            seen.append(step)
        return 7

    async def run() -> None:
        async def others() -> None:
            while True:
                assert not inside
                seen.append(1_000)
                await asyncio.sleep(0)

        other = asyncio.get_running_loop().create_task(others())
        found, ran_ns = await in_slices(search, slice_ns=0)
        assert found == 7
        assert ran_ns > 0
        other.cancel()

    asyncio.run(run())
    assert seen.count(1_000) >= 49
    assert [one for one in seen if one not in (1_000, -1)] == list(range(50))


def test_what_a_search_raises_is_raised() -> None:
    def search(pause: Pause) -> int:
        pause()
        raise ValueError("no")

    async def run() -> None:
        with pytest.raises(ValueError, match="no"):
            await in_slices(search, slice_ns=0)

    asyncio.run(run())


def test_a_search_that_nobody_waits_for_ends_and_leaves_no_thread() -> None:
    before, steps = threading.active_count(), 0

    def search(pause: Pause) -> int:
        nonlocal steps
        while True:
            steps += 1
            pause()

    async def run() -> None:
        task = asyncio.get_running_loop().create_task(in_slices(search, slice_ns=0))
        while steps < 5:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert threading.active_count() == before
