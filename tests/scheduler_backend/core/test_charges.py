"""What each tenant is charged, by itself."""

from __future__ import annotations

import random

from scheduler_backend.core.charges import RUN_ON_ROOM_NS, USED_DIVISOR, WEIGH_NS, Charges
from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.message_delay import MessageDelay
from scheduler_backend.core.moves import Epochs
from scheduler_backend.core.policy import MS, Policy, virtual
from scheduler_backend.core.seat import Member, Seat, Standing, State
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec
from scheduler_backend.core.tenants import Tenants
from tests.scheduler_backend.core.parts import HALF, returned

POLICY = Policy()


def made(*limits_ppm: int) -> tuple[Charges, list[Seat]]:
    """Charges, and tenants of a half each with these limits, one process each; the first one holds."""
    context, tenants = Context(0, POLICY, Epochs()), Tenants(POLICY)
    clock = FairClock(POLICY, tenants)
    charges = Charges(context, tenants, clock, CurrentGrant(context), MessageDelay(POLICY))
    seats = [Seat(TenantSpec(f"t{place}", HALF, limit_ppm), POLICY, 0) for place, limit_ppm in enumerate(limits_ppm)]
    for client, seat in enumerate(seats):
        clock.place(seat)
        tenants.add(seat)
        tenants.join(seat, client)
        tenants.wait(seat, 0)
    clock.resident_ppm = tenants.share_turns()
    hold(charges, seats[0])
    return charges, seats


def hold(charges: Charges, seat: Seat, hop_ns: int = 0) -> Member:
    del charges.tenants.waiting[seat.name]
    seat.state = State.HOLDING
    charges.grant.contended = True
    charges.grant.begin(seat, 1, 10 * MS, hop_ns)
    (member,) = seat.members.values()
    member.standing, member.epoch, member.lease_until_ns = Standing.HOLDS, 1, charges.context.now_ns + 40 * MS
    return member


def test_the_holder_is_charged_for_the_time_since_the_last_event() -> None:
    charges, (a, b) = made(WHOLE_PPM, WHOLE_PPM)
    charges.advance(4 * MS, {})
    charges.advance(6 * MS, {})
    assert charges.context.now_ns == 6 * MS
    assert (a.window.total_ns, a.clock, b.clock) == (6 * MS, virtual(6 * MS, HALF), 0)
    assert charges.usage_ns("t0", 7 * MS) == (7 * MS, 7 * MS)
    assert charges.usage_ns("t1", 7 * MS) == (0, 0)


