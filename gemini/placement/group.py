"""Pods that are placed together on one node, on its best connected cards, or not at all.

Pure. The choice for a group is one node and for each member, in order, a set of its cards. Best: the highest sum of
pair scores over all gpus that the group holds; what is equal is decided by the first member's policies (the members'
numbers added up), then by the first node and the lowest minors. Members that already run (a pod was replaced) fix the
node, and their cards count.

Search: branch and bound. What a node can reach at best, its cards being free for any of the members, is worked out for
all nodes at once; nodes are searched from the highest bound down, and those in the same state once. Members that ask
for the same are interchangeable: they take their sets in ascending order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemini.placement.allocate import Allocator, Choice
from gemini.placement.book import Book
from gemini.placement.model import GPU, Ask, Placement, Role, Want
from gemini.placement.scan import Overlay, fit
from gemini.placement.shape import CORE, Ints, SetTable

SEARCH_LIMIT = 5_000  # complete choices compared on one node; beyond it the best found so far counts
# Members placed by way of trial, on all nodes together: half a second. Without an end a group of sixty is searched for
# ever, for choices that lead nowhere are as many as there are cards to the power of the members.
SEARCH_STEPS = 3_000
MOST_MEMBERS = 400  # the search goes one call deeper for each


@dataclass
class Budget:
    """Steps that a search may take still; a search that ran out of them may have missed a place, or a better one.
    `pause` is called at each step, and between looks at other nodes or pods: whoever waits for the search may rest."""

    left: int = SEARCH_STEPS
    pause: Callable[[], object] = int  # which does nothing

    def step(self) -> None:
        self.left -= 1
        self.pause()


def place_group(
    allocator: Allocator,
    asks: Sequence[Ask],
    placed: Sequence[Placement] = (),
    among: Collection[str] | None = None,
    budget: Budget | None = None,
    bears: Callable[[str], bool] | None = None,
) -> list[Placement] | None:
    """Where all of `asks` go together, in their order, or None. `placed`: members that already hold cards; `among`:
    the nodes in question, None: all. `budget`: what is left of it tells whether the search came to its end. `bears`:
    whether a node has all else that the members need; asked of those alone that are searched."""
    book, budget = allocator.book, budget or Budget()
    if len(asks) > MOST_MEMBERS:
        return None
    asks = [replace(ask, policies=asks[0].policies) for ask in asks]
    nodes = [placed[0].node] if placed else [node.name for node in book.nodes()]
    if among is not None:
        nodes = [name for name in nodes if name in among]
    for ask in {kind_of(ask): ask for ask in asks}.values():
        budget.pause()
        nodes = allocator.possible(ask, nodes)
    time = time_of(asks)
    nodes = [name for name in nodes if not time or free_time(book, name) >= time]
    order = {name: i for i, name in enumerate(nodes)}
    wanted = _wanted(asks)
    searches = sorted(
        (_Search(allocator, asks, wanted, name, placed, budget) for name in nodes),
        key=lambda s: (-s.bound, order[s.node]),
    )
    by_uuid = any(w.uuids or w.excluded for ask in asks for t in ask.tenants for w in t.wants)
    best: _Search | None = None
    best_key: Any = None
    known: dict[Any, Any] = {}
    for search in searches:
        if best is not None and search.bound < best.connected:
            break
        state = None if by_uuid else state_of(book, search.node)
        if state is not None and known.get(state, len(nodes)) < order[search.node]:
            continue  # an equal node stands before it
        if bears is not None and not bears(search.node):
            continue
        known[state] = order[search.node]
        search.run()
        if search.found:
            key = (*search.key, order[search.node])
            if best_key is None or key < best_key:
                best, best_key = search, key
    return [choice.placement for choice in best.found] if best else None


def connectedness(book: Book, node: str, minors: Sequence[int]) -> int:
    """The sum of pair scores over distinct gpus of a node."""
    at = book.row(node, GPU)
    if at is None:
        return 0
    shape = at[0].shape
    columns = [shape.minors.index(m) for m in minors if m in shape.minors]
    return sum(int(shape.pair[a, b]) for i, a in enumerate(columns) for b in columns[i + 1 :])


def best_connectedness(allocator: Allocator, asks: Sequence[Ask], node: str) -> int:
    """What `connectedness` could be at best where all of these hold cards of the node, with nobody in their way."""
    return _Search(allocator, asks, _wanted(asks), node, (), Budget()).bound


def time_of(asks: Sequence[Ask]) -> int:
    """The percent of cards' time that members ask for, leaving out init containers."""
    return sum(want.core * want.count for want in gpu_wants(asks))


def gpu_wants(asks: Sequence[Ask]) -> Iterator[Want]:
    """What members want of cards, leaving out init containers."""
    return (w for ask in asks for t in ask.tenants if t.role is not Role.INIT for w in t.wants if w.type == GPU)


def free_time(book: Book, node: str) -> int:
    """The percent that the usable cards of a node have free, added up."""
    return int(free_times(book, node).sum())


