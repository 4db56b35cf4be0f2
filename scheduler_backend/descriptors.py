"""How many descriptors are left to this process: every client costs a few, and without any the daemon cannot go on.

While fewer than reserve() are left, the server takes in nobody new: they wait in the kernel's queues. No socket is
touched here.
"""

from __future__ import annotations

import errno
import os
import resource

FEWEST = 64  # for files and the control socket; with no more the daemon would listen to nobody
MOST_HELD_BACK = 1024
_ENDLESS = 1 << 20


def raise_limit() -> int:
    """Take as many descriptors as this user may have; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # an endless hard limit that the kernel does not take
            return soft
    return hard


def limit() -> int:
    """How many this process may have; a large number where there is no end to them."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENDLESS if soft == resource.RLIM_INFINITY else soft


def reserve() -> int:
    """So many are held back: a quarter of a low limit."""
    return min(MOST_HELD_BACK, max(FEWEST, limit() // 4))


def used() -> int:
    """How many are open; where none is left to look with, as many as there may be; 0 where /proc does not say."""
    try:
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1  # before Linux 6.2
    except OSError as error:
        return limit() if error.errno in (errno.EMFILE, errno.ENFILE) else 0


def left() -> int:
    """How many more may be opened."""
    return limit() - used()


class Room:
    """How many descriptors are left, as far as is known: they are counted only where they may be short."""

    def __init__(self) -> None:
        self._used = 0

    def count(self) -> bool:
        """Look; whether as many are left as are held back."""
        self._used = used()
        return self._enough()

    def take(self, count: int) -> bool:
        """So many may have been taken since; whether as many are left as are held back."""
        self._used += count
        return self._enough() or self.count()

    def _enough(self) -> bool:
        return limit() - self._used >= reserve()
