"""What nodes of one make have in common, and what can be said of sets of their cards once for all of them.

Pure. A Shape is everything static about the devices of one type on a node: sizes, models, NUMA, PCIe, links, tree,
partitions. Nodes of equal shape share one object, and with it the tables of sets, so that a policy looks at a matrix
(nodes x sets) and not at cards one by one. Scores are exact: used / total terms are brought to one denominator.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import comb, lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from gemini.placement import tree as trees
from gemini.placement.model import GPU, Device, Node, Want

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

CORE, MEMORY, SLOTS = 0, 1, 2
UNBOUNDED = 2**40  # slots of a card that states none
SETS_LIMIT = 20_000  # more sets of cards than this are not compared one by one (8 of 16 cards are 12,870)


@dataclass(frozen=True)
class Traits:
    """The parts of a shape that make it equal to another; hashable."""

    type: str
    columns: tuple[tuple[int, str, int, int, int | None, str | None, str | None], ...]
    joined: trees.Connections
    local: trees.LocalTree
    strict: bool
    partitions: tuple[tuple[int, ...], ...]


def traits_of(node: Node, kind: str, tree: trees.Tree | None) -> tuple[Traits, tuple[Device, ...]]:
    """A node's traits for one type of device, and those devices by column: in the order of their minors."""
    devices = tuple(sorted((d for d in node.devices if d.type == kind), key=lambda d: d.minor))
    joined = trees.connections(devices, node.links if kind == GPU else ())
    if tree is not None and kind == GPU:
        local = tree.local(node.name, [d.minor for d in devices])
    else:
        # The node's name is not part of what its own tree says of its cards.
        local = trees.Tree(trees.build("", devices, joined)).local("", [d.minor for d in devices])
    column = {d.minor: i for i, d in enumerate(devices)}
    chosen = node.partitions if kind == GPU else None
    listed = [s for s in chosen.sets if all(m in column for m in s)] if chosen else []
    sets = tuple(tuple(sorted(column[m] for m in s)) for s in listed)
    columns = tuple((d.minor, d.model, d.core, d.memory, d.slots, d.numa, d.pcie) for d in devices)
    return Traits(kind, columns, joined, local, chosen is not None and chosen.strict, sets), devices


