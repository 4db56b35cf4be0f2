"""A node between two events as plain lists, numbers and texts, and a node made of them again: what a trace that does
not begin at the beginning begins with.

The attributes of each class are kept by name, whatever they are, so that one that is added is kept as well; those left
out are the policy's, which a replay may change, and what follows from the others. What is read back may come from
anybody: only the classes named here are made, each by its own constructor, and only the attributes they have are set.
A snapshot whose classes have others than ours is of another version, and refused.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from scheduler_backend.core import events as ev
from scheduler_backend.core.duty import Duty, Free
from scheduler_backend.core.gang import Gang
from scheduler_backend.core.ledger import Account, _Pending
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.quota import Bursts
from scheduler_backend.core.seat import Member, Seat, Standing, State
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.core.window import Window

LEFT_OUT: dict[str, tuple[str, ...]] = {
    "Node": ("policy", "epochs", "machines", "gangs", "_directed"),
    "TokenMachine": (
        "policy",
        "context",
        "tenants",
        "clock",
        "grant",
        "charges",
        "limits",
        "beside",
        "grants",
        "promises",
        "shared",
        "returns",
        "rows",
        "foresight",
        "tenure",
        "company",
        "residents",
        "delay",
        "restart",
        "reservation",
        "plan",
    ),
    "Context": ("gpu", "policy", "epochs", "actions"),
    "Tenants": ("policy",),
    "FairClock": ("policy", "tenants"),
    "CurrentGrant": ("context", "policy"),
    "Charges": ("context", "policy", "tenants", "clock", "grant", "delay"),
    "Promises": ("context", "policy", "tenants", "grant", "limits", "charges", "beside"),
    "MessageDelay": ("policy",),
    "HandoverPlan": ("gpu", "epochs"),
    "Gangs": ("_machines", "_direct"),
    "Seat": ("policy", "story", "_of_burst", "_of_turn", "_of_ppm", "_length"),
    "Account": ("_recall_ns",),
    "Window": ("window_ns",),
}
ENUMS: dict[str, Any] = {"State": State, "Standing": Standing}
PARTS = (  # of a node; as many as there are
    "Seat", "Member", "Bursts", "Duty", "Free", "Window", "Account", "_Pending", "Gang",
)  # fmt: skip
TUPLES: dict[str, Any] = {"TenantSpec": TenantSpec, "Prepare": ev.Prepare, "MemoryAsked": ev.MemoryAsked}


class InvalidSnapshot(ValueError):
    """No node can be made of it; the text says why."""


def fixed(node: Node) -> list[Any]:
    """Return what each node has once, in one order: itself, its gangs, its machines and their parts."""
    return [node, node.gangs, *node.machines, *[part for machine in node.machines for part in machine.parts()]]


def names_of(thing: Any) -> list[str]:
    """The names of its attributes that are kept, sorted; the same whether its class is compiled or not."""
    kind = type(thing)
    found = getattr(kind, "__mypyc_attrs__", None) or getattr(kind, "__slots__", None) or vars(thing)
    left_out = LEFT_OUT.get(kind.__name__, ())
    return sorted(name for name in found if name not in left_out)


class _Writer:
    """Numbers the things as they are met, and writes each once."""

    def __init__(self) -> None:
        self.shapes: dict[str, list[str]] = {}
        self.found: list[Any] = []
        self.numbers: dict[int, int] = {}  # id -> place in `found`, which keeps it alive

    def number(self, thing: Any) -> int:
        place = self.numbers.get(id(thing))
        if place is None:
            place = self.numbers[id(thing)] = len(self.found)
            self.found.append(thing)
        return place

    def attributes(self, thing: Any) -> list[Any]:
        kind = type(thing).__name__
        names = self.shapes.get(kind)
        if names is None:
            names = self.shapes[kind] = names_of(thing)
        return [kind, *[self.value(getattr(thing, name)) for name in names]]

    def value(self, value: Any) -> Any:
        """A number, a text or None as it is; all else as a list that begins with what it is."""
        kind = type(value)
        if kind is int or kind is str or kind is bool or value is None:
            return value
        if kind is tuple or kind is list or kind is deque:
            return [kind.__name__, *[self.value(item) for item in value]]
        if kind is dict:
            return ["dict", *[[self.value(key), self.value(item)] for key, item in value.items()]]
        if kind is set:
            return ["set", *sorted(value)]
        name = kind.__name__
        if name in ENUMS:
            return [name, value.value]
        if name in TUPLES:
            return [name, *[self.value(item) for item in value]]
        if name not in PARTS:
            raise TypeError(f"a snapshot keeps no {name}")
        return ["@", self.number(value)]


def taken(node: Node) -> dict[str, Any]:
    """The node's state, which JSON can hold. It shares nothing with the node; to be taken between two events."""
    writer = _Writer()
    for thing in fixed(node):
        writer.number(thing)
    things: list[Any] = []
    while len(things) < len(writer.found):  # it grows
        things.append(writer.attributes(writer.found[len(things)]))
    return {"last_epoch": node.epochs.last, "shapes": writer.shapes, "things": things}


