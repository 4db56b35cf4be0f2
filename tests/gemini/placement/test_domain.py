"""Groups over several nodes: in one domain of the level that they wish for, on the fewest nodes, or not at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemini.kube import names
from gemini.kube.group import domain
from gemini.kube.pod import parse_ask
from gemini.placement.allocate import Allocator
from gemini.placement.book import Book
from gemini.placement.domain import Members, everybody, place_within
from gemini.placement.group import Budget
from gemini.placement.model import NODE_LEVEL, Ask, Device, Node, Placement
from tests.gemini.placement.bed import answers, ask, cards, held, minors, reason, where

ZONE, RACK, CLIQUE = (names.LEVEL_LABELS[level] for level in ("zone", "rack", "nvlink"))


def members(count: int, **says: Any) -> list[dict[str, Any]]:
    return [ask(f"p{i}", pod_group="g", pod_group_size=str(count), **says) for i in range(count)]


def at(name: str, count: int, **labels: str) -> dict[str, Any]:
    known = {"zone": ZONE, "rack": RACK, "nvlink": CLIQUE}
    return cards(name, count, labels={known.get(key, f"example.com/{key}"): value for key, value in labels.items()})


def nodes_of(placements: list[dict[str, Any]]) -> list[str]:
    return [where(one)[0] for one in placements]


def test_the_narrowest_level_has_one_name() -> None:
    assert names.LEVEL_NODE == NODE_LEVEL


def test_sixteen_cards_on_two_nodes() -> None:
    made = [at("n1", 8, zone="a"), at("n2", 8, zone="b"), at("n3", 8, zone="b")]
    placements = answers(made, *members(16, gpu_request="1", pod_group_required_topology="zone"))
    assert nodes_of(placements) == ["n2"] * 8 + ["n3"] * 8
    assert sorted(minors(one)[0] for one in placements) == sorted([*range(8), *range(8)])


@pytest.mark.parametrize("level", ["zone", "rack", "nvlink", "example.com/row"])
def test_a_group_stays_within_one_domain(level: str) -> None:
    key = level.removeprefix("example.com/")
    made = [at("n1", 2, **{key: "a"}), at("n2", 2, **{key: "b"}), at("n3", 2, **{key: "a"})]
    placements = answers(made, *members(4, gpu_request="1", pod_group_required_topology=level))
    assert nodes_of(placements) == ["n1", "n1", "n3", "n3"]
    placements = answers(made, *members(5, gpu_request="1", pod_group_required_topology=level))
    assert {reason(one, name) for one in placements for name in ("n1", "n2", "n3")} == {"GroupDoesNotFit"}


def test_what_is_preferred_comes_first_and_what_is_required_holds() -> None:
    made = [at("n1", 2, zone="a", rack="1"), at("n2", 2, zone="a", rack="2"), at("n3", 2, zone="a", rack="2")]
    says = {"gpu_request": "1", "pod_group_required_topology": "zone", "pod_group_preferred_topology": "rack"}
    assert nodes_of(answers(made, *members(4, **says))) == ["n2", "n2", "n3", "n3"]
    assert nodes_of(answers(made, *members(5, **says))) == ["n1", "n1", "n2", "n2", "n3"]
    alone = {"gpu_request": "1", "pod_group_preferred_topology": "rack"}
    made[0]["labels"][ZONE] = "b"
    assert nodes_of(answers(made, *members(5, **alone))) == ["n1", "n1", "n2", "n2", "n3"]
    assert reason(answers(made, *members(5, **says))[0], "n1") == "GroupDoesNotFit"


def test_one_node_is_better_than_two_and_two_than_three() -> None:
    made = [at("n1", 2), at("n2", 3), at("n3", 4)]
    says = {"gpu_request": "1", "pod_group_required_topology": "cluster"}
    assert nodes_of(answers(made, *members(4, **says))) == ["n3"] * 4
    assert nodes_of(answers(made, *members(6, **says))) == ["n3"] * 4 + ["n1"] * 2  # n1 takes just what is left
    assert nodes_of(answers(made, *members(7, **says))) == ["n3"] * 4 + ["n2"] * 3


def test_a_node_without_the_label_is_a_domain_of_its_own() -> None:
    made = [at("n1", 2), at("n2", 2)]
    says = {"gpu_request": "1", "pod_group_required_topology": "rack"}
    assert reason(answers(made, *members(3, **says))[0], "n1") == "GroupDoesNotFit"
    assert nodes_of(answers(made, *members(2, **says))) == ["n1", "n1"]


def test_a_replaced_member_stays_in_the_domain_of_those_that_run() -> None:
    made = [at("n1", 4, zone="b"), at("n2", 2, zone="a"), at("n3", 2, zone="a"), at("n4", 2, zone="b")]
    first = members(4, gpu_request="1", pod_group_required_topology="zone")
    again = {**first[3], "pod": "again"}
    busy = [held("x", "n1", (0, 100, "16Gi"), (1, 100, "16Gi"))]  # so that the first go to zone a
    placements = answers(made, *first, {"release": "p3"}, again, placed=busy)
    zones = {"n1": "b", "n2": "a", "n3": "a", "n4": "b"}
    assert len({zones[name] for name in nodes_of(placements)}) == 1


def test_members_that_differ_find_their_places() -> None:
    made = [at("n1", 2, zone="a"), at("n2", 3, zone="a")]
    sizes = ("1", "1", "1", "2")
    asks = [
        ask(f"p{i}", pod_group="g", pod_group_size="4", pod_group_required_topology="zone", gpu_count=size)
        for i, size in enumerate(sizes)
    ]
    placements = answers(made, *asks)
    assert [len(minors(one)) for one in placements] == [1, 1, 1, 2]
    assert sorted(nodes_of(placements)) == ["n1", "n2", "n2", "n2"] or sorted(nodes_of(placements)) == [
        "n1", "n1", "n2", "n2",
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["pod_group_required_topology", "pod_group_preferred_topology"])
def test_members_that_wish_for_other_levels_are_refused_in_one_line(key: str) -> None:
    asks = [ask("a", gpu_request="1", pod_group="g", pod_group_size="2", **{key: level}) for level in ("zone", "rack")]
    asks[1]["pod"] = "b"
    said = answers([cards("n1", 3)], *asks)[1]["refused"]["*"]["message"]
    assert said.startswith(f"gemini.io/{key.replace('_', '-')}: rack differs from zone, said by another pod of g; say")


# ---- random groups, each looked at in another way


class Processors:
    """A room of processors alone."""

    def __init__(self, free: dict[str, int], asked: dict[str, int]) -> None:
        self.free, self.asked = free, asked

    def kind(self, pod: str) -> int:
        return self.asked[pod]

    def bears(self, node: str, pods: Any) -> bool:
        return sum(self.asked[pod] for pod in pods) <= self.free[node]


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Book, dict[str, dict[str, str]], Members, Processors, list[int]]:
    """1 to 16 members, whole cards, on 1 to 4 nodes: labels, taken cards, nodes that are none for some, processors."""
    count = draw(st.integers(1, 4))
    here = [f"n{i}" for i in range(count)]
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=count, max_size=count))
    book = Book(
        Node(name, tuple(Device(m, uuid=f"GPU-{m}", memory=16 << 30) for m in range(size)))
        for name, size in zip(here, sizes, strict=True)
    )
    labels = {
        name: {
            label: value for label in (ZONE, RACK)
            if (value := draw(st.sampled_from(["", "a", "b"])))
        }
        for name in here
    }  # fmt: skip
    many = draw(st.integers(1, 16))
    said = {"gemini.io/pod-group": "g", "gemini.io/pod-group-size": str(many), "gemini.io/gpu-request": "1"}
    level = st.sampled_from(["node", "rack", "zone", "cluster", None])
    for key in (names.GROUP_REQUIRED, names.GROUP_PREFERRED):
        if (wish := draw(level)) is not None:
            said[key] = wish
    same = draw(st.booleans())
    wanted = [draw(st.integers(1, 2)) if not same or not i else 0 for i in range(many)]
    wanted = [wanted[0]] * many if same else wanted
    asks = tuple(parse_ask(f"m{i}", {**said, "gemini.io/gpu-count": str(cards)}).ask for i, cards in enumerate(wanted))
    some = st.lists(st.sampled_from(here), min_size=1, unique=True).map(frozenset)
    allowed = [draw(some)] * many if same else [draw(st.sampled_from([frozenset(here), draw(some)])) for _ in asks]
    processors = dict.fromkeys((one.pod for one in asks), draw(st.integers(1, 3)))
    free = {name: draw(st.integers(0, 24)) for name in here}
    return book, labels, Members(asks, tuple(allowed)), Processors(free, processors), wanted


def possible(
    book: Book, labels: dict[str, dict[str, str]], members: Members, room: Processors, wanted: list[int], level: str
) -> int | None:
    """The fewest nodes of one domain that take all, by counting how many of each size a node has; None: none do."""
    here = [node.name for node in book.nodes()]
    free = {node.name: len(node.devices) for node in book.nodes()}
    domains: dict[str, list[str]] = defaultdict(list)
    for name in here:
        domains[domain(name, labels[name], level)].append(name)
    each = room.asked[members.asks[0].pod]
    kinds: dict[tuple[int, frozenset[str]], int] = defaultdict(int)
    for size, nodes in zip(wanted, members.nodes, strict=True):
        kinds[size, nodes] += 1
    best: int | None = None
    for nodes in domains.values():

        def spread(left: list[tuple[tuple[int, frozenset[str]], int]], cards: tuple[int, ...], cpu: tuple[int, ...],
                   used: frozenset[int], nodes: list[str] = nodes) -> None:  # fmt: skip
            nonlocal best
            if best is not None and len(used) >= best:
                return
            if not left:
                best = len(used)
                return
            ((size, allowed), many), *others = left
            most = [
                min(cards[i] // size, cpu[i] // each, many) if name in allowed else 0 for i, name in enumerate(nodes)
            ]
            for counts in product(*(range(m + 1) for m in most)):
                if sum(counts) == many:
                    spread(
                        others,
                        tuple(c - n * size for c, n in zip(cards, counts, strict=True)),
                        tuple(c - n * each for c, n in zip(cpu, counts, strict=True)),
                        used | {i for i, n in enumerate(counts) if n},
                    )

        spread(list(kinds.items()), tuple(free[n] for n in nodes), tuple(room.free[n] for n in nodes), frozenset())
    return best


def check(book: Book, labels: dict[str, dict[str, str]], members: Members, found: list[Placement], level: str) -> None:
    assert [one.pod for one in found] == [one.pod for one in members.asks]
    assert len({domain(one.node, labels[one.node], level) for one in found}) == 1
    for one, nodes in zip(found, members.nodes, strict=True):
        assert one.node in nodes
    for one in found:
        book.place(one)  # raises where a card is promised beyond what it has
    book.check()
    for one in found:
        book.release(one.pod)


@settings(max_examples=500, deadline=None)
@given(drawn())
def test_every_group_is_in_its_domain_or_nowhere(
    given_: tuple[Book, dict[str, dict[str, str]], Members, Processors, list[int]],
) -> None:
    book, labels, group, room, wanted = given_
    before, budget, first = book.snapshot(), Budget(), group.asks[0]
    level_of = lambda node, level: domain(node, labels[node], level)  # noqa: E731
    found = place_within(Allocator(book), group, level_of, room, budget)
    assert book.snapshot() == before
    assert not book.holdings
    fewest = possible(book, labels, group, room, wanted, first.required)
    if found is None:
        assert fewest is None or budget.left <= 0
        return
    check(book, labels, group, found, first.required)
    used = len({one.node for one in found})
    for node in {one.node for one in found}:
        assert room.bears(node, [one.pod for one in found if one.node == node])
    assert fewest is not None
    if first.preferred is not None:
        better = possible(book, labels, group, room, wanted, first.preferred)
        if better is not None and possible_both(book, labels, group, room, wanted, first) and budget.left > 0:
            check(book, labels, group, found, first.preferred)
            return
    if len(set(wanted)) == 1 and len(set(group.nodes)) == 1:
        assert used == fewest


def possible_both(
    book: Book, labels: dict[str, dict[str, str]], members: Members, room: Processors, wanted: list[int], first: Ask
) -> bool:
    """Whether a domain of the preferred level that lies within one of the required level takes all."""
    wide, narrow = first.required, first.preferred or ""
    both = {name: {"both": f"{domain(name, said, wide)}|{domain(name, said, narrow)}"} for name, said in labels.items()}
    return possible(book, both, members, room, wanted, "both") is not None


def differing(count: int, nodes: int, cards_: int, **says: Callable[[int], str]) -> tuple[Allocator, Members]:
    """A group that may go anywhere, and what its members say each."""
    gib = 1 << 30
    made = [
        Node(f"n{i}", tuple(Device(m, uuid=f"GPU-{i}-{m}", memory=80 * gib) for m in range(cards_)))
        for i in range(nodes)
    ]
    said = {"gemini.io/pod-group": "g", "gemini.io/pod-group-size": str(count), names.GROUP_REQUIRED: "cluster"}
    each = [{f"gemini.io/{key.replace('_', '-')}": value(i) for key, value in says.items()} for i in range(count)]
    asks = [parse_ask(f"p{i}", {**said, **own}).ask for i, own in enumerate(each)]
    return Allocator(Book(made)), everybody(asks, [node.name for node in made])


def test_a_group_that_fits_nowhere_ends_soon() -> None:
    """Of 17 no two fit on one of 16 cards, by their memory."""
    allocator, group = differing(17, 4, 4, gpu_request=lambda i: "0.1", gpu_memory=lambda i: f"{41 + i}Gi")
    budget = Budget()
    assert place_within(allocator, group, lambda node, level: "", budget=budget) is None
    assert budget.left <= 0
    assert not allocator.book.holdings


def test_a_group_whose_members_are_too_large_for_what_is_free_is_not_searched_for() -> None:
    """The same by their time, though its sum is free."""
    allocator, group = differing(17, 4, 4, gpu_request=lambda i: f"{60 + i}%")
    budget = Budget()
    assert place_within(allocator, group, lambda node, level: "", budget=budget) is None
    assert budget == Budget()


@pytest.mark.parametrize("most", [9, 1], ids=["of nine kinds", "alike but in what else they need"])
def test_a_large_group_whose_members_differ_finds_the_room_that_there_is(most: int) -> None:
    """It was refused where all was free: each member was tried on all full nodes, until no steps were left."""

    class Else:
        def kind(self, pod: str) -> str:
            return pod

        def bears(self, node: str, pods: Sequence[str]) -> bool:
            return True

    allocator, group = differing(200, 30, 8, gpu_request=lambda i: f"{51 + i % most}%")
    budget = Budget()
    found = place_within(allocator, group, lambda node, level: "", Else(), budget)
    assert found is not None
    assert [one.pod for one in found] == [one.pod for one in group.asks]
    assert len({(one.node, one.grants[0].minor) for one in found}) == 200
    assert len({one.node for one in found}) == 25
    assert budget.left > 2_000
    assert not allocator.book.holdings