def test_what_its_messages_take_is_charged_to_nobody() -> None:
    charges, (a,) = made(WHOLE_PPM)
    charges.grant.charge_from_ns = MS
    charges.advance(MS // 2, {})
    charges.advance(3 * MS, {})
    assert a.window.total_ns == 2 * MS


def test_a_gap_is_nobodys() -> None:
    charges, (a, _) = made(WHOLE_PPM, WHOLE_PPM)
    charges.grant.end()
    charges.advance(5 * MS, {})
    assert (charges.context.now_ns, charges.clock.virtual_now, a.clock) == (5 * MS, 0, 0)


def test_where_nobody_holds_the_time_is_that_of_those_beside_each_other_up_to_a_lease() -> None:
    charges, (a,) = made(WHOLE_PPM)
    charges.grant.end()
    a.state = State.SHARED
    charges.advance(1000 * MS, {"t0": a})
    assert charges.clock.virtual_now == virtual(POLICY.shared_lease_ns, HALF)


def test_a_limited_holder_spends_its_bucket_while_it_fills() -> None:
    charges, (a,) = made(HALF)
    before = a.credit_ns
    charges.advance(4 * MS, {})
    assert a.credit_ns == before - 2 * MS


def test_of_a_time_in_which_the_daemon_stood_still_the_holder_pays_its_lease() -> None:
    charges, (a,) = made(WHOLE_PPM)
    charges.advance(5000 * MS, {})
    assert a.window.total_ns == 40 * MS
    assert charges.grant.hop_ns == 4960 * MS


def test_the_delay_of_messages_is_what_the_client_did_not_see() -> None:
    charges, (a,) = made(WHOLE_PPM)
    (member,) = a.members.values()
    charges.measure_delay(a, 10 * MS, returned(member, held_ns=10 * MS - 200_000))
    assert charges.delay.smoothed_ns == {"t0": 200_000}


def test_where_limits_leave_the_gpu_idle_a_bucket_loses_what_was_used() -> None:
    charges, (a,) = made(HALF)
    a.held_ns, before = 8 * MS, a.credit_ns
    charges.charge_use(a, 6 * MS)
    assert (a.credit_ns - before, a.unused_ns) == (2 * MS, 2 * MS)
    assert charges.weigh_until_ns == WEIGH_NS
    charges.charge_use(a, 1)  # it says that it used nothing
    assert a.unused_ns == 2 * MS + 8 * MS - 8 * MS // USED_DIVISOR


def test_where_limits_fill_the_gpu_it_loses_what_was_held() -> None:
    charges, (a, _) = made(HALF, WHOLE_PPM)
    a.held_ns, before = 8 * MS, a.credit_ns
    charges.charge_use(a, 6 * MS)
    assert (a.credit_ns, charges.weigh_until_ns) == (before, 0)


def test_one_that_took_the_token_from_a_holder_pays_for_the_hand_overs() -> None:
    charges, (a,) = made(WHOLE_PPM)
    a.jumped, a.held_ns, charges.grant.hop_ns = True, 0, MS
    charges.charge_jump(a)
    assert (a.jumped, a.clock) == (False, virtual(2 * MS, HALF))


def test_one_that_overran_is_charged_on_and_no_time_twice() -> None:
    charges, (a, _) = made(WHOLE_PPM, WHOLE_PPM)
    (member,) = a.members.values()
    charges.advance(10 * MS, {})
    a.stray(member, since_ns=10 * MS)
    charges.grant.end()
    charges.advance(15 * MS, {})
    for _ in range(2):
        charges.charge_stray(a, member, 0, 0)
    assert (a.stray_ns, a.clock) == (5 * MS, virtual(15 * MS, HALF))


def test_one_whose_lease_ran_out_is_charged_for_what_it_then_reports() -> None:
    charges, (a, _) = made(WHOLE_PPM, WHOLE_PPM)
    (member,) = a.members.values()
    charges.advance(40 * MS, {})
    a.stray(member)
    charges.grant.end()
    charges.advance(100 * MS, {})
    charges.charge_stray(a, member, 0, 0)
    assert a.stray_ns == 0
    charges.charge_stray(a, member, 20 * MS, 0)
    assert a.stray_ns == 20 * MS


def astray(seat: Seat, charges: Charges) -> Seat:
    """Its process has overrun and returned all the same: it has been charged for 10 ms, and waits."""
    (member,) = seat.members.values()
    charges.advance(10 * MS, {})
    seat.stray(member, since_ns=10 * MS)
    charges.grant.end()
    member.standing, seat.state = Standing.WAITS, State.WAITING
    return seat


def test_what_the_card_says_that_one_used_after_its_overrun_is_charged_when_it_is_over() -> None:
    charges, (a, _) = made(HALF, WHOLE_PPM)
    credit_ns = astray(a, charges).credit_ns
    for _ in range(4):
        charges.charge_run_on(a, 500 * MS, 0, 1000 * MS)
    assert a.stray_ns <= 5000 * MS, "no more at once than is paid in ten seconds"
    charges.charge_run_on(a, 0, 0, 1000 * MS)
    assert (a.stray_ns, a.run_on_ns) == (1800 * MS, 0), "but for a twentieth of the time"
    assert a.credit_ns == credit_ns - 1800 * MS
    assert a.clock == virtual(1810 * MS, HALF)


def test_while_it_goes_on_it_has_a_turn_between_any_two_charges() -> None:
    """For a host that has to launch more before its kernel ends would wait for ever."""
    charges, (a, _) = made(HALF // 5, WHOLE_PPM)
    astray(a, charges)
    for _ in range(100):
        charges.charge_run_on(a, 600 * MS, 100 * MS, 1000 * MS)
    paid_ns = a.stray_ns
    assert 0 < paid_ns <= 1000 * MS
    assert charges.debt_ns("t0", 10 * MS) > 400_000 * MS, "another tenant of its name has all of it to pay"
    a.window.add(10 * MS, 11 * MS)
    a.credit, a.clock = 10 * MS * WHOLE_PPM, charges.clock.virtual_now  # it has rested
    charges.charge_run_on(a, 600 * MS, 100 * MS, 1000 * MS)
    assert paid_ns < a.stray_ns <= paid_ns + 1000 * MS
    charges.end_run_on(a)
    assert (a.stray_ns, a.run_on_ns) == (101 * 450 * MS, 0)


def test_that_the_cards_figures_are_of_another_moment_costs_nobody_anything() -> None:
    charges, (a, _) = made(WHOLE_PPM, WHOLE_PPM)
    astray(a, charges)
    for _ in range(20):
        charges.charge_run_on(a, 400 * MS, 600 * MS, 1000 * MS)
        charges.charge_run_on(a, 600 * MS, 420 * MS, 1000 * MS)
    assert a.stray_ns == 0


def test_that_the_cards_figures_are_coarse_costs_one_that_strayed_once_nothing() -> None:
    """Each is wrong by some 5 points, up or down. Believed as they are these added up to ten seconds in an hour."""
    charges, (a, _) = made(WHOLE_PPM, WHOLE_PPM)
    astray(a, charges)
    chance = random.Random(1)
    for _ in range(3600):
        charges.charge_run_on(a, round((500 + chance.gauss(0, 50)) * MS), 500 * MS, 1000 * MS)
    assert a.stray_ns <= RUN_ON_ROOM_NS


def test_a_debt_is_what_it_has_had_before_it_was_its_and_what_its_bucket_lacks() -> None:
    charges, (a, _) = made(WHOLE_PPM, WHOLE_PPM)
    charges.advance(10 * MS, {})
    assert charges.debt_ns("t0", 10 * MS) == 10 * MS
    assert charges.debt_ns("t1", 10 * MS) == 0
    a.limit_ppm, a.credit, a.filled_ns = HALF, -10 * MS * WHOLE_PPM, 10 * MS
    assert charges.debt_ns("t0", 10 * MS) == 2 * (POLICY.quota_ns + 10 * MS)
