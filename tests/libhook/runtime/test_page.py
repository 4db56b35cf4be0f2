"""The daemon's page as a process sees it: taken only where it cannot shrink or change under us."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libhook.core import ffi, lib
from tests.libhook.runtime.conftest import F_ADD_SEALS, SEALS
from tests.libhook.runtime.seams import Seams

NONE, WAITING, MAPPED = range(3)  # enum page_state
SLOT, EPOCH, INCARNATION = 3, 7, 99
SHRINK_ONLY = 0x2


class PageStruct(ctypes.Structure):
    """struct page of page.h."""

    _fields_ = (("state", ctypes.c_int), ("fd", ctypes.c_int), ("map", ctypes.c_void_p))


class Own:
    """A process's page, and the daemon's end of its connection."""

    def __init__(self, seams: Seams, folder: Path) -> None:
        self.page = PageStruct(map=None)
        self._seams = seams
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(folder / "daemon.page"))
        self.listener.listen()
        assert self.call("open", ctypes.c_int) == 0
        self.call("connect", None, str(folder / "daemon").encode(), ctypes.c_uint64(5))
        self.daemon, _ = self.listener.accept()
        assert struct.unpack("<IIQ", self.daemon.recv(16)) == (lib.WIRE_MAGIC, lib.WIRE_VERSION, 5)

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        types = [ctypes.POINTER(PageStruct)]
        types += [ctypes.c_char_p if isinstance(word, bytes) else type(word) for word in arguments]
        return self._seams.function(f"page_{name}", result, *types)(self.page, *arguments)

    def offer(self, seals: int = SEALS, incarnation: int = INCARNATION, size: int = 4096) -> bool:
        """Pass a page; return whether it was mapped."""
        memory = os.memfd_create("page", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(memory, 4096)
        with mmap.mmap(memory, 4096) as view:
            words = ffi.from_buffer(view)
            lib.wire_page_init(ffi.cast("struct wire_page *", words), INCARNATION)
            lib.wire_page_store_epoch(ffi.cast("struct wire_page *", words), SLOT, EPOCH)
            ffi.release(words)
        fcntl.fcntl(memory, F_ADD_SEALS, seals)
        socket.send_fds(
            self.daemon, [struct.pack("<IIQQ", lib.WIRE_MAGIC, lib.WIRE_VERSION, incarnation, size)], [memory]
        )
        os.close(memory)
        return bool(self.call("step", ctypes.c_bool))

    def epoch(self) -> int:
        return int(lib.wire_page_load_epoch(ffi.cast("struct wire_page *", self.page.map), SLOT))

    def close(self) -> None:
        self.call("disconnect", None, ctypes.c_bool(False))
        self.daemon.close()
        self.listener.close()


@pytest.fixture
def own(seams: Seams, tmp_path: Path) -> Iterator[Own]:
    own = Own(seams, tmp_path)
    yield own
    own.close()


def test_the_daemons_page_takes_the_place_of_the_own_one_at_its_address(own: Own) -> None:
    before = own.page.map
    own.call("store_local", None, ctypes.c_uint32(SLOT), ctypes.c_uint64(1))
    assert (own.page.state, own.epoch()) == (WAITING, 1)
    assert own.offer()
    assert (own.page.state, own.page.map, own.epoch()) == (MAPPED, before, EPOCH)


@pytest.mark.parametrize(
    "wrong",
    [{"seals": SHRINK_ONLY}, {"seals": 0}, {"incarnation": 1}, {"size": 8}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_page_that_is_not_safe_is_not_taken(own: Own, wrong: dict[str, int]) -> None:
    assert not own.offer(**wrong)
    assert (own.page.state, own.epoch()) == (NONE, 0)
    assert own.page.fd >= 0  # the daemon knows of our death by it


def test_a_lost_daemon_leaves_its_words_in_an_own_page(own: Own) -> None:
    assert own.offer()
    own.call("disconnect", None, ctypes.c_bool(True))
    assert (own.page.state, own.page.fd, own.epoch()) == (NONE, -1, EPOCH)
    own.call("store_local", None, ctypes.c_uint32(SLOT), ctypes.c_uint64(EPOCH + 1))
    assert own.epoch() == EPOCH + 1


def test_a_closed_connection_is_let_go(own: Own) -> None:
    own.daemon.close()
    assert not own.call("step", ctypes.c_bool)
    assert (own.page.state, own.page.fd) == (NONE, -1)
