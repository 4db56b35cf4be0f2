"""How many captures are under way, and which calls end one."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from tests.libhook.runtime.seams import Seams

KNOWN = 256  # CAPTURES_KNOWN
PER_THREAD = 2  # CU_STREAM_PER_THREAD


class Captures:
    """The functions of captures.h."""

    def __init__(self, seams: Seams) -> None:
        handle = ctypes.c_void_p
        self.beginning: Any = seams.function("captures_beginning", None)
        self.begun: Any = seams.function("captures_begun", None, handle, handle, ctypes.c_bool)
        self.ended: Any = seams.function("captures_ended", None, handle, handle)
        self.lost: Any = seams.function("captures_lost", None, handle)
        self.reset: Any = seams.function("captures_reset_after_fork", None)
        self._count = ctypes.c_uint32.from_address(seams.address("gate_captures"))

    def count(self) -> int:
        return self._count.value

    def begin(self, context: int, stream: int, begun: bool = True) -> None:
        self.beginning()
        self.begun(context, stream, begun)


@pytest.fixture
def captures(seams: Seams) -> Captures:
    return Captures(seams)


def test_a_capture_counts_from_before_the_driver_begins_it(captures: Captures) -> None:
    captures.beginning()
    assert captures.count() == 1
    captures.begun(16, 32, False)
    assert captures.count() == 0


def test_only_where_it_began_it_ends(captures: Captures) -> None:
    captures.begin(16, 32)
    captures.ended(16, 48)
    assert captures.count() == 1
    captures.ended(16, 32)
    captures.ended(16, 32)
    assert captures.count() == 0


def test_threads_default_streams_share_a_handle_and_are_told_apart(captures: Captures) -> None:
    captures.begin(16, PER_THREAD)
    for context, apart in ((16, True), (64, False)):
        if apart:
            other = threading.Thread(target=captures.ended, args=(context, PER_THREAD))
            other.start()
            other.join()
        else:
            captures.ended(context, PER_THREAD)
        assert captures.count() == 1
    captures.ended(16, PER_THREAD)
    assert captures.count() == 0


def test_those_of_a_context_go_with_it(captures: Captures) -> None:
    for context, stream in ((16, 32), (64, 48), (16, 80)):
        captures.begin(context, stream)
    captures.lost(16)
    assert captures.count() == 1
    captures.ended(64, 48)
    assert captures.count() == 0


def test_more_than_are_known_are_never_too_few(captures: Captures) -> None:
    for stream in range(1024, 1024 + KNOWN + 1):
        captures.begin(16, stream)
    for stream in range(1024, 1024 + KNOWN + 1):
        captures.ended(16, stream)
    assert captures.count() == 1


def test_a_child_begins_with_none(captures: Captures) -> None:
    captures.begin(16, 32)
    captures.reset()
    assert captures.count() == 0
