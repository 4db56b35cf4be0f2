"""Preemption by a pod of a group: nobody is evicted unless that makes room for all of it, or goes on with what does.

Pure. kube-scheduler preempts for one pod at a time and knows nothing of groups: by itself it would evict others for a
member whose group is too small still, or can have room nowhere. Here the group is placed as if all who may go were
gone; where that finds no room nobody goes. A group that is held to one node has room made there for all its members by
the first that asks, and the others follow it to that node. Of one on several nodes each member has room made on the
node that it would be given. Who is being evicted counts as gone, so that no member evicts anew what is on its way. So
does whoever ends within minutes; a pod that was given years to end would keep the group waiting for so long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from gemini.extender.codec import Victims
from gemini.extender.groupwords import disagreement
from gemini.extender.podview import PodView
from gemini.extender.preempt import CHOICES, Lifted, Over, Ways, evictable, victims_for, victims_on
from gemini.extender.room import Rooms
from gemini.extender.state import Cluster
from gemini.placement.domain import Members, place_within
from gemini.placement.group import Budget, cards_of, place_group, time_of
from gemini.placement.model import NODE_LEVEL, Placement

STEPS = 300  # of each search: some hundredths of a second
MayGo = Callable[[Sequence[PodView], Sequence[str]], list[frozenset[str]]]


def victims_of_group(
    cluster: Cluster, pod: PodView, proposed: Mapping[str, Victims], may_go: MayGo, over: Over
) -> dict[str, Victims]:
    """Node -> victims. `may_go`: the nodes for each member, as far as kube-scheduler asked about them. `over`: whether
    there is no more time."""
    assert pod.spec is not None
    assert pod.group is not None
    held = cluster.reservations.of(pod.uid)
    if held is not None:  # its group has cards; it lacks something else on that node
        node = held.placement.node
        victims = victims_on(cluster, pod, node, proposed[node], over) if node in proposed else None
        return {} if victims is None else {node: victims}
    waiting, running = cluster.members(pod.group)
    others = [one for one in waiting if one.uid != pod.uid]
    size = pod.spec.ask.group_size
    if len(others) + 1 + len(running) < size or disagreement(pod, others) is not None:
        return {}
    chosen = sorted([pod, *others][: max(1, size - len(running))], key=lambda one: one.order)
    if any(one.uid in cluster.reservations for one in chosen):
        return {}  # the group is being placed
    return _Preemption(cluster, pod, chosen, running, proposed, may_go, over).run()


class _Preemption:
    """For one pod; `chosen` are the members that are to be placed, it among them."""

    def __init__(
        self, cluster: Cluster, pod: PodView, chosen: Sequence[PodView], running: Sequence[Placement],
        proposed: Mapping[str, Victims], may_go: MayGo, over: Over,
    ) -> None:  # fmt: skip
        self.cluster, self.pod, self.chosen, self.running = cluster, pod, chosen, running
        self.proposed, self.over = proposed, over
        self.asks = [one.spec.ask for one in chosen if one.spec is not None]
        self.nominated = {one.nominated for one in chosen if one.nominated is not None}
        here = frozenset((*proposed, *self.nominated))
        self.nodes = tuple(nodes | here for nodes in may_go(chosen, tuple(proposed)))
        pods = (cluster.pods[uid] for node in sorted(here) for uid in sorted(cluster.on_node.get(node, ())))
        self.ending = [
            one for one in pods
            if one.terminating and (one.ends_soon or (one.preempted and one.node in self.nominated))
        ]  # fmt: skip

    def run(self) -> dict[str, Victims]:
        with Lifted(self.cluster.book) as away:
            for one in self.ending:
                away.lift(one.uid)
            gone = {one.uid for one in self.ending}
            if self._placed(gone) is not None:
                return {}  # there is room, or there will be once those have ended
            return self._on_one_node() if self.asks[0].required == NODE_LEVEL else self._on_several(gone)

    def _placed(self, gone: Collection[str]) -> list[Placement] | None:
        """Where the group would go, with the book as it is and these pods gone."""
        members = Members(tuple(self.asks), self.nodes, tuple(self.running))
        rooms = Rooms(self.cluster, self.chosen, gone)
        return place_within(self.cluster.allocator, members, self.cluster.domain_of, rooms, Budget(STEPS))

    # ---- a group on one node

    def _on_one_node(self) -> dict[str, Victims]:
        found: dict[str, Victims] = {}
        for node in sorted(self.proposed, key=lambda name: name not in self.nominated):
            if self.over():
                break
            if self.running and node != self.running[0].node:
                continue
            if not all(node in nodes for nodes in self.nodes):
                continue
            victims = self._victims(self.chosen, node, lambda lower, node=node: self._ways(node, lower))  # type: ignore[misc]
            if victims is not None:
                found[node] = victims
                if node in self.nominated:  # others of the group are to go there
                    return {node: victims}
        return found

    def _ways(self, node: str, lower: Sequence[PodView]) -> Iterator[Sequence[Placement]]:
        """What the members may hold there: their best connected cards, and those with the least on them."""
        best = place_group(self.cluster.allocator, self.asks, self.running, (node,), Budget(STEPS))
        if best is not None:
            yield best
        cheapest = self._cheapest(node, lower)
        if cheapest is not None and cheapest != best:
            yield cheapest

    def _cheapest(self, node: str, lower: Sequence[PodView]) -> list[Placement] | None:
        """One member after another, the largest first, takes the cards whose holders are the fewest and least
        important."""
        book = self.cluster.book
        cost: dict[int, tuple[int, int]] = defaultdict(lambda: (-(2**31), 0))
        for one in lower:
            for minor in cards_of(one.placement) if one.placement is not None else ():
                most, many = cost[minor]
                cost[minor] = max(most, one.priority), many + 1
        placed: dict[int, Placement] = {}

        def price(choice: Placement) -> tuple[int, int, tuple[int, ...]]:
            minors = cards_of(choice)
            each = [cost[minor] for minor in minors]
            return max((most for most, _ in each), default=0), sum(many for _, many in each), minors

        try:
            for i in sorted(range(len(self.asks)), key=lambda i: (-time_of([self.asks[i]]), i)):
                choices = [one.placement for one in self.cluster.allocator.choices(self.asks[i], node)[:CHOICES]]
                if not choices:
                    return None
                best = min(choices, key=price)
                book.place(best)
                placed[i] = best
                for minor in cards_of(best):
                    cost.pop(minor, None)  # who is there goes anyway
        finally:
            for choice in placed.values():
                book.release(choice.pod)
        return [placed[i] for i in range(len(self.asks))]

    # ---- a group on several nodes

    def _on_several(self, gone: set[str]) -> dict[str, Victims]:
        """As few nodes as will do are taken to be rid of who may go there, those with the least important first."""
        lower = {node: evictable(self.cluster, self.chosen, node) for node in self.proposed}
        ranked = [node for node in lower if lower[node]]
        ranked.sort(key=lambda node: (max(one.priority for one in lower[node]), len(lower[node])))
        found, many = None, 1
        with Lifted(self.cluster.book) as away:
            done = 0
            while found is None and done < len(ranked) and not self.over():
                for node in ranked[done:many]:
                    for one in lower[node]:
                        away.lift(one.uid)
                        gone.add(one.uid)
                done, many = many, 2 * many
                found = self._placed(gone)
        node = next((one.node for one in found or () if one.pod == self.pod.uid), "")
        if found is None or node not in self.proposed:
            return {}
        here = [one for one in found if one.node == node]
        uids = {one.pod for one in here}
        members = [one for one in self.chosen if one.uid in uids]
        victims = self._victims(members, node, lambda _: [here])
        return {} if victims is None else {node: victims}

    def _victims(self, members: Sequence[PodView], node: str, ways: Ways) -> Victims | None:
        ending = {one.uid for one in self.ending}
        return victims_for(self.cluster, members, node, self.proposed[node], ways, ending, self.over)
