"""The named policies: one table. A policy gives every choice (a node and a set of its cards) a number, less is better.

Pure. How to add one: write a function from a View to an array that broadcasts to (nodes x sets), put it in POLICIES,
and give it a row in the table (docs/placement.md). Policies stand in an order; each decides only among what the earlier
ones left equal. Numbers are exact integers within one shape of node; `denominator` makes them comparable between
shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from gemini.placement.model import Want
from gemini.placement.shape import CORE, SLOTS, Array, Bools, Ints, SetTable, Shape
from gemini.placement.splits import MOST_CARDS, Splits

SPLIT_LIMIT = MOST_CARDS  # free cards; best-partition looks at all ways to split so many
SPLITS_KEPT = 4_096  # of a make of node
_LATER = 1 << 40  # puts a whole class of choices behind another; above any percent of core and any scaled cost


@dataclass
class View:
    """What a policy sees: the nodes of one shape (rows), the sets of their cards, and the ask."""

    shape: Shape
    sets: SetTable
    want: Want
    before: Ints  # [3, row, column] used before the ask's pod
    fits: Bools  # [row, column] the card by itself can take the ask
    # What few policies look at is worked out when they do, [row, column] each:
    now: Callable[[], Ints]  # [3, ...] `before`, with what the pod's earlier tenants hold beside this one
    more: Callable[[], Ints]  # [3, row or 1, column] what the pod would hold of the card in all, if it were taken
    idle: Callable[[], Bools]  # in service, and nobody holds anything of it
    open_siblings: Callable[[], Ints]  # see Book.open_siblings

    def over_sets(self, by_column: Array) -> Array:
        """Sums a value of cards over the cards of each set: [row, set]."""
        if self.sets.size == 1:
            return self.of_single(by_column)
        return np.asarray(by_column[:, self.sets.members].sum(axis=2))

    def of_single(self, by_column: Array) -> Array:
        """A value of cards for sets of one card; those are usually all columns in order."""
        listed = len(self.sets) == self.shape.count
        return by_column if listed else np.asarray(by_column[:, self.sets.members[:, 0]])

    def score(self, used: Array) -> Array:
        """Used score of each card, times the shape's denominator: [row, column]."""
        total = used[CORE] * self.shape.weights[CORE]
        for k in range(CORE + 1, SLOTS + 1):
            if self.shape.weights[k].any():
                total = total + used[k] * self.shape.weights[k]
        return np.asarray(total)

    def score_after(self) -> Array:
        """The same if the card were taken: [row, set]. Scores add up, and the want's is often the same in all rows."""
        return self.over_sets(self.score(self.before) + self.score(self.more()))


Key = Callable[[View], Array]


def _one(view: View) -> int:
    return 1


def _of_card(view: View) -> int:
    return view.shape.denominator


def _of_node(view: View) -> int:
    return view.shape.denominator * view.shape.count


@dataclass(frozen=True)
class Policy:
    """`applies`: whether it has anything to say of a want. `condition`: it shuts cards out instead of ordering them.
    `of_node`: it looks at the node alone, before the ask; said once for a group of pods."""

    key: Key
    applies: Callable[[Want], bool] = lambda want: True
    denominator: Callable[[View], int] = _one
    condition: bool = False
    of_node: bool = False
    # Compared as lists of minors, one tenant after another; the numbers of any other policy add up over the tenants.
    minors: bool = False
    of_score: int = 0  # so many times the score of each card with the pod on it; 0: something else (see single.py)

    def exact(self, value: int, view: View, best: int) -> Any:
        """A number as it can be compared between shapes; `best` is the set that it belongs to."""
        if self.minors:
            return tuple(view.shape.minors[c] for c in view.sets.members[best])
        denominator = self.denominator(view)
        return value if denominator == 1 else Fraction(value, denominator)


def _binpack(view: View) -> Array:
    return -view.score_after()


def _spread(view: View) -> Array:
    return view.score_after()


def _node_binpack(view: View) -> Array:
    return -_node_spread(view)


def _node_spread(view: View) -> Array:
    """The sum over the node's cards; the denominator makes it a mean."""
    return np.asarray(view.score(view.before).sum(axis=1, keepdims=True))


