"""What a Return does, without the table that asks for it."""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS
from scheduler_backend.core.seat import Standing, State
from tests.scheduler_backend.core.parts import Parts, returned, standings


def test_the_last_process_that_returns_ends_the_grant() -> None:
    parts = Parts()
    a = parts.add("a", processes=2)
    parts.hold(a)
    one, other = a.members.values()
    parts.at(4)
    parts.returns.take(a, returned(one, busy_ns=3 * MS, held_ns=4 * MS))
    assert (a.state, standings(a), parts.done(ev.Charged)) == (State.HOLDING, [Standing.QUIET, Standing.HOLDS], [])
    parts.returns.take(a, returned(other, more=True, busy_ns=MS, held_ns=4 * MS))
    assert (a.state, standings(a)) == (State.WAITING, [Standing.QUIET, Standing.WAITS])
    (charged,) = parts.done(ev.Charged)
    assert (charged.epoch, charged.busy_ns) == (1, 4 * MS)


def test_one_that_returns_and_wants_more_joins_what_siblings_hold_still() -> None:
    parts = Parts()
    a = parts.add("a", processes=2)
    parts.hold(a)
    one, _ = a.members.values()
    parts.at(1)
    parts.returns.take(a, returned(one, more=True, held_ns=MS))
    assert (a.state, standings(a)) == (State.HOLDING, [Standing.HOLDS, Standing.HOLDS])
    assert [(grant.client, grant.epoch, grant.joined) for grant in parts.done(ev.Grant)] == [(1, 1, True)]


def test_a_return_of_another_epoch_is_late_and_only_its_wish_counts() -> None:
    parts = Parts()
    a = parts.add("a")
    member = parts.hold(a)
    old = returned(member, more=True, busy_ns=4 * MS)._replace(epoch=member.epoch + 1)
    parts.returns.take(a, old)
    assert (a.state, standings(a), parts.done()) == (State.HOLDING, [Standing.HOLDS], [])
    parts.returns.take(a, returned(member, held_ns=MS))
    assert a.state is State.IDLE
    parts.context.begin()
    parts.returns.take_late(a, old)
    assert (a.state, standings(a), parts.done(ev.Charged)) == (State.WAITING, [Standing.WAITS], [])


def test_the_late_return_of_one_that_strayed_ends_that_and_a_restart_waits_for_it_no_more() -> None:
    parts = Parts()
    a = parts.add("a")
    member = parts.hold(a)
    a.stray(member)
    parts.grants.after_hold(a)
    parts.restart.expect([member.client], 100 * MS)
    parts.returns.take_late(a, returned(member, busy_ns=2 * MS, held_ns=2 * MS))
    assert (a.state, standings(a), parts.restart.unheard) == (State.IDLE, [Standing.QUIET], set())


def test_one_that_drained_by_a_prepared_hand_over_returns_without_a_new_place_among_the_others() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    member = parts.hold(a)
    parts.at(5)
    parts.returns.expect(a)
    assert (a.state, a.returning, member.span_ns) == (State.IDLE, True, 5 * MS)
    parts.hold(b)
    clock = a.clock
    parts.returns.take_late(a, returned(member, more=True, busy_ns=4 * MS, held_ns=5 * MS))
    assert (a.state, a.returning, member.span_ns, a.clock) == (State.WAITING, False, 0, clock)


def test_beside_others_a_return_ends_its_grant_and_a_late_wish_joins_the_one_of_now() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.share(a, b)
    (member,) = a.members.values()
    parts.returns.take_shared(a, returned(member, busy_ns=MS, held_ns=2 * MS))
    assert (a.state, standings(a)) == (State.IDLE, [Standing.QUIET])
    (of_b,) = b.members.values()
    of_b.standing = Standing.QUIET
    parts.context.begin()
    parts.returns.take_shared(b, returned(of_b, more=True))
    assert standings(b) == [Standing.HOLDS]
    assert [(grant.client, grant.joined) for grant in parts.done(ev.Grant)] == [(of_b.client, True)]
