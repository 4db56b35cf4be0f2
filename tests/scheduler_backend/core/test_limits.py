"""Rests at a limit and quotas, by themselves."""

from __future__ import annotations

import pytest

from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.limits import Limits
from scheduler_backend.core.moves import Epochs
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.seat import Seat
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec
from scheduler_backend.core.tenants import Tenants
from tests.scheduler_backend.core.parts import HALF

POLICY = Policy()


def made(*limits_ppm: int) -> tuple[Limits, list[Seat]]:
    """Limits, and tenants of a half each with these, one process each, that wait."""
    context, tenants = Context(0, POLICY, Epochs()), Tenants(POLICY)
    clock = FairClock(POLICY, tenants)
    limits = Limits(context, tenants, clock, CurrentGrant(context))
    seats = [Seat(TenantSpec(f"t{place}", HALF, limit_ppm), POLICY, 0) for place, limit_ppm in enumerate(limits_ppm)]
    for client, seat in enumerate(seats):
        tenants.add(seat)
        tenants.join(seat, client)
        tenants.wait(seat, 0)
    clock.resident_ppm = tenants.share_turns()
    return limits, seats


def test_one_that_waits_beside_others_may_save_a_tenth_more() -> None:
    limits, (a, _) = made(HALF, WHOLE_PPM)
    assert limits.bucket(a)[0] == POLICY.quota_ns * 11 // 10
    limits.tenants.rest(a, 0)
    assert limits.bucket(a)[0] == POLICY.quota_ns


def test_one_alone_has_a_deeper_bucket_and_smaller_steps() -> None:
    limits, (a,) = made(WHOLE_PPM // 10)
    depth_ns, need_ns = limits.bucket(a)
    assert (depth_ns, need_ns) == (POLICY.quota_ns * 6 // 5, POLICY.least_quota_ns)
    assert limits.need_ns(a) == need_ns


def test_one_whose_bucket_ran_dry_rests_until_there_is_enough_again() -> None:
    limits, (a, _) = made(HALF, WHOLE_PPM)
    a.credit = 0
    limits.throttle(a)
    assert a.throttled
    assert a.resume_ns == 2 * limits.need_ns(a)
    assert a.ready_since_ns == a.resume_ns
    limits.context.now_ns = a.resume_ns - POLICY.resume_early_ns - 1
    limits.throttle(a)
    assert a.throttled
    limits.context.now_ns = a.resume_ns - POLICY.resume_early_ns
    limits.throttle(a)
    assert (a.throttled, a.resume_ns) == (False, 0)


def test_one_without_a_limit_never_rests() -> None:
    limits, (a,) = made(WHOLE_PPM)
    a.credit, a.throttled, a.resume_ns = -5, True, 7
    limits.throttle(a)
    assert (a.throttled, a.resume_ns) == (False, 0)


def test_nothing_flows_into_a_bucket_during_a_hand_over() -> None:
    limits, (a, b) = made(HALF, WHOLE_PPM)
    before = a.credit, b.credit
    limits.grant.hop_ns = MS
    limits.hold_back()
    assert (a.credit, b.credit) == (before[0] - MS * HALF, before[1])


def test_a_quota_is_what_the_bucket_holds_when_it_begins() -> None:
    limits, (a, _) = made(HALF, WHOLE_PPM)
    a.credit = 3 * MS * WHOLE_PPM
    assert limits.quota_from(a, True, 0) == 3 * MS
    assert limits.quota_from(a, True, 4 * MS) == 5 * MS
    a.credit = -MS * WHOLE_PPM
    assert limits.quota_from(a, True, 0) == 1


@pytest.mark.parametrize(("contended", "quota_ns"), [(True, 9 * MS), (False, POLICY.alone_quota_ns)])
def test_without_a_limit_it_is_a_turn_or_a_long_one(contended: bool, quota_ns: int) -> None:
    limits, (a,) = made(WHOLE_PPM)
    assert limits.quota_from(a, contended, 0) == quota_ns


def test_it_ends_when_one_that_is_owed_more_has_rested_enough_but_is_never_cut_below_half() -> None:
    limits, (a, b) = made(WHOLE_PPM, HALF)
    limits.clock.jump_to(1)
    b.throttled, b.resume_ns, b.clock = True, 7 * MS, -MS
    assert limits.until_resumed(a, 9 * MS, 0) == 7 * MS
    b.resume_ns = MS
    assert limits.until_resumed(a, 9 * MS, 0) == POLICY.quota_ns // 2
    b.clock = 2  # it is owed nothing
    assert limits.until_resumed(a, 9 * MS, 0) == 9 * MS
