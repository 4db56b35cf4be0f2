"""Keys that are pressed while something is shown on a terminal, one at a time and without Enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any

TEXT = "Keys: q ends, s sorts by the next column, 0 to 9 show one card, a all of them, h hides the history."


class Keys:
    """Reads them within the block, where standard input is a terminal."""

    def __init__(self) -> None:
        self._before: Any = None

    def __enter__(self) -> Keys:
        try:
            if sys.stdin.isatty() and os.tcgetpgrp(0) == os.getpgrp():
                self._before = termios.tcgetattr(0)
                tty.setcbreak(0)
        except (OSError, termios.error):
            self._before = None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._before is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """The key that was pressed within that time; empty where none was."""
        if self._before is None:
            select.select([], [], [], seconds)
            return ""
        ready, _, _ = select.select([0], [], [], seconds)
        return os.read(0, 1).decode(errors="replace") if ready else ""
