"""A timer with nanoseconds: the event loop's own have a resolution of a millisecond, which would be a tenth of a quota.

One timerfd on CLOCK_MONOTONIC, armed with absolute times, in the loop like any descriptor. Where the kernel refuses it
the loop's own timers have to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import time
from collections.abc import Callable

log = logging.getLogger("gemini.timer")

_MONOTONIC = 1
_NONBLOCK, _CLOEXEC = 0o4000, 0o2000000
_ABSTIME = 1
_PR_SET_TIMERSLACK = 29


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


_libc = ctypes.CDLL(None, use_errno=True)


class Timer:
    """Calls `on_time` once at the time last set."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_time: Callable[[], None]) -> None:
        self._loop = loop
        self._on_time = on_time
        self._fd = _libc.timerfd_create(_MONOTONIC, _NONBLOCK | _CLOEXEC)
        self._late: asyncio.TimerHandle | None = None  # of the loop's own
        if self._fd < 0:
            error = os.strerror(ctypes.get_errno())
            log.warning("timer error=%s; quotas end up to a millisecond late", error)
        self._spec = _Itimerspec()
        self._value = self._spec.value  # a view of it, which costs as much to make as to write
        self._pointer = ctypes.byref(self._spec)
        self._settime = _libc.timerfd_settime
        _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
        if self._fd >= 0:
            loop.add_reader(self._fd, self._ready)

    def set(self, at_ns: int) -> None:
        """Arm for this time on the monotonic clock (a time that has passed: at once); 0 disarms."""
        if self._fd < 0:
            self._set_late(at_ns)
            return
        self._value.seconds, self._value.nanoseconds = divmod(at_ns, 1_000_000_000)
        self._settime(self._fd, _ABSTIME, self._pointer, None)

    def _set_late(self, at_ns: int) -> None:
        if self._late is not None:
            self._late.cancel()
        left_ns = at_ns - time.monotonic_ns()
        self._late = self._loop.call_later(max(0, left_ns) / 1e9, self._on_time) if at_ns else None

    def _ready(self) -> None:
        with contextlib.suppress(BlockingIOError):  # armed anew since it became readable
            os.read(self._fd, 8)
            self._on_time()

    def close(self) -> None:
        """Give the descriptor back."""
        if self._late is not None:
            self._late.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
