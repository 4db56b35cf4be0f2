"""What a node's plugin knows: the cards, the pods with what they were promised, and what the kubelet gave to whom.

Cards and pods are watched; who holds what is read from the kubelet's checkpoint each time it matters, where our own
replies stand as well. Nothing is remembered that must survive us.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gemini.extender.kept import kept
from gemini.kube import names
from gemini.kube.answer import ApiFault
from gemini.kube.checkpoint import BadCheckpoint, Entry
from gemini.kube.life import gone
from gemini.kube.pod import MOST_CONTAINERS
from gemini.kube.quantity import version_number
from gemini.kube.resize import Resize, full_name, read_resize
from gemini.plugin import reply
from gemini.plugin.claims import Claim, PodClaims, claims_of
from gemini.plugin.matching import Candidate, candidates
from gemini.plugin.slots import Card, Kind, cards_of, check_size

_STATUSES = ("initContainerStatuses", "containerStatuses")
POD, DEVICE, RESIZE = "Pod", "Device", names.RESIZE_KIND
log = logging.getLogger("gemini.plugin")


class Refusal(Exception):
    """The kubelet is told no; the text is one line for its event."""


class Kubernetes(Protocol):
    async def pods_on(self, node: str) -> tuple[list[dict[str, Any]], int]: ...
    async def annotate(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> dict[str, Any]: ...
    async def say(self, pod: Mapping[str, Any], reason: str, message: str) -> None: ...
    async def end_pod(self, namespace: str, name: str, uid: str) -> None: ...
    async def resize(self, namespace: str, name: str) -> dict[str, Any]: ...
    async def answer_resize(
        self, namespace: str, name: str, version: str, status: dict[str, Any]
    ) -> dict[str, Any]: ...


class Kubelet(Protocol):
    def checkpoint(self) -> list[Entry]: ...
    async def listed(self) -> set[tuple[str, str]] | None: ...


def slim(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What is looked at of a pod of this node: who may make pods makes them as large as the API server stores them."""
    small, status = kept(pod, True), pod.get("status") or {}
    for key in _STATUSES:
        if isinstance(status.get(key), list):
            small["status"][key] = [_state(one) for one in status[key][:MOST_CONTAINERS]]
    return small


def _state(container: Mapping[str, Any]) -> dict[str, Any]:
    state = container.get("state") or {}
    return {
        "name": container.get("name", ""),
        "state": {key: {"exitCode": (state[key] or {}).get("exitCode")} for key in state},
    }


