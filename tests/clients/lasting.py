"""How long a client works: for its seconds, or until SIGTERM comes, which lets it finish and say what it saw."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable


def lasting(seconds: float) -> Callable[[], bool]:
    """Whether there is still something to do; the seconds count from this call."""
    ended = False
    end = time.monotonic() + seconds

    def stop(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, stop)
    return lambda: not ended and time.monotonic() < end
