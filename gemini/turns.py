"""Turns at what only so many can have at once, by who asks: one that asks very often waits behind itself alone.

What takes long waits behind what does not, whoever asks, and has one turn in LATE_EVERY.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

LATE_EVERY = 8


class Turns:
    """`at_once`: how many have their turn at the same time. Used on one event loop."""

    def __init__(self, at_once: int = 1) -> None:
        self._free = at_once
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # who is next in front
        self._late: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._passed = 0

    @asynccontextmanager
    async def of(self, who: str, long: bool = False) -> AsyncIterator[None]:
        """Waits for a turn, and has it for as long as the block runs. `long`: that takes a while."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(who, self._late if long else self._waiting)
        try:
            yield
            await asyncio.sleep(0)  # what others sent meanwhile is read before the next turn
        finally:
            self._pass_on()

    async def _wait(self, who: str, queue: OrderedDict[str, deque[asyncio.Future[None]]]) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.setdefault(who, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had come just then
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting or self._late:
            self._passed += 1
            late = not self._waiting or (self._late and self._passed % LATE_EVERY == 0)
            queue = self._late if late else self._waiting
            who, turns = queue.popitem(last=False)
            while turns:
                if not (turn := turns.popleft()).done():  # else it is waited for no more
                    if turns:
                        queue[who] = turns  # behind all others
                    turn.set_result(None)
                    return
        self._free += 1
