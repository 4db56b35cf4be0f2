"""Who runs beside others, by itself."""

from __future__ import annotations

from scheduler_backend.core.beside import BUSY, Beside
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.seat import Seat
from scheduler_backend.core.tenant import TenantSpec


def seat(name: str, host_bound: bool = True) -> Seat:
    """A tenant whose duty is known."""
    made = Seat(TenantSpec(name), Policy(), 0)
    made.duty.host_bound = host_bound
    return made


def test_it_is_idle_until_a_duty_is_low_and_again_when_it_is_not() -> None:
    beside, a = Beside(), seat("a")
    assert beside.is_idle()
    beside.sort(a)
    assert not beside.is_idle()
    a.duty.host_bound = False
    beside.sort(a)
    assert beside.is_idle()
    beside.sort(seat("b"))
    beside.forget("b")
    beside.forget("nobody")
    assert beside.is_idle()


def test_one_that_enters_does_not_pause_any_more() -> None:
    beside, a = Beside(), seat("a")
    beside.paused["a"] = a
    beside.enter(a)
    assert (beside.paused, beside.sharing) == ({}, {"a": a})
    beside.leave(a)
    assert beside.sharing == {}


def test_all_but_the_favoured_stand_back() -> None:
    beside = Beside()
    assert not beside.stands_back("a")
    beside.favour("a", 7)
    assert (beside.stands_back("a"), beside.stands_back("b"), beside.holds_up()) == (False, True, True)
    beside.favour(BUSY, 8, seeing=True)
    assert (beside.stands_back("a"), beside.holds_up(), beside.seeing) == (True, False, True)
    beside.favour_nobody()
    assert (beside.stands_back("a"), beside.seeing, beside.favoured_until_ns) == (False, False, 8)


def test_while_duties_are_measured_the_token_waits_for_those_that_drain() -> None:
    beside, a = Beside(), seat("a")
    beside.measuring = True
    assert not beside.holds_up()
    beside.enter(a)
    assert beside.holds_up()


def test_alone_is_the_holder_or_the_only_one_that_runs_without_it() -> None:
    beside, a, b, holder = Beside(), seat("a"), seat("b"), seat("h", host_bound=False)
    assert (beside.alone(None), beside.alone(holder)) == (None, holder)
    beside.enter(a)
    assert (beside.alone(None), beside.alone(holder)) == (a, None)
    beside.enter(b)
    assert beside.alone(None) is None
