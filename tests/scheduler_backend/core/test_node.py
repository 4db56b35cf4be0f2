"""The whole node: any order of events keeps the invariants, and tenants reach only what is theirs."""

from __future__ import annotations

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.tenant import TenantSpec
from tests.scheduler_backend.core.any_order import SETTINGS, AnyOrder

AnyOrder.TestCase.settings = SETTINGS
TestAnyOrder = AnyOrder.TestCase


def test_a_client_of_one_tenant_reaches_no_gpu_it_has_no_share_of():
    node = Node(2, Policy())
    node.handle(ev.TenantAdded(TenantSpec("b", 1, gpus=(0,))), 0)
    node.handle(ev.ClientJoined("b", 1, (0, 1)), 0)
    with pytest.raises(ev.RemoteProtocolError):
        node.handle(ev.TokenAsked(1, 1), 0)
    with pytest.raises(ev.RemoteProtocolError):
        node.handle(ev.MemoryAsked(2, 0, 1, 0, 1), 0)


def test_a_client_that_names_a_gpu_no_more_holds_nothing_there():
    node = Node(2, Policy())
    node.handle(ev.TenantAdded(TenantSpec("b", 500_000, gpus=(0, 1), memory_bytes=100)), 0)
    node.handle(ev.ClientJoined("b", 1, (0, 1), (), ((0, 50), (1, 50))), 0)
    node.handle(ev.ClientJoined("b", 1, (0,), (), ((0, 50),)), 1)
    assert [node.accounts["b", gpu].held for gpu in (0, 1)] == [{1: 50}, {}]
    node.handle(ev.ClientDied(1), 2)
    assert not any(seat.members for machine in node.machines for seat in machine.seats.values())
    node.check()
