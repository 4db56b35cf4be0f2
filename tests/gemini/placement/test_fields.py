"""Every field of Want, by all that answer it: the scan, the single card, what is kept of all nodes, and the oracle.

SAMPLES has a want for each field, on a cluster where saying it makes a difference. A field without one fails here; one
that `single.py` or the extender's Standing does not know of must not be answered by them alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pytest

from gemini.cli.scenario import Scenario
from gemini.placement.allocate import Allocator
from gemini.placement.book import Book
from gemini.placement.model import AMOUNTS, Ask, Role, Tenant, Want
from gemini.placement.reasons import Reason
from gemini.placement.single import single_of
from gemini.placement.standing import Standing
from tests.gemini.placement.bed import GIB, cards, gpu, held, node
from tests.gemini.placement.oracle import Wish, World

FIELDS = [one.name for one in fields(Want)]
POLICIES = ("binpack",)
PLAIN = Want(core=30)


@dataclass(frozen=True)
class Sample:
    """`wish`: the same for the oracle; None where it does not know such an ask (a type, core by memory)."""

    want: Want
    wish: Wish | None
    plain: Want = PLAIN


SAMPLES = {
    "type": Sample(Want(type="rdma", core=30), None),
    "count": Sample(Want(count=2, core=100), Wish(100, count=2), Want(core=100)),
    "core": Sample(Want(core=60), Wish(60)),
    "memory": Sample(Want(core=30, memory=12 * GIB), Wish(30, memory=12 * GIB)),
    "ratio": Sample(Want(core=30, ratio=70), Wish(30, ratio=70)),
    "follows": Sample(Want(core=60, ratio=60, follows=True), Wish(60, ratio=60)),
    "by_memory": Sample(Want(ratio=60, by_memory=True), None),
    "models": Sample(Want(core=30, models=frozenset({"B"})), Wish(30, models=("B",))),
    "uuids": Sample(Want(core=30, uuids=frozenset({"GPU-b1"})), Wish(30, uuids=("GPU-b1",))),
    "excluded": Sample(Want(core=30, excluded=frozenset({"GPU-a0"})), Wish(30, excluded=("GPU-a0",))),
    "scope": Sample(
        Want(count=2, core=100, scope="numa"), Wish(100, count=2, scope="numa"), Want(count=2, core=100)
    ),
    "joint": Sample(Want(core=30, joint=(("rdma", 50),)), Wish(30, rdma=50)),
}  # fmt: skip


def cluster() -> dict[str, Any]:
    """Three nodes: `a` is fullest and has no known places, `b` has other cards with places and rdma, `c` has one."""
    placed = [held("p", "a", (0, 50, 8 * GIB)), held("q", "b", (0, 20, 4 * GIB))]
    devices = [gpu(m, model="B", numa=m // 2, pcie=str(m // 2)) for m in range(4)]
    named = [{**device, "uuid": f"GPU-b{device['minor']}"} for device in devices]
    rdma = {"type": "rdma", "minor": 0, "pcie": "1"}
    first = node("a", *({**gpu(m, model="A"), "uuid": f"GPU-a{m}"} for m in range(3)))
    return {"nodes": [first, node("b", *named, rdma), cards("c", 1)], "placed": placed, "policies": list(POLICIES)}


def whole(scenario: dict[str, Any]) -> dict[str, Any]:
    """With what the oracle wants said."""
    nodes = [
        {**one, "devices": [{"health": True, "cordoned": False, "model": "", "uuid": "", **d} for d in one["devices"]]}
        for one in scenario["nodes"]
    ]
    for one in nodes:
        for device in one["devices"]:
            device["memory"] = 16 * GIB if device["type"] == "gpu" else 0
    return {**scenario, "nodes": nodes}


def world() -> World:
    scenario = whole(cluster())
    made = World(scenario)
    for pod in scenario["placed"]:
        made.held[pod["pod"]] = [
            (pod["node"], "gpu", d["minor"], d["core"], d["memory"]) for d in pod["devices"]
        ]  # fmt: skip
    return made


def book() -> Book:
    return Scenario({**cluster(), "asks": []}).book


def ask(want: Want) -> Ask:
    return Ask("pod", (Tenant(("main",), Role.ALWAYS, (want,)),))


def answers(want: Want) -> dict[str, Any]:
    """Node -> what it would give, by the scan."""
    made = book()
    allocator = Allocator(made, POLICIES)
    trial = allocator.attempt(ask(want), made.present)
    found = {}
    for ordinal, name in enumerate(made.names):
        if name is not None and trial.possible[ordinal]:
            found[name] = allocator.placement(ask(want), trial, ordinal).grants
    return found


@pytest.mark.parametrize("field", FIELDS)
def test_a_want_is_given_for_each_field_and_saying_it_makes_a_difference(field: str) -> None:
    assert field in SAMPLES, f"SAMPLES of {__name__} has no want that says {field}"
    sample = SAMPLES[field]
    assert getattr(sample.want, field) != next(one.default for one in fields(Want) if one.name == field)
    assert answers(sample.want) != answers(sample.plain), f"nothing comes of {field}"


@pytest.mark.parametrize("field", FIELDS)
def test_scan_single_card_and_what_is_kept_of_nodes_agree(field: str) -> None:
    want = SAMPLES[field].want
    made, scanned = book(), answers(want)
    allocator = Allocator(made, POLICIES)
    single, standing = single_of(ask(want), POLICIES), Standing(allocator, ask(want))
    standing.refresh()
    assert (single is None) is (field not in AMOUNTS)
    names = [name for name in made.names if name is not None]
    assert [name for name, fits in zip(names, standing.fits(names), strict=True) if fits] == sorted(scanned)
    for name in names:
        chosen = allocator.choose(ask(want), [name])
        assert (chosen.grants if chosen else None) == scanned.get(name)
        kept = standing.choose(ask(want), name)
        assert (kept.grants if kept else None) == scanned.get(name)


@pytest.mark.parametrize("field", FIELDS)
def test_the_oracle_says_the_same_and_who_is_refused_has_a_reason(field: str) -> None:
    sample = SAMPLES[field]
    scanned = answers(sample.want)
    why = Allocator(book(), POLICIES).explain(ask(sample.want))
    assert set(why) == {"a", "b", "c"} - set(scanned)
    assert {refusal.reason for refusal in why.values()} <= {reason.text for reason in Reason}
    if sample.wish is None:
        return
    judge = world()
    sample.wish.policies = POLICIES
    able = {judge.nodes()[n]["name"] for n, _ in judge.choices(sample.wish, POLICIES)}
    assert able == set(scanned)
    best = judge.choose(sample.wish)
    chosen = Allocator(book(), POLICIES).choose(ask(sample.want))
    assert best is not None
    assert chosen is not None
    got = tuple(sorted(grant.minor for grant in chosen.grants if grant.type == "gpu"))
    assert (chosen.node, got) == (judge.nodes()[best[0]]["name"], best[1])
