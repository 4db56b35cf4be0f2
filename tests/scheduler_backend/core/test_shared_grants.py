"""Grants beside others by themselves."""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS, virtual
from scheduler_backend.core.seat import Standing, State
from scheduler_backend.core.shared_grants import COMPANY_CAME
from tests.scheduler_backend.core.parts import HALF, Parts, returned, standings


def test_one_that_is_admitted_runs_with_all_of_its_processes() -> None:
    parts = Parts()
    a = parts.add("a", processes=2)
    parts.want(a)
    parts.shared.admit(a)
    assert [type(action) for action in parts.done()] == [ev.Page, ev.Grant, ev.Grant, ev.Handed]
    assert all(told.shared and not told.contended for told in parts.done(ev.Grant))
    assert (a.state, list(parts.beside.sharing), parts.tenants.waiting) == (State.SHARED, ["a"], {})


def test_a_holder_beside_which_one_comes_is_to_say_what_it_uses() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.hold(a)
    parts.want(b)
    parts.shared.admit(b)
    assert a.alone_epoch == COMPANY_CAME
    (told,) = parts.done(ev.Extend)
    assert (told.client, told.shared) == (1, True)


def test_a_holder_in_turns_hears_of_the_first_that_comes_beside_it_before_that_may_run() -> None:
    """Else it takes what it measures for the length of its kernels, until it is told of a lease."""
    parts = Parts()
    a, b, c = parts.add("a", processes=2), parts.add("b"), parts.add("c")
    parts.hold(a)
    a.alone_epoch = 0  # others ran beside it, or waited, when its grant began
    parts.want(b)
    parts.shared.admit(b)
    assert [type(action) for action in parts.done()] == [ev.Extend, ev.Extend, ev.Page, ev.Grant, ev.Handed]
    assert all(told.shared for told in parts.done(ev.Extend))
    assert a.alone_epoch == 0
    parts.context.begin()
    parts.want(c)
    parts.shared.admit(c)
    assert not parts.done(ev.Extend)


def test_one_that_is_asked_to_stop_has_the_time_to_drain() -> None:
    parts = Parts()
    a = parts.add("a")
    parts.share(a)
    parts.at(5)
    parts.shared.close(a, ev.LIMIT)
    assert parts.done() == [ev.Revoke(1, 0, a.shared_epoch, ev.LIMIT)]
    assert (a.state, a.spent, a.shared_closing_ns) == (State.LEAVING, True, 5 * MS)
    policy = parts.policy
    assert a.members[1].lease_until_ns == 5 * MS + policy.lease_margin_ns + policy.cap_shared_ns


def test_when_its_last_process_has_drained_it_waits_like_all_others() -> None:
    parts = Parts()
    a = parts.add("a")
    parts.share(a)
    parts.at(5)
    parts.shared.close(a, ev.PREEMPT)
    parts.context.begin()
    parts.shared.take_back(a, a.members[1], returned(a.members[1], more=True, busy_ns=2 * MS))
    assert parts.done() == [ev.Page("a", 0, 0), ev.Charged("a", 0, a.shared_epoch, 2 * MS, 0, 2 * MS, 0)]
    assert (a.state, parts.beside.sharing, parts.grant.free_since_ns) == (State.WAITING, {}, 5 * MS)


def test_one_that_returns_and_wants_more_goes_on() -> None:
    parts = Parts()
    a = parts.add("a")
    parts.share(a)
    parts.shared.take_back(a, a.members[1], returned(a.members[1], more=True))
    assert (a.state, standings(a)) == (State.SHARED, [Standing.HOLDS])
    assert parts.done(ev.Grant)[0].joined


def test_one_that_drained_for_long_pays_the_others_and_has_turns_again() -> None:
    parts = Parts()
    a, _ = parts.add("a"), parts.add("b")
    parts.share(a)
    parts.shared.close(a, ev.PREEMPT)
    parts.at(104)
    before = a.clock
    a.shared_closing_ns = 1
    parts.shared.take_back(a, a.members[1], returned(a.members[1]))
    assert a.clock > before
    assert (a.state, a.duty.host_bound, parts.beside.host_bound) == (State.IDLE, False, set())


def test_turns_owe_one_that_comes_back_to_them_what_they_did() -> None:
    parts = Parts()
    a, _ = parts.add("a"), parts.add("b")
    parts.want(a)
    parts.clock.jump_to(virtual(4 * MS, HALF))
    parts.shared.pause(a)
    assert (a.state, list(parts.beside.paused), parts.tenants.waiting) == (State.PAUSED, ["a"], {})
    parts.clock.jump_to(virtual(100 * MS, HALF))
    parts.shared.compete(a)
    assert (a.state, parts.clock.lag_ns(a), parts.beside.paused) == (State.WAITING, 4 * MS, {})


def test_a_process_that_strays_is_told_that_its_lease_is_lost() -> None:
    parts = Parts()
    a = parts.add("a")
    parts.share(a)
    a.members[1].asks_again = True
    parts.shared.stray(a, 1, 0)
    assert parts.done() == [ev.Revoke(1, 0, a.shared_epoch, ev.LEASE)]
    assert standings(a) == [Standing.WAITS]
    parts.share(b := parts.add("b"))
    parts.shared.stray(b, 2, 7)
    assert (standings(b), b.members[2].stray_since_ns) == ([Standing.STRAY], 7)


def test_siblings_are_let_in_where_one_does_not_drain() -> None:
    parts = Parts()
    a = parts.add("a", processes=2)
    parts.share(a)
    first, second = a.members.values()
    second.standing = Standing.WAITS
    parts.shared.admit_waiting(a)
    (told,) = parts.done(ev.Grant)
    assert (told.client, told.quota_ns, told.contended) == (second.client, parts.policy.valve_ns, True)
    assert first.standing is Standing.HOLDS