class Shape:
    """Static arrays over the devices (columns) of one make of node, and over sets of them."""

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.count = len(traits.columns)
        self.minors = [c[0] for c in traits.columns]
        self.models = [c[1] for c in traits.columns]
        self.numas = [c[5] for c in traits.columns]
        self.pcies = [c[6] for c in traits.columns]
        slots = [UNBOUNDED if c[4] is None else c[4] for c in traits.columns]
        cores, memories = [c[2] for c in traits.columns], [c[3] for c in traits.columns]
        self.total: Ints = np.array([cores, memories, slots], dtype=np.int64)
        parts = [n for c in traits.columns for n in (c[2], c[3], c[4] or 0) if n]
        self.denominator = lcm(*parts) if parts else 1
        # int64 where the sum over all cards and terms fits, else Python's own integers: slower, still exact.
        self.exact: Any = np.int64 if self.denominator * 3 * max(1, self.count) < 2**62 else object
        self.weights: Array = np.array(
            [
                [self.denominator // total if total and total != UNBOUNDED else 0 for total in row]
                for row in self.total.tolist()
            ],
            dtype=self.exact,
        )
        self.pair: Ints = np.array(
            [[traits.joined.score(a, b) for b in range(self.count)] for a in range(self.count)], dtype=np.int64
        ).reshape(self.count, self.count)
        self.nvlinked: Bools = np.array(traits.joined.nvlinks, dtype=bool).reshape(self.count, self.count)
        self.cost: Ints = np.array(traits.local.cost, dtype=np.int64)
        self.siblings: Bools = np.array(traits.local.siblings, dtype=bool).reshape(self.count, self.count)
        self.has_foreign = any(traits.local.foreign)
        self._sets: dict[int, SetTable] = {}
        self.needs: dict[Want, Ints] = {}  # see need_of
        self.made: dict[Want, Any] = {}  # see single.made_of
        self.splits: dict[tuple[int, int], Any] = {}  # best-partition's memory: (cards free, size) -> sets to take
        self.all_splits: dict[int, Any] = {}  # and size -> those of all subsets of the columns

    def sets(self, size: int) -> SetTable | None:
        """All sets of that size in the order of their minors; None where they are too many to list."""
        if size > self.count:
            return None
        if size not in self._sets:
            if comb(self.count, size) > SETS_LIMIT:
                return None
            self._sets[size] = SetTable(self, np.array(list(combinations(range(self.count), size)), dtype=np.intp))
        return self._sets[size]


class SetTable:
    """Sets of `size` columns of a shape (rows of `members`, each ascending) and what is static about each."""

    def __init__(self, shape: Shape, members: npt.NDArray[np.intp]) -> None:
        self.shape = shape
        self.members = members
        self.size = members.shape[1]

    def __len__(self) -> int:
        return len(self.members)

    def _pairs(self) -> list[tuple[int, int]]:
        return list(combinations(range(self.size), 2))

    @cached_property
    def belongs(self) -> Bools:
        """[set, column]: the column is in the set."""
        result = np.zeros((len(self), self.shape.count), dtype=bool)
        result[np.arange(len(self))[:, None], self.members] = True
        return result

    @cached_property
    def pair_sum(self) -> Ints:
        result = np.zeros(len(self), dtype=np.int64)
        for i, j in self._pairs():
            result += self.shape.pair[self.members[:, i], self.members[:, j]]
        return result

    @cached_property
    def one_model(self) -> Bools:
        return self._all_equal(_numbered(self.shape.models))

    @cached_property
    def one_switch(self) -> Bools:
        return self._all_equal(_numbered(self.shape.pcies)) & self._all_known(self.shape.pcies)

    @cached_property
    def one_numa(self) -> Bools:
        return self._all_equal(_numbered(self.shape.numas)) & self._all_known(self.shape.numas)

    @cached_property
    def nvlink_joined(self) -> Bools:
        """Each card reaches each other over NVLinks among the cards of the set."""
        reached = np.zeros((len(self), self.size), dtype=bool)
        reached[:, 0] = True
        linked = self.shape.nvlinked[self.members[:, :, None], self.members[:, None, :]]
        for _ in range(self.size - 1):
            reached |= (linked & reached[:, :, None]).any(axis=1)
        return np.asarray(reached.all(axis=1))

    @cached_property
    def in_partition(self) -> Bools:
        allowed = set(self.shape.traits.partitions)
        return np.array([tuple(row) in allowed for row in self.members.tolist()], dtype=bool)

    @cached_property
    def switches(self) -> Ints:
        return self._distinct(self.shape.pcies)

    @cached_property
    def numas(self) -> Ints:
        return self._distinct(self.shape.numas)

    @cached_property
    def beside_on_switch(self) -> Bools:
        return self._beside(self.shape.pcies)

    @cached_property
    def beside_on_numa(self) -> Bools:
        return self._beside(self.shape.numas)

    @cached_property
    def link_cost(self) -> Ints:
        """m times the cost of the lowest subtree that holds the set; for one card its parent's cost."""
        local = self.shape.traits.local
        if self.size == 1:
            return self.shape.cost[self.members[:, 0]]
        depth, cost = np.array(local.pair_depth), np.array(local.pair_cost)
        pairs = self._pairs()
        at = np.stack([depth[self.members[:, i], self.members[:, j]] for i, j in pairs])
        of = np.stack([cost[self.members[:, i], self.members[:, j]] for i, j in pairs])
        lowest = np.take_along_axis(of, at.argmin(axis=0)[None, :], axis=0)[0]
        return np.asarray(self.size * lowest, dtype=np.int64)

    def _all_equal(self, numbered: Ints) -> Bools:
        values = numbered[self.members]
        return np.asarray((values == values[:, :1]).all(axis=1))

    def _all_known(self, names: list[str | None]) -> Bools:
        known = np.array([name is not None for name in names], dtype=bool)
        return np.asarray(known[self.members].all(axis=1))

    def _distinct(self, names: list[str | None]) -> Ints:
        """How many switches (NUMA nodes) a set touches; an unknown one counts by itself."""
        values = np.sort(_numbered(names)[self.members], axis=1)
        return np.asarray(1 + (values[:, 1:] != values[:, :-1]).sum(axis=1), dtype=np.int64)

    def _beside(self, names: list[str | None]) -> Bools:
        """[column, set]: the column is on a switch (NUMA node) of the set, but not in it."""
        numbered = _numbered(names)
        same = numbered[:, None] == numbered[None, :]
        touched = same[self.members].any(axis=1)
        return np.asarray((touched & ~self.belongs).T)


def _numbered(names: list[str | None] | list[str]) -> Ints:
    """Equal names to equal numbers; each unknown one (None) to a number of its own."""
    known: dict[str, int] = {}
    result = []
    for i, name in enumerate(names):
        result.append(-1 - i if name is None else known.setdefault(name, len(known)))
    return np.array(result, dtype=np.int64)


def fraction(value: int, shape: Shape, cards: int = 1) -> Fraction:
    return Fraction(int(value), shape.denominator * cards)
