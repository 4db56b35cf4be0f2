"""Grants of the token by themselves: what processes are told, and where their tenant goes afterwards."""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.grants import JOINS_MOST
from scheduler_backend.core.policy import MS
from scheduler_backend.core.seat import Standing, State
from scheduler_backend.core.tenant import WHOLE_PPM
from tests.scheduler_backend.core.parts import HALF, Parts


def test_a_grant_looks_as_the_company_wants() -> None:
    parts = Parts()
    a = parts.add("a")
    assert parts.grants.shape_of(a) == (False, parts.policy.cap_alone_ns)
    parts.add("b")
    assert parts.grants.shape_of(a) == (True, parts.policy.cap_ns)
    a.latency = True
    assert parts.grants.shape(a)
    assert (parts.grant.contended, parts.grant.cap_ns) == (True, parts.policy.cap_latency_ns)


def test_a_process_is_told_of_its_part_and_holds() -> None:
    parts = Parts()
    a = parts.add("a")
    member = parts.hold(a)
    parts.grants.give(member, [member], joined=False)
    assert parts.done() == [ev.Grant(1, 0, 1, 10 * MS, 40 * MS, MS, True, False)]
    assert (member.standing, member.epoch, member.lease_until_ns) == (Standing.HOLDS, 1, 40 * MS)


def test_one_that_is_let_in_for_a_sibling_has_little_time() -> None:
    parts = Parts()
    a = parts.add("a", processes=2)
    member = parts.hold(a)
    parts.grants.give(member, [], joined=True, admitted=True)
    (told,) = parts.done()
    assert (told.quota_ns, told.contended, told.joined) == (parts.policy.valve_ns, True, True)


def test_a_process_joins_what_is_left_so_often() -> None:
    parts = Parts()
    a = parts.add("a", processes=2)
    member = parts.hold(a)
    joins = [parts.grants.join(a, member) for _ in range(JOINS_MOST)]
    assert joins == [True] * (JOINS_MOST // 2) + [False] * (JOINS_MOST // 2)
    parts.at(9.9)
    parts.grant.joins.clear()
    assert not parts.grants.join(a, member)  # nothing is left of it


def test_a_holder_that_drains_keeps_its_lease_and_has_no_quota_left() -> None:
    parts = Parts()
    member = parts.hold(parts.add("a"))
    parts.grants.extend(member)
    parts.grants.extend(member, draining=True)
    told = parts.done(ev.Extend)
    assert [(each.quota_ns, each.lease_ns) for each in told] == [(10 * MS, 40 * MS), (0, 31 * MS)]
    parts.grant.closing_ns = 1
    parts.context.begin()
    parts.grants.extend(member)
    assert parts.done(ev.Extend)[0].quota_ns == 0


def test_when_the_last_process_has_drained_the_token_is_free() -> None:
    parts = Parts()
    a = parts.add("a", processes=2)
    first = parts.hold(a)
    parts.at(12)
    first.standing = Standing.QUIET
    parts.grants.after_hold(a)
    assert parts.done() == []
    for member in a.members.values():
        member.standing = Standing.QUIET
    parts.grants.after_hold(a)
    assert parts.done() == [ev.Page("a", 0, 0), ev.Charged("a", 0, 1, 12 * MS, 2 * MS, 0, 0)]
    assert (parts.grant.holder, parts.grant.free_since_ns, a.state) == (None, 12 * MS, State.IDLE)


def test_one_that_wants_more_waits_and_rests_where_its_limit_binds() -> None:
    parts = Parts()
    a = parts.add("a", HALF, HALF)
    parts.add("b")
    member = parts.hold(a)
    parts.at(40)
    member.standing = Standing.WAITS
    parts.grants.after_hold(a)
    assert (a.state, a.throttled, list(parts.tenants.waiting)) == (State.WAITING, True, ["a"])


def test_one_that_wants_nothing_any_more_pauses_nowhere() -> None:
    parts = Parts()
    a = parts.add("a", limit_ppm=WHOLE_PPM)
    parts.want(a)
    parts.shared.pause(a)
    parts.grants.rest(a)
    assert (a.state, parts.beside.paused, parts.tenants.waiting) == (State.IDLE, {}, {})
