"""Which evictions free a whole card: pods on partly used cards that other partly used cards have room for.

Pure. One card after another, the least used first. A card is freed where each of its holders may be evicted, something
makes it anew, and its share fits on a card that is in use already and is not to be freed itself. Where the pods then go
is kube-scheduler's choice, of which this is a forecast. It holds where the cluster's policies like used cards best
(`fragment` first), and is not told of what this cluster does not keep of pods: volumes, ports, quotas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemini.extender.kept import MIRROR
from gemini.extender.podview import PodView, mapping
from gemini.extender.preempt import CRITICAL, Budgets
from gemini.extender.room import Rooms
from gemini.extender.state import Cluster
from gemini.placement.allocate import Allocator
from gemini.placement.model import GPU, Ask, Placement

POLICIES = ("fragment",)
UNSAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"  # "false": the pod's owner says no
Object = Mapping[str, Any]
Card = tuple[str, int]  # node, minor


@dataclass(frozen=True)
class Freed:
    """A card, the pods to be evicted, and where each would go."""

    card: Card
    moves: tuple[tuple[PodView, Placement], ...]


@dataclass(frozen=True)
class Plan:
    """`stays`: why each other card in use is not freed."""

    freed: tuple[Freed, ...]
    stays: Mapping[Card, str]


def plan(cluster: Cluster, pods: Mapping[str, Object]) -> Plan:
    """`pods`: the whole objects by uid, of which the cluster keeps a part. The book is as it was before, afterwards."""
    search = _Search(cluster, pods)
    try:
        return search.run()
    finally:
        search.undo()


def stays(pod: PodView, given: Object) -> str | None:
    """Why a pod is not to be evicted; None: it may be."""
    metadata, spec = mapping(given.get("metadata")), mapping(given.get("spec"))
    notes, owners = mapping(metadata.get("annotations")), metadata.get("ownerReferences")
    makers = [one for one in owners if isinstance(one, dict) and one.get("controller")] if owners else []
    constrained = bool(spec.get("affinity") or spec.get("topologySpreadConstraints"))
    for holds, text in (
        (pod.terminating or pod.gone, "is ending"),
        (pod.group is not None, "is one of a group"),
        (MIRROR in notes, "is the node's own"),
        (spec.get("priorityClassName") in CRITICAL, "is critical"),
        (str(notes.get(UNSAFE)).lower() == "false", f"says {UNSAFE}: false"),
        (not makers, "is made anew by nothing"),
        (any(one.get("kind") == "DaemonSet" for one in makers), "is a DaemonSet's"),
        (pod.resize is not None and pod.resize.booked is not None, "has another share than it would be made anew with"),
        (constrained, "says where it may run by affinity or spread"),
        (pod.spec is None or pod.vendor or pod.placement is None, "has no share that is known"),
    ):
        if holds:
            return text
    assert pod.placement is not None
    cards = {grant.minor for grant in pod.placement.grants if grant.type == GPU}
    others = any(grant.type != GPU for grant in pod.placement.grants)
    return "holds several devices" if len(cards) > 1 or others else None


def may_go(given: Object, node: Object) -> bool:
    """Whether a pod's node selector and tolerations let it run on a node."""
    metadata, spec = mapping(node.get("metadata")), mapping(node.get("spec"))
    wanted, pod = mapping(node.get("metadata")).get("labels"), mapping(given.get("spec"))
    labels = mapping(wanted)
    if spec.get("unschedulable") or metadata.get("deletionTimestamp"):
        return False
    if any(labels.get(key) != value for key, value in mapping(pod.get("nodeSelector")).items()):
        return False
    tolerations = [mapping(one) for one in pod.get("tolerations") or ()]
    taints = [mapping(one) for one in spec.get("taints") or ()]
    hard = [one for one in taints if one.get("effect") in ("NoSchedule", "NoExecute")]
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in hard)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")


