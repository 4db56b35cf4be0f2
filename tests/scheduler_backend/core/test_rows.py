"""The table of transitions without a machine that decides."""

from __future__ import annotations

from itertools import product

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.moves import Admit, Close, Drained, InvalidTransition, Lapse, Overrun, Prolong, Recall, Take
from scheduler_backend.core.policy import MS
from scheduler_backend.core.rows import TRANSITIONS
from scheduler_backend.core.seat import Standing, State
from tests.scheduler_backend.core.parts import Parts, returned, standings

MESSAGES = (ev.Used, ev.TokenAsked, ev.TokenRenewed, ev.TokenReturned, ev.ClientDied)


def test_every_message_of_a_client_has_a_row_in_every_state() -> None:
    missing = {(state, kind) for state, kind in product(State, MESSAGES) if (state, kind) not in TRANSITIONS}
    assert missing == {(State.IDLE, ev.Used)} - set(TRANSITIONS)


def test_what_has_no_row_is_a_bug_that_tells_what_happened_before() -> None:
    parts = Parts()
    a = parts.add("a")
    parts.rows.move(a, ev.TokenAsked(1, 0))
    with pytest.raises(InvalidTransition, match=r"a: Close while waiting: 0 idle TokenAsked.*; 0 waiting Close"):
        parts.rows.move(a, Close(ev.LIMIT))


def test_one_that_asks_waits_and_one_that_is_next_holds() -> None:
    parts = Parts()
    a, _ = parts.add("a"), parts.add("b")
    parts.rows.move(a, ev.TokenAsked(1, 0))
    assert (a.state, a.woken, standings(a)) == (State.WAITING, True, [Standing.WAITS])
    parts.rows.move(a, Take())
    assert [type(action) for action in parts.done()] == [ev.Page, ev.Grant, ev.Handed]
    assert (a.state, parts.grant.holder, parts.grant.epoch, parts.grant.quota_until_ns) == (State.HOLDING, a, 1, 9 * MS)


def test_a_prepared_hand_over_has_the_epoch_and_quota_it_was_told_of() -> None:
    parts = Parts()
    a, _ = parts.add("a"), parts.add("b")
    parts.want(a)
    parts.rows.move(a, Take(7, 4 * MS))
    assert (parts.grant.epoch, parts.grant.quota_until_ns) == (7, 4 * MS)


def test_one_that_drained_by_a_prepared_hand_over_is_expected_back() -> None:
    parts = Parts()
    a = parts.add("a")
    member = parts.hold(a)
    parts.at(5)
    parts.rows.move(a, Drained())
    assert (a.state, a.returning, member.span_ns) == (State.IDLE, True, 5 * MS)
    parts.rows.move(a, returned(member, more=True, busy_ns=4 * MS, held_ns=5 * MS))
    assert (a.state, a.returning, member.span_ns) == (State.WAITING, False, 0)


def test_a_holder_that_is_asked_back_drains_and_may_not_be_prolonged() -> None:
    parts = Parts()
    a = parts.add("a")
    parts.hold(a)
    parts.rows.move(a, Prolong(5 * MS))
    assert parts.grant.quota_until_ns == 15 * MS
    parts.at(3)
    parts.rows.move(a, Recall(ev.PREEMPT))
    assert parts.done() == [ev.Revoke(1, 0, 1, ev.PREEMPT)]
    assert (a.state, parts.grant.closing_ns) == (State.CLOSING, 3 * MS)
    with pytest.raises(InvalidTransition):
        parts.rows.move(a, Prolong(5 * MS))


@pytest.mark.parametrize("move", [Lapse(1), Overrun(1)])
def test_a_process_that_does_not_drain_strays_and_the_token_is_free(move: Lapse | Overrun) -> None:
    parts = Parts()
    a = parts.add("a")
    member = parts.hold(a)
    parts.at(50)
    parts.rows.move(a, move)
    assert (member.standing, parts.grant.holder, a.state) == (Standing.STRAY, None, State.IDLE)
    assert bool(member.stray_since_ns) is isinstance(move, Overrun)
    parts.restart.expect([1], 1000 * MS)
    parts.rows.move(a, returned(member))
    assert (member.standing, parts.restart.unheard) == (Standing.QUIET, set())


def test_an_old_word_is_answered_and_changes_nothing() -> None:
    parts = Parts()
    a = parts.add("a")
    parts.rows.move(a, ev.TokenRenewed(1, 0, 1))
    assert (parts.done(), a.state) == ([ev.Revoke(1, 0, 1, ev.LEASE)], State.IDLE)


def test_a_sibling_is_let_in_where_a_drain_was_not_foreseen() -> None:
    parts = Parts()
    a = parts.add("a", processes=2)
    first = parts.hold(a)
    second = a.members[11]
    second.standing = Standing.WAITS
    parts.rows.move(a, ev.TokenRenewed(first.client, 0, first.epoch, draining=True, foreseen=True))
    assert parts.done(ev.Grant) == []
    parts.rows.move(a, ev.TokenRenewed(first.client, 0, first.epoch, draining=True))
    assert [told.client for told in parts.done(ev.Grant)] == [second.client]


def test_one_that_is_host_bound_runs_beside_others_until_it_has_drained() -> None:
    parts = Parts()
    a = parts.add("a")
    parts.want(a)
    parts.rows.move(a, Admit())
    parts.rows.move(a, ev.Used(1, 0, a.shared_epoch, 0))
    parts.rows.move(a, Close(ev.PREEMPT))
    parts.rows.move(a, ev.TokenRenewed(1, 0, a.shared_epoch, draining=True, foreseen=True))
    parts.rows.move(a, returned(a.members[1]))
    assert (a.state, parts.beside.sharing) == (State.IDLE, {})