class _Reader:
    """Makes the things, then sets what they are."""

    def __init__(self, node: Node, things: list[Any], policy: Policy) -> None:
        known = fixed(node)
        self.made = known + [_new(str(kind), policy) for kind, *_ in things[len(known) :]]
        for thing, (kind, *values) in zip(self.made, things, strict=True):
            if kind != type(thing).__name__:
                raise InvalidSnapshot("its parts are not those of this node")
            for name, value in zip(names_of(thing), values, strict=True):
                setattr(thing, name, self.value(value))

    def value(self, value: Any) -> Any:
        if type(value) is not list:
            return value
        name, *items = value
        if name == "@":
            return self.made[items[0]]
        if name == "tuple":
            return tuple([self.value(item) for item in items])
        if name == "list":
            return [self.value(item) for item in items]
        if name == "deque":
            return deque([self.value(item) for item in items])
        if name == "dict":
            return {self.value(key): self.value(item) for key, item in items}
        if name == "set":
            return set(items)
        if name in ENUMS:
            return ENUMS[name](items[0])
        return TUPLES[name](*[self.value(item) for item in items])


def _new(kind: str, policy: Policy) -> Any:
    """One of these as it begins."""
    spec = TenantSpec("")
    if kind == "Seat":
        return Seat(spec, policy, 0)
    if kind == "Member":
        return Member(0)
    if kind == "Bursts":
        return Bursts()
    if kind == "Duty":
        return Duty()
    if kind == "Free":
        return Free()
    if kind == "Window":
        return Window(policy.window_ns)
    if kind == "Account":
        return Account(0, 0, policy.recall_ns)
    if kind == "_Pending":
        return _Pending(ev.MemoryAsked(0, 0, 0, 0, 0), set(), set(), 0)
    if kind == "Gang":
        return Gang(spec)
    raise InvalidSnapshot(f"it has a {kind}, which is no part of a node")


def restored(state: Any, gpu_count: int, policy: Policy) -> Node:
    """The node of which `taken` told, under this policy. Raises InvalidSnapshot."""
    try:
        node = Node(gpu_count, policy, state["last_epoch"])
        shapes, things = state["shapes"], state["things"]
        for thing in (*fixed(node), *[_new(kind, policy) for kind in PARTS]):
            kind = type(thing).__name__
            if kind in shapes and shapes[kind] != names_of(thing):
                raise InvalidSnapshot("it is of another version, whose " + kind + " has other attributes")
        _Reader(node, things, policy)
        for machine in node.machines:
            machine.residents.share_free()
            machine.residents.share_turns()  # as they are under this policy
    except InvalidSnapshot:
        raise
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise InvalidSnapshot("it is damaged") from error
    return node
