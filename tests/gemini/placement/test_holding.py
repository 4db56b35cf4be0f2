"""What a pod holds of a device: always + max(sum of apps, largest init)."""

from __future__ import annotations

import pytest

from gemini.placement.holding import Held, Holding
from gemini.placement.model import Grant, Placement, Role

ALWAYS, APP, INIT = Role.ALWAYS, Role.APP, Role.INIT


@pytest.mark.parametrize(
    ("parts", "total"),
    [
        ([], (0, 0, 0)),
        ([(ALWAYS, 10, 1)], (10, 1, 1)),
        ([(ALWAYS, 10, 1), (APP, 20, 2), (APP, 30, 3)], (60, 6, 3)),
        ([(APP, 20, 2), (APP, 30, 3), (INIT, 40, 9)], (50, 9, 2)),
        ([(ALWAYS, 10, 1), (INIT, 40, 2), (INIT, 30, 9)], (50, 10, 2)),
    ],
)
def test_what_is_held_is_always_and_the_greater_of_apps_and_init(
    parts: list[tuple[Role, int, int]], total: tuple[int, int, int]
) -> None:
    held = Held()
    for role, core, memory in parts:
        held = held.plus(Grant("gpu", 0, core, memory, 0, role))
    assert held.total() == total


@pytest.mark.parametrize("initialized", [False, True])
@pytest.mark.parametrize("roles", [(), (ALWAYS,), (APP,), (INIT,), (INIT, APP), (ALWAYS, APP, INIT)])
def test_amounts_are_what_each_device_adds_up_to(roles: tuple[Role, ...], initialized: bool) -> None:
    grants = tuple(Grant("gpu", i % 2, 10 + i, 2 * i, i, role) for i, role in enumerate(roles))
    holding = Holding(Placement("p", "n", grants), initialized)
    assert holding.amounts() == {where: held.total() for where, held in holding.devices().items()}
    assert holding.holds("gpu") is bool(holding.devices())
    assert not holding.holds("rdma")


def test_init_containers_that_have_ended_hold_nothing() -> None:
    grants = (Grant("gpu", 0, 20, 2, 0, APP), Grant("gpu", 0, 50, 1, 1, INIT), Grant("rdma", 1, 10, 0, 1, INIT))
    placement = Placement("p", "n", grants)
    before, after = (
        {at: held.total() for at, held in Holding(placement, done).devices().items()} for done in (False, True)
    )
    assert before == {("gpu", 0): (50, 2, 1), ("rdma", 1): (10, 0, 1)}
    assert after == {("gpu", 0): (20, 2, 1)}
