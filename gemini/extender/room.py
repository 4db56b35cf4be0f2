"""What pods need of a node besides cards: processors, memory and whatever else kube-scheduler adds up.

Pure. The node's word is its allocatable, the pods' their requests, counted as the scheduler counts them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from gemini.extender.podview import PodView
from gemini.extender.state import Cluster
from gemini.kube import names, quantity
from gemini.units import BadValue


class Room:
    """A node's resources as the scheduler adds them up: allocatable less the requests of its pods."""

    def __init__(self, cluster: Cluster, node: str, pods: Iterable[PodView]) -> None:
        status = (cluster.nodes.get(node) or {}).get("status") or {}
        self._free: dict[str, Fraction] = {key: _number(v) for key, v in (status.get("allocatable") or {}).items()}
        for pod in pods:
            self.add(pod)

    def add(self, pod: PodView) -> None:
        for key, amount in requests_of(pod.object).items():
            if key in self._free:
                self._free[key] -= amount

    def take_back(self, pod: PodView) -> None:
        for key, amount in requests_of(pod.object).items():
            if key in self._free:
                self._free[key] += amount

    def fits(self, pod: PodView | None = None) -> bool:
        return self.has(requests_of(pod.object) if pod is not None else {})

    def has(self, asked: Mapping[str, Fraction]) -> bool:
        return all(left >= asked.get(key, 0) for key, left in self._free.items())


def requests_of(pod: Mapping[str, Any]) -> dict[str, Fraction]:
    """A pod's requests: sidecars + max(sum of containers, largest init container), overhead, and itself as one pod."""
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
    """The nodes of a cluster as they are now, for pods that wait (by uid). To be made anew for each look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, Room] = {}
        self._requests: dict[str, dict[str, Fraction]] = {}
        self._last: tuple[tuple[str, ...], dict[str, Fraction]] = ((), {})

    def kind(self, pod: str) -> Hashable:
        return tuple(sorted(self._asked(pod).items()))

    def bears(self, node: str, pods: Sequence[str]) -> bool:
        room = self._known.get(node)
        if room is None:
            here = (self._cluster.pods[uid] for uid in self._cluster.on_node.get(node, ()))
            room = self._known[node] = Room(self._cluster, node, here)
        total = self._total(tuple(pods))
        return room.has(total)

    def _total(self, pods: tuple[str, ...]) -> Mapping[str, Fraction]:
        """What all of these ask for: the same pods are looked for on one node after another, or with one more."""
        known, total = self._last
        if known != pods:
            more = pods[len(known) :] if pods[: len(known)] == known else pods
            total = dict(total) if len(more) < len(pods) else {}
            for pod in more:
                _add(total, self._asked(pod))
            self._last = (pods, total)
        return total

    def _asked(self, pod: str) -> dict[str, Fraction]:
        if pod not in self._requests:
            known = self._cluster.pods.get(pod)
            self._requests[pod] = {} if known is None else requests_of(known.object)
        return self._requests[pod]
