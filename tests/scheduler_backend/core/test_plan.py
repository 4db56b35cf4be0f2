"""The plan of hand-overs by itself: what is told, and what stands."""

from __future__ import annotations

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.moves import Epochs
from scheduler_backend.core.plan import HandoverPlan
from scheduler_backend.core.policy import MS


def order(tenant: str, client: int, quota_ns: int = 10 * MS, wanting_from_ns: int = 0) -> ev.Prepare:
    """A hand-over from a, which holds epoch 1, to this tenant."""
    return ev.Prepare(0, 1, "a", 1, tenant, (client,), 0, quota_ns, 2 * quota_ns, MS, True, 0, wanting_from_ns)


def planned(*tenants: str) -> tuple[HandoverPlan, list[ev.Action]]:
    """A plan in which these come after each other, and what was told of it."""
    plan, told = HandoverPlan(0, Epochs(1)), []
    orders = [order(tenant, client) for client, tenant in enumerate(tenants, start=2)]
    actions: list[ev.Action] = told
    first = plan.put(orders[0], actions)
    assert first is not None
    plan.put_behind(first, orders[1:], actions)
    return plan, actions


def test_orders_have_epochs_and_each_stands_behind_the_one_before() -> None:
    plan, told = planned("b", "c", "d")
    assert plan.prepared is not None
    assert told == [plan.prepared, *plan.behind]
    assert [each.epoch for each in (plan.prepared, *plan.behind)] == [2, 3, 4]
    assert [(each.after, each.holder_epoch) for each in plan.behind] == [(2, 2), (3, 3)]


def test_what_stands_as_it_was_is_not_told_again() -> None:
    plan, _ = planned("b", "c")
    actions: list[ev.Action] = []
    first = plan.put(order("b", 2, 11 * MS), actions)
    assert first is not None
    assert first == plan.prepared
    plan.put_behind(first, [order("c", 3)], actions)
    assert actions == []


def test_another_time_is_told_and_has_the_same_epoch() -> None:
    plan, _ = planned("b")
    actions: list[ev.Action] = []
    plan.put(order("b", 2, wanting_from_ns=5), actions)
    assert plan.prepared is not None
    assert actions == [plan.prepared]
    assert (plan.prepared.epoch, plan.prepared.wanting_from_ns) == (2, 5)


def test_another_order_takes_the_place_of_all_that_stood_behind() -> None:
    plan, _ = planned("b", "c")
    actions: list[ev.Action] = []
    first = plan.put(order("d", 4), actions)
    assert first is not None
    assert (first.epoch, plan.behind) == (4, [])


def test_what_is_not_certain_any_more_is_off() -> None:
    plan, _ = planned("b", "c", "d")
    actions: list[ev.Action] = []
    first = plan.put(order("b", 2), actions)
    assert first is not None
    plan.put_behind(first, [order("c", 3)], actions)
    assert actions == [ev.Unprepare(0, 4)]
    actions.clear()
    assert plan.put(None, actions) is None
    assert actions == [ev.Unprepare(0)]
    assert (plan.prepared, plan.behind) == (None, [])
    actions.clear()
    assert plan.put(None, actions) is None
    assert actions == []


def test_when_the_first_was_carried_out_the_next_is_first() -> None:
    plan, _ = planned("b", "c")
    done = plan.carry_out(ev.Carried(0, 1, 2, False), 7)
    assert done.tenant == "b"
    assert plan.prepared is not None
    assert (plan.prepared.tenant, plan.prepared.after, plan.prepared.wanting_from_ns) == ("c", 0, 7)
    assert plan.carry_out(ev.Carried(0, 2, 3, False), 9).tenant == "c"
    assert plan.prepared is None


def test_only_what_was_prepared_can_be_carried_out() -> None:
    plan, _ = planned("b")
    with pytest.raises(ev.LocalProtocolError, match="was carried out"):
        plan.carry_out(ev.Carried(0, 1, 3, False), 7)
    with pytest.raises(ev.LocalProtocolError, match="None was prepared"):
        HandoverPlan(0, Epochs()).carry_out(ev.Carried(0, 1, 2, False), 7)
