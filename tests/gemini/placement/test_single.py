"""A want of one card in plain integers: the scan's own answers, over cards of all kinds."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gemini.placement.allocate import Allocator
from gemini.placement.book import Book
from gemini.placement.model import Ask, Device, Grant, Node, Partitions, Placement, Role, Tenant, Want
from gemini.placement.single import single_of
from gemini.placement.standing import _numbers

GIB = 2**30
WANTS = [
    Want(core=30),
    Want(core=100),
    Want(core=0, memory=4 * GIB),
    Want(core=20, ratio=20, follows=True),
    Want(core=45, ratio=60),
    Want(ratio=25, by_memory=True),
    Want(core=7, memory=12345678901),
    Want(type="rdma", core=50),
]


def ask(want: Want, role: Role = Role.ALWAYS, policies: tuple[str, ...] | None = None) -> Ask:
    return Ask("pod", (Tenant(("main",), role, (want,)),), policies)


def some_book(rng: random.Random) -> Book:
    """Nodes of several makes; cards out of service, cordoned, with bounded slots, and held by pods to any degree."""
    nodes = []
    for n in range(24):
        make = random.Random(n % 4)
        gpus = [
            Device(
                m, memory=make.choice([8, 80, 141]) * GIB + make.choice([0, 12345]), slots=make.choice([None, 3]),
                health=rng.random() > 0.1, cordoned=rng.random() < 0.1,
            )
            for m in range(make.choice([1, 2, 8]))
        ]  # fmt: skip
        rdma = [Device(m, type="rdma") for m in range(n % 3)]
        nodes.append(Node(f"n{n}", (*gpus, *rdma)))
    book = Book(nodes)
    for p in range(150):
        node = rng.choice(nodes)
        device = rng.choice(node.devices)
        grant = Grant(device.type, device.minor, rng.choice([0, 5, 33, 50, 100]), rng.randrange(device.memory // 2 + 1))
        book.place(Placement(f"p{p}", node.name, (grant,)), strict=False)
    return book


@pytest.mark.parametrize("policies", [("binpack",), ("spread",), ("spread", "binpack")])
@pytest.mark.parametrize("role", list(Role))
def test_one_card_on_one_node_is_what_the_scan_says(policies: tuple[str, ...], role: Role) -> None:
    able = 0
    for seed in range(20):
        book = some_book(random.Random(seed))
        allocator = Allocator(book, policies)
        for want in WANTS:
            single = single_of(ask(want, role), policies)
            assert single is not None
            trial = allocator.attempt(ask(want, role), book.present)
            for ordinal, name in enumerate(book.names):
                assert name is not None
                at = book.row(name, want.type)
                if at is None:
                    assert not trial.possible[ordinal]
                    assert allocator.choose(ask(want, role), [name]) is None
                    continue
                if not single.serves(at[0]):
                    assert at[0].shape.exact is object
                    continue
                column, score = single.look(*at)
                assert [array[at[1]] for array in single.look_all(at[0])] == [column, score]
                assert (column >= 0) == trial.possible[ordinal]
                if column < 0:
                    assert allocator.choose(ask(want, role), [name]) is None
                    continue
                able += 1
                placement = single.placement("pod", name, at[0], column)
                assert placement == allocator.placement(ask(want, role), trial, ordinal)
                assert placement == allocator.choose(ask(want, role), [name])
                here = np.array([ordinal])
                scanned = [_numbers(trial, here, policy)[0] for policy in policies]
                assert single.numbers(at[0], score) == scanned, "to the last bit, for they are compared"
                assert single.numbers_of_all(at[0], np.array([7, score]))[:, 1].tolist() == scanned
    assert able > 300


def test_without_policies_the_lowest_card_with_room_is_found() -> None:
    book = some_book(random.Random(3))
    allocator, single = Allocator(book), single_of(ask(WANTS[0]), ())
    assert single is not None
    trial = allocator.attempt(ask(WANTS[0]), book.present)
    assert trial.possible.any()
    for ordinal in np.flatnonzero(trial.possible).tolist():
        at = book.row(str(book.names[ordinal]), "gpu")
        assert at is not None
        if not single.serves(at[0]):
            continue
        column, score = single.look(*at)
        placement = single.placement("pod", str(book.names[ordinal]), at[0], column)
        assert placement == allocator.placement(ask(WANTS[0]), trial, ordinal)
        assert single.numbers(at[0], score) == []


@pytest.mark.parametrize(
    "want",
    [
        Want(count=2, core=100),
        Want(core=30, models=frozenset({"H100"})),
        Want(core=30, uuids=frozenset({"GPU-1"})),
        Want(core=30, excluded=frozenset({"GPU-1"})),
        Want(core=100, scope="numa"),
        Want(core=30, joint=(("rdma", 50),)),
    ],
)
def test_what_is_not_simple_is_left_to_the_scan(want: Want) -> None:
    assert single_of(ask(want), ("binpack",)) is None


def test_several_tenants_or_wants_and_other_policies_are_left_to_the_scan() -> None:
    tenant = Tenant(("main",), Role.APP, (Want(core=30),))
    assert single_of(Ask("pod", (tenant,)), ("binpack",)) is not None
    assert single_of(Ask("pod", (tenant, tenant)), ("binpack",)) is None
    assert single_of(Ask("pod", (Tenant(("main",), Role.APP, tenant.wants * 2),)), ("binpack",)) is None
    assert single_of(Ask("pod", (Tenant(("main",), Role.APP, tenant.wants, ("spread",)),)), ("binpack",)) is None
    for policies in (("minor",), ("binpack", "fragment"), ("unused", "binpack")):
        assert single_of(Ask("pod", (tenant,)), policies) is None


def test_cards_whose_scores_need_more_than_62_bits_are_left_to_the_scan() -> None:
    memories = (80 * GIB + 1, 141 * GIB + 1, 24 * GIB - 1)
    book = Book([Node("n", tuple(Device(m, memory=memory) for m, memory in enumerate(memories)))])
    at, single = book.row("n", "gpu"), single_of(ask(Want(core=40)), ("binpack",))
    assert at is not None
    assert single is not None
    assert not single.serves(at[0])
    chosen = Allocator(book, ("binpack",)).choose(ask(Want(core=40)), ["n"])
    assert chosen is not None
    assert [grant.minor for grant in chosen.grants] == [0]


def test_whole_cards_of_a_partitioned_node_are_left_to_the_scan() -> None:
    devices = tuple(Device(m, memory=80 * GIB) for m in range(4))
    book = Book([Node("n", devices, partitions=Partitions(False, ((0,), (1,), (0, 1))))])
    at = book.row("n", "gpu")
    assert at is not None
    for core, serves in ((100, False), (40, True)):
        single = single_of(ask(Want(core=core)), ("binpack",))
        assert single is not None
        assert single.serves(at[0]) is serves
