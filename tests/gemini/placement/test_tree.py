"""The access-cost tree, given or built from what is known of a node's cards."""

from __future__ import annotations

from typing import Any

import pytest

from gemini.placement import tree as trees
from gemini.placement.model import Device, Link
from tests.gemini.placement.bed import answer, cards, gpu, held, minors, node, where, whole

GAIA = {"policies": ["fragment", "singular", "link"]}


def built(devices: list[Device], links: list[Link] | None = None) -> Any:
    """The tree as nested tuples: (mode, ...children), cards by minor."""

    def plain(part: Any) -> Any:
        return (part.mode, *(plain(c) for c in part.children)) if isinstance(part, trees.TreeNode) else part[1]

    return plain(trees.build("n", devices, trees.connections(devices, links or [])))


def test_switches_and_numa_nodes_make_the_levels() -> None:
    devices = [Device(m, pcie=str(m // 2), numa=str(m // 4)) for m in range(8)]
    halves = [("NODE", *(("PIX", a, a + 1) for a in (n, n + 2))) for n in (0, 4)]
    assert built(devices) == ("SYS", *halves)


def test_stated_kinds_make_the_levels_between() -> None:
    devices = [Device(m, numa="0") for m in range(4)]
    links = [Link(0, 1, "PIX"), Link(1, 2, "PXB"), Link(0, 3, "PHB")]
    assert built(devices, links) == ("PHB", ("PXB", ("PIX", 0, 1), 2), 3)


def test_cards_of_which_nothing_is_known_hang_below_the_root() -> None:
    assert built([Device(0), Device(1)]) == ("SYS", 0, 1)
    assert built([Device(0, pcie="0"), Device(1)]) == ("SYS", ("PIX", 0), 1)


def test_nvlink_is_the_lowest_level_where_its_groups_are_fully_joined() -> None:
    pairs = [Link(0, 1, "NVLINK", 2), Link(2, 3, "NVLINK", 2)]
    assert built([Device(m) for m in range(4)], pairs) == ("SYS", ("NVLINK", 0, 1), ("NVLINK", 2, 3))
    chain = [Link(0, 1, "NVLINK", 2), Link(1, 2, "NVLINK", 2)]
    assert built([Device(m) for m in range(4)], chain) == ("SYS", 0, 1, 2, 3)


def test_link_on_a_built_tree_takes_the_pair_on_one_switch() -> None:
    nodes = [node("n1", gpu(0, pcie="a"), gpu(1, pcie="b"), gpu(2, pcie="c"), gpu(3, pcie="b"))]
    assert minors(answer(nodes, whole("p", 2), **GAIA)) == [1, 3]


def test_a_tree_may_span_nodes_and_the_cheapest_card_of_all_wins() -> None:
    tree = {
        "mode": "SOC",
        "cost": 9,
        "children": [
            {"mode": "PHB", "cost": 3, "children": ["n1/0", "n1/1"]},
            {"mode": "PIX", "cost": 0.5, "children": ["n2/0", "n2/1"]},
        ],
    }
    nodes = [cards("n1", 2), cards("n2", 2)]
    assert where(answer(nodes, whole("p", 1), tree=tree, **GAIA)) == ("n2", [0])
    assert where(answer(nodes, whole("p", 2), tree=tree, **GAIA)) == ("n2", [0, 1])
    placed = [held("a", "n1", (1, 100, "16Gi"))]
    assert where(answer(nodes, whole("p", 1), tree=tree, placed=placed, **GAIA)) == ("n1", [0])


def test_siblings_may_stand_on_other_nodes() -> None:
    pairs = [{"mode": "PIX", "cost": 1, "children": [f"n1/{m}", f"n2/{m}"]} for m in range(2)]
    tree = {"mode": "SOC", "cost": 9, "children": pairs}
    nodes = [cards("n1", 2), cards("n2", 2)]
    placed = [held("a", "n1", (1, 100, "16Gi"))]
    assert where(answer(nodes, whole("p", 1), tree=tree, placed=placed, **GAIA)) == ("n2", [1])


def test_a_card_that_the_tree_does_not_name_hangs_below_the_root() -> None:
    tree = {"mode": "SOC", "cost": 9, "children": [{"mode": "PIX", "cost": 1, "children": ["n1/1", "n1/2"]}]}
    assert minors(answer([cards("n1", 3)], whole("p", 2), tree=tree, **GAIA)) == [1, 2]
    assert minors(answer([cards("n1", 3)], whole("p", 3), tree=tree, **GAIA)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("a", "b", "score"),
    [(0, 1, 250), (0, 2, 30), (1, 2, 20), (2, 3, 10), (0, 0, 0)],
)
def test_pair_scores(a: int, b: int, score: int) -> None:
    devices = [Device(0, pcie="0", numa="0"), Device(1, pcie="0", numa="0"), Device(2, numa="0"), Device(3)]
    joined = trees.connections(devices, [Link(0, 1, "NVLINK", 2), Link(0, 2, "PHB")])
    assert joined.score(a, b) == joined.score(b, a) == score