class _Search:
    def __init__(self, cluster: Cluster, pods: Mapping[str, Object]) -> None:
        self.cluster, self.book, self.pods = cluster, cluster.book, pods
        self.allocator = Allocator(cluster.book, POLICIES)
        self.budgets, self.rooms = Budgets(cluster), Rooms(cluster)
        self.evicted: list[PodView] = []
        self.full: set[Card] = set()  # cards that take somebody in: they are not freed
        self.uuids: set[str] = set()  # of cards that are freed
        self._undo: list[Callable[[], object]] = []

    def run(self) -> Plan:
        freed: list[Freed] = []
        reasons: dict[Card, str] = {}
        for card in self._cards():
            found = self._free(card)
            if isinstance(found, str):
                reasons[card] = found
            else:
                freed.append(found)
        return Plan(tuple(freed), reasons)

    def undo(self, down_to: int = 0) -> None:
        while len(self._undo) > down_to:
            self._undo.pop()()

    def _cards(self) -> list[Card]:
        """Those in use, the least used first."""
        found = []
        for node in self.book.nodes():
            used = self.book.used_on(node.name)
            for device in node.devices:
                if device.type == GPU and device.health and not device.cordoned:
                    holders = self.book.holders(node.name, GPU, device.minor)
                    if holders:
                        core = used[GPU, device.minor][0]
                        found.append((core, len(holders), node.name, device.minor))
        return [(node, minor) for *_, node, minor in sorted(found)]

    def _free(self, card: Card) -> Freed | str:
        if card in self.full:
            return "takes in what is moved"
        node, minor = card
        views = []
        for holder in sorted(self.book.holders(node, GPU, minor)):
            pod = self.cluster.pods.get(holder)
            if pod is None or holder not in self.pods:
                return "is held by a claim, another device plugin, or a pod that is being bound"
            if (why := stays(pod, self.pods[holder])) is not None:
                return f"{pod.namespace}/{pod.name} {why}"
            views.append(pod)
        if broken := self.budgets.breaking([*self.evicted, *views]):
            name = next(pod for pod in (*views, *self.evicted) if pod.uid in broken)
            return f"a PodDisruptionBudget forbids that {name.namespace}/{name.name} be evicted"
        known = self.book.node(node)
        assert known is not None
        uuid = next(one.uuid for one in known.devices if (one.type, one.minor) == (GPU, minor))
        begun, uuids = len(self._undo), self.uuids | {uuid}
        for pod in views:
            self._lift(pod)
        moves: list[tuple[PodView, Placement]] = []
        for pod in sorted(views, key=_size):
            place = self._place(pod, card, uuids)
            if place is None:
                self.undo(begun)
                return f"no other card in use has room for {pod.namespace}/{pod.name}"
            moves.append((pod, place))
        self.evicted += views
        self.uuids = uuids
        self.full.update((place.node, grant.minor) for _, place in moves for grant in place.grants)
        return Freed(card, tuple(moves))

    def _place(self, pod: PodView, card: Card, uuids: set[str]) -> Placement | None:
        assert pod.spec is not None
        given = self.pods[pod.uid]
        used = [
            node.name for node in self.book.nodes()
            if any(self.book.holders(node.name, GPU, one.minor) for one in node.devices if one.type == GPU)
        ]  # fmt: skip
        ask = replace(_without(pod.spec.ask, frozenset(uuids)), policies=POLICIES)
        able = [
            name for name in self.allocator.possible(ask, used)
            if may_go(given, self.cluster.nodes.get(name, {}))
            and (name == card[0] or self.rooms.bears(name, [pod.uid]))
        ]  # fmt: skip
        choice = self.allocator.choose(ask, able) if able else None
        if choice is None or any(not self.book.holders(choice.node, g.type, g.minor) for g in choice.grants):
            return None
        self.book.place(choice)
        self._undo.append(lambda: self.book.release(choice.pod))
        return choice

    def _lift(self, pod: PodView) -> None:
        held = self.book.holdings[pod.uid]
        self.book.release(pod.uid)
        self._undo.append(lambda: self.book.place(held.placement, strict=False, initialized=held.initialized))


def _without(ask: Ask, uuids: frozenset[str]) -> Ask:
    """The ask, on none of these cards."""
    tenants = tuple(
        replace(
            tenant, wants=tuple(replace(want, excluded=want.excluded | uuids) for want in tenant.wants), policies=None
        )
        for tenant in ask.tenants
    )
    return replace(ask, tenants=tenants)


def _size(pod: PodView) -> tuple[int, str]:
    """The largest first."""
    assert pod.placement is not None
    return -sum(grant.core for grant in pod.placement.grants), pod.uid
