"""The virtual times by themselves."""

from __future__ import annotations

import pytest

from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.policy import MS, Policy, virtual
from scheduler_backend.core.seat import Seat, State
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec
from scheduler_backend.core.tenants import Tenants

POLICY = Policy()
HALF = WHOLE_PPM // 2


def made(**requests_ppm: int) -> tuple[FairClock, Tenants]:
    """A clock and tenants that all wait, of one process each."""
    tenants = Tenants(POLICY)
    clock = FairClock(POLICY, tenants)
    for client, (name, request_ppm) in enumerate(requests_ppm.items()):
        seat = Seat(TenantSpec(name, request_ppm), POLICY, 0)
        clock.place(seat)
        tenants.add(seat)
        tenants.join(seat, client)
        tenants.wait(seat, 0)
    clock.resident_ppm = tenants.share_turns()
    return clock, tenants


def whole(span_ns: int) -> int:
    """This span on a virtual time that runs as fast as time itself."""
    return virtual(span_ns, WHOLE_PPM)


def hold(tenants: Tenants, name: str) -> Seat:
    seat = tenants.waiting.pop(name)
    seat.state = State.HOLDING
    return seat


def test_the_holder_gets_ahead_by_what_others_are_owed() -> None:
    clock, tenants = made(a=HALF, b=HALF)
    a = hold(tenants, "a")
    clock.advance(a, 10 * MS)
    assert (a.clock, clock.virtual_now, clock.steady) == (whole(20 * MS), whole(10 * MS), whole(10 * MS))
    assert clock.lag_ns(tenants.seats["b"]) == 5 * MS
    assert clock.ahead_ns(a, 0, 0) == 10 * MS
    assert clock.ahead_ns(a, 5 * MS, 0) == 20 * MS
    assert clock.ahead_ns(a, 5 * MS, 5 * MS) == 15 * MS  # it is promised half of what passes


def test_now_stands_still_while_one_that_came_back_gets_what_it_was_owed() -> None:
    clock, tenants = made(a=HALF, b=HALF)
    a, b = tenants.seats["a"], tenants.seats["b"]
    tenants.rest(b, 0)
    clock.advance(hold(tenants, "a"), 8 * MS)
    tenants.wait(a, 8 * MS)
    tenants.wait(b, 8 * MS)
    clock.come_back(b)
    assert (clock.lag_ns(a), clock.lag_ns(b)) == (0, 4 * MS)
    now = clock.virtual_now
    clock.advance(hold(tenants, "b"), 4 * MS)
    assert (clock.virtual_now, clock.lag_ns(a), clock.lag_ns(b)) == (now, 0, 0)
    assert clock.passes(b, 4 * MS) == whole(4 * MS)
    clock.advance(b, 4 * MS)
    assert clock.virtual_now == now + whole(4 * MS)


def test_what_an_idle_tenant_is_ahead_it_pays_back_before_now_hurries_on() -> None:
    clock, tenants = made(a=HALF, b=HALF)
    a = hold(tenants, "a")
    clock.advance(a, 10 * MS)
    tenants.rest(a, 0)
    assert clock.active_ppm() == WHOLE_PPM
    clock.advance(hold(tenants, "b"), 20 * MS)  # 10 until a is ahead no more, then 10 alone
    assert clock.virtual_now == whole((20 + 20) * MS)
    assert clock.active_ppm() == HALF


def test_who_has_the_gpu_to_itself_is_owed_less_with_all_it_gets() -> None:
    clock, tenants = made(a=HALF)
    a = hold(tenants, "a")
    clock.jump_to(whole(100 * MS))
    clock.advance(a, 10 * MS)
    assert a.clock == whole(2 * 20 * MS)
    clock.advance(a, 100 * MS)
    assert a.clock == clock.virtual_now


def test_who_comes_back_from_a_drain_that_was_said_ahead_counts_as_active() -> None:
    clock, tenants = made(a=HALF, b=HALF)
    tenants.rest(tenants.seats["a"], 0)
    assert clock.active_ppm() == HALF
    tenants.seats["a"].returning = True
    assert clock.active_ppm() == WHOLE_PPM


def test_who_runs_beside_others_is_no_rival_and_the_time_is_theirs() -> None:
    clock, tenants = made(a=HALF, b=HALF)
    for seat in tenants.seats.values():
        seat.state = State.SHARED
    tenants.waiting.clear()
    assert clock.active_ppm() == 0
    clock.advance_beside(tenants.seats.values(), 10 * MS)
    assert (clock.virtual_now, clock.steady) == (whole(10 * MS), whole(10 * MS))


def test_best_effort_has_a_virtual_time_of_its_own() -> None:
    clock, tenants = made(a=HALF, b=0, c=0)
    b = hold(tenants, "b")
    clock.advance(b, 10 * MS)
    assert (clock.virtual_now, clock.best_effort, b.clock) == (0, whole(5 * MS), whole(10 * MS))


def test_idling_earns_no_more_than_a_quota() -> None:
    clock, tenants = made(a=HALF, b=HALF)
    b = tenants.seats["b"]
    tenants.rest(b, 0)
    a = hold(tenants, "a")
    clock.advance(a, 1000 * MS)
    clock.catch_up(b)
    assert clock.lag_ns(b) == POLICY.quota_ns


def test_a_tenant_that_was_away_for_less_keeps_what_it_was_owed() -> None:
    clock, tenants = made(a=HALF, b=HALF)
    b = tenants.seats["b"]
    tenants.rest(b, 0)
    clock.advance(hold(tenants, "a"), 4 * MS)
    clock.catch_up(b)
    assert clock.lag_ns(b) == 2 * MS


@pytest.mark.parametrize("ppm", [WHOLE_PPM // 4, WHOLE_PPM])
def test_another_request_leaves_what_is_owed_in_held_time(ppm: int) -> None:
    clock, tenants = made(a=HALF, b=HALF)
    clock.advance(hold(tenants, "a"), 10 * MS)
    b = tenants.seats["b"]
    clock.reweigh(b, ppm)
    assert (b.request_ppm, clock.lag_ns(b)) == (ppm, 5 * MS)


def test_one_that_comes_to_have_a_request_starts_at_now() -> None:
    clock, tenants = made(a=HALF, b=0)
    clock.advance(hold(tenants, "a"), 10 * MS)
    b = tenants.seats["b"]
    clock.reweigh(b, HALF)
    assert (b.clock, b.request_ppm) == (clock.virtual_now, HALF)
    clock.reweigh(b, 0)
    assert b.clock == clock.best_effort


def test_what_turns_owe_is_bounded_and_a_debt_stays() -> None:
    clock, tenants = made(a=HALF)
    a = tenants.seats["a"]
    clock.jump_to(whole(100 * MS))
    clock.owe(a, 3 * MS)
    assert clock.lag_ns(a) == 3 * MS
    clock.charge(a, 50 * MS)
    clock.owe(a, 3 * MS)
    assert a.clock == whole(100 * MS) - virtual(3 * MS, HALF) + virtual(50 * MS, HALF)