def _minor(view: View) -> Array:
    """Sets are listed in the order of their sorted minors, so the place in the list is the rank."""
    return np.arange(len(view.sets))[None, :]


def _left_idle(view: View, beside: Bools) -> Array:
    return (view.idle().astype(np.float64) @ beside.astype(np.float64)).astype(np.int64)


def _pcie(view: View) -> Array:
    left = _left_idle(view, view.sets.beside_on_switch)
    return np.asarray(view.sets.switches[None, :] * _LATER + left)


def _numa(view: View) -> Array:
    left = _left_idle(view, view.sets.beside_on_numa)
    return np.asarray(view.sets.numas[None, :] * _LATER + left)


def _best_link(view: View) -> Array:
    if view.sets.size > 1:
        return -view.sets.pair_sum[None, :]
    to_idle = (view.idle().astype(np.float64) @ view.shape.pair.astype(np.float64)).astype(np.int64)
    return view.of_single(to_idle)


def _best_partition(view: View) -> Array:
    """0 - score for the sets that a best split of the free cards would give away first, else behind all of them."""
    result = np.full((len(view.fits), len(view.sets)), _LATER, dtype=np.int64)
    listed = view.sets is view.shape.sets(view.sets.size)
    bits = 1 << np.arange(view.shape.count, dtype=object)
    for row, fits in enumerate(view.fits):
        if fits.sum() > SPLIT_LIMIT:
            result[row] = -view.sets.pair_sum
        elif listed:
            sets, score = best_of_split(view.shape, int((fits * bits).sum()), view.sets.size)
            result[row, sets] = -score
    return result


def best_of_split(shape: Shape, free: int, size: int) -> tuple[Ints, int]:
    """The best sets of the best splits of the free columns (a bit mask) into sets of that size, by their places in the
    table of all, and their score."""
    known: tuple[Ints, int] | None = shape.splits.get((free, size))
    if known is None:
        if len(shape.splits) >= SPLITS_KEPT:
            shape.splits.clear()
        known = shape.splits[free, size] = _best_of_split(shape, free, size)
    return known


def _best_of_split(shape: Shape, free: int, size: int) -> tuple[Ints, int]:
    table, columns = shape.sets(size), [c for c in range(shape.count) if free >> c & 1]
    if size < 2 or len(columns) < size or table is None:
        return np.zeros(0, dtype=np.int64), 0
    if shape.count > SPLIT_LIMIT:
        return Splits(table, columns).best((1 << len(columns)) - 1)
    if size not in shape.all_splits:
        shape.all_splits[size] = Splits(table, range(shape.count))
    splits: Splits = shape.all_splits[size]
    return splits.best(free)


def _fragment(view: View) -> Array:
    left = view.shape.total[CORE] - view.now()[CORE]
    return view.of_single(np.where(view.idle(), _LATER + view.shape.cost, left))


def _singular(view: View) -> Array:
    key = np.where(view.open_siblings() > 0, _LATER, 0) + view.shape.cost
    return view.of_single(key)


def _link(view: View) -> Array:
    return view.sets.link_cost[None, :]


def _nothing(view: View) -> Array:
    return np.zeros((1, 1), dtype=np.int64)


POLICIES: dict[str, Policy] = {
    "binpack": Policy(_binpack, denominator=_of_card, of_score=-1),
    "spread": Policy(_spread, denominator=_of_card, of_score=1),
    "node-binpack": Policy(_node_binpack, denominator=_of_node, of_node=True),
    "node-spread": Policy(_node_spread, denominator=_of_node, of_node=True),
    "minor": Policy(_minor, minors=True),
    "pcie": Policy(_pcie),
    "numa": Policy(_numa),
    "best-link": Policy(_best_link),
    "best-partition": Policy(_best_partition, applies=lambda want: want.count > 1),
    "fragment": Policy(_fragment, applies=lambda want: want.count == 1 and not want.whole),
    "singular": Policy(_singular, applies=lambda want: want.count == 1 and want.whole),
    "link": Policy(_link, applies=lambda want: want.count > 1 and want.whole),
    "unused": Policy(_nothing, condition=True),
}


def unknown(names: tuple[str, ...]) -> str | None:
    """The first name that is no policy."""
    return next((name for name in names if name not in POLICIES), None)
