"""How all nodes stand to one kind of ask: which can take it, and how good the policies find each. Kept, and mended.

Pure. Pods come in kinds: hundreds ask for the same. What a kind of ask finds on a node changes only when something on
that node does. So it is worked out once for all nodes, and from then on again for those that have changed: the few that
pods came to or left since the last pod of that kind. What does not fit that (the nodes themselves have changed, or
cards are looked at across nodes) is worked out anew as a whole.

Policies' numbers are compared as floating point here, all nodes at once: for which node, that is exact enough; the
cards on it are chosen by exact numbers (allocate.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence

import numpy as np

from gemini.placement import policies as table
from gemini.placement.allocate import Allocator, Trial
from gemini.placement.model import Ask, Placement
from gemini.placement.shape import Array, Bools, Ints
from gemini.placement.single import single_of
from libhook.core import ffi, lib

KEPT = 64  # kinds of ask
FEW = 32  # changed nodes; that many are looked at one by one


class Standing:
    """One kind of ask on all nodes of the book. To be refreshed before it is asked."""

    def __init__(self, allocator: Allocator, ask: Ask) -> None:
        self._allocator, self._book, self._ask = allocator, allocator.book, ask
        self._policies = allocator.policies_of(ask)
        self._single = single_of(ask, self._policies)
        self._version = -1
        self._possible: Bools = np.zeros(1, dtype=bool)  # by ordinal; the last is for names that are not known
        self._numbers: Array = np.zeros((0, 0))  # by policy and ordinal: less is better
        self._ranks: Ints | None = None  # by ordinal
        self._best = ffi.new("int64_t *")

    def refresh(self) -> None:
        """Brings it up to the book as it is now."""
        book = self._book
        if self._version == book.version:
            return
        if book.layout > self._version or book.tree is not None:
            count = len(book.names)
            self._possible, self._numbers = np.zeros(count + 1, dtype=bool), np.zeros((len(self._policies), count))
            self._look_everywhere()
        else:
            changed = list(book.changed_since(self._version))
            if self._single is not None and len(changed) > FEW:
                self._look_everywhere()
            elif not self._mend(changed):
                self._try(self._allocator.among(np.fromiter(map(book.ordinal, changed), np.int64, len(changed))))
        self._version, self._ranks = book.version, None

    def _mend(self, changed: Sequence[str]) -> bool:
        """Looks at a few nodes one by one, where the ask is simple; whether it is."""
        single, book = self._single, self._book
        if single is None:
            return False
        for name in changed:
            ordinal, at = book.ordinal(name), book.row(name, single.want.type)
            if at is None:
                self._possible[ordinal] = False
                continue
            block, row = at
            if not single.serves(block):
                return False
            column, score = single.look(block, row)
            self._possible[ordinal] = column >= 0
            if column >= 0:
                for i, number in enumerate(single.numbers(block, score)):
                    self._numbers[i, ordinal] = number
        return True

    def _look_everywhere(self) -> None:
        """Looks at all nodes, a shape at a time where that leaves the ask simple."""
        single, left = self._single, self._book.present
        if single is not None:
            left = np.zeros_like(left)
            for block in self._book.blocks[single.want.type].values():
                if not single.serves(block):
                    left[block.ordinal] = True
                    continue
                columns, scores = single.look_all(block)
                self._possible[block.ordinal] = columns >= 0
                self._numbers[:, block.ordinal] = single.numbers_of_all(block, scores)
        if left.any():
            self._try(left)

    def _try(self, asked: Bools) -> None:
        """Looks at the nodes that are marked, all at once."""
        trial = self._allocator.attempt(self._ask, asked, choose=bool(self._policies))
        self._possible[:-1][asked] = trial.possible[asked]
        ordinals = np.flatnonzero(trial.possible)
        for number, name in enumerate(self._policies):
            self._numbers[number, ordinals] = _numbers(trial, ordinals, name)

    def fits(self, names: Collection[str]) -> Bools:
        """For each name whether that node can take the pod."""
        result: Bools = self._possible.take(self._book.ordinals(names))
        return result

    def ranks(self, names: Collection[str]) -> Ints:
        """For each name the rank of what its node would give: 0 is best, equal is equal, -1: it cannot take the pod."""
        if self._ranks is None:
            self._ranks = self._ranked()
        result: Ints = self._ranks.take(self._book.ordinals(names))
        return result

    def _ranked(self) -> Ints:
        ordinals = np.flatnonzero(self._possible)
        ranks = np.full(len(self._possible), -1, dtype=np.int64)
        ranks[ordinals] = 0
        if len(self._policies) and len(ordinals):
            keys = self._numbers[::-1, ordinals]
            order = np.lexsort(keys)
            other = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
            ranks[ordinals[order]] = np.concatenate([[0], np.cumsum(other)])
        return ranks

    def short(self, names: Sequence[str], most: int, avoid: Collection[str] = ()) -> list[str] | None:
        """Where more than `most` of the names can take the pod, the one that the policies like best (the first in the
        book's order of equals), without policies the first `most` of them; none of `avoid` where others will do. Else
        None: they are too few for a choice.
        """
        ordinals = self._book.ordinals(names)
        if self._policies:
            return self._shortest(ordinals, most, avoid)
        fit = self._possible.take(ordinals).nonzero()[0]
        if len(fit) <= most:
            return None
        if avoid:
            welcome = [at for at in fit.tolist() if names[at] not in avoid]
            fit = np.array(welcome) if welcome else fit
        return [names[at] for at in fit[:most].tolist()]

    def _shortest(self, ordinals: Ints, most: int, avoid: Collection[str]) -> list[str] | None:
        if self._best_of(self._possible, ordinals) <= most:
            return None
        best = self._best[0]
        if avoid:
            welcome = self._possible.copy()
            welcome[[self._book.ordinal(name) for name in avoid]] = False
            if self._best_of(welcome, ordinals):
                best = self._best[0]
        return [str(self._book.names[best])]

    def _best_of(self, possible: Bools, ordinals: Ints) -> int:
        """How many can take the pod; the best of them is in self._best then."""
        policies, nodes = self._numbers.shape
        found: int = lib.standing_best(
            ffi.from_buffer("bool[]", possible), ffi.from_buffer("double[]", self._numbers), policies, nodes,
            ffi.from_buffer("int64_t[]", ordinals), len(ordinals), self._best,
        )  # fmt: skip
        return found

    def choose(self, ask: Ask, node: str) -> Placement | None:
        """What a node gives a pod of this kind, by the book as it is now; None: it cannot take the pod."""
        single = self._single
        at = self._book.row(node, single.want.type) if single is not None else None
        if single is None or at is None or not single.serves(at[0]):
            return self._allocator.choose(ask, [node])
        column, _ = single.look(*at)
        return single.placement(ask.pod, node, at[0], column) if column >= 0 else None


def _numbers(trial: Trial, ordinals: Ints, policy: str) -> Array:
    """What a policy says of each of these nodes, over all that the pod wants there."""
    column = np.zeros(len(ordinals))
    for step in trial.steps:
        which = step.at[ordinals]
        for i, scored in enumerate(step.scored):
            if policy in scored.values and scored.view is not None:
                here = np.flatnonzero(which == i)
                values = scored.values[policy][step.position[ordinals[here]]].astype(np.float64)
                column[here] += values / float(table.POLICIES[policy].denominator(scored.view))
    return np.round(column, 9)


class Standings:
    """Those of the kinds of ask that were asked about last."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._kept: OrderedDict[object, Standing] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, ask: Ask) -> Standing:
        """Up to date until the book changes."""
        kind = ask.tenants, ask.policies
        standing = self._kept.get(kind)
        if standing is None:
            standing = self._kept[kind] = Standing(self._allocator, ask)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(kind)
        standing.refresh()
        return standing