def free_times(book: Book, node: str) -> Ints:
    """The percent that each usable card of a node has free."""
    at = book.row(node, GPU)
    if at is None:
        return np.zeros(0, dtype=np.int64)
    block, row = at
    free: Ints = np.maximum(block.shape.total[CORE] - block.used[CORE, row], 0)[block.usable[row]]
    return free


def kind_of(ask: Ask) -> Ask:
    return replace(ask, pod="", group=None)


def cards_of(placement: Placement) -> tuple[int, ...]:
    return tuple(sorted({g.minor for g in placement.grants if g.type == GPU}))


def state_of(book: Book, name: str) -> Any:
    """Equal for nodes that give equal choices."""
    parts: list[Any] = []
    node = book.node(name)
    assert node is not None
    for kind in sorted({d.type for d in node.devices}):
        at = book.row(name, kind)
        assert at is not None
        block, row = at
        parts += [
            kind,
            id(block),
            block.used[:, row].tobytes(),
            block.holders[row].tobytes(),
            block.usable[row].tobytes(),
        ]
    return tuple(parts)


def _wanted(asks: Sequence[Ask]) -> Counter[tuple[Want, Role]]:
    """What members want of gpus, and how often."""
    return Counter((want, t.role) for ask in asks for t in ask.tenants for want in t.wants if want.type == GPU)


@dataclass
class _Reach:
    """The sets of cards that a group could hold at best on a node."""

    table: SetTable | None
    able: Any  # [set]

    def best_with(self, columns: Sequence[int]) -> int:
        """The highest sum of pair scores of a set that holds these columns; -1: none does."""
        if self.table is None:
            return 1 << 60
        keep = self.able & self.table.belongs[:, list(columns)].all(axis=1)
        return int(self.table.pair_sum[keep].max()) if keep.any() else -1


class _Search:
    """One node."""

    def __init__(
        self, allocator: Allocator, asks: Sequence[Ask], wanted: Counter[tuple[Want, Role]], node: str,
        placed: Sequence[Placement], budget: Budget,
    ) -> None:  # fmt: skip
        self.allocator, self.asks, self.wanted, self.node, self.budget = allocator, asks, wanted, node, budget
        self.held = {minor for p in placed for minor in cards_of(p)}
        self.found: tuple[Choice, ...] = ()
        self.key: tuple[Any, ...] = ()
        self.minors: tuple[tuple[int, ...], ...] = ()  # of what was found
        self.connected = -1
        self.tried = 0
        self.reach = self._reach()
        self.bound = self.reach.best_with(self._columns(self.held))

    def _columns(self, minors: set[int]) -> list[int]:
        at = self.allocator.book.row(self.node, GPU)
        return [at[0].shape.minors.index(m) for m in sorted(minors) if m in at[0].shape.minors] if at else []

    def _reach(self) -> _Reach:
        """Pair scores are above 0, so as many cards as the members may hold at most are the best that can be."""
        book = self.allocator.book
        at = book.row(self.node, GPU)
        if at is None:
            return _Reach(None, None)
        block, row = at
        able = np.zeros(block.shape.count, dtype=bool)
        able[self._columns(self.held)] = True
        size = len(self.held)
        for (want, role), many in self.wanted.items():
            able |= fit(book, block, np.array([row]), want, role, Overlay(), False).fits[0]
            size += want.count * many
        table = block.shape.sets(min(size, int(able.sum())))
        return _Reach(None, None) if table is None else _Reach(table, able[table.members].all(axis=1))

    def run(self) -> None:
        self._member([], set(self.held))

    def _member(self, so_far: list[Choice], cards: set[int]) -> None:
        """Depth first; the book holds the members `so_far` meanwhile."""
        book = self.allocator.book
        if len(so_far) == len(self.asks):
            self._compare(so_far, cards)
            return
        ask = self.asks[len(so_far)]
        choices = self.allocator.choices(ask, self.node)
        if so_far and kind_of(self.asks[len(so_far) - 1]) == kind_of(ask):
            before = cards_of(so_far[-1].placement)
            choices = [c for c in choices if cards_of(c.placement) >= before]
        reached = [(self.reach.best_with(self._columns(cards | set(cards_of(c.placement)))), c) for c in choices]
        for bound, choice in sorted(reached, key=lambda r: -r[0]):
            if self.tried >= SEARCH_LIMIT or self.budget.left <= 0:
                return
            if -1 < bound < self.connected:
                continue
            self.budget.step()
            book.place(choice.placement)
            try:
                self._member([*so_far, choice], cards | set(cards_of(choice.placement)))
            finally:
                book.release(choice.placement.pod)

    def _compare(self, choices: list[Choice], cards: set[int]) -> None:
        self.tried += 1
        connected = connectedness(self.allocator.book, self.node, sorted(cards))
        if self.found and connected < self.connected:
            return
        minors = tuple(cards_of(choice.placement) for choice in choices)
        key = (-connected, self.allocator.sum_up(self.asks[0], choices))
        if not self.found or (*key, minors) < (*self.key, self.minors):
            self.found, self.key, self.minors, self.connected = tuple(choices), key, minors, connected
