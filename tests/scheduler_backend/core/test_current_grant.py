"""The grant of a token by itself: its course, and what follows from it."""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.moves import Epochs
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.seat import Member, Seat, Standing
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec

POLICY = Policy()


def tenant(processes: int = 1, limit_ppm: int = WHOLE_PPM) -> Seat:
    """A tenant whose processes hold."""
    seat = Seat(TenantSpec("a", WHOLE_PPM // 2, limit_ppm), POLICY, 0)
    for client in range(processes):
        seat.members[client] = member = Member(client)
        member.standing = Standing.HOLDS
    return seat


def granted(seat: Seat, quota_ns: int = 10 * MS, hop_ns: int = 0, contended: bool = True) -> CurrentGrant:
    """Its grant, which begins at 100 ms."""
    grant = CurrentGrant(Context(0, POLICY, Epochs(), 100 * MS))
    grant.contended, grant.cap_ns = contended, POLICY.cap_ns if contended else POLICY.cap_alone_ns
    grant.begin(seat, 7, quota_ns, hop_ns)
    return grant


def test_a_context_begins_each_event_with_nothing_to_do() -> None:
    context = Context(3, POLICY, Epochs())
    first = context.begin()
    context.do(ev.WakeAt(1))
    second = context.begin()
    context.do(ev.WakeAt(2))
    assert (first, second) == ([ev.WakeAt(1)], [ev.WakeAt(2)])


def test_before_the_first_grant_the_token_is_free_from_the_beginning() -> None:
    grant = CurrentGrant(Context(0, POLICY, Epochs(), 5))
    assert (grant.holder, grant.free_since_ns, grant.holding(), grant.is_limited()) == (None, 5, [], False)


def test_a_grant_is_charged_from_when_its_message_has_come() -> None:
    a, b = tenant(), tenant()
    grant = granted(a, hop_ns=MS)
    assert (grant.charge_from_ns, grant.quota_until_ns, grant.charged_ns) == (101 * MS, 110 * MS, 0)
    assert grant.unseen_ns(a, 104 * MS) == 3 * MS
    assert grant.unseen_ns(b, 104 * MS) == 0
    grant.context.now_ns = 106 * MS
    assert (grant.charged_ns, grant.unseen_ns(a, 108 * MS)) == (5 * MS, 2 * MS)


def test_time_that_nobody_saw_is_charged_to_nobody() -> None:
    grant = granted(tenant(), hop_ns=MS)
    grant.pass_unseen(4 * MS)
    grant.context.now_ns = 106 * MS
    assert (grant.charged_ns, grant.hop_ns) == (MS, 5 * MS)


def test_what_its_processes_say_counts_where_all_of_them_did() -> None:
    grant = granted(tenant(2))
    grant.report(3 * MS, 5)
    grant.report(MS, 1)
    assert (grant.reported_ns, grant.launches) == (4 * MS, 6)
    grant.untold = True
    assert grant.reported_ns == 0
    grant.begin(tenant(), 8, MS, 0)
    assert (grant.reported_ns, grant.launches, grant.untold) == (0, 0, False)


def test_the_next_grant_begins_as_if_there_had_been_none() -> None:
    grant = granted(tenant())
    grant.prolong(10 * MS)
    grant.joins[1], grant.closing_ns, grant.settled_until_ns = 3, 105 * MS, 110 * MS
    assert (grant.quota_until_ns, grant.silent) == (120 * MS, 1)
    grant.context.now_ns = 121 * MS
    grant.end()
    assert (grant.holder, grant.epoch, grant.free_since_ns) == (None, 7, 121 * MS)
    grant.begin(tenant(), 8, 5 * MS, 0)
    assert (grant.silent, grant.joins, grant.closing_ns, grant.settled_until_ns) == (0, {}, 0, 0)
    assert (grant.epoch, grant.granted_ns, grant.quota_until_ns) == (8, 121 * MS, 126 * MS)


def test_a_lease_outlives_the_quota_and_that_of_one_alone_is_long() -> None:
    assert granted(tenant()).lease_ns() == 10 * MS + POLICY.lease_margin_ns
    assert granted(tenant(), contended=False).lease_ns() == POLICY.alone_lease_ns
    late = granted(tenant())
    late.context.now_ns = 130 * MS
    assert late.lease_ns() == POLICY.lease_margin_ns
    assert late.closing_lease_ns() == POLICY.lease_margin_ns + POLICY.cap_ns


def test_an_overrun_is_counted_from_the_quota_or_from_when_it_was_asked_back() -> None:
    grant = granted(tenant())
    assert grant.overrun_at_ns() == 110 * MS + POLICY.overrun_ns
    grant.closing_ns = 104 * MS
    assert grant.overrun_at_ns() == 104 * MS + POLICY.overrun_ns
    grant.closing_ns = 115 * MS
    assert grant.overrun_at_ns() == 110 * MS + POLICY.overrun_ns


def test_the_more_processes_hold_the_earlier_the_end_of_the_quota_is_looked_at() -> None:
    one, two = granted(tenant()), granted(tenant(2))
    assert two.lead_ns - one.lead_ns == two.flight_ns(two.holding()[0]) > 0


def test_a_process_that_holds_with_others_is_told_of_a_part() -> None:
    grant = granted(tenant(2))
    one, other = grant.holding()
    whole = grant.part_of(one, 10 * MS, True, [one])
    assert whole == (10 * MS, POLICY.cap_ns)
    part_ns, cap_ns = grant.part_of(one, 10 * MS, True, [one, other])
    assert part_ns < 10 * MS
    assert cap_ns <= POLICY.cap_ns
    assert grant.part_of(one, 10 * MS, False, [one, other]) == (10 * MS, POLICY.cap_ns)


def test_the_holder_is_limited_where_it_has_less_than_the_whole() -> None:
    assert granted(tenant(limit_ppm=WHOLE_PPM // 2)).is_limited()
    assert not granted(tenant()).is_limited()
