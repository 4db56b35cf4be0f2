"""A want of one card, card by card: what the scan says of it, without its arrays.

Pure. The scan (scan.py) takes sixty operations on arrays, whatever they hold: far too many for the few nodes where
something changes between two pods of one kind, and ten times what one pass over all cards costs. Most asks are simple:
one card, any card, by policies that look at the card's own score alone. Those are answered here, in C
(libhook/placement/standing.c), by the same integers and the same floating point (test_single.py and test_standing.py
compare the two); whatever is not simple is the scan's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemini.placement.book import Block
from gemini.placement.model import Ask, Grant, Placement, Role, Want
from gemini.placement.policies import POLICIES
from gemini.placement.scan import NEEDS_KEPT, most_used, need_of
from gemini.placement.shape import CORE, MEMORY, Array, Ints, Shape
from libhook.core import ffi, lib

PLACES = 1e9  # numbers of policies are compared as np.round(number, 9) leaves them


class Made:
    """What a want comes to on one shape of node, by column."""

    def __init__(self, want: Want, shape: Shape) -> None:
        need = need_of(want, shape)
        self.need: list[list[int]] = need.tolist()
        of_need = (need * shape.weights).sum(axis=0)
        columns = zip(most_used(shape, need).T.tolist(), shape.weights.T.tolist(), of_need.tolist(), strict=True)
        self.cards = ffi.new("struct standing_card[]", list(columns))
        self.denominator = float(shape.denominator)


def made_of(want: Want, shape: Shape) -> Made:
    known: Made | None = shape.made.get(want)
    if known is None:
        if len(shape.made) >= NEEDS_KEPT:
            shape.made.clear()
        known = shape.made[want] = Made(want, shape)
    return known


class Single:
    """A simple ask. `signs`: for each of its policies how many times the card's score it is."""

    def __init__(self, want: Want, role: Role, signs: tuple[int, ...]) -> None:
        self.want, self.role, self.signs = want, role, signs
        self._last: tuple[Shape, Made] | None = None
        self._found, self._score = ffi.new("int64_t *"), ffi.new("int64_t *")

    def _made_of(self, shape: Shape) -> Made:
        if self._last is None or self._last[0] is not shape:  # to look a want up is to hash all that it says
            self._last = shape, made_of(self.want, shape)
        return self._last[1]

    def serves(self, block: Block) -> bool:
        """Whether the nodes of a block leave it simple."""
        shape = block.shape
        if self.want.whole and (shape.traits.strict or shape.traits.partitions):
            return False
        return shape.exact is np.int64  # else scores are integers of Python's

    def look(self, block: Block, row: int) -> tuple[int, int]:
        """The column of the card that the node would give, -1 for none, and the card's score with the pod on it."""
        self._look(block, row, 1, self._found, self._score)
        return self._found[0], self._score[0]

    def look_all(self, block: Block) -> tuple[Ints, Ints]:
        """The same for each row of a block."""
        columns, scores = np.empty((2, len(block.devices)), dtype=np.int64)
        self._look(block, 0, len(columns), *(ffi.from_buffer("int64_t[]", array) for array in (columns, scores)))
        return columns, scores

    def _look(self, block: Block, row: int, rows: int, found: Any, scores: Any) -> None:
        made, count = self._made_of(block.shape), block.shape.count
        used, usable = ffi.from_buffer("int64_t[]", block.used), ffi.from_buffer("bool[]", block.usable)
        at, sign = row * count, self.signs[0] if self.signs else 0
        lib.standing_look(made.cards, count, usable + at, used + at, len(usable), rows, sign, found, scores)

    def numbers(self, block: Block, score: int) -> list[float]:
        """What each policy says of that score."""
        denominator = self._made_of(block.shape).denominator
        return [float(round(float(sign * score) / denominator * PLACES)) / PLACES for sign in self.signs]

    def numbers_of_all(self, block: Block, scores: Ints) -> Array:
        """The same of each of many scores, by policy."""
        signs = np.array(self.signs, dtype=np.int64)[:, None]
        result: Array = np.round((signs * scores).astype(np.float64) / self._made_of(block.shape).denominator, 9)
        return result

    def placement(self, pod: str, node: str, block: Block, column: int) -> Placement:
        need = self._made_of(block.shape).need
        minor = block.shape.minors[column]
        grant = Grant(self.want.type, minor, need[CORE][column], need[MEMORY][column], 0, self.role)
        return Placement(pod, node, (grant,))


def single_of(ask: Ask, policies: tuple[str, ...]) -> Single | None:
    """None where the ask is not simple. `policies`: those of the pod or the cluster, all known."""
    if len(ask.tenants) != 1 or ask.tenants[0].policies is not None or len(ask.tenants[0].wants) != 1:
        return None
    want = ask.tenants[0].wants[0]
    if want.constraints:
        return None
    signs = [POLICIES[name].of_score for name in policies]
    return Single(want, ask.tenants[0].role, tuple(signs)) if all(signs) else None
