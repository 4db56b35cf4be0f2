"""How long the holder keeps the token, without a machine."""

from __future__ import annotations

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.ahead import Foresight
from scheduler_backend.core.policy import MS, Policy, virtual
from scheduler_backend.core.seat import Seat, Standing, State
from scheduler_backend.core.tenure import Tenure
from tests.scheduler_backend.core.parts import HALF, Parts


def made(policy: Policy | None = None, request_ppm: int = HALF) -> tuple[Tenure, Parts, Seat, Seat]:
    """Its parts, a tenant that holds, and one that waits."""
    parts = Parts(policy)
    foresight = Foresight(
        parts.context,
        parts.tenants,
        parts.clock,
        parts.grant,
        parts.restart,
        parts.reservation,
        parts.limits,
        parts.grants,
        parts.beside,
    )
    tenure = Tenure(
        parts.context,
        parts.tenants,
        parts.clock,
        parts.grant,
        parts.limits,
        parts.reservation,
        parts.beside,
        foresight,
        parts.rows,
    )
    a, b = parts.add("a"), parts.add("b", request_ppm)
    parts.want(b)
    parts.hold(a)
    return tenure, parts, a, b


def test_the_deadline_is_that_of_the_lease_or_of_an_overrun() -> None:
    tenure, parts, a, _ = made()
    assert tenure.deadline(a) == 40 * MS
    a.members[1].lease_until_ns = 5000 * MS
    assert tenure.deadline(a) == 10 * MS + parts.policy.overrun_ns


def test_a_lease_that_ran_out_and_a_holder_that_overran_lose_the_token() -> None:
    tenure, parts, a, _ = made()
    parts.at(39)
    tenure.lapse_leases()
    assert a.state is State.HOLDING
    parts.at(40)
    tenure.lapse_leases()
    assert [type(action) for action in parts.done()][:2] == [ev.LeaseLost, ev.Revoke]
    assert (parts.grant.holder, a.members[1].standing) == (None, Standing.STRAY)
    parts.hold(a)
    a.members[1].lease_until_ns = 1 << 60
    parts.at(2000)
    tenure.lapse_leases()
    assert len(parts.done(ev.Overran)) == 1


def test_those_beside_others_have_leases_and_deadlines_too() -> None:
    tenure, parts, _, b = made()
    assert tenure.deadline_shared() == 0
    parts.share(b)
    assert tenure.deadline_shared() == parts.policy.shared_lease_ns
    parts.shared.close(b, ev.PREEMPT)
    b.members[2].lease_until_ns = 1 << 60
    assert tenure.deadline_shared() == parts.policy.overrun_ns
    parts.at(1000)
    tenure.lapse_leases()
    assert b.state is State.IDLE
    assert len(parts.done(ev.Overran)) == 1


def test_a_newcomer_ends_a_grant_without_end() -> None:
    tenure, parts, _, b = made()
    b.woken, parts.grant.contended = True, False
    assert tenure.preempt() == 0
    assert parts.done(ev.Revoke) == [ev.Revoke(1, 0, 1, ev.NEWCOMER)]


def test_one_that_wakes_up_owed_takes_over_from_a_holder_that_had_its_part() -> None:
    tenure, parts, a, b = made()
    parts.at(4)
    b.clock, b.burst_ns, b.woken = parts.clock.virtual_now - virtual(5 * MS, HALF), 2 * MS, True
    assert tenure.preempt() == 0
    assert parts.done(ev.Revoke) == [ev.Revoke(1, 0, 1, ev.PREEMPT)]
    assert a.preempted_ns == 4 * MS


def test_a_holder_keeps_what_it_woke_up_for_and_is_looked_at_again() -> None:
    tenure, parts, _, b = made()
    parts.at(0.5)
    b.clock, b.burst_ns, b.woken = parts.clock.virtual_now - virtual(9 * MS, HALF), 2 * MS, True
    assert tenure.preempt() == parts.policy.preempt_after_ns
    assert parts.done() == []


@pytest.mark.parametrize(("preemption", "throttled"), [(False, False), (True, True)])
def test_it_is_not_asked_back_where_that_is_off_or_the_other_rests(preemption: bool, throttled: bool) -> None:
    tenure, parts, _, b = made(Policy(preemption=preemption))
    b.woken, b.throttled, parts.grant.contended = True, throttled, False
    assert tenure.preempt() == 0
    assert parts.done() == []


def test_a_holder_that_would_be_picked_again_is_prolonged_before_its_quota_ends() -> None:
    tenure, parts, a, _ = made(request_ppm=0)
    assert tenure.look_ahead(a) == 8 * MS
    parts.at(8)
    assert tenure.look_ahead(a) == parts.grant.quota_until_ns - 2 * MS
    assert parts.grant.quota_until_ns == 10 * MS + a.quota_ns
    assert len(parts.done(ev.Extend)) == 1


def test_one_that_is_surely_not_next_is_not_looked_at_again() -> None:
    tenure, parts, a, _ = made()
    parts.at(5)
    assert tenure.look_ahead(a) == 0
    assert parts.grant.settled_until_ns == parts.grant.quota_until_ns == 10 * MS


def test_one_of_which_nothing_is_heard_is_prolonged_so_often() -> None:
    tenure, parts, a, _ = made(request_ppm=0)
    parts.grant.silent = parts.policy.extend_silent
    parts.at(8)
    assert tenure.look_ahead(a) == 0
    assert parts.done() == []
