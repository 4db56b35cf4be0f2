"""Children that must not outlive who started them, whatever ends that one."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def bound_to_us() -> Callable[[], None]:
    """What a child does between fork and exec to be killed when the thread that starts it ends (SIGKILL included)."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def before_exec() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it ended just before
            os._exit(125)

    return before_exec
