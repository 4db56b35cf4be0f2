"""What nodes have besides cards: processors, memory and whatever else kube-scheduler adds up.

Pure. The node's word is its allocatable, the pods' what they need (needs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Self

from gemini.extender.needs import Amounts
from gemini.extender.podview import PodView
from gemini.extender.state import Cluster
from gemini.kube.parts import mapping
from gemini.kube.quantity import billionths


class Room:
    """A node's resources as the scheduler adds them up: allocatable less what its pods need, and those that are to
    come. Of a pod that is looked at which the node has, for a pod may name a thousand others. Of what those who come do
    not ask for, the node may have given out more than it has: a plugin of its has gone, or a card."""

    def __init__(self, cluster: Cluster, node: str, pods: Iterable[PodView], coming: Iterable[PodView] = ()) -> None:
        said = mapping(mapping(cluster.nodes.get(node, {}).get("status")).get("allocatable"))
        self._free = {key: billionths(value) for key, value in said.items()}
        self._wanted: set[str] = set()  # by those who come
        for pod in pods:
            self.add(pod)
        for pod in coming:
            self.add(pod)
            self._wanted.update(key for key in self._free if pod.needs.get(key, 0) > 0)

    def copy(self) -> Self:
        twin = object.__new__(type(self))
        twin._free, twin._wanted = dict(self._free), self._wanted
        return twin

    def add(self, pod: PodView) -> None:
        needs = pod.needs
        for key in self._free:
            self._free[key] -= needs.get(key, 0)

    def take_back(self, pod: PodView) -> None:
        needs = pod.needs
        for key in self._free:
            self._free[key] += needs.get(key, 0)

    def fits(self, pod: PodView | None = None) -> bool:
        """Whether those who come have room (beside it)."""
        asked = pod.needs if pod is not None else {}
        return all(self._free[key] >= asked.get(key, 0) for key in self._wanted)

    def has(self, asked: Amounts) -> bool:
        return all(left >= more for key, left in self._free.items() if (more := asked.get(key, 0)) > 0)


class Rooms:
    """The nodes of a cluster as they are now, for pods that wait (by uid). To be made anew for each look. `members`:
    pods that may be unknown to the cluster yet. `gone`: uids of pods that count as gone."""

    def __init__(self, cluster: Cluster, members: Iterable[PodView] = (), gone: Collection[str] = ()) -> None:
        self._cluster, self._gone = cluster, gone
        self._known: dict[str, Room] = {}
        self._members = {one.uid: one for one in members}
        self._sums: dict[str, _Sums] = {}

    def kind(self, pod: str) -> Hashable:
        return tuple(sorted(self._asked(pod).items()))

    def bears(self, node: str, pods: Sequence[str]) -> bool:
        room = self._known.get(node)
        if room is None:
            here = (self._cluster.pods[uid] for uid in self._cluster.on_node.get(node, ()) if uid not in self._gone)
            room = self._known[node] = Room(self._cluster, node, here)
            self._sums[node] = _Sums(self._asked)
        return room.has(self._sums[node].of(pods))

    def _asked(self, pod: str) -> Amounts:
        known = self._members.get(pod) or self._cluster.pods.get(pod)
        return {} if known is None else known.needs


class _Sums:
    """What the first pod of those that were asked about last needs, the first two, and so on: a search tries the same
    pods with one more, or another one in the place of the last."""

    def __init__(self, asked: Callable[[str], Amounts]) -> None:
        self._asked = asked
        self._pods: list[str] = []
        self._sums: list[Amounts] = [{}]

    def of(self, pods: Sequence[str]) -> Amounts:
        same = min(len(pods), len(self._pods))
        while self._pods[:same] != list(pods[:same]):
            same -= 1
        del self._pods[same:], self._sums[same + 1 :]
        for pod in pods[same:]:
            total = dict(self._sums[-1])
            for key, amount in self._asked(pod).items():
                total[key] = total.get(key, 0) + amount
            self._pods.append(pod)
            self._sums.append(total)
        return self._sums[-1]
