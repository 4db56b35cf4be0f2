"""Standings: what is kept and mended is what would be worked out anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

import pytest

from gemini.cli.scenario import Scenario
from gemini.kube.pod import parse_ask, parse_pod
from gemini.placement.allocate import Allocator, Trial
from gemini.placement.book import Book
from gemini.placement.model import Ask, Device, Grant, Node, Placement
from gemini.placement.shape import Bools
from gemini.placement.standing import FEW, KEPT, Standings
from tests.gemini.placement.bed import cards, held

ONE = {"gemini.io/gpu-request": "0.3"}
PAIR = {"gemini.io/gpu-request": "1", "gemini.io/gpu-count": "2"}
TWO_TENANTS = {"gemini.io/gpu-request.a": "0.5", "gemini.io/gpu-request.b": "0.4"}
NODES = [f"n{n}" for n in range(12)]


def scenario(seed: int, policies: list[str]) -> Scenario:
    rng = random.Random(seed)
    placed = [held(f"a{n}", n, *((m, rng.choice([0, 20, 60, 100]), 0) for m in range(4))) for n in NODES]
    nodes = [cards(n, 4, ["16Gi", "80Gi"][i % 2]) for i, n in enumerate(NODES)]
    return Scenario({"nodes": nodes, "placed": placed, "policies": policies})


def asked(pod: str, says: dict[str, str]) -> Ask:
    if says is TWO_TENANTS:
        spec = {"containers": [{"name": "a"}, {"name": "b"}]}
        return parse_pod({"metadata": {"name": pod, "annotations": says}, "spec": spec}, name=pod).ask
    return parse_ask(pod, says).ask


def change(book: Book, rng: random.Random, numbers: Iterator[int]) -> None:
    """Something happens in the cluster."""
    kind, name = rng.randrange(6), rng.choice(NODES)
    node = book.node(name)
    if kind == 0 and node is not None and len(list(book.nodes())) > 6:
        book.drop_node(name)
    elif kind == 1:
        size = rng.choice([3, 4])
        book.put_node(Node(name, tuple(Device(m, uuid=f"{name}-{m}", memory=2**34) for m in range(size))))
    elif kind == 2 and (here := book.pods_on(name)):
        book.release(rng.choice(here))
    elif node is not None:
        grant = Grant("gpu", rng.randrange(len(node.devices)), rng.choice([10, 40, 100]), 0)
        book.place(Placement(f"s{next(numbers)}", name, (grant,)), strict=False)


@pytest.mark.parametrize(
    "policies",
    [[], ["binpack"], ["spread", "binpack"], ["fragment", "singular", "link"], ["node-spread", "best-link"]],
)
@pytest.mark.parametrize("says", [ONE, PAIR, TWO_TENANTS])
def test_what_is_kept_is_what_would_be_worked_out_anew(policies: list[str], says: dict[str, str]) -> None:
    run = scenario(3, policies)
    rng, numbers, kept = random.Random(7), count(), Standings(run.allocator)
    names = [*NODES, "nobody"]
    for step in range(150):
        for _ in range(rng.randrange(4)):
            change(run.book, rng, numbers)
        ask = asked(f"p{step}", says)
        known, anew = kept.of(ask), Standings(run.allocator).of(ask)
        assert known.fits(names).tolist() == anew.fits(names).tolist()
        assert known.ranks(names).tolist() == anew.ranks(names).tolist()
        able = set(run.allocator.possible(ask, NODES))
        assert {name for name, fits in zip(names, known.fits(names).tolist(), strict=True) if fits} == able
        some = rng.sample(names, rng.randrange(1, len(names)))
        best = known.short(some, 0)
        left = able.intersection(some)
        assert (best is None) == (not left)
        if best is not None and policies:  # the one that the allocator itself would take, or its equal
            ranks = dict(zip(names, known.ranks(names).tolist(), strict=True))
            chosen = run.allocator.choose(ask, some)
            assert chosen is not None
            assert ranks[best[0]] == ranks[chosen.node] == min(ranks[name] for name in left)
            assert known.choose(ask, best[0]) == run.allocator.choose(ask, best)
        for name in rng.sample(names, 3):
            assert known.choose(ask, name) == run.allocator.choose(ask, [name])
    assert len(kept) == 1


@pytest.mark.parametrize(("says", "scanned"), [(PAIR, [len(NODES), 1]), (ONE, [])])
def test_only_nodes_that_have_changed_are_looked_at_again(
    says: dict[str, str], scanned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = scenario(1, ["binpack"])
    kept, looked = Standings(run.allocator), []
    attempt = run.allocator.attempt

    def noted(ask: Ask, possible: Bools, **more: bool) -> Trial:
        looked.append(int(possible.sum()))
        return attempt(ask, possible, **more)

    monkeypatch.setattr(run.allocator, "attempt", noted)
    kept.of(asked("p", says))
    kept.of(asked("q", says))
    run.book.place(Placement("r", NODES[3], (Grant("gpu", 0, 10, 0),)), strict=False)
    kept.of(asked("s", says))
    run.book.place(Placement("t", "nobody", (Grant("gpu", 0, 10, 0),)), strict=False)
    kept.of(asked("u", says))
    assert looked == scanned, "one card on one node needs no scan"


def test_where_much_has_changed_a_simple_ask_is_scanned_as_well() -> None:
    many = [f"m{n}" for n in range(FEW + 1)]
    run = Scenario({"nodes": [cards(n, 2) for n in many], "placed": [], "policies": ["binpack"]})
    kept = Standings(run.allocator)
    assert kept.of(asked("p", ONE)).fits(many).all()
    for name in many:
        run.book.place(Placement(f"on-{name}", name, (Grant("gpu", 0, 80, 0), Grant("gpu", 1, 71, 0))), strict=False)
    assert not kept.of(asked("q", ONE)).fits(many).any()
    run.book.release(f"on-{many[4]}")
    assert kept.of(asked("r", ONE)).fits(many).tolist() == [name == many[4] for name in many]


def test_the_best_of_some_is_found_however_far_down_it_stands_and_avoided_nodes_come_last() -> None:
    placed = [held(f"a{n}", n, (0, 5 * i, 0)) for i, n in enumerate(NODES)]
    run = Scenario({"nodes": [cards(n, 1) for n in NODES], "placed": placed, "policies": ["binpack"]})
    standing = Standings(run.allocator).of(asked("p", ONE))
    ranks = dict(zip(NODES, standing.ranks(NODES).tolist(), strict=True))
    able = sorted((name for name in NODES if ranks[name] >= 0), key=lambda name: (ranks[name], NODES.index(name)))
    assert len({ranks[name] for name in able}) > 6, "there is a way down"
    for first in range(len(able)):
        assert standing.short(able[first:], 0) == able[first : first + 1]
        assert standing.short(able, 0, avoid=able[:first]) == able[first : first + 1]
    assert standing.short(able, 0, avoid=able) == able[:1]
    assert standing.short(able, len(able)) is None


def test_without_policies_the_first_will_do() -> None:
    run = scenario(4, [])
    standing = Standings(run.allocator).of(asked("p", ONE))
    able = [name for name in NODES if run.allocator.possible(asked("p", ONE), [name])]
    assert standing.short(NODES, 3) == able[:3]
    assert standing.short(NODES, 3, avoid=able[:2]) == able[2:5]
    assert standing.short(NODES, 3, avoid=able[1:]) == able[:1]
    assert standing.short(NODES, 3, avoid=able) == able[:3]


def test_kinds_of_ask_are_told_apart_and_only_the_last_are_kept() -> None:
    run = scenario(5, [])
    kept = Standings(run.allocator)
    asks = [asked(f"p{i}", {"gemini.io/gpu-request": f"{i + 1}%"}) for i in range(KEPT + 1)]
    for ask in asks:
        kept.of(ask)
    assert len(kept) == KEPT
    first = run.book.names[0]
    assert first is not None
    run.book.place(Placement("q", first, tuple(Grant("gpu", m, 95, 0) for m in range(4))), strict=False)
    assert [bool(kept.of(asks[i]).fits([first])[0]) for i in (0, 4, 5)] == [True, True, False]


def test_standing_of_no_nodes_and_of_unknown_ones() -> None:
    standing = Standings(Allocator(Book())).of(asked("p", ONE))
    assert standing.fits(["nobody"]).tolist() == [False]
    assert standing.ranks(["nobody"]).tolist() == [-1]
    assert standing.short(["nobody"], 0) is None
