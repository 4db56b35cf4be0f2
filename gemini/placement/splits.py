"""Best splits of some cards into sets of one size: as many sets as the cards allow, the highest total of their scores,
of these the one whose worst set is best.

Pure. A pod says by uuid which cards of a node will do for it, so it may have another subset of them split on each node,
while others wait. So all subsets of a make of node are split at once, from the small ones up: a quarter of a second for
sixteen cards at most, once for each size. After that a subset takes some thousandths.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemini.placement.shape import Array, Bools, Ints, SetTable

MOST_CARDS = 16  # 2^16 subsets
ENDLESS = np.iinfo(np.int64).max  # the worst set of no sets


class Splits:
    """Those of some columns of a shape. Subsets of them are bit masks, by the columns' places among these."""

    def __init__(self, table: SetTable, columns: Sequence[int]) -> None:
        place = np.full(table.shape.count, -1)
        place[list(columns)] = np.arange(len(columns))
        members = place[table.members]
        self._sets = np.flatnonzero((members >= 0).all(axis=1) & table.one_model)  # in the table
        self._masks: Ints = (1 << members[self._sets]).sum(axis=1)
        self._scores: Ints = table.pair_sum[self._sets]
        self._size, self._first = table.size, self._masks & -self._masks
        every = np.arange(1 << len(columns))
        self._count: Ints = sum((every >> place & 1 for place in range(len(columns))), np.zeros_like(every))
        # Of each subset that goes up in sets without a rest the best way; -1: it does not.
        self._total: Ints = np.full(len(every), -1)
        self._worst: Ints = np.zeros(len(every), dtype=np.int64)
        self._total[0], self._worst[0] = 0, ENDLESS
        self._total[self._masks] = self._worst[self._masks] = self._scores
        for many in range(2 * self._size, len(columns) + 1, self._size):
            self._split_all(every[self._count == many])

    def best(self, free: int) -> tuple[Ints, int]:
        """The best sets of the best splits of a subset, by their places in the table, and their score. Cards that do
        not go up in whole sets are left over, whichever do least harm."""
        within = (self._masks & ~free) == 0
        covers = np.arange(len(self._count))
        covers = covers[(covers & ~free == 0) & (self._total >= 0)]
        most = int(self._count[covers].max())
        covers = covers[self._count[covers] == most]
        total = self._total[covers].max()
        covers = covers[self._total[covers] == total]
        worst = self._worst[covers].max()
        found = np.zeros(len(self._masks), dtype=bool)
        for cover in covers[self._worst[covers] == worst].tolist() if most else ():
            inside = np.flatnonzero(within & (self._masks & ~cover == 0) & ~found)
            rest, scores = cover ^ self._masks[inside], self._scores[inside]
            part = self._total[rest] + scores == total  # -1 is no part: nothing has more than the best total
            found[inside[part & (self._total[rest] >= 0) & (np.minimum(self._worst[rest], scores) == worst)]] = True
        score = int(self._scores[found].max(initial=0))
        return self._sets[found & (self._scores == score)], score

    def _split_all(self, subsets: Ints) -> None:
        """The best way of each of these, which are of one size; of all smaller ones it is known."""
        if len(subsets) < len(self._masks):
            for subset in subsets.tolist():
                sets = np.flatnonzero((self._first == subset & -subset) & (self._masks & ~subset == 0))
                self._better(np.full(len(sets), subset), self._masks[sets], self._scores[sets])
            return
        of_first = {first: subsets[subsets & -subsets == first] for first in set(self._first.tolist())}
        for mask, first, score in zip(self._masks.tolist(), self._first.tolist(), self._scores.tolist(), strict=True):
            here = of_first[first]
            here = here[here & mask == mask]
            self._better(here, np.full(len(here), mask), np.full(len(here), score))

    def _better(self, subsets: Ints, masks: Ints, scores: Ints) -> None:
        """Takes the ways that begin with these sets where they are better. Of one subset the best of them counts."""
        rest = subsets ^ masks
        able: Bools = self._total[rest] >= 0
        subsets, rest, scores = subsets[able], rest[able], scores[able]
        total, worst = self._total[rest] + scores, np.minimum(self._worst[rest], scores)
        order: Array = np.lexsort((worst, total))  # the best is written last
        subsets, total, worst = subsets[order], total[order], worst[order]
        known, least = self._total[subsets], self._worst[subsets]
        better = (total > known) | ((total == known) & (worst > least))
        self._total[subsets[better]], self._worst[subsets[better]] = total[better], worst[better]
