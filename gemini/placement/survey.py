"""A pod tried on many nodes at once, and what follows: which can take it, which is best, and with which cards.

Pure. A scheduler asks these one after the other, of the same pod and mostly of the same nodes, and most of the work is
the same. So it is done once: whether the pod fits, at first; cards are chosen by policies when somebody asks for more.
An answer is given again only while the book says that nothing it rests on has changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from itertools import compress

import numpy as np

from gemini.placement import policies as table
from gemini.placement.allocate import Allocator
from gemini.placement.model import Ask, Placement
from gemini.placement.shape import CORE, Bools, Ints

KEPT = 16  # surveys: so many pods are on their way from filter to bind at once


class Survey:
    """One ask on the nodes of `names`. `fits`: for each name whether that node can take the pod; `passed`: the names of
    those that can."""

    def __init__(self, allocator: Allocator, ask: Ask, names: Sequence[str]) -> None:
        self._allocator, self.ask, self._names = allocator, ask, names
        self._at = allocator.book.ordinals(names)
        self._version = allocator.book.version
        self._trial = allocator.attempt(ask, allocator.among(self._at), choose=False)
        self._chosen = False
        self.fits: Bools = np.append(self._trial.possible, False)[self._at]
        self.passed = tuple(compress(names, self.fits.tolist()))
        self.kept: Bools | Ints = self.fits  # which of the names `passed` has
        self._ranks: Ints | None = None  # by ordinal, as of when cards were chosen

    def shorten(self, most: int, avoid: Collection[str] = ()) -> bool:
        """Where more than `most` can take the pod, leaves in `passed` the one that the policies like best (the first
        of equals), without policies the first `most`; none of `avoid` where others will do. Whether it did."""
        if len(self.passed) <= most:
            return False
        here = np.flatnonzero(self.fits)
        if avoid and (others := [i for i in here.tolist() if self._names[i] not in avoid]):
            here = np.array(others)
        if self._allocator.policies_of(self.ask):
            best = int(self.ranks()[here].argmin())
            here = here[best : best + 1]
        self.kept = here[:most]
        self.passed = tuple(self._names[i] for i in self.kept.tolist())
        return True

    @property
    def fresh(self) -> bool:
        """Whether the book is the one it was made from, or near enough for ranks of a pod with one want: some pods have
        come or gone on nodes that are known."""
        book = self._allocator.book
        if self._version == book.version:
            return True
        return book.layout <= self._version and book.tree is None and len(self._trial.steps) == 1

    def ranks(self) -> Ints:
        """For each name the rank of what its node would give: 0 is best, equal is equal, -1: it cannot take the pod.

        For scores that are rough anyway: policies' numbers are compared as floating point here, all nodes at once.
        """
        if self._ranks is None:
            self._choose()
            self._ranks = self._ranked()
        ranks, book = self._ranks, self._allocator.book
        if gone := [node for node in book.changed_since(self._version) if not self._fits_still(node)]:
            ranks = ranks.copy()  # elsewhere there may be room now: that is not worth another look for a score
            ranks[[book.ordinal(node) for node in gone]] = -1
        result: Ints = ranks[self._at]
        return result

    def _ranked(self) -> Ints:
        ordinals = np.flatnonzero(self._trial.possible)
        columns = []
        for name in self._allocator.policies_of(self.ask):
            column = np.zeros(len(ordinals))
            for step in self._trial.steps:
                which = step.at[ordinals]
                for i, scored in enumerate(step.scored):
                    if name in scored.values and scored.view is not None:
                        here = np.flatnonzero(which == i)
                        values = scored.values[name][step.position[ordinals[here]]].astype(np.float64)
                        column[here] += values / table.POLICIES[name].denominator(scored.view)
            columns.append(np.round(column, 9))
        ranks = np.full(len(self._trial.possible) + 1, -1, dtype=np.int64)  # the last is for names that are not known
        ranks[ordinals] = 0
        if columns and len(ordinals):
            keys = np.stack(columns[::-1])
            order = np.lexsort(keys)
            other = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
            ranks[ordinals[order]] = np.concatenate([[0], np.cumsum(other)])
        return ranks

    def _fits_still(self, node: str) -> bool:
        """Whether the cards that were chosen there have the room now."""
        book, ordinal = self._allocator.book, self._allocator.book.ordinal(node)
        if not self._trial.possible[ordinal]:
            return False
        (step,) = self._trial.steps
        scored, position = step.of(ordinal)
        at = book.row(node, step.want.type)
        if at is None:
            return False
        block, row = at
        members = scored.sets.members[int(scored.best[position])]
        used, need, total = block.used[:, row, members], scored.fit.need[:, members], block.shape.total[:, members]
        return bool((used + need <= total).all() and (used[CORE] < total[CORE]).all())

    def placement(self, node: str) -> Placement | None:
        """The cards that the node gives. None where it gives none, where they have not been chosen, and where the node
        is another now than it was."""
        book = self._allocator.book
        if not self._chosen or book.node(node) is None or book.changed(node) > self._version:
            return None
        ordinal = book.ordinal(node)
        return self._allocator.placement(self.ask, self._trial, ordinal) if self._trial.possible[ordinal] else None

    def _choose(self) -> None:
        if not self._chosen:
            assert self.fresh
            self._trial = self._allocator.complete(self.ask, self._trial, self._at)
            self._chosen = True


class Surveys:
    """Those of the last few pods. An Ask is made once for each state of a pod, so it is told by its identity."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._kept: OrderedDict[str, Survey] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def make(self, ask: Ask, names: Sequence[str]) -> Survey:
        survey = self._kept[ask.pod] = Survey(self._allocator, ask, names)
        self._kept.move_to_end(ask.pod)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return survey

    def ranks(self, ask: Ask, names: Sequence[str]) -> Ints:
        """See Survey. The names are mostly those that were found to fit a moment ago."""
        known = self._kept.get(ask.pod)
        if known is None or known.ask is not ask or not known.fresh or known.passed != names:
            return self.make(ask, names).ranks()
        result: Ints = known.ranks()[known.kept]
        return result

    def choose(self, ask: Ask, node: str) -> Placement | None:
        """The cards that the pod gets on the node, or None."""
        known = self._kept.pop(ask.pod, None)
        chosen = known.placement(node) if known is not None and known.ask is ask else None
        return chosen if chosen is not None else self._allocator.choose(ask, [node])
