"""The order for the hand-over to come, without a machine. test_ahead.py has what becomes of it."""

from __future__ import annotations

import pytest

from scheduler_backend.core.ahead import NEVER_NS, TOLD_AHEAD, Foresight
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.seat import State
from tests.scheduler_backend.core.parts import HALF, Parts


def made(parts: Parts) -> Foresight:
    """It, of these parts."""
    return Foresight(
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


def test_the_one_that_waits_is_next_from_shortly_before_the_quota_ends() -> None:
    parts = Parts()
    foresight = made(parts)
    a, b = parts.add("a"), parts.add("b")
    assert foresight.next_order() is None
    parts.want(b)
    parts.hold(a)
    order = foresight.next_order()
    assert order is not None
    assert (order.holder_tenant, order.tenant, order.clients, order.epoch) == ("a", "b", (2,), 0)
    assert (order.quota_ns, order.wanting_from_ns) == (9 * MS, 8 * MS)


def test_where_the_holder_would_be_picked_again_the_order_is_for_when_it_wants_no_more() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b", 0)
    parts.want(b)
    parts.hold(a)
    order = made(parts).next_order()
    assert order is not None
    assert (order.tenant, order.wanting_from_ns) == ("b", NEVER_NS)


def test_a_holder_that_drains_hands_on_at_once() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.want(b)
    parts.hold(a)
    a.state = State.CLOSING
    order = made(parts).next_order()
    assert order is not None
    assert order.wanting_from_ns == 0


@pytest.mark.parametrize("why", ["two processes", "a gang's token", "those of before a restart", "a favoured tenant"])
def test_there_is_none_where_it_is_not_certain(why: str) -> None:
    parts = Parts()
    a, b = parts.add("a", processes=2 if why == "two processes" else 1), parts.add("b")
    parts.want(b)
    parts.hold(a)
    if why == "a gang's token":
        parts.reservation.keep("g")
    elif why == "those of before a restart":
        parts.restart.expect([9], 1000 * MS)
    elif why == "a favoured tenant":
        parts.beside.favour("b", 50 * MS)
    assert made(parts).next_order() is None


def test_of_many_processes_some_are_told_ahead() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b", processes=TOLD_AHEAD + 3)
    parts.want(b)
    parts.hold(a)
    order = made(parts).next_order()
    assert order is not None
    assert (len(order.clients), order.more) == (TOLD_AHEAD, 3)


def test_behind_it_come_the_turns_that_follow_and_nothing_is_changed_by_the_look() -> None:
    parts = Parts()
    seats = [parts.add(name, HALF // 2) for name in "abcd"]
    parts.want(*seats[1:])
    parts.hold(seats[0])
    foresight = made(parts)
    before = [(seat.clock, seat.arrived, seat.held_ns, seat.due_ns) for seat in seats]
    order = foresight.next_order()
    assert order is not None
    assert [order.tenant, *[each.tenant for each in foresight.orders_behind(order)]] == ["b", "c", "d"]
    assert [(seat.clock, seat.arrived, seat.held_ns, seat.due_ns) for seat in seats] == before


def test_there_are_none_behind_where_the_ordering_plans_nothing_ahead() -> None:
    parts = Parts(Policy(ordering="fifo"))
    seats = [parts.add(name, HALF // 2) for name in "abc"]
    parts.want(*seats[1:])
    parts.hold(seats[0])
    foresight = made(parts)
    order = foresight.next_order()
    assert order is not None
    assert foresight.orders_behind(order) == []
