"""A host is expected to be away in a turn where it was lately, and where another tenant wants the card."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from tests.libhook.runtime.seams import Seams

S, MS = 1_000_000_000, 1_000_000
U64, P = ctypes.c_uint64, ctypes.c_void_p


class Away:
    """away.c of the gate of one device."""

    def __init__(self, seams: Seams, ordinal: int = 0) -> None:
        seams.function("set_gate", None, ctypes.c_int, ctypes.c_bool, U64, U64, ctypes.c_bool)(
            ordinal, True, MS, 0, False
        )
        self.seams, self.gate = seams, seams.function("gate_at", P, ctypes.c_int)(ordinal)

    def seen(self, now_ns: int) -> None:
        self.seams.function("away_seen", None, P, U64)(self.gate, now_ns)

    def waits(self, now_ns: int) -> None:
        self.seams.function("away_waits", None, P, U64)(self.gate, now_ns)

    def is_expected(self, now_ns: int) -> bool:
        return bool(self.seams.function("away_is_expected", ctypes.c_bool, P, U64)(self.gate, now_ns))

    def reset(self) -> None:
        self.seams.function("away_reset_after_fork", None)()


@pytest.fixture
def away(seams: Seams) -> Iterator[Away]:
    found = Away(seams)
    found.reset()
    yield found
    found.reset()


def test_who_was_away_and_waited_for_another_is_expected_to_be_away_again(away: Away) -> None:
    away.seen(5 * S)
    away.waits(5 * S)
    assert away.is_expected(5 * S + 199 * MS)


def test_nobody_is_expected_to_be_away_who_has_the_card_to_itself(away: Away) -> None:
    away.seen(5 * S)
    assert not away.is_expected(5 * S + 1)


def test_who_waited_a_while_ago_has_the_card_to_itself(away: Away) -> None:
    away.seen(5 * S)
    away.waits(5 * S)
    assert not away.is_expected(5 * S + 200 * MS)


def test_who_waits_for_others_with_its_host_at_work_on_launches_is_not_away(away: Away) -> None:
    away.waits(5 * S)
    assert not away.is_expected(5 * S + 1)


def test_who_was_away_a_while_ago_has_another_rhythm_now(away: Away) -> None:
    away.seen(5 * S)
    away.waits(6 * S)
    assert not away.is_expected(6 * S + 1)


def test_each_device_has_company_of_its_own(seams: Seams, away: Away) -> None:
    other = Away(seams, 1)
    away.seen(5 * S)
    away.waits(5 * S)
    other.seen(5 * S)
    assert (away.is_expected(5 * S + 1), other.is_expected(5 * S + 1)) == (True, False)


def test_a_forked_child_begins_anew(away: Away) -> None:
    away.seen(5 * S)
    away.waits(5 * S)
    away.reset()
    assert not away.is_expected(5 * S + 1)
