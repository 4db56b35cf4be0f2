"""Keeps what malloc has been given back, for who needs as much again for the next call.

By itself glibc gives large blocks, and the end of its heap, back to the kernel when they are freed. The next call has
each of their pages brought in again: on a virtual machine that is about a microsecond a page, and with 5,000 names a
third of the extender's time. Another libc is left as it is.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
TRIM_BYTES = 64 << 20  # so much is kept at the end of the heap at most
MMAP_BYTES = 8 << 20  # larger blocks come from the kernel and go there: whole Node objects, lists of all pods


def keep_freed() -> bool:
    """To be called once, when the program starts. Whether there is a glibc that listened."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)) and bool(mallopt(M_MMAP_THRESHOLD, MMAP_BYTES))
