"""A node made of its snapshot does what the one it was taken of does."""

from __future__ import annotations

import ast
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import rule, run_state_machine_as_test

from scheduler_backend import core
from scheduler_backend.core import events as ev
from scheduler_backend.core import snapshot
from scheduler_backend.core.gang import Gang
from scheduler_backend.core.ledger import Account, _Pending
from scheduler_backend.core.machine import TokenMachine
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.quota import Bursts
from scheduler_backend.core.seat import Member, Seat
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.core.window import Window
from tests.scheduler_backend.core.any_order import GPUS, SETTINGS, AnyOrder


def again(node: Node) -> Node:
    """Through JSON, as a trace has it."""
    state = json.loads(json.dumps(snapshot.taken(node)))
    found = snapshot.restored(state, len(node.machines), node.policy)
    assert snapshot.taken(found) == state
    return found


class Restored(AnyOrder):
    """Any order of events, and at any time the node is one made of its snapshot; the whole must replay as ever."""

    times = 0

    @rule()
    def is_restored(self) -> None:
        Restored.times += 1
        self.node = again(self.node)
        assert len(self.node.machines) == GPUS
        self.node.check()


def test_at_any_time_a_restored_node_goes_on_as_the_one_before_would() -> None:
    for _ in range(5):  # hypothesis leaves rules out as it likes: one run in ten restores fewer than twenty times
        run_state_machine_as_test(Restored, settings=settings(SETTINGS, max_examples=40))
        if Restored.times > 20:
            break
    assert Restored.times > 20


def played() -> Node:
    """Two tenants, one of which holds, the other next; one waits for memory."""
    node = Node(1, Policy(), 100, 5)
    for client, name in ((1, "a"), (2, "b"), (3, "b")):
        if client < 3:
            node.handle(ev.TenantAdded(TenantSpec(name, 400_000, 900_000, 1000)), 10)
        node.handle(ev.ClientJoined(name, client, (0,), (), ((0, 400),)), 20)
        node.handle(ev.TokenAsked(client, 0, 3 * MS, MS), 30)
    node.handle(ev.MemoryAsked(2, 0, 500, 0, 1), 40)
    return node


def test_what_stands_at_the_moment_is_kept() -> None:
    node = played()
    found = again(node)
    ours, theirs = found.machines[0], node.machines[0]
    assert ours.holder is ours.seats["a"]
    assert ours.waiting["b"] is ours.seats["b"]
    assert ours.prepared is not None
    assert ours.prepared == theirs.prepared
    assert found.accounts["b", 0].wake_ns == node.accounts["b", 0].wake_ns > 0
    assert found.epochs.last == node.epochs.last
    taken = node.epochs.take()
    assert (found.epochs.take(), ours.seats["a"].story) == (taken, type(ours.seats["a"].story)())


def test_a_snapshot_shares_nothing_with_the_node() -> None:
    node = played()
    state = snapshot.taken(node)
    before = copy.deepcopy(state)
    for now_ns in range(MS, 300 * MS, 5 * MS):
        node.handle(ev.Tick(), now_ns)
    assert state == before != snapshot.taken(node)


def test_a_constant_may_be_another_from_here_on() -> None:
    node = played()
    found = snapshot.restored(snapshot.taken(node), 1, Policy(quota_ns=5 * MS))
    assert found.machines[0].seats["a"].turn_ns < node.machines[0].seats["a"].turn_ns


def first(state: dict[str, Any], kind: str) -> list[Any]:
    return next(thing for thing in state["things"] if thing[0] == kind)


def test_one_of_another_version_is_refused() -> None:
    state = snapshot.taken(played())
    state["shapes"]["Seat"].remove("clock")
    with pytest.raises(snapshot.InvalidSnapshot, match="another version, whose Seat"):
        snapshot.restored(state, 1, Policy())


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.clear(),
        lambda state: state["things"].pop(),
        lambda state: state["things"].append(["Popen", "sh"]),
        lambda state: first(state, "Seat").pop(),
        lambda state: first(state, "Seat").__setitem__(1, ["Popen", "sh"]),
        lambda state: first(state, "TokenMachine").__setitem__(0, "Seat"),
        lambda state: state.update(things=7),
        lambda state: state.update(shapes=None),
        lambda state: first(state, "Node").__setitem__(1, ["@", 10_000]),
        lambda state: first(state, "Node").__setitem__(1, []),
    ],
)
def test_one_that_is_damaged_is_refused(damage: Any) -> None:
    state = snapshot.taken(played())
    damage(state)
    with pytest.raises(snapshot.InvalidSnapshot):
        snapshot.restored(state, 1, Policy())


def assigned(kind: type) -> set[str]:
    """The attributes that the source gives to one of these: all stand in its __init__."""
    path = Path(core.__file__).with_name(kind.__module__.rpartition(".")[2] + ".py")
    tree = ast.parse(path.read_text())
    (body,) = [found for found in tree.body if isinstance(found, ast.ClassDef) and found.name == kind.__name__]
    return {
        found.attr
        for found in ast.walk(body)
        if isinstance(found, ast.Attribute)
        and isinstance(found.ctx, ast.Store)
        and isinstance(found.value, ast.Name)
        and found.value.id == "self"
    }


def test_compiled_or_not_the_same_attributes_are_kept() -> None:
    spec = TenantSpec("a", gpus=(0, 1))
    node = Node(2, Policy())
    things = [
        node, node.gangs, *node.machines[0].parts(), Seat(spec, Policy(), 0), Member(1), Bursts(), Window(5),
        Account(0, 0, 0), Gang(spec), _Pending(ev.MemoryAsked(1, 0, 1, 0, 0), set(), set(), 0),
    ]  # fmt: skip
    for thing in things:
        left_out = snapshot.LEFT_OUT.get(type(thing).__name__, ())
        assert snapshot.names_of(thing) == sorted(assigned(type(thing)) - set(left_out))
    machine = set().union(*map(assigned, TokenMachine.__mro__[:-1]))
    assert snapshot.names_of(node.machines[0]) == sorted(machine - set(snapshot.LEFT_OUT["TokenMachine"]))
