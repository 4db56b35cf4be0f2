"""What pods need of a node besides cards: processors, memory and whatever else kube-scheduler adds up.

Pure. The node's word is its allocatable, the pods' their requests, counted as the scheduler counts them: exactly, in
billionths, the finest that Kubernetes knows. Sums of fractions would take most of the search for a large group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

from gemini.extender.podview import PodView
from gemini.extender.state import Cluster
from gemini.kube import names, quantity
from gemini.units import BadValue

BILLION = 10**9
OF_PODS, HUGE = ("cpu", "memory"), "hugepages-"  # what a pod may ask for as a whole, in place of its containers
Amounts = Mapping[str, int]  # resource -> billionths


class Room:
    """A node's resources as the scheduler adds them up: allocatable less the requests of its pods."""

    def __init__(self, cluster: Cluster, node: str, pods: Iterable[PodView]) -> None:
        status = (cluster.nodes.get(node) or {}).get("status") or {}
        self._free = _in_billionths({key: _number(v) for key, v in (status.get("allocatable") or {}).items()})
        for pod in pods:
            self.add(pod)

    def add(self, pod: PodView) -> None:
        for key, amount in amounts_of(pod.object).items():
            if key in self._free:
                self._free[key] -= amount

    def take_back(self, pod: PodView) -> None:
        for key, amount in amounts_of(pod.object).items():
            if key in self._free:
                self._free[key] += amount

    def fits(self, pod: PodView | None = None) -> bool:
        return self.has(amounts_of(pod.object) if pod is not None else {})

    def has(self, asked: Amounts) -> bool:
        return all(left >= asked.get(key, 0) for key, left in self._free.items())


def amounts_of(pod: Mapping[str, Any]) -> dict[str, int]:
    """A pod's requests, in billionths."""
    return _in_billionths(requests_of(pod))


def _in_billionths(amounts: Mapping[str, Fraction]) -> dict[str, int]:
    return {key: ceil(amount * BILLION) for key, amount in amounts.items()}


def requests_of(pod: Mapping[str, Any]) -> dict[str, Fraction]:
    """A pod's requests: sidecars + max(sum of containers, largest init container), or what it asks for as a whole;
    overhead, and itself as one pod."""
    spec = pod.get("spec") or {}
    always: dict[str, Fraction] = {}
    largest: dict[str, Fraction] = {}
    for container in spec.get("initContainers") or ():
        asked = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(always, asked)
            asked = {}
        for key, amount in {**{k: Fraction(0) for k in always}, **asked}.items():
            largest[key] = max(largest.get(key, Fraction(0)), amount + always.get(key, 0))
    apps: dict[str, Fraction] = {}
    for container in spec.get("containers") or ():
        _add(apps, _requests(container))
    _add(apps, always)
    total = {key: max(apps.get(key, Fraction(0)), largest.get(key, Fraction(0))) for key in {*apps, *largest}}
    whole = ((spec.get("resources") or {}).get("requests") or {}).items()
    total |= {key: _number(value) for key, value in whole if key in OF_PODS or key.startswith(HUGE)}
    for key, value in (spec.get("overhead") or {}).items():
        total[key] = total.get(key, Fraction(0)) + _number(value)
    total["pods"] = Fraction(1)
    # Not counted by the scheduler (ignoredByScheduler); the cards themselves say it better.
    for key in (names.RESOURCE_MEMORY, names.RESOURCE_RATIO):
        total.pop(key, None)
    return total


def _requests(container: Mapping[str, Any]) -> dict[str, Fraction]:
    resources = container.get("resources") or {}
    said = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {key: _number(value) for key, value in said.items()}


def _add(total: dict[str, Fraction], more: Mapping[str, Fraction]) -> None:
    for key, amount in more.items():
        total[key] = total.get(key, Fraction(0)) + amount


def _number(value: object) -> Fraction:
    try:
        return Fraction(quantity.parse_quantity(value))
    except BadValue:
        return Fraction(0)


class Rooms:
    """The nodes of a cluster as they are now, for pods that wait (by uid). To be made anew for each look. `members`:
    pods that may be unknown to the cluster yet. `gone`: uids of pods that count as gone."""

    def __init__(self, cluster: Cluster, members: Iterable[PodView] = (), gone: Collection[str] = ()) -> None:
        self._cluster, self._gone = cluster, gone
        self._known: dict[str, Room] = {}
        self._members = {one.uid: one for one in members}
        self._amounts: dict[str, dict[str, int]] = {}
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

    def _asked(self, pod: str) -> dict[str, int]:
        if pod not in self._amounts:
            known = self._members.get(pod) or self._cluster.pods.get(pod)
            self._amounts[pod] = {} if known is None else amounts_of(known.object)
        return self._amounts[pod]


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
