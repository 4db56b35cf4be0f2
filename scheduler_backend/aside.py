"""A thread for calls that may never return: what hangs in it keeps neither the loop nor the daemon's end waiting.

The pool of the loop's own (asyncio.to_thread) is waited for at the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Aside:
    """Does one call after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def do(self, call: Callable[[], T]) -> T:
        """What it returns, or raises."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((future, call))
        return await future

    def _run(self) -> None:
        while True:
            future, call = self._calls.get()
            settle: Callable[[], None]
            try:
                settle = _settler(future, call(), None)
            except Exception as error:
                settle = _settler(future, None, error)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                future.get_loop().call_soon_threadsafe(settle)


def _settler(future: asyncio.Future[Any], result: Any, error: Exception | None) -> Callable[[], None]:
    def settle() -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    return settle
