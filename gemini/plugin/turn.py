"""One plugin after another: who starts beside a plugin that serves the node waits, and serves when that one has ended.

The kubelet takes the end of an old plugin's stream for the end of whoever registered last, so two must never be
registered at once. A flock in the daemon's state directory says whose turn it is; it ends with its process. Whoever may
read a file may lock it, so nobody else may.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from scheduler_backend import private

LOOK_SECONDS = 0.05


class Turn:
    """`waiting`: another has it, and we want it."""

    def __init__(self, path: Path) -> None:
        self.path, self.waiting = path, False
        self._file: int | None = None

    async def take(self, wait: Callable[[], None] = lambda: None) -> None:
        """Returns when it is ours; `wait` is called once where it is another's. Raises OSError where the file cannot be
        made."""
        if self._file is None:
            self._file = private.open_file(self.path, os.O_RDWR | os.O_CREAT)
        try:
            while not self._taken(self._file):
                if not self.waiting:
                    self.waiting = True
                    wait()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self.waiting = False

    @staticmethod
    def _taken(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def give(self) -> None:
        """To whoever waits; no harm where it is not ours."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
