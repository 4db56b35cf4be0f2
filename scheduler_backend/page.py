"""The token page: a sealed memfd per tenant, in which the daemon shows the epoch under which it may launch on each GPU.

The daemon's mapping is made before the seals: F_SEAL_FUTURE_WRITE refuses every later writable one, also to the client
that the descriptor is passed to, and without SHRINK and GROW nobody can pull the page from under the others. Where the
kernel gives no such memory (before Linux 5.1, gVisor) the page is the daemon's alone, and messages alone must do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import mmap
import os
from typing import Any

from libhook.core import ffi, lib

log = logging.getLogger("gemini.page")

SIZE = 4096
_OURS_TO_HAVE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # else the kernel knows no such memory, or refuses it
_F_SEAL_SEAL, _F_SEAL_SHRINK, _F_SEAL_GROW, _F_SEAL_FUTURE_WRITE = 1, 2, 4, 16


def _sealed(name: str) -> tuple[int, mmap.mmap]:
    """A descriptor that may be given away, and our mapping. Raises OSError."""
    with contextlib.ExitStack() as made:
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        made.callback(os.close, fd)
        os.ftruncate(fd, SIZE)
        mapped = made.enter_context(mmap.mmap(fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_FUTURE_WRITE | _F_SEAL_SEAL)
        made.pop_all()
        return fd, mapped


class TokenPage:
    """One tenant's page; `fd` is -1 where it cannot be given to anybody."""

    def __init__(self, tenant: str, incarnation: int) -> None:
        try:
            self.fd, self._map = _sealed(f"gemini-{tenant}")
        except OSError as error:
            if error.errno in _OURS_TO_HAVE:
                raise
            log.warning("token-page tenant=%s error=%s; messages alone must do", tenant, error.strerror)
            self.fd, self._map = -1, mmap.mmap(-1, SIZE)
        self._buffer = ffi.from_buffer(self._map)
        self._page = ffi.cast("struct wire_page *", self._buffer)
        lib.wire_page_init(self._page, incarnation)
        self._page.features = lib.WIRE_PAGE_TAKES_RETURNS

    @property
    def pointer(self) -> Any:
        """`struct wire_page *`, valid until close()."""
        return self._page

    def store(self, slot: int, epoch: int) -> None:
        """Show this epoch (0: none) for the GPU in this slot, with release semantics."""
        lib.wire_page_store_epoch(self._page, slot, epoch)

    def load(self, slot: int) -> int:
        """The epoch that is shown."""
        return int(lib.wire_page_load_epoch(self._page, slot))

    def close(self) -> None:
        """Show nothing any more; who has mapped the page keeps it, with all epochs 0."""
        for slot in range(lib.WIRE_MAX_DEVICES):
            self.store(slot, 0)
        self._page = None
        ffi.release(self._buffer)
        self._map.close()
        if self.fd >= 0:
            os.close(self.fd)
