"""A long search in slices, between which the event loop answers others.

The search has a thread of its own, which never runs beside the loop: each waits while the other goes on. So it may read
whatever the loop changes, and nothing has to be locked; but it may find something else after a pause than before.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

SLICE_NS = 2 * 10**6
T = TypeVar("T")
Pause = Callable[[], None]  # to be called every so often: goes on at once, or after a pause


class _Abandoned(BaseException):
    """Nobody waits for the search any more."""


async def in_slices(search: Callable[[Pause], T], slice_ns: int = SLICE_NS) -> tuple[T, int]:
    """What `search` returns, and how many nanoseconds it ran for, without its pauses. Raises what it raises."""
    turns = _Turns(search, slice_ns)
    turns.thread.start()
    try:
        while not turns.resume():
            await asyncio.sleep(0)
    finally:
        turns.end()
    return turns.result()


class _Turns(Generic[T]):
    def __init__(self, search: Callable[[Pause], T], slice_ns: int) -> None:
        self._search, self._slice_ns = search, slice_ns
        self._go, self._back = threading.Lock(), threading.Lock()  # who waits for one of them is let on by the other
        self._go.acquire()
        self._back.acquire()
        self._until_ns = self._ran_ns = 0
        self._done = self._abandoned = False
        self._found: list[T] = []
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="gemini-search", daemon=True)

    # ---- the loop's

    def resume(self) -> bool:
        """Has the search go on for a slice; whether it has ended."""
        began_ns = time.perf_counter_ns()
        self._until_ns = began_ns + self._slice_ns
        self._go.release()
        self._back.acquire()
        self._ran_ns += time.perf_counter_ns() - began_ns
        return self._done

    def end(self) -> None:
        """Of a search that nobody waits for any more."""
        if not self._done:
            self._abandoned = True
            self.resume()
        self.thread.join()

    def result(self) -> tuple[T, int]:
        if self._error is not None:
            raise self._error
        return self._found[0], self._ran_ns

    # ---- the thread's

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._abandoned:
                self._found.append(self._search(self._pause))
        except BaseException as error:
            self._error = error
        self._done = True
        self._back.release()

    def _pause(self) -> None:
        if time.perf_counter_ns() < self._until_ns:
            return
        self._back.release()
        self._go.acquire()
        if self._abandoned:
            raise _Abandoned
