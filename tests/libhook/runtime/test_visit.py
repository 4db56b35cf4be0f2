"""The thread as our driver calls need it, and the agent's turn to make them."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tests.libhook.runtime.seams import Seams

GLOBAL, RELAXED = 0, 2  # CUstreamCaptureMode
REFUSED = 201  # CUDA_ERROR_INVALID_CONTEXT


class Visit(ctypes.Structure):
    """struct visit of visit.h."""

    _fields_ = (
        ("before", ctypes.c_int),
        ("pushed", ctypes.c_bool),
        ("relaxed", ctypes.c_bool),
        ("lost", ctypes.c_bool),
    )


class Thread:
    """The driver's state of this thread, reached through `real`."""

    def __init__(self, seams: Seams) -> None:
        handle, place = ctypes.c_void_p, ctypes.POINTER
        self.contexts, self.mode, self.gone, self.relaxes = [16], GLOBAL, {0}, True
        seams.set_real("cuCtxGetCurrent", self.current, place(handle))
        seams.set_real("cuCtxPushCurrent_v2", self.push, handle)
        seams.set_real("cuCtxPopCurrent_v2", self.pop, place(handle))
        seams.set_real("cuThreadExchangeStreamCaptureMode", self.exchange, place(ctypes.c_int))
        self.begin: Any = seams.function("visit_begin", ctypes.c_bool, place(Visit), handle)
        self.end: Any = seams.function("visit_end", None, place(Visit))

    def current(self, found: Any) -> int:
        found[0] = self.contexts[-1]
        return 0

    def push(self, context: int) -> int:
        if context in self.gone:
            return REFUSED
        self.contexts.append(context)
        return 0

    def pop(self, popped: Any) -> int:
        popped[0] = self.contexts.pop()
        return 0

    def exchange(self, mode: Any) -> int:
        if not self.relaxes:
            return REFUSED
        self.mode, mode[0] = mode[0], self.mode
        return 0


@pytest.fixture
def thread(seams: Seams) -> Thread:
    return Thread(seams)


def test_the_lanes_context_is_current_meanwhile_and_the_threads_own_after(thread: Thread) -> None:
    visit = Visit()
    assert thread.begin(visit, 64)
    assert (thread.contexts, thread.mode) == ([16, 64], RELAXED)
    thread.end(visit)
    assert (thread.contexts, thread.mode) == ([16], GLOBAL)


@pytest.mark.parametrize("context", [None, 16])
def test_nothing_is_pushed_where_the_context_is_current_or_any_will_do(thread: Thread, context: int | None) -> None:
    visit = Visit()
    assert thread.begin(visit, context)
    assert thread.contexts == [16]
    thread.end(visit)
    assert (thread.contexts, thread.mode) == ([16], GLOBAL)


def test_a_context_that_cannot_be_had_is_lost(thread: Thread) -> None:
    thread.gone.add(64)
    visit = Visit()
    thread.begin(visit, 64)
    assert visit.lost
    thread.end(visit)
    assert thread.contexts == [16]


def test_without_the_relaxed_mode_no_call_is_made_beside_a_capture(thread: Thread, seams: Seams) -> None:
    thread.relaxes = False
    visit = Visit()
    assert thread.begin(visit, None)
    seams.function("captures_beginning", None)()
    assert not thread.begin(visit, None)
    thread.end(visit)
    assert thread.mode == GLOBAL


def test_the_agent_is_kept_out_by_as_many_as_destroy_something(seams: Seams) -> None:
    enters = seams.function("visit_agent_enters", ctypes.c_bool)
    leaves, keep_out, let_in = (
        seams.function(name, None) for name in ("visit_agent_leaves", "visit_keep_agent_out", "visit_let_agent_in")
    )
    try_out = seams.function("visit_try_to_keep_agent_out", ctypes.c_bool)
    assert enters()
    assert not try_out()
    leaves()
    assert try_out()
    keep_out()
    let_in()
    assert not enters()
    let_in()
    assert enters()
    seams.function("visit_reset_after_fork", None)()
    assert try_out()
