"""What this replica has promised and what others have, on top of the book: the common ground of filter and bind.

Does I/O only through the `Kubernetes` that it is given. All of it runs on one event loop, and between two awaits the
book belongs to whoever runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gemini.extender.fence import Fence
from gemini.extender.kinds import CLAIM, POD, RESIZE
from gemini.extender.ledger import Ledger
from gemini.extender.podview import PodView
from gemini.extender.reserve import BIND_NS
from gemini.extender.state import Cluster
from gemini.kube.answer import ApiFault, Refused
from gemini.kube.claim import PREFIX, Claim
from gemini.kube.resize import Amounts, pod_of
from gemini.placement.model import GROWTH, NodeRefusal, Placement


class Kubernetes(Protocol):
    """What the service asks of the API server; gemini.kube.client.Client is one."""

    async def pod(self, namespace: str, name: str) -> dict[str, Any]: ...

    async def pods_on(self, node: str) -> tuple[list[dict[str, Any]], int]: ...

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]) -> None: ...

    async def lease(self, namespace: str, name: str) -> dict[str, Any] | None: ...

    async def all_leases(self, namespace: str) -> list[dict[str, Any]]: ...

    async def claims_on(self, node: str) -> tuple[list[dict[str, Any]], int]: ...

    async def claim(self, namespace: str, name: str) -> dict[str, Any]: ...

    async def answer_claim(self, given: dict[str, Any]) -> dict[str, Any]: ...

    async def resize(self, namespace: str, name: str) -> dict[str, Any]: ...

    async def answer_resize(
        self, namespace: str, name: str, version: str, status: dict[str, Any]
    ) -> dict[str, Any]: ...

    async def quotas(self, namespace: str) -> list[dict[str, Any]]: ...

    async def limit_ranges(self, namespace: str) -> list[dict[str, Any]]: ...

    async def wake(self, stamp: str) -> None: ...

    async def put_lease(self, namespace: str, name: str, metadata: dict[str, Any]) -> str: ...

    async def drop_lease(self, namespace: str, name: str, version: str | None = None) -> None: ...


@dataclass(frozen=True)
class Verdict:
    """The answer to filter: the nodes that can take the pod, in the order they were asked about, and (reason, text) of
    those that cannot. `rest`: they cannot either, and nobody worked out why, since others can."""

    passed: Sequence[str]
    failed: dict[str, tuple[str, str]]
    cards: dict[str, dict[str, str]] = field(default_factory=dict)  # node -> card -> why not, where worked out
    error: str = ""
    rest: Sequence[str] = field(default_factory=list)


NO_POD = (PREFIX, GROWTH)  # begin keys of promises that are none of a pod that waits: each has its own keeper


def told(refusal: NodeRefusal) -> str:
    """A node's refusal in one line, with those of its first cards."""
    parts = "; ".join(f"{card}: {why}" for card, why in list(refusal.devices.items())[:8])
    return f"{refusal.message} ({parts})" if parts else refusal.message


def shared_node(sharers: Sequence[str]) -> str:
    """Why a node is nothing for a pod that another device plugin serves."""
    return f"{len(sharers)} pods or claims share cards here, of which the plugin that serves this pod knows nothing"


