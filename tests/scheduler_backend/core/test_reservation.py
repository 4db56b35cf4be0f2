"""A gang's hold on a token by itself."""

from __future__ import annotations

from scheduler_backend.core.policy import Policy
from scheduler_backend.core.reservation import GangReservation
from scheduler_backend.core.seat import Seat
from scheduler_backend.core.tenant import TenantSpec


def nominated(name: str = "g") -> GangReservation:
    reservation = GangReservation()
    reservation.nominee = Seat(TenantSpec(name, gpus=(0, 1)), Policy(), 0)
    return reservation


def test_it_is_kept_for_one_gang_until_it_is_released() -> None:
    reservation = GangReservation()
    reservation.keep("g", 5)
    assert (reservation.gang, reservation.until_ns) == ("g", 5)
    reservation.keep("h")
    assert (reservation.gang, reservation.until_ns) == ("h", 0)
    reservation.release()
    assert (reservation.gang, reservation.until_ns) == ("", 0)


def test_another_end_is_told_from_the_same() -> None:
    reservation = GangReservation()
    reservation.keep("g", 5)
    assert not reservation.keep_until(5)
    assert reservation.keep_until(0)
    assert (reservation.gang, reservation.until_ns) == ("g", 0)


def test_a_nominee_is_passed_over_once() -> None:
    reservation = nominated()
    assert reservation.pass_over()
    assert reservation.passed == {"g"}
    assert not reservation.pass_over()
    assert reservation.forget_passed()
    assert not reservation.forget_passed()
    assert reservation.pass_over()


def test_where_there_is_no_nominee_or_the_token_is_kept_nobody_is_passed_over() -> None:
    assert not GangReservation().pass_over()
    reservation = nominated()
    reservation.keep("h")
    assert not reservation.pass_over()
    assert reservation.passed == set()
