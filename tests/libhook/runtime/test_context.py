"""Which context and device a thread launches on: asked of the driver once, and anew when that may have changed."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from ctypes import POINTER, c_int, c_void_p
from pathlib import Path

import pytest

from tests.libhook.runtime.seams import Seams


class Now(ctypes.Structure):
    """struct context_now of context.h."""

    _fields_ = (("context", c_void_p), ("ordinal", c_int), ("round", ctypes.c_uint32), ("device", c_int))


class Driver:
    """A driver that counts how often it is asked for the current context."""

    def __init__(self, seams: Seams) -> None:
        self.context: int | None = 16
        self.device, self.asked, self._seams = 2, 0, seams

        def current(found: POINTER(c_void_p)) -> int:  # type: ignore[valid-type]
            self.asked += 1
            found[0] = self.context  # type: ignore[index]
            return 0

        def device(found: POINTER(c_int)) -> int:  # type: ignore[valid-type]
            found[0] = self.device  # type: ignore[index]
            return 0

        seams.set_real("cuCtxGetCurrent", current, POINTER(c_void_p))
        seams.set_real("cuCtxGetDevice", device, POINTER(c_int))

    def now(self) -> tuple[int | None, int]:
        """What the library believes of this thread."""
        found = self._seams.function("context_current", POINTER(Now))().contents
        return found.context, found.ordinal

    def of_stream(self, stream: int) -> tuple[int | None, int]:
        """What the library believes of a stream's work."""
        found = self._seams.function("context_of_stream", Now, c_void_p)(stream)
        return found.context, found.ordinal

    def tell(self, what: str) -> None:
        self._seams.function(f"context_{what}", None)()


@pytest.fixture
def driver(seams: Seams) -> Driver:
    return Driver(seams)


def test_a_copy_for_a_test_takes_none_of_the_loaders_room(seams_library: Path) -> None:
    """One process loads a copy a test; what would be taken for good has room for some fifty."""
    flags = subprocess.run(["readelf", "-dW", seams_library], capture_output=True, text=True, check=True)
    assert "STATIC_TLS" not in flags.stdout


def test_the_driver_is_asked_once(driver: Driver) -> None:
    assert [driver.now() for _ in range(3)] == [(16, 2)] * 3
    assert driver.asked == 1


def test_a_change_in_this_thread_is_seen(driver: Driver) -> None:
    driver.now()
    driver.context, driver.device = 32, 0
    assert driver.now() == (16, 2), "nobody has said so"
    driver.tell("changed")
    assert driver.now() == (32, 0)


def test_without_a_context_it_is_asked_each_time(driver: Driver) -> None:
    driver.context = None
    assert [driver.now() for _ in range(2)] == [(None, -1)] * 2
    driver.context = 48
    assert driver.now() == (48, 2)
    assert driver.asked == 3


def test_the_end_of_a_context_makes_all_threads_ask_anew(driver: Driver) -> None:
    found: list[tuple[int | None, int]] = []
    known, ended = threading.Event(), threading.Event()

    def other() -> None:
        found.append(driver.now())
        known.set()
        ended.wait(60)
        found.append(driver.now())

    thread = threading.Thread(target=other)
    thread.start()
    assert known.wait(60)
    driver.now()
    driver.context = 64
    driver.tell("ended")
    ended.set()
    thread.join(60)
    assert (found, driver.now()) == ([(16, 2), (64, 2)], (64, 2))
    assert driver.asked == 4


def test_a_streams_work_is_its_own_contexts_and_the_current_one_stays(driver: Driver, seams: Seams) -> None:
    stack: list[int | None] = []

    def of_stream(_stream: int, found: POINTER(c_void_p)) -> int:  # type: ignore[valid-type]
        found[0] = 80  # type: ignore[index]
        return 0

    def push(context: int) -> int:
        stack.append(driver.context)
        driver.context, driver.device = context, 5
        return 0

    def pop(_popped: int) -> int:
        driver.context, driver.device = stack.pop(), 2
        return 0

    seams.set_real("cuStreamGetCtx", of_stream, c_void_p, POINTER(c_void_p))
    seams.set_real("cuCtxPushCurrent_v2", push, c_void_p)
    seams.set_real("cuCtxPopCurrent_v2", pop, c_void_p)
    assert driver.of_stream(1000) == (80, 5)
    assert (driver.now(), stack) == ((16, 2), [])
    assert [driver.of_stream(handle) for handle in (0, 1, 2)] == [(16, 2)] * 3, "a default stream is the current one's"