class Promises:
    """`leases`: the namespace of the leases; None: there is no other replica. It is the owner that the ledger asks."""

    def __init__(
        self,
        cluster: Cluster,
        kubernetes: Kubernetes,
        clock_ns: Callable[[], int],
        wall_ns: Callable[[], int],
        leases: str | None,
        replica: str,
    ) -> None:
        self.cluster = cluster
        self.kubernetes = kubernetes
        self.clock_ns, self.wall_ns = clock_ns, wall_ns
        self.fence = Fence(cluster, clock_ns)
        self.leases = leases
        self.replica = replica
        self.ledger = Ledger(kubernetes, self, leases, clock_ns, replica) if leases is not None else None

    # ---- what the ledger asks

    def settled(self, pod: str) -> bool:
        if pod.startswith(NO_POD):
            return self.cluster.answered(pod)
        view = self.cluster.pods.get(pod)
        if view is None:
            return self.cluster.ended(pod)
        return view.node is not None or view.gone

    def gone(self, pod: str, pods: int, claims: int) -> bool:
        return self.cluster.gone(pod, claims if pod.startswith(PREFIX) else pods)

    def over(self, pod: str) -> bool:
        view = self.cluster.pods.get(pod)
        return self.cluster.ended(pod) if view is None else view.gone

    def namespace_of(self, key: str) -> str:
        if (pod := pod_of(key)) is not None:
            return pod.partition("/")[0]
        of: PodView | Claim | None = self.cluster.pods.get(key)
        if key.startswith(PREFIX):
            of = self.cluster.claims.get(key.removeprefix(PREFIX).partition("/")[0])
        return "" if of is None else of.namespace

    def see(self, pods: Sequence[dict[str, Any]]) -> None:
        for pod in pods:
            self.cluster.note(POD, pod)

    def see_claims(self, claims: Sequence[dict[str, Any]]) -> None:
        for claim in claims:
            self.cluster.note(CLAIM, claim)

    def see_resizes(self, resizes: Sequence[dict[str, Any]]) -> None:
        for resize in resizes:
            self.cluster.note(RESIZE, resize)

    def see_grown(self, grown: Mapping[str, Amounts]) -> None:
        self.cluster.note_grown(grown)

    def adopt(self, node: str, placements: Sequence[Placement]) -> None:
        self.cluster.reservations.adopt(node, placements, self.clock_ns() + BIND_NS)

    def owner_of(self, node: str) -> dict[str, Any] | None:
        return owner_reference("v1", "Node", self.cluster.nodes.get(node))

    # ---- giving back, looking up

    def forget_gone(self) -> None:
        """Gives back what other replicas promised to pods and claims that turned out to be gone meanwhile, and forgets
        the pages of nodes that are."""
        if self.ledger is None:
            return
        for node in self.ledger.nodes() - self.cluster.nodes.keys():
            self.ledger.forget(node)
        for held in self.cluster.reservations.adopted():
            if held.placement not in self.ledger.others(held.placement.node):
                self.cluster.reservations.disown(held.placement.pod, held.placement.node)

    async def look_for_others(self, node: str) -> None:
        """Takes in the node's pods where another device plugin gives out cards too: one of its pods may have been bound
        since our watch last spoke, and its kubelet does not ask us. Raises ApiFault."""
        if self.cluster.has_vendor(node):
            pods, _ = await self.kubernetes.pods_on(node)
            self.see(pods)

    def stands(self, placement: Placement) -> bool:
        """Whether a promise of this replica is fresh enough to be written down for good. Where the replica stood still
        meanwhile the others may have given it up."""
        return self.ledger is None or self.ledger.entered(placement.node, placement)

    async def bound(self, pod: PodView, node: str) -> bool:
        """Whether the pod turns out to be bound there, with cards; takes in what is read."""
        try:
            self.see([await self.kubernetes.pod(pod.namespace, pod.name)])
        except Refused as error:
            if error.status == 404:
                self.cluster.reservations.drop(pod.uid)
            return False
        except ApiFault:
            return False
        now = self.cluster.pods.get(pod.uid)
        return now is not None and now.node == node and (now.recorded is not None or bool(now.vendor))

    def drop(self, placement: Placement) -> None:
        """Gives a promise back, here and for all replicas."""
        self.cluster.reservations.drop(placement.pod)
        if self.ledger is not None:
            self.ledger.leave(placement.node, [placement.pod])
            self.ledger.flush(placement.node)
            self.adopt(placement.node, self.ledger.others(placement.node))  # what was ours too may be theirs alone now

    async def unbound(self, pod: PodView) -> bool:
        """Whether the API server says the pod is not bound; False too where it does not answer."""
        try:
            given = await self.kubernetes.pod(pod.namespace, pod.name)
        except Refused as error:
            return error.status == 404
        except ApiFault:
            return False
        if (given.get("metadata") or {}).get("uid") != pod.uid:
            return True
        self.see([given])
        now = self.cluster.pods.get(pod.uid)
        return now is None or now.node is None


def owner_reference(version: str, kind: str, given: dict[str, Any] | None) -> dict[str, Any] | None:
    metadata = (given or {}).get("metadata") or {}
    if not metadata.get("uid"):
        return None
    return {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"]}
