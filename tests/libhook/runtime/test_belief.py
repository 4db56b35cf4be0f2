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
        ("wild", ctypes.c_bool),
        ("young", ctypes.c_bool),
        ("measure", ctypes.c_bool),
        ("unknown", ctypes.c_bool),
    )


class Beliefs:
    """A gate that nothing was learned behind, and a thread of it."""

    def __init__(self, seams: Seams) -> None:
        self.gate, self.thread = ctypes.create_string_buffer(ROOM), ctypes.create_string_buffer(ROOM)
        words = [ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_uint64] * 4]
        self._of: Any = seams.function("belief_of", Belief, *words)
        self.table: Any = ffi.cast("struct estimate *", seams.address("gate_shared_estimates"))

    def of(self, key: int = KEY, family: int = 0, guess_ns: int = 0) -> Belief:
        belief = self._of(ctypes.addressof(self.gate), ctypes.addressof(self.thread), key, family, guess_ns, 10**9)
        assert isinstance(belief, Belief)
        return belief

    def learn(self, key: int, ns: int, samples: int) -> None:
        lib.estimate_put(self.table, SIZE, key, ns, samples)


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
