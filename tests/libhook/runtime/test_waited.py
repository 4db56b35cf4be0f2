"""A host waited in vain only while it launched nothing, and only as far as a card of its own would have been done."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import pytest

from tests.libhook.runtime.seams import Seams

US = 1_000


class State(ctypes.Structure):
    """struct waited."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("total_ns", "alone_ns")]


class Over(ctypes.Structure):
    """struct waited_chunk."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("before_ns", "first_ns", "out_ns", "end_ns", "busy_ns", "each_ns", "silent_ns")
    ]


@dataclass
class Lane:
    """What one host waited for one stream; microseconds."""

    seams: Seams
    state: State = field(default_factory=State)

    def waited_us(self) -> int:
        return int(self.state.total_ns) // US

    def beside(
        self, first_us: int, out_us: int, end_us: int, busy_us: int, each_us: int, silent_us: int, before_us: int = -1
    ) -> int:
        """What counts of a chunk that ran beside others; `before_us`: counted when it was launched; all of it."""
        before_us = self.waited_us() if before_us < 0 else before_us
        over = Over(*(value * US for value in (before_us, first_us, out_us, end_us, busy_us, each_us, silent_us)))
        call = self.seams.function("waited_beside", ctypes.c_uint64, ctypes.POINTER(State), ctypes.POINTER(Over))
        return int(call(ctypes.byref(self.state), ctypes.byref(over))) // US

    def alone(self, end_us: int) -> None:
        self.seams.function("waited_alone", None, ctypes.POINTER(State), ctypes.c_uint64)(
            ctypes.byref(self.state), end_us * US
        )


@pytest.fixture
def lane(seams: Seams) -> Lane:
    return Lane(seams)


def test_who_waits_for_each_kernel_waits_for_what_it_takes_longer_than_alone(lane: Lane) -> None:
    assert lane.beside(1000, 1000, 1250, 50, 50, silent_us=250) == 200
    assert lane.beside(1350, 1350, 1400, 50, 50, silent_us=50) == 0


def test_who_launches_while_the_card_does_others_work_does_not_wait(lane: Lane) -> None:
    assert lane.beside(1000, 2000, 6000, 700, 28, silent_us=0) == 0


def test_work_that_lags_behind_a_host_that_launched_all_of_it_keeps_it_waiting_as_long_as_that(lane: Lane) -> None:
    """Sixteen chunks of 1 ms of launches each; the card is with others for half of the time, so the host waits at the
    end: for all but the last kernel, which it would have waited for alone."""
    for number in range(16):
        start_us, end_us = 1400 * number, 1400 * (number + 1)
        silent_us = end_us - max(start_us, 16_000) if end_us > 16_000 else 0
        lane.beside(1000 * number, 1000 * (number + 1), end_us, 700, 28, silent_us, before_us=0)
    assert lane.waited_us() == 16 * 1400 - 16_000 - 28


def test_what_a_full_card_of_its_own_would_have_kept_it_waiting_does_not_count(lane: Lane) -> None:
    """Its kernels take twice as long as its host: after 1 ms of launches it waits for 1 ms more, also alone."""
    assert lane.beside(0, 1000, 2000, 2000, 50, silent_us=1000) == 0
    assert lane.beside(2000, 3000, 5000, 2000, 50, silent_us=2000) == 1000


def test_who_stands_still_in_launches_waits_for_what_others_have_of_a_card_that_it_would_fill(lane: Lane) -> None:
    """Four chunks of 1 ms are in flight, and the next is launched as one ends, each after 1 ms of others' work."""
    counted = {number: 0 for number in range(-4, 0)}
    for number in range(40):
        end_us = 2000 * (number + 1)
        launched_us = max(0, end_us - 8000)
        lane.beside(launched_us, launched_us, end_us, 1000, 1000, silent_us=2000, before_us=counted[number - 4])
        counted[number] = lane.waited_us()
    assert lane.waited_us() == 40_000


def test_a_time_alone_begins_it_anew(lane: Lane) -> None:
    assert lane.beside(0, 0, 1000, 100, 100, silent_us=1000) == 900
    lane.alone(5000)
    assert lane.beside(4000, 4000, 5100, 100, 100, silent_us=100) == 0


def test_a_belief_that_is_too_long_is_not_carried_on(lane: Lane) -> None:
    for number in range(100):
        first_us = number * 100
        assert lane.beside(first_us, first_us, first_us + 100, 100, 300, silent_us=100) == 0
    assert lane.beside(10_000, 10_000, 10_500, 100, 100, silent_us=500) == 400
