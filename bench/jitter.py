"""The jitter probe: a process of its own that notes when the machine let it sleep too long.

It runs beside every timing run. A moment in which it overslept by more than 2 ms is a stall of the machine; windows
that hold one are listed apart from the others, never dropped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the probe itself starts without it
    import numpy as np


STALL_NS = 2_000_000
STEP_NS = 1_000_000


class Probe:
    """Use as a context manager; afterwards `stalls` holds (begin_ns, end_ns) of CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self.stalls: list[tuple[int, int]] = []

    def __enter__(self) -> Probe:
        self._process = subprocess.Popen(
            [sys.executable, "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        answer = self._process.communicate(timeout=10)[0]
        self.stalls = [(begin, end) for begin, end in json.loads(answer or "[]")]

    def excuses(self, off_pp: float, window_seconds: float, before: Sequence[tuple[int, int]] = ()) -> bool:
        """Can its stalls have put a share off by so much over such a window? Each takes as long as it was, at most.

        And so can those of the second before: who holds the token while the machine stands is charged for a part of
        that, and rests for it afterwards, for up to a second where its limit binds.
        """
        stalls = [*before, *self.stalls]
        return bool(stalls) and sum(end - begin for begin, end in stalls) >= off_pp * window_seconds * 1e7

    def last_second(self, before: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int]]:
        """Its stalls, and those before it, that ended in the second that ends now."""
        since_ns = time.monotonic_ns() - 10**9
        return [(begin, end) for begin, end in [*before, *self.stalls] if end > since_ns]

    def stalled(self, starts_ns: np.ndarray, window_ns: int | np.ndarray) -> np.ndarray:
        """For each window [start, start + window_ns): does it hold a stall?"""
        hit = starts_ns < starts_ns
        for begin, end in self.stalls:
            hit |= (starts_ns < end) & (starts_ns + window_ns > begin)
        return hit


def watch() -> None:
    stalls: list[tuple[int, int]] = []
    going = True

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal going
        going = False

    signal.signal(signal.SIGTERM, stop)
    parent = os.getppid()
    print("ready", flush=True)
    before = time.monotonic_ns()
    while going and os.getppid() == parent:  # a bench that was killed asks for nothing any more
        time.sleep(STEP_NS / 1e9)
        now = time.monotonic_ns()
        if now - before > STEP_NS + STALL_NS:
            stalls.append((before + STEP_NS, now))
        before = now
    print(json.dumps(stalls))


if __name__ == "__main__":
    watch()