class View:
    """`changed` is called when the list of slots has changed, `resized` when another share of some pod has."""

    def __init__(self, node: str, kind: Kind, kubernetes: Kubernetes, kubelet: Kubelet, types: Collection[str]) -> None:
        self.node, self.kind, self.kubernetes, self.kubelet, self.types = node, kind, kubernetes, kubelet, types
        self.cards: dict[str, Card] = {}
        self.pods: dict[str, PodClaims] = {}
        self.resizes: dict[str, Resize] = {}  # by the full name of the pod, of this node
        self.changed: Callable[[], None] = lambda: None
        self.resized: Callable[[], None] = lambda: None

    # ---- what is watched (gemini.kube.follow)

    def replace(self, kind: str, objects: Iterable[Mapping[str, Any]], version: int = 0) -> None:
        if kind == DEVICE:
            for device in objects:
                self._put_device(device)
            return
        if kind == RESIZE:
            read = (read_resize(given) for given in objects)
            self.resizes = {one.pod: one for one in read if one is not None and one.node == self.node}
            self.resized()
            return
        listed = {pod["metadata"]["uid"]: pod for pod in objects}
        for uid in set(self.pods) - set(listed):
            del self.pods[uid]
        for pod in listed.values():
            self.put_pod(pod)

    def apply(self, kind: str, event: str, given: Mapping[str, Any]) -> None:
        if kind == DEVICE:
            if event != "DELETED":  # the cards are there still, whatever becomes of what is said of them
                self._put_device(given)
        elif kind == RESIZE:
            self.put_resize(given, event == "DELETED")
        elif event == "DELETED":
            self.pods.pop(given["metadata"]["uid"], None)
        else:
            self.put_pod(given)

    def _put_device(self, device: Mapping[str, Any]) -> None:
        found, faults = cards_of(device)
        for fault in faults:
            log.warning("device fault=%s", fault)
        check_size(self.kind, found)
        fresh = {card.uuid: card for card in found}
        if fresh == self.cards:
            return
        self.cards = fresh
        known, self.pods = self.pods, {}
        for pod in known.values():
            self.put_pod(pod.object)  # their cards' sizes are looked up anew
        self.changed()

    def put_pod(self, pod: Mapping[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        known = self.pods.get(uid)
        if known is not None and _version(known.object) >= max(1, _version(pod)):
            return  # known, or older than what our own write answered
        pod = slim(pod)
        claims = None if gone(pod.get("status") or {}) else claims_of(pod, self.kind, self.cards, self.types)
        if claims is None:
            self.pods.pop(uid, None)
            return
        if claims.fault and (known is None or known.fault != claims.fault):
            log.warning("pod=%s/%s fault=%s", claims.namespace, claims.name, claims.fault)
        self.pods[uid] = claims

    def put_resize(self, given: Mapping[str, Any], deleted: bool = False) -> None:
        """One that is older than what our own write answered is passed over, and one of another node: whoever may make
        them makes ever so many."""
        fresh = read_resize(given)
        if fresh is None:
            return
        known = self.resizes.get(fresh.pod)
        if known is not None and _version(known.object) > _version(given):
            return
        if not deleted and fresh.node == self.node:
            self.resizes[fresh.pod] = fresh
        elif known is not None and known.own == fresh.own:
            del self.resizes[fresh.pod]
        else:
            return
        self.resized()

    def resize_of(self, pod: PodClaims) -> Resize | None:
        return self.resizes.get(full_name(pod.namespace, pod.name, pod.uid))

    async def read(self) -> None:
        """Takes in the node's pods by a read that has seen every write before it, answered or not: the watch may lag.
        Raises ApiFault."""
        self.replace(POD, *await self.kubernetes.pods_on(self.node))

    async def refresh(self) -> None:
        """The same, where what is known will do if the API server does not answer."""
        with contextlib.suppress(ApiFault):
            await self.read()

    # ---- what the kubelet knows

    def entries(self) -> list[Entry]:
        try:
            return [entry for entry in self.kubelet.checkpoint() if entry.resource == self.kind.resource]
        except (OSError, BadCheckpoint) as error:
            raise Refusal(f"the kubelet's checkpoint cannot be read: {error}") from None

    def candidates(self, entries: list[Entry], size: int) -> list[Candidate]:
        """Who may be meant. A pod that got cards for one container of a tenant goes on with these for the others."""
        held = {(entry.pod, entry.container) for entry in entries}
        by_pod: dict[str, list[tuple[Entry, reply.Given]]] = defaultdict(list)
        for entry in entries:
            if (given := reply.read(entry.reply)) is not None:
                by_pod[entry.pod].append((entry, given))
        return candidates((_going_on(pod, by_pod.get(pod.uid, [])) for pod in self.pods.values()), held, size)

    # ---- who was given what

    def given(self, pod: PodClaims) -> tuple[str, ...]:
        """The cards that the pod's container got."""
        for entry in self.entries():
            if entry.pod == pod.uid and (given := reply.read(entry.reply)) is not None:
                return given.cards
        return ()

    def unsettled(self) -> list[PodClaims]:
        return [pod for pod in self.pods.values() if not self.settled(pod)]

    def settled(self, pod: PodClaims) -> bool:
        """Whether the pod's containers were given just the cards that its record names: then it keeps them."""
        for entry in self.entries():
            if entry.pod == pod.uid and (given := reply.read(entry.reply)) is not None:
                claim = pod.claim(entry.container)
                if claim is not None and set(claim.cards) == set(given.cards):
                    return True
        return False

    def of_pod(self, pod: PodClaims) -> list[tuple[Claim, str]]:
        found = []
        for entry in self.entries():
            given, claim = reply.read(entry.reply), pod.claim(entry.container)
            if entry.pod == pod.uid and given is not None and claim is not None:
                found.append((claim, given.tenant))
        return found


def _going_on(pod: PodClaims, got: Sequence[tuple[Entry, reply.Given]]) -> PodClaims:
    cards = {entry.container: given.cards for entry, given in got}
    if not cards:
        return pod
    claims = []
    for claim in pod.claims:
        other = next((cards[name] for name in claim.containers if name in cards), None)
        claims.append(claim if other is None else replace(claim, cards=other))
    return replace(pod, claims=tuple(claims))


def annotations_of(pod: PodClaims) -> Mapping[str, Any]:
    found: Mapping[str, Any] = pod.object["metadata"].get("annotations") or {}
    return found


def _version(given: Mapping[str, Any]) -> int:
    return version_number(given.get("metadata", {}).get("resourceVersion"))
