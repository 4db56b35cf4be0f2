"""What was freed for preemptors is held for them, against pods of lower priority, until they are placed.

What a preemptor would take is looked for when something has changed on its node, and not for each pod that is placed
meanwhile: its victims may take hours to end, and it may ask for a hundred shares. A namespace has a part of the time
alone (rests.py); what was found before counts while it rests, as far as there is room for it. Pure; the clock is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gemini.extender.podview import PodView
from gemini.extender.reserve import GroupKey
from gemini.extender.rests import Rests
from gemini.extender.state import Cluster
from gemini.placement.book import Overbooked
from gemini.placement.holding import Holding
from gemini.placement.model import NODE_LEVEL, Ask, Grant, Node, Placement, Role

MOST_FELLOWS = 32  # of a group: each is looked for with every pod that is placed meanwhile
MOST_CARDS = 256  # held for the preemptors of a namespace, one card counted for each of them that takes of it


@dataclass(frozen=True)
class _Found:
    """What a preemptor would take on a node (None: nothing), as of which turn of the node, and behind whom."""

    ask: Ask
    node: str
    turn: int
    behind: int
    placement: Placement | None


@dataclass
class _Site:
    """A node as it was when it was looked at last. `turn`: another number whenever something else has changed there
    than what is held here."""

    node: Node | None
    left: int
    turn: int


class Fence:
    """That of one replica."""

    def __init__(self, cluster: Cluster, clock_ns: Callable[[], int]) -> None:
        self._cluster, self._clock_ns = cluster, clock_ns
        self._rests = Rests(clock_ns)
        self._found: dict[str, _Found] = {}  # by uid
        self._sites: dict[str, _Site] = {}
        self._turns = 0

    @contextmanager
    def around(self, *pods: PodView) -> Iterator[None]:
        """The book with what was freed for preemptors of higher priority held for them, where it is free already.
        `pods`: those that are to be placed, together."""
        held = _Held()
        try:
            for node, one in self._ahead(pods):
                self._hold(node, one, held)
            held.marks = {node: self._cluster.book.turn(node) for node in held.behind}
            yield
        finally:
            same = [node for node, mark in held.marks.items() if self._cluster.book.turn(node) == mark]
            for key in held.keys:
                self._cluster.book.release(key)
            for node in same:
                self._sites[node].left = self._cluster.book.turn(node)

    def sweep(self) -> None:
        """To be called about once a second: forgets who waits no more."""
        pods = self._cluster.pods
        self._found = {uid: one for uid, one in self._found.items() if uid in pods and pods[uid].waits}
        nodes = {one.node for one in self._found.values()}
        self._sites = {node: site for node, site in self._sites.items() if node in nodes}
        self._rests.sweep()

    def _ahead(self, pods: tuple[PodView, ...]) -> Iterator[tuple[str, PodView]]:
        """Who goes before these, and on which node."""
        cluster, seen = self._cluster, dict[tuple[GroupKey, str], bool]()
        priority, placing = min(pod.priority for pod in pods), {pod.uid for pod in pods}
        for uid in sorted(cluster.nominated - placing):
            preemptor = cluster.pods[uid]
            if preemptor.priority <= priority or uid in cluster.book.holdings:
                continue
            node, fellows = preemptor.nominated or "", list[PodView]()
            if preemptor.group is not None:
                if (of := (preemptor.group, node)) not in seen:
                    fellows = _fellows(cluster, preemptor)
                    seen[of] = any(one.uid in placing for one in fellows)
                if seen[of]:
                    continue
            for one in (preemptor, *fellows[:MOST_FELLOWS]):
                yield node, one

    def _hold(self, node: str, one: PodView, held: _Held) -> None:
        book, key = self._cluster.book, f"nominated/{one.uid}"
        if one.spec is None or one.uid in book.holdings or key in held.keys or held.cards[one.namespace] >= MOST_CARDS:
            return
        if node not in held.behind:
            held.behind[node] = 0
            self._look_at(node)
        found = self._search(one, one.spec.ask, node, held.behind[node])
        held.behind[node] = hash((held.behind[node], one.uid))
        if found is None or found.placement is None or found.node != node:
            return
        try:
            book.place(found.placement)
        except Overbooked:
            return
        held.keys[key] = None
        held.cards[one.namespace] += len(found.placement.grants)

    def _search(self, one: PodView, ask: Ask, node: str, behind: int) -> _Found | None:
        """What the pod would take there, or would have taken when it was looked for last."""
        known, turn = self._found.get(one.uid), self._sites[node].turn
        if known is not None and known.ask is ask and (known.node, known.turn, known.behind) == (node, turn, behind):
            return known
        if not self._rests.may(one.namespace):
            return known
        began_ns = self._clock_ns()
        choice = self._cluster.allocator.choose(ask, [node])
        self._rests.took(one.namespace, self._clock_ns() - began_ns, choice is not None)
        placement = None if choice is None else _summed(f"nominated/{one.uid}", choice)
        found = self._found[one.uid] = _Found(ask, node, turn, behind, placement)
        return found

    def _look_at(self, name: str) -> None:
        book, site = self._cluster.book, self._sites.get(name)
        node, now = book.node(name), book.turn(name)
        if site is None or site.node is not node or site.left != now:
            self._turns += 1
            self._sites[name] = _Site(node, now, self._turns)


class _Held:
    """What is held while some pods are placed: keys in the book; of nodes a number for whom was looked at there, and
    the turn of the book after that; cards by namespace."""

    def __init__(self) -> None:
        self.keys: dict[str, None] = {}
        self.behind: dict[str, int] = {}
        self.marks: dict[str, int] = {}
        self.cards: Counter[str] = Counter()


def _summed(key: str, choice: Placement) -> Placement:
    """All that is held of each card as one: it is entered again and again. Of slots it counts one."""
    if len(choice.grants) == 1:
        return Placement(key, choice.node, choice.grants)
    amounts = Holding(choice).amounts().items()
    return Placement(
        key, choice.node, tuple(Grant(*where, core, memory, role=Role.ALWAYS) for where, (core, memory, _) in amounts)
    )


def _fellows(cluster: Cluster, pod: PodView) -> list[PodView]:
    """The others of a group that goes to one node: what was freed there for one of them is for all."""
    if pod.group is None or pod.spec is None or pod.spec.ask.required != NODE_LEVEL:
        return []
    waiting, running = cluster.members(pod.group)
    others = [one for one in waiting if one.uid != pod.uid and one.nominated in (None, pod.nominated)]
    return others[: max(0, pod.spec.ask.group_size - len(running) - 1)]
