"""The page is readable by clients, and nothing that they do changes it or pulls it away."""

import mmap
import os

import pytest

from libhook.core import ffi, lib
from scheduler_backend.page import SIZE, TokenPage


def test_what_is_stored_is_seen_through_another_mapping():
    page = TokenPage("a", 42)
    view = mmap.mmap(page.fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ)
    seen = ffi.cast("struct wire_page *", ffi.from_buffer(view))
    assert (seen.magic, seen.incarnation) == (lib.WIRE_MAGIC, 42)
    page.store(3, 77)
    assert lib.wire_page_load_epoch(seen, 3) == 77
    page.close()
    assert lib.wire_page_load_epoch(seen, 3) == 0  # who keeps it mapped sees that nothing is granted


def test_a_client_can_neither_write_nor_resize_it():
    page = TokenPage("a", 1)
    with pytest.raises(PermissionError):
        mmap.mmap(page.fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    for size in (0, SIZE * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(page.fd, size)
    with pytest.raises(PermissionError):
        os.pwrite(page.fd, b"x", 0)
    page.store(0, 5)  # the older mapping still writes
    assert page.load(0) == 5
    page.close()
