"""Shapes: one object for nodes of one make, sets in the order of their minors, exact weights."""

from __future__ import annotations

import numpy as np

from gemini.placement.book import Book
from gemini.placement.model import Device, Link, Node
from gemini.placement.shape import SETS_LIMIT, Shape, fraction, traits_of


def shape(*devices: Device, links: tuple[Link, ...] = ()) -> Shape:
    return Shape(traits_of(Node("n", devices, links), "gpu", None)[0])


def test_nodes_of_one_make_share_a_block_and_others_do_not() -> None:
    def made(name: str, memory: int) -> Node:
        return Node(name, tuple(Device(m, uuid=f"{name}{m}", memory=memory) for m in range(4)))

    book = Book([made("a", 1000), made("b", 1000), made("c", 1600)])
    assert sorted(len(block.devices) for block in book.blocks["gpu"].values()) == [1, 2]


def test_sets_stand_in_the_order_of_their_sorted_minors() -> None:
    made = shape(Device(5), Device(1), Device(3))
    sets = made.sets(2)
    assert sets is not None
    assert [[made.minors[c] for c in row] for row in sets.members] == [[1, 3], [1, 5], [3, 5]]
    assert made.sets(4) is None


def test_sets_are_listed_up_to_a_limit() -> None:
    made = shape(*(Device(m) for m in range(32)))
    pairs = made.sets(2)
    assert pairs is not None
    assert len(pairs) == 496 < SETS_LIMIT
    assert made.sets(16) is None


def test_weights_make_used_over_total_exact() -> None:
    made = shape(Device(0, memory=997, slots=3), Device(1, memory=1600))
    used = np.array([[50, 25], [997, 400], [1, 9]])
    scores = (used * made.weights).sum(axis=0)
    assert [str(fraction(s, made)) for s in scores] == ["11/6", "1/2"]  # 1/2 + 1 + 1/3, and 1/4 + 1/4: no slots stated


def test_what_is_static_about_sets() -> None:
    devices = [Device(m, pcie=["a", "a", None][m], numa="0", memory=10, model="AAB"[m]) for m in range(3)]
    sets = shape(*devices, links=(Link(0, 2, "NVLINK", 2),)).sets(2)
    assert sets is not None
    assert sets.members.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert sets.one_model.tolist() == [True, False, False]
    assert sets.one_switch.tolist() == [True, False, False]
    assert sets.one_numa.tolist() == [True, True, True]
    assert sets.nvlink_joined.tolist() == [False, True, False]
    assert sets.switches.tolist() == [1, 2, 2]
    assert sets.pair_sum.tolist() == [50, 220, 20]
