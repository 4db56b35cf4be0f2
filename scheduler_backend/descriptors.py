"""How many descriptors are left to this process: every client costs a few, and without any the daemon cannot go on.

libzmq ends the process when its accept() finds no descriptor (4.3.5, ipc_listener.cpp), so it must not come to that:
while fewer than RESERVE are left, the server listens to nobody new. No socket is touched here.
"""

from __future__ import annotations

import os
import resource

RESERVE = 64  # for files, the control socket, and who is accepted before the next look


def raise_limit() -> int:
    """Take as many descriptors as this user may have; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # an endless hard limit that the kernel does not take
            return soft
    return hard


def left() -> int:
    """How many more may be opened; a large number where /proc does not say."""
    try:
        used = len(os.listdir("/proc/self/fd")) - 1  # the listing itself
    except OSError:
        return 1 << 20
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (1 << 20) if soft == resource.RLIM_INFINITY else soft - used
