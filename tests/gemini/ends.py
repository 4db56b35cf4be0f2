"""What must come to an end: a bound of processor time, so that what would go on for hours fails instead."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ends(seconds: float = 20) -> Iterator[None]:
    """AssertionError where the block takes more of the processor; it needs a hundredth of that."""

    def late(number: int, frame: object) -> None:
        raise AssertionError(f"no end within {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
