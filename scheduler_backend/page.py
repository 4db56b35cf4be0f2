"""The token page: a sealed memfd per tenant, in which the daemon shows the epoch under which it may launch on each GPU.

The daemon's mapping is made before the seals: F_SEAL_FUTURE_WRITE refuses every later writable one, also to the client
that the descriptor is passed to, and without SHRINK and GROW nobody can pull the page from under the others.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Any

from libhook.core import ffi, lib

SIZE = 4096
_F_SEAL_SEAL, _F_SEAL_SHRINK, _F_SEAL_GROW, _F_SEAL_FUTURE_WRITE = 1, 2, 4, 16


class TokenPage:
    """One tenant's page."""

    def __init__(self, tenant: str, incarnation: int) -> None:
        self.fd = os.memfd_create(f"gemini-{tenant}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, SIZE)
        self._map = mmap.mmap(self.fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_FUTURE_WRITE | _F_SEAL_SEAL)
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
        os.close(self.fd)
