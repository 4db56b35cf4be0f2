"""A want of one card on one node, in plain integers: what the scan says of it, without its arrays.

Pure. The scan (scan.py) is made for thousands of nodes. Between two pods of one kind something changes on one node, or
on a few, and for these sixty operations on arrays cost far more than what is in them. Most asks are simple: one card,
any card, by policies that look at the card's own score alone. Those are answered here, by the same integers and the
same floating point (test_single.py and test_standing.py compare the two); whatever is not simple is the scan's.
"""

from __future__ import annotations

import numpy as np

from gemini.placement.book import Block
from gemini.placement.model import Ask, Grant, Placement, Role, Want
from gemini.placement.policies import POLICIES
from gemini.placement.scan import NEEDS_KEPT, most_used, need_of
from gemini.placement.shape import CORE, MEMORY, Shape

PLACES = 1e9  # numbers of policies are compared as np.round(number, 9) leaves them


class Made:
    """What a want comes to on one shape of node, by column."""

    def __init__(self, want: Want, shape: Shape) -> None:
        need = need_of(want, shape)
        self.need: list[list[int]] = need.tolist()
        self.most: list[list[int]] = most_used(shape, need).tolist()
        of_need = (need.astype(shape.weights.dtype) * shape.weights).sum(axis=0)
        self.scored: list[list[int]] = np.vstack([shape.weights, of_need]).T.tolist()  # what used adds up with, and to
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

    def _made_of(self, shape: Shape) -> Made:
        if self._last is None or self._last[0] is not shape:  # to look a want up is to hash all that it says
            self._last = shape, made_of(self.want, shape)
        return self._last[1]

    def serves(self, block: Block) -> bool:
        """Whether the nodes of a block leave it simple."""
        traits = block.shape.traits
        return not (self.want.whole and (traits.strict or traits.partitions))

    def look(self, block: Block, row: int) -> tuple[int, int]:
        """The column of the card that the node would give, -1 for none, and the card's score with the pod on it."""
        made = self._made_of(block.shape)
        sign = self.signs[0] if self.signs else 0
        found, least = -1, 0
        cards = zip(block.usable[row].tolist(), *block.used[:, row].tolist(), *made.most, strict=True)
        for column, (usable, core, memory, slots, most_core, most_memory, most_slots) in enumerate(cards):
            if core <= most_core and memory <= most_memory and slots <= most_slots and usable:
                of_core, of_memory, of_slots, of_need = made.scored[column]
                score = core * of_core + memory * of_memory + slots * of_slots + of_need
                if found < 0 or sign * score < sign * least:
                    found, least = column, score
        return found, least

    def numbers(self, block: Block, score: int) -> list[float]:
        """What each policy says of that score."""
        denominator = self._made_of(block.shape).denominator
        return [float(round(float(sign * score) / denominator * PLACES)) / PLACES for sign in self.signs]

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
    if want.count != 1 or want.models or want.uuids or want.excluded or want.scope is not None or want.joint:
        return None
    signs = [POLICIES[name].of_score for name in policies]
    return Single(want, ask.tenants[0].role, tuple(signs)) if all(signs) else None
