"""What contexts take, by itself, on cards that cannot say what a process holds."""

from __future__ import annotations

from libhook.core import lib
from scheduler_backend.context_cost import MOST_LOOKS, ContextCost
from scheduler_backend.endpoint import Client
from tests.scheduler_backend.serve import GPUS


def test_before_a_look_nothing_is_known_and_after_one_in_vain_that_is_said() -> None:
    cost, client = ContextCost(GPUS), Client(1, "a", 1)
    assert cost.of(client, 0, lib.WIRE_CONTEXT_KNOWN) == 0
    assert cost.of(client, 0, 5) == 0
    assert cost.of(client, 0, lib.WIRE_CONTEXT_KNOWN) == lib.WIRE_CONTEXT_KNOWN
    assert cost.of(client, 1, lib.WIRE_CONTEXT_KNOWN) == 0


def test_what_is_known_of_a_tenant_is_said_to_all_of_its_processes_and_not_measured_again() -> None:
    cost = ContextCost(GPUS)
    cost.bytes["a", 0] = 300
    assert cost.of(Client(1, "a", 1), 0, lib.WIRE_CONTEXT_KNOWN) == 300
    assert cost.of(Client(2, "a", 2), 0, 7) == 300
    assert cost.looks == {}


def test_a_card_that_cannot_say_is_not_asked_for_ever() -> None:
    cost, client = ContextCost(GPUS), Client(1, "a", 1)
    for _ in range(MOST_LOOKS + 5):
        cost.of(client, 0, 5)
    assert cost.looks == {("a", 0): MOST_LOOKS}


def test_a_tenant_that_is_gone_is_forgotten() -> None:
    cost = ContextCost(GPUS)
    cost.of(Client(1, "a", 1), 1, 5)
    cost.of(Client(2, "b", 2), 0, 5)
    cost.forget("a")
    cost.forget("never there")
    assert set(cost.looks) == set(cost.bytes) == {("b", 0)}
