"""Cards that other device plugins gave out, in the book beside ours.

Pure. What a node's kubelet has given a pod by another plugin stands in the Device's devices-checkpoints; such a card is
wholly held by that pod. Between a pod's binding and the report of what it was given it may have any card of the node,
and so holds all of them. What the pod's own record says of a card, it says better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from gemini.extender.podview import PodView
from gemini.kube.device import Reported
from gemini.placement.book import Book
from gemini.placement.model import GPU, WHOLE, Device, Grant, Placement

PREFIX = "foreign/"  # of the keys in the book


class ForeignCards:
    """Those of one cluster. `devices`, by node, and `pods`, by uid, are the cluster's own, and only looked at."""

    def __init__(self, book: Book, devices: Mapping[str, Reported], pods: Mapping[str, PodView]) -> None:
        self._book, self._devices, self._pods = book, devices, pods
        self.releases = 0  # grows with each holding that is given back
        self._given: dict[str, dict[str, tuple[Grant, ...]]] = {}  # node -> pod uid -> what another plugin gave it
        self._awaited: dict[str, set[str]] = defaultdict(set)  # node -> bound pods whose cards another plugin chooses

    def report(self, node: str) -> None:
        """The node's Device has changed, or is gone."""
        before = self._given.pop(node, {})
        reported = self._devices.get(node)
        held: dict[str, list[Grant]] = defaultdict(list)
        if reported is not None:
            by_uuid = {d.uuid: d for d in reported.node.devices if d.uuid}
            for pod, uuid in reported.foreign:
                if uuid in by_uuid:
                    held[pod].append(_wholly(by_uuid[uuid]))
        if held:
            self._given[node] = {pod: tuple(grants) for pod, grants in held.items()}
        for pod in {*before, *held, *self._awaited.get(node, ())}:
            self.settle(node, pod)

    def settle(self, node: str, pod: str) -> None:
        """Enters what another plugin gave a pod, as far as the pod's own record does not say it, and says it better.
        Until all of it has been reported it may be any card of the node."""
        view, reported = self._pods.get(pod), self._devices.get(node)
        here = view is not None and view.node == node and not view.gone
        grants = self._given.get(node, {}).get(pod, ())
        discard(self._awaited, node, pod)
        if view is not None and here and view.vendor:
            self._awaited[node].add(pod)
            if reported is not None and not all((pod, container) in reported.settled for container in view.vendor):
                grants = tuple(_wholly(device) for device in reported.node.devices if device.type == GPU)
        if view is not None and here and view.placement is not None:
            own = {(grant.type, grant.minor) for grant in view.placement.grants}
            grants = tuple(grant for grant in grants if (grant.type, grant.minor) not in own)
        key = _key(node, pod)
        known = self._book.holdings.get(key)
        if known is not None and known.placement.grants != grants:
            self.releases += self._book.release(key)
            known = None
        if known is None and grants:
            self._book.place(Placement(key, node, grants), strict=False)

    def sharers(self, node: str) -> list[str]:
        """Who holds, or is promised, parts of the node's cards by us: of those another device plugin knows nothing."""
        here = (self._book.holdings[key] for key in self._book.pods_on(node) if not key.startswith(PREFIX))
        return [one.placement.pod for one in here if one.holds(GPU)]

    def open_cards(self, node: str) -> tuple[Grant, ...]:
        """The cards that another device plugin may give out next: all but those that it has given out."""
        site = self._book.node(node)
        keys = [key for key in self._book.pods_on(node) if key.startswith(PREFIX)]
        held = {where for key in keys for where in self._book.holdings[key].devices()}
        devices = site.devices if site is not None else ()
        return tuple(_wholly(d) for d in devices if d.type == GPU and (d.type, d.minor) not in held)

    def taken(self, placement: Placement) -> bool:
        """Whether a card of it is held by a pod that another device plugin serves."""
        wanted = {(grant.type, grant.minor) for grant in placement.grants}
        pods = {*self._given.get(placement.node, ()), *self._awaited.get(placement.node, ())}
        held = (self._book.holdings.get(_key(placement.node, pod)) for pod in pods)
        return any(wanted & set(holding.devices()) for holding in held if holding is not None)

    def keys(self) -> Iterator[str]:
        """Of what may stand in the book, some of them twice."""
        return (_key(node, pod) for by in (self._given, self._awaited) for node in by for pod in by[node])


def discard(index: dict[Any, set[str]], key: Any, uid: str) -> None:
    """Takes a member out, and the set with its last."""
    index[key].discard(uid)
    if not index[key]:
        del index[key]


def _wholly(device: Device) -> Grant:
    return Grant(device.type, device.minor, WHOLE, device.memory if device.type == GPU else 0)


def _key(node: str, pod: str) -> str:
    return f"{PREFIX}{node}/{pod}"
