"""Pods that are placed together on several nodes of one topology domain, or not at all.

Pure. A wish names two levels, what is required and what is preferred: one node, one NVLink domain, one rack, one zone,
any label of nodes, or the whole cluster. Best: one node (group.py); else the fewest nodes of one domain of the
preferred level, else of one of the required level. Of equally many nodes the best connected cards count (of some
domains, where they are many), then the first domain. Members that run already (a pod was replaced) fix the domain.

Search: where all members ask for the same, it is counted how many each node takes; the nodes that take most come
first, and the last one is the one that takes just the rest. Where they differ, members are tried from the largest down,
each on the nodes that are used already first, for as many steps as the budget has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from gemini.placement.allocate import Allocator
from gemini.placement.group import (
    MOST_MEMBERS,
    Budget,
    best_connectedness,
    cards_of,
    connectedness,
    free_time,
    free_times,
    gpu_wants,
    kind_of,
    place_group,
    state_of,
    time_of,
)
from gemini.placement.model import NODE_LEVEL, Ask, Placement

ONE_NODE_STEPS = 300  # for the cards of the members of one node; beyond it they take them one after another
MOST_PLANS = 8  # ways to lay a group out that are compared
Domain = Callable[[str, str], str]  # node, level -> the domain that the node is in


class Room(Protocol):
    """What nodes have besides cards: processors, memory, places for pods."""

    def kind(self, pod: str) -> Hashable:
        """Equal for pods that need the same of it."""

    def bears(self, node: str, pods: Sequence[str]) -> bool:
        """Whether the node has room for all of these beside those that it has."""


@dataclass(frozen=True)
class Members:
    """A group that is to be placed. `nodes`: where each of `asks` may go. `placed`: members that hold cards already."""

    asks: tuple[Ask, ...]
    nodes: tuple[frozenset[str], ...]
    placed: tuple[Placement, ...] = ()

    def everywhere(self) -> frozenset[str]:
        """The nodes where all of them may go."""
        return frozenset.intersection(*self.nodes) if self.nodes else frozenset()


def place_within(
    allocator: Allocator, members: Members, domain_of: Domain, room: Room | None = None, budget: Budget | None = None
) -> list[Placement] | None:
    """Where all go together, in their order, or None. The wish is that of the first. `budget`: as of place_group."""
    if not members.asks or len(members.asks) > MOST_MEMBERS:
        return None
    first, budget = members.asks[0], budget or Budget()
    if len({placement.node for placement in members.placed}) < 2:
        bears = None if room is None else (lambda node: room.bears(node, [ask.pod for ask in members.asks]))
        found = place_group(allocator, members.asks, members.placed, members.everywhere(), budget, bears)
        if found is not None or first.required == NODE_LEVEL:
            return found
    if not budget.left:  # on one node there was no end of ways; across nodes it is another search
        budget.left = Budget().left
    across = _Across(allocator, members, room, budget)
    preferred = first.preferred
    if preferred not in (None, NODE_LEVEL, first.required):  # within what is required, whichever of them is wider
        found = across.best(lambda node: (domain_of(node, first.required), domain_of(node, preferred)))
        if found is not None:
            return found
    return across.best(lambda node: domain_of(node, first.required))


class _Across:
    """One search, over the domains of one level. The book is as it was before, afterwards."""

    def __init__(self, allocator: Allocator, members: Members, room: Room | None, budget: Budget) -> None:
        self.allocator, self.book, self.members, self.room, self.budget = (
            allocator, allocator.book, members, room, budget,
        )  # fmt: skip
        policies = members.asks[0].policies
        self.asks = [replace(ask, policies=policies) for ask in members.asks]
        self.kinds: list[tuple[Ask, frozenset[str], Hashable]] = []
        for ask, nodes in zip(self.asks, members.nodes, strict=True):
            budget.pause()
            self.kinds.append((kind_of(ask), nodes, None if room is None else room.kind(ask.pod)))
        self.by_uuid = any(want.uuids or want.excluded for tenant in self.asks[0].tenants for want in tenant.wants)
        self.counts: dict[Hashable, int] = {}  # of nodes in the same state
        self.on_node: dict[str, list[str]] = {}  # the members that are tried there
        self.most: dict[str, int] = {}  # percent that are free on the emptiest card there
        self.largest = [max((want.core for want in gpu_wants([ask])), default=0) for ask in self.asks]
        self.uniform = all(kind == self.kinds[0] for kind in self.kinds)
        self.thresholds = thresholds(self.asks)

    def best(self, domain_of: Callable[[str], Hashable]) -> list[Placement] | None:
        able = self._able()
        if able is None:
            return None
        somewhere = set(able)
        domains: dict[Hashable, list[str]] = defaultdict(list)
        for node in (node.name for node in self.book.nodes()):
            if any(node in nodes for nodes in somewhere):
                domains[domain_of(node)].append(node)
        fixed = {domain_of(placement.node) for placement in self.members.placed}
        if len(fixed) > 1:
            return None
        here = [nodes for domain, nodes in domains.items() if not fixed or domain in fixed]
        here = [nodes for nodes in here if self._may_do(nodes, able)]
        best: tuple[tuple[int, int], list[Placement]] | None = None
        for found in self._all_same(here, able[0]) if self.uniform else self._all_differing(here, able):
            key = self._key(found)
            if best is None or key < best[0]:
                best = key, found
        return None if best is None else best[1]

    def _able(self) -> list[frozenset[str]] | None:
        """Where each member finds cards by itself; None: one finds none."""
        known: dict[object, frozenset[str]] = {}
        for ask, (kind, nodes, _) in zip(self.asks, self.kinds, strict=True):
            if (kind, nodes) not in known:
                self.budget.pause()
                known[kind, nodes] = frozenset(self.allocator.possible(ask, nodes))
            if not known[kind, nodes]:
                return None
        return [known[kind, nodes] for kind, nodes, _ in self.kinds]

    def _may_do(self, nodes: Sequence[str], able: Sequence[frozenset[str]]) -> bool:
        """Whether the free time of the domain's cards is as much as all ask for, in pieces that are large enough, and
        each member finds a node there."""
        here = frozenset(nodes)
        if not all(here & one for one in set(able)):
            return False
        free = np.concatenate([free_times(self.book, node) for node in nodes])
        if free.sum() < time_of(self.asks):
            return False
        return all((free // least).sum() >= many for least, many in self.thresholds)

    def _key(self, found: Sequence[Placement]) -> tuple[int, int]:
        cards: dict[str, set[int]] = defaultdict(set)
        for placement in (*self.members.placed, *found):
            cards[placement.node].update(cards_of(placement))
        return len(cards), -sum(connectedness(self.book, node, sorted(minors)) for node, minors in cards.items())

    # ---- members that ask for the same

    def _all_same(self, domains: Sequence[Sequence[str]], able: frozenset[str]) -> Iterator[list[Placement]]:
        """Of those that need the fewest nodes; such as differ in nothing are looked at once."""
        plans = [plan for nodes in domains if (plan := self._plan([node for node in nodes if node in able]))]
        used = {placement.node for placement in self.members.placed}
        counts = [len(used.union(node for node, _ in plan)) for plan in plans]
        known: set[Hashable] = set()
        for plan, count in zip(plans, counts, strict=True):
            if count > min(counts) or len(known) >= MOST_PLANS:
                continue
            if not self.by_uuid:
                key = tuple((state_of(self.book, node), many) for node, many in plan)
                if key in known:
                    continue
                known.add(key)
            if (found := self._carry_out(plan)) is not None:
                yield found

    def _plan(self, nodes: Sequence[str]) -> list[tuple[str, int]]:
        """How many members go to which nodes; empty: the nodes do not take all."""
        left = len(self.asks)
        counts = [(self._count(node), node) for node in nodes]
        if sum(count for count, _ in counts) < left:
            return []
        used = {placement.node for placement in self.members.placed}
        counts.sort(key=lambda one: (one[1] not in used, -one[0]))  # stable: of equal ones the first
        taken: list[tuple[str, int]] = []
        for at, (count, node) in enumerate(counts):
            rest = [(many, name) for many, name in counts[at:] if many >= left]
            if rest and node not in used:  # the node that takes just what is left
                return [*taken, (min(rest, key=lambda one: one[0])[1], left)]
            if count:
                taken.append((node, min(count, left)))
                left -= taken[-1][1]
            if not left:
                break
        return taken

    def _carry_out(self, plan: Sequence[tuple[str, int]]) -> list[Placement] | None:
        found: list[Placement] = []
        for node, many in plan:
            here = self._on(node, self.asks[len(found) : len(found) + many])
            if here is None:
                return None
            found += here
        return found

    def _count(self, node: str) -> int:
        """How many members the node takes."""
        state = None if self.by_uuid else state_of(self.book, node)
        count = self.counts.get(state) if state is not None else None
        if count is None:
            most = len(self.asks)
            if each := time_of(self.asks[:1]):
                most = min(most, free_time(self.book, node) // each)
            count = len(self._one_by_one(node, self.asks[:most]))
            while count < most and self._on(node, self.asks[: count + 1]) is not None:
                count += 1
            self.counts[state] = count
        while count and self.room is not None and not self.room.bears(node, [ask.pod for ask in self.asks[:count]]):
            count -= 1
        return count

    def _one_by_one(self, node: str, asks: Sequence[Ask]) -> list[Placement]:
        """As many of them as fit, each where the policies like it best."""
        placed: list[Placement] = []
        try:
            for ask in asks:
                self.budget.step()
                choice = self.allocator.choose(ask, [node])
                if choice is None:
                    break
                self.book.place(choice)
                placed.append(choice)
        finally:
            for one in placed:
                self.book.release(one.pod)
        return placed

    def _on(self, node: str, asks: Sequence[Ask]) -> list[Placement] | None:
        """All of them on the node: on its best connected cards, or, where that is not found soon, as they fit."""
        steps = Budget(max(1, min(ONE_NODE_STEPS, self.budget.left)), self.budget.pause)
        given = steps.left
        found = place_group(self.allocator, asks, (), (node,), steps)
        self.budget.left -= given - steps.left
        if found is None and steps.left <= 0:
            placed = self._one_by_one(node, asks)
            return placed if len(placed) == len(asks) else None
        return found

    # ---- members that differ

    def _all_differing(
        self, domains: Sequence[Sequence[str]], able: Sequence[frozenset[str]]
    ) -> Iterator[list[Placement]]:
        for nodes in domains:
            if self.budget.left > 0 and (found := self._differing(nodes, able)) is not None:
                yield found

    def _differing(self, nodes: Sequence[str], able: Sequence[frozenset[str]]) -> list[Placement] | None:
        order = sorted(
            range(len(self.asks)), key=lambda i: (len(able[i].intersection(nodes)), -time_of([self.asks[i]]), i)
        )
        found: dict[int, Placement] = {}
        used = [placement.node for placement in self.members.placed if placement.node in set(nodes)]
        self.on_node, self.most = defaultdict(list), {}
        if not self._member(order, 0, nodes, able, used, found):
            return None
        together: dict[str, list[int]] = defaultdict(list)
        for i, placement in found.items():
            together[placement.node].append(i)
        for node, here in together.items():
            self.budget.pause()
            asks, cards = [self.asks[i] for i in here], {minor for i in here for minor in cards_of(found[i])}
            if connectedness(self.book, node, sorted(cards)) < best_connectedness(self.allocator, asks, node):
                better = self._on(node, asks)
                found.update(zip(here, better, strict=True) if better is not None else ())
        return [found[i] for i in range(len(self.asks))]

    def _member(
        self, order: Sequence[int], at: int, nodes: Sequence[str], able: Sequence[frozenset[str]], used: list[str],
        found: dict[int, Placement],
    ) -> bool:  # fmt: skip
        """Depth first; the book holds those that were found meanwhile. Members of one kind take nodes in order."""
        if at == len(order):
            return True
        i = order[at]
        candidates = [node for node in dict.fromkeys((*used, *nodes)) if node in able[i]]
        if at and self.kinds[order[at - 1]] == self.kinds[i]:
            before = found[order[at - 1]].node
            candidates = candidates[candidates.index(before) :] if before in candidates else candidates
        for node in candidates:
            if self._most_free(node) < self.largest[i]:
                continue  # seen at once, and so no step: of a large group most of the nodes that are used are full
            if self.budget.left <= 0:
                return False
            self.budget.step()
            here = self.on_node[node]
            if self.room is not None and not self.room.bears(node, [*here, self.asks[i].pod]):
                continue
            choice = self.allocator.choose(self.asks[i], [node])
            if choice is None:
                continue
            self.book.place(choice)
            here.append(choice.pod)
            self.most.pop(node, None)
            found[i] = choice
            try:
                if self._member(order, at + 1, nodes, able, used if node in used else [*used, node], found):
                    return True
            finally:
                self.book.release(choice.pod)
                here.pop()
                self.most.pop(node, None)
            del found[i]
        return False

    def _most_free(self, node: str) -> int:
        if node not in self.most:
            self.most[node] = int(free_times(self.book, node).max(initial=0))
        return self.most[node]


def thresholds(asks: Sequence[Ask]) -> list[tuple[int, int]]:
    """(percent, how many cards are asked for with as much or more of each), for each percent that is asked for."""
    many: dict[int, int] = defaultdict(int)
    for want in gpu_wants(asks):
        many[want.core] += want.count
    found, total = [], 0
    for core in sorted((core for core in many if core > 0), reverse=True):
        total += many[core]
        found.append((core, total))
    return found


def everybody(asks: Sequence[Ask], nodes: Collection[str], placed: Sequence[Placement] = ()) -> Members:
    """A group of which each may go to all of these nodes."""
    return Members(tuple(asks), (frozenset(nodes),) * len(asks), tuple(placed))
