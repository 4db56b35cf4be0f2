"""What is believed of a launch's length before it goes."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from libhook.core import ffi, lib
from tests.libhook.runtime.seams import Seams

US = 1000
KEY, FAMILY, SIZE = 1 << 63 | 5, 1 << 63 | 77, 8192
ROOM = 1 << 20  # more than a gate, and than a thread's part of it
FEW, YOUNG = 4, 32  # samples: with fewer it is measured, and wild


class Belief(ctypes.Structure):
    """struct belief of belief.h."""

    _fields_ = (
        ("ns", ctypes.c_uint64),
        ("most_ns", ctypes.c_uint64),
        ("paused_ns", ctypes.c_uint64),
        ("wild", ctypes.c_bool),
        ("young", ctypes.c_bool),
        ("measure", ctypes.c_bool),
        ("unknown", ctypes.c_bool),
    )


class Chunk(ctypes.Structure):
    """struct chunk of chunk.h."""

    _fields_ = (
        ("event", ctypes.c_void_p),
        ("key", ctypes.c_uint64),
        ("kinds", ctypes.c_uint64 * 2),
        ("close_by_ns", ctypes.c_uint64),
        ("estimated_ns", ctypes.c_uint64),
        ("most_ns", ctypes.c_uint64),
        ("wanted_ns", ctypes.c_uint64),
        ("first_ns", ctypes.c_uint64),
        ("cut_ns", ctypes.c_uint64),
        ("from_launch", ctypes.c_uint64),
        ("launches", ctypes.c_uint32),
        ("held", ctypes.c_uint32),
        ("unknown", ctypes.c_bool),
        ("alone", ctypes.c_bool),
        ("late", ctypes.c_bool),
        ("waited_ns", ctypes.c_uint64),
    )


class Beliefs:
    """A gate that nothing was learned behind, and a thread of it."""

    def __init__(self, seams: Seams) -> None:
        self.gate, self.thread = ctypes.create_string_buffer(ROOM), ctypes.create_string_buffer(ROOM)
        words = [ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_uint64] * 4]
        self._of: Any = seams.function("belief_of", Belief, *words)
        spans = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_bool, ctypes.c_uint64]
        self._over: Any = seams.function("belief_learn", None, *[ctypes.c_void_p] * 3, *spans)
        self._is_old: Any = seams.function("belief_is_old", ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)
        self.table: Any = ffi.cast("struct estimate *", seams.address("gate_shared_estimates"))

    def of(self, key: int = KEY, family: int = 0, guess_ns: int = 0) -> Belief:
        belief = self._of(ctypes.addressof(self.gate), ctypes.addressof(self.thread), key, family, guess_ns, 10**9)
        assert isinstance(belief, Belief)
        return belief

    def learn(self, key: int, ns: int, samples: int) -> None:
        lib.estimate_put(self.table, SIZE, key, ns, samples)

    def are_old(self) -> bool:
        return bool(self._is_old(ctypes.addressof(self.gate), ctypes.addressof(self.thread)))

    def over(self, chunk: Chunk, ns: int, *, queued: bool = False, sure_ns: int = 0) -> None:
        """A chunk took so long, up to now."""
        gate, thread = ctypes.addressof(self.gate), ctypes.addressof(self.thread)
        self._over(gate, thread, ctypes.addressof(chunk), 10**9 - ns, 10**9, queued, sure_ns)


@pytest.fixture
def beliefs(seams: Seams) -> Beliefs:
    return Beliefs(seams)


def test_a_launch_that_was_never_seen_may_take_more_than_it_likely_does(beliefs: Beliefs) -> None:
    belief = beliefs.of()
    assert (belief.ns, belief.most_ns) == (250 * US, 1000 * US)
    assert (belief.unknown, belief.wild, belief.young, belief.measure) == (True, True, True, True)


def test_a_guess_is_believed_and_measured(beliefs: Beliefs) -> None:
    belief = beliefs.of(guess_ns=40 * US)
    assert (belief.ns, belief.most_ns) == (40 * US, 40 * US)
    assert (belief.unknown, belief.wild, belief.measure) == (False, False, True)


def test_one_of_a_known_family_likely_takes_as_long_and_is_wild(beliefs: Beliefs) -> None:
    beliefs.learn(FAMILY, 30 * US, YOUNG)
    belief = beliefs.of(family=FAMILY)
    assert (belief.ns, belief.most_ns) == (30 * US, 1000 * US)
    assert (belief.unknown, belief.wild, belief.measure) == (False, True, True)


@pytest.mark.parametrize(("samples", "young"), [(1, True), (FEW, True), (YOUNG - 1, True), (YOUNG, False)])
def test_what_was_seen_a_few_times_only_is_young_and_measured(beliefs: Beliefs, samples: int, young: bool) -> None:
    beliefs.learn(KEY, 20 * US, samples)
    belief = beliefs.of()
    assert belief.ns == 20 * US
    assert (belief.young, belief.wild, belief.measure, belief.unknown) == (young, young, young, False)


def test_who_is_short_and_was_surely_long_once_is_wild(beliefs: Beliefs) -> None:
    """Its host may have been slow: what the device did after all of it was out is the least that it took."""
    beliefs.learn(KEY, 20 * US, YOUNG)
    beliefs.over(Chunk(key=KEY, estimated_ns=20 * US, launches=1), 9000 * US, sure_ns=4900 * US)
    belief = beliefs.of()
    assert (belief.wild, belief.most_ns) == (True, 4900 * US)


def test_what_ran_beside_others_and_is_looked_at_when_they_are_gone_is_no_length(
    beliefs: Beliefs, seams: Seams
) -> None:
    """It waited for the card, as what is looked at meanwhile."""
    share = seams.function("gate_share", None, ctypes.c_void_p, ctypes.c_bool)
    beliefs.learn(KEY, 20 * US, YOUNG)
    chunk = Chunk(key=KEY, estimated_ns=20 * US, launches=1, alone=True)
    share(ctypes.addressof(beliefs.gate), True)
    beliefs.over(chunk, 90 * US)
    share(ctypes.addressof(beliefs.gate), False)
    beliefs.over(chunk, 90 * US)
    assert beliefs.of().ns == 20 * US


@pytest.mark.parametrize("sure_ns", [0, 39 * US, 199 * US])
def test_a_host_that_was_slow_makes_no_kernel_long(beliefs: Beliefs, sure_ns: int) -> None:
    beliefs.learn(KEY, 20 * US, YOUNG)
    beliefs.over(Chunk(key=KEY, estimated_ns=20 * US, launches=1), 9000 * US, sure_ns=sure_ns)
    assert (beliefs.of().wild, beliefs.of().ns) == (False, 20 * US)


@pytest.mark.parametrize(("close_by_ns", "blamed"), [(5 * 10**8, True), (10**9 - 999 * US, False), (2**64 - 1, False)])
def test_of_two_kinds_that_kept_others_waiting_the_longer_is_blamed(
    beliefs: Beliefs, close_by_ns: int, blamed: bool
) -> None:
    other = KEY + 1
    beliefs.learn(KEY, 20 * US, YOUNG)
    beliefs.learn(other, 2 * US, YOUNG)
    chunk = Chunk(kinds=(other, KEY), estimated_ns=440 * US, launches=40, close_by_ns=close_by_ns)
    beliefs.over(chunk, 100_000 * US, sure_ns=99_000 * US)
    assert [beliefs.of(KEY).wild, beliefs.of(other).wild] == [blamed, False]


def test_what_is_believed_of_a_launch_that_waits_is_old_when_one_was_a_surprise(beliefs: Beliefs) -> None:
    beliefs.learn(KEY, 20 * US, YOUNG)
    assert not beliefs.of().wild
    beliefs.over(Chunk(key=KEY, estimated_ns=20 * US, launches=1), 24 * US, queued=True, sure_ns=24 * US)
    assert not beliefs.are_old()
    beliefs.over(Chunk(key=KEY, estimated_ns=20 * US, launches=1), 5000 * US, queued=True, sure_ns=5000 * US)
    assert beliefs.are_old()
    assert beliefs.of().wild
    assert not beliefs.are_old()
    beliefs.over(Chunk(key=KEY, estimated_ns=20 * US, launches=1), 5000 * US, queued=True, sure_ns=5000 * US)
    assert not beliefs.are_old()


def test_it_is_old_too_when_one_of_two_kinds_is_blamed(beliefs: Beliefs) -> None:
    beliefs.learn(KEY, 20 * US, YOUNG)
    beliefs.learn(FAMILY, US, YOUNG)
    assert not beliefs.of().wild
    beliefs.over(Chunk(kinds=(KEY, FAMILY), estimated_ns=42 * US, launches=4), 10000 * US, sure_ns=10000 * US)
    assert beliefs.are_old()
    assert beliefs.of().wild
