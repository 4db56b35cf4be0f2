"""What the extender's verbs do, on one Cluster: filter, prioritize, bind, preempt, dry-run, state.

Does no I/O of its own: the API server is a `Kubernetes` given to it, the clocks are functions, HTTP is app.py's. All
of it runs on one event loop, and between two awaits the book belongs to whoever runs.

A pod's cards are chosen when it is bound, not when it is filtered: what filter says may be old by then, and a pod that
finds no room any more is an error to the scheduler, which tries again. The way of a binding: reserve in the book, enter
the promise in the node's lease (ledger.py), write one Binding with the pod's uid and the annotations. Whatever fails on
the way gives back what was reserved; only where nobody knows whether the Binding was written the reservation stays
until the pod itself tells, or its time is up. Binding again what is bound already is no error.

A group's cards are chosen when the last of its members asks to be filtered, for all members at once, held for 30 s, and
given back together. With several replicas the group's lease says who chose, and what.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gemini.extender import preempt
from gemini.extender.codec import BindRequest, FilterRequest, PreemptRequest, Victims
from gemini.extender.ledger import ENTRIES, ROUNDS, Ledger, Promise, Stale, read_entries, write_entries
from gemini.extender.reserve import BIND_NS, GROUP_NS, GroupKey
from gemini.extender.state import POD, Cluster, PodView
from gemini.kube import names
from gemini.kube.allocation import annotations_of
from gemini.kube.client import ApiFault, Refused, Unanswered
from gemini.placement.allocate import UnknownPolicy
from gemini.placement.book import Overbooked
from gemini.placement.group import place_group
from gemini.placement.model import GPU, NodeRefusal, Placement

EXPLAINED = 256  # nodes whose refusal is worked out card by card when a pod fits nowhere
GROUP_LEASE = "gemini-group-{}"
UNTIL = f"{names.DOMAIN}/promised-until"
log = logging.getLogger("gemini.extender")


class Kubernetes(Protocol):
    """What the service asks of the API server; gemini.kube.client.Client is one."""

    async def pod(self, namespace: str, name: str) -> dict[str, Any]: ...

    async def pods_on(self, node: str) -> list[dict[str, Any]]: ...

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]) -> None: ...

    async def lease(self, namespace: str, name: str) -> dict[str, Any] | None: ...

    async def put_lease(self, namespace: str, name: str, metadata: dict[str, Any]) -> str: ...


@dataclass(frozen=True)
class Verdict:
    """The answer to filter: the nodes that can take the pod, and (reason, text) of those that cannot."""

    passed: list[str]
    failed: dict[str, tuple[str, str]]
    cards: dict[str, dict[str, str]] = field(default_factory=dict)  # node -> card -> why not, where worked out
    error: str = ""


class Refusal(Exception):
    """A binding that is not made; the text goes to the scheduler."""


class Service:
    """One replica. `leases`: the namespace of the leases; None: there is no other replica."""

    def __init__(
        self,
        cluster: Cluster,
        kubernetes: Kubernetes,
        clock_ns: Callable[[], int],
        wall_ns: Callable[[], int],
        leases: str | None,
        replica: str = "alone",
    ) -> None:
        self.cluster = cluster
        self.kubernetes = kubernetes
        self.clock_ns, self.wall_ns = clock_ns, wall_ns
        self.leases = leases
        self.replica = replica
        self.ledger = Ledger(kubernetes, self, leases, clock_ns, replica) if leases is not None else None
        self.waiting: dict[str, str] = {}  # uid -> why it waits
        self._binding: dict[str, tuple[str, asyncio.Task[str]]] = {}
        self._grouping = asyncio.Lock()
        self._group_version: str | None = None  # of the lease of the group that is being placed

    # ---- what the ledger asks

    def settled(self, pod: str) -> bool:
        view = self.cluster.pods.get(pod)
        if view is None:
            return self.cluster.ended(pod)
        return view.node is not None or view.gone

    def see(self, pods: Sequence[dict[str, Any]]) -> None:
        for pod in pods:
            self.cluster.apply(POD, "MODIFIED", pod)

    def adopt(self, node: str, placements: Sequence[Placement]) -> None:
        self.cluster.reservations.adopt(node, placements, self.clock_ns() + BIND_NS)

    def owner_of(self, node: str) -> dict[str, Any] | None:
        return _owner("v1", "Node", self.cluster.nodes.get(node))

    # ---- filter, prioritize, dry-run

    def view(self, given: dict[str, Any]) -> PodView:
        """The pod of a request, without parsing it again where it is the one that was watched."""
        metadata = given.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        known = self.cluster.pods.get(str(metadata.get("uid", "")))
        if known is not None:
            version = (known.object.get("metadata") or {}).get("resourceVersion")
            if version is not None and version == metadata.get("resourceVersion"):
                return known
        return self.cluster.view(given)

    async def filter(self, request: FilterRequest, effect: bool = True) -> Verdict:
        """`effect` False: reserves nothing, and says why for every node."""
        pod = self.view(request.pod)
        verdict = await self._filter(pod, request.names, effect)
        if effect and pod.uid:
            if verdict.passed:
                self.waiting.pop(pod.uid, None)
            else:
                self.waiting[pod.uid] = summary(verdict)
        return verdict

    async def _filter(self, pod: PodView, asked: Sequence[str], effect: bool) -> Verdict:
        if pod.fault is not None:
            return Verdict([], dict.fromkeys(asked, ("Invalid", pod.fault)))
        if pod.spec is None:
            return Verdict(list(asked), {})
        try:
            self.cluster.allocator.check(pod.spec.ask)
        except UnknownPolicy as error:
            return Verdict([], dict.fromkeys(asked, ("Invalid", f"{names.GPU_POLICY}: {error}")))
        held = self.cluster.reservations.of(pod.uid)
        if held is None and pod.group is not None:
            refused = await self._group(pod, asked, effect)
            if refused is not None:
                return refused
            held = self.cluster.reservations.of(pod.uid)
        if held is not None:
            node = held.placement.node
            why = ("Reserved", f"cards are held for the pod on {node}")
            return Verdict([n for n in asked if n == node], {n: why for n in asked if n != node})
        return self._alone(pod, asked, everything=not effect)

    def _alone(self, pod: PodView, asked: Sequence[str], everything: bool) -> Verdict:
        assert pod.spec is not None
        allocator = self.cluster.allocator
        possible = set(allocator.possible(pod.spec.ask, asked))
        passed = [name for name in asked if name in possible]
        failed: dict[str, tuple[str, str]] = {}
        cards: dict[str, dict[str, str]] = {}
        left = [name for name in asked if name not in possible]
        if passed and not everything:  # nobody reads them: reasons cost more than the search
            return Verdict(passed, dict.fromkeys(left, ("NoRoom", "no cards here that would do")))
        book = self.cluster.book
        explained = [name for name in left if book.node(name) is not None]
        explained = explained if everything else explained[:EXPLAINED]
        for name, refusal in allocator.explain(pod.spec.ask, explained).items():
            failed[name] = (refusal.reason, self._text(refusal))
            cards[name] = refusal.devices
        for name in left:
            if name not in failed:
                known = book.node(name) is not None
                failed[name] = (
                    ("NoRoom", "no cards here that would do")
                    if known
                    else ("InsufficientDevices", "the node reports no devices (it has no Device object)")
                )
        return Verdict(passed, failed, cards)

    def _text(self, refusal: NodeRefusal) -> str:
        parts = "; ".join(f"{card}: {why}" for card, why in list(refusal.devices.items())[:8])
        return f"{refusal.message} ({parts})" if parts else refusal.message

    def prioritize(self, request: FilterRequest) -> dict[str, int]:
        """Node -> rank, 0 is best."""
        pod = self.view(request.pod)
        if pod.spec is None or pod.uid in self.cluster.reservations:
            return dict.fromkeys(request.names, 0)
        found, ranks = self.cluster.allocator.rank(pod.spec.ask, request.names)
        return dict(zip(found, ranks.tolist(), strict=True))

    # ---- groups

    async def _group(self, pod: PodView, asked: Sequence[str], effect: bool) -> Verdict | None:
        """Places the pod's group and reserves for all members; None: done. Else why not."""
        key = pod.group
        assert key is not None
        assert pod.spec is not None
        async with self._grouping:
            if pod.uid in self.cluster.reservations:
                return None
            for _ in range(ROUNDS):
                waiting, running = self.cluster.members(key)
                if pod.uid not in {p.uid for p in waiting}:
                    waiting.append(pod)
                size = pod.spec.ask.group_size
                for other in waiting:
                    said = other.spec.ask.group_size if other.spec else size
                    if said != size:
                        text = f"{names.POD_GROUP_SIZE}: {size} differs from {said}, said by {other.name}; say the same"
                        return Verdict([], dict.fromkeys(asked, ("Invalid", text)))
                if len(waiting) + len(running) < size:
                    text = f"group {key[1]} has {len(waiting) + len(running)} of its {size} pods"
                    text += "; none is placed before all are there"
                    return Verdict([], dict.fromkeys(asked, ("GroupIncomplete", text)))
                chosen = [pod, *(p for p in waiting if p.uid != pod.uid)][: max(1, size - len(running))]
                chosen.sort(key=lambda p: p.order)
                try:
                    if effect and await self._agreed(key, chosen, running):
                        return None if pod.uid in self.cluster.reservations else self._busy(key, asked)
                    placements = self._place(chosen, running, asked)
                    mark = self.ledger.mark(placements[0].node) if self.ledger and placements else 0
                    if placements is None:
                        return self._no_room(pod, key, size, running, asked)
                    if not effect:
                        node = placements[0].node
                        why = ("GroupPlaced", f"the group would go to {node}")
                        return Verdict([n for n in asked if n == node], {n: why for n in asked if n != node})
                    self.cluster.reservations.put_all(placements, self.clock_ns() + GROUP_NS, key)
                    await self._publish(key, chosen, placements, mark)
                    return None
                except (Stale, Overbooked):
                    self._give_back(key)
                except Refused as error:
                    self._give_back(key)
                    if error.status not in (404, 409):
                        return Verdict([], {}, error=str(error))
                except ApiFault as error:
                    self._give_back(key)
                    return Verdict([], {}, error=str(error))
            return self._busy(key, asked)

    def _place(self, chosen: list[PodView], running: list[Placement], asked: Collection[str]) -> list[Placement] | None:
        asks = [p.spec.ask for p in chosen if p.spec is not None]
        return place_group(self.cluster.allocator, asks, running, frozenset(asked))

    def _no_room(
        self, pod: PodView, key: GroupKey, size: int, running: list[Placement], asked: Sequence[str]
    ) -> Verdict:
        alone = self._alone(pod, asked, everything=False)
        text = f"no room for all {size} pods of group {key[1]} together"
        if running:
            text += f" (others of it run on {running[0].node})"
        failed = {**dict.fromkeys(alone.passed, ("GroupDoesNotFit", text)), **alone.failed}
        return Verdict([], failed, alone.cards)

    def _busy(self, key: GroupKey, asked: Sequence[str]) -> Verdict:
        text = f"group {key[1]} is being placed by another replica; this pod is tried again"
        return Verdict([], dict.fromkeys(asked, ("GroupBusy", text)))

    async def _agreed(self, key: GroupKey, chosen: list[PodView], running: list[Placement]) -> bool:
        """Takes over what another replica has chosen for these pods, if it did and time is not up."""
        if self.leases is None:
            return False
        lease = await self.kubernetes.lease(self.leases, _group_lease(key))
        self._group_version = None if lease is None else str(lease["metadata"].get("resourceVersion", ""))
        if lease is None:
            return False
        said = ((lease["metadata"] or {}).get("annotations") or {}).get(UNTIL, "0")
        if not str(said).isdecimal() or int(said) <= self.wall_ns():
            return False
        waits = {p.uid for p in chosen}
        theirs = [p.placement for p in read_entries(lease) if p.placement.pod in waits]
        if not theirs:
            return False
        for placement in theirs:
            if placement.pod not in self.cluster.book.holdings:
                self.cluster.reservations.take_over(placement, self.clock_ns() + GROUP_NS)
        return True

    async def _publish(self, key: GroupKey, chosen: list[PodView], placements: list[Placement], mark: int) -> None:
        """First the group's lease, so that one replica alone chooses, then the cards."""
        if self.ledger is None or self.leases is None:
            return
        metadata: dict[str, Any] = {
            "annotations": {
                ENTRIES: write_entries(Promise(p, self.replica) for p in placements),
                UNTIL: str(self.wall_ns() + GROUP_NS),
            }
        }
        if self._group_version is not None:
            metadata["resourceVersion"] = self._group_version
        owner = _owner("v1", "Pod", chosen[0].object)
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        await self.kubernetes.put_lease(self.leases, _group_lease(key), metadata)
        try:
            await self.ledger.enter(placements[0].node, placements, mark)
        except Exception:
            metadata["annotations"][UNTIL] = "0"
            lease = await self.kubernetes.lease(self.leases, _group_lease(key))
            if lease is not None:
                metadata["resourceVersion"] = lease["metadata"].get("resourceVersion")
                await self.kubernetes.put_lease(self.leases, _group_lease(key), metadata)
            raise

    def _give_back(self, key: GroupKey) -> None:
        mine = [held for held in self.cluster.reservations if held.group == key]
        for held in mine:
            self._drop(held.placement)

    # ---- bind

    async def bind(self, request: BindRequest) -> str:
        """The error for the scheduler; empty: bound."""
        under_way = self._binding.get(request.uid)
        if under_way is None:
            task = asyncio.get_running_loop().create_task(self._bind(request))
            self._binding[request.uid] = (request.node, task)
            task.add_done_callback(lambda _: self._binding.pop(request.uid, None))
        elif under_way[0] != request.node:
            return f"the pod is being bound to {under_way[0]}"
        else:
            task = under_way[1]
        # The scheduler may lose patience and go; what was begun is brought to its end.
        return await asyncio.shield(task)

    async def _bind(self, request: BindRequest) -> str:
        try:
            pod = await self._pod(request)
            if pod.node is not None:
                if pod.node == request.node and (pod.spec is None or pod.placement is not None):
                    return ""
                raise Refusal(f"the pod is bound to {pod.node} already")
            if pod.spec is None:
                await self.kubernetes.bind(request.namespace, request.name, request.uid, request.node, {})
                return ""
            placement = await self._promise(pod, request.node)
            await self._write(pod, placement)
        except Refusal as error:
            self.waiting[request.uid] = str(error)
            return str(error)
        except ApiFault as error:
            return str(error)
        self.waiting.pop(request.uid, None)
        return ""

    async def _pod(self, request: BindRequest) -> PodView:
        pod = self.cluster.pods.get(request.uid)
        if pod is None:
            given = await self.kubernetes.pod(request.namespace, request.name)
            self.see([given])
            pod = self.cluster.pods.get(request.uid)
            if pod is None:
                raise Refusal(f"pod {request.namespace}/{request.name} has another uid than {request.uid}")
        if pod.fault is not None and pod.node is None:
            raise Refusal(pod.fault)
        if pod.gone or (pod.terminating and pod.node is None):
            raise Refusal("the pod is being deleted")
        return pod

    async def _promise(self, pod: PodView, node: str) -> Placement:
        """Reserves cards for the pod on the node, here and for all replicas."""
        reservations = self.cluster.reservations
        held = reservations.of(pod.uid)
        if held is not None and held.placement.node != node:
            raise Refusal(f"cards are held for the pod on {held.placement.node}")
        if held is None and pod.group is not None:
            raise Refusal(f"group {pod.group[1]} is not placed (any more); it is tried again")
        if held is not None:
            reservations.extend(pod.uid, self.clock_ns() + BIND_NS)
        for _ in range(ROUNDS):
            if self.ledger is None:
                return self._reserve(pod, node)
            held = reservations.of(pod.uid)
            if held is not None and self.ledger.entered(node, held.placement):
                return held.placement
            mark = self.ledger.mark(node)
            if held is not None:  # chosen from an older book: look whether it still fits, or choose anew
                self._again(pod, held.placement, node)
            placement = self._reserve(pod, node)
            try:
                await self.ledger.enter(node, [placement], mark)
                return placement
            except Stale:
                if self.settled(pod.uid):
                    raise Refusal("the pod was bound by another replica, or is gone") from None
            except ApiFault:
                self._drop(placement)
                raise
        self._drop(placement)
        raise Refusal(f"other replicas keep promising cards of {node}; the pod is tried again")

    def _again(self, pod: PodView, placement: Placement, node: str) -> None:
        """Gives the pod's promise back; a group's cards are the pod's all the same, if they are free still."""
        assert self.ledger is not None
        reservations, until_ns = self.cluster.reservations, self.clock_ns() + BIND_NS
        reservations.drop(pod.uid)
        theirs = self.ledger.others(node)
        self.adopt(node, theirs)  # what was ours too may be theirs alone now
        if pod.group is None:
            return
        if placement in theirs:  # they chose it for the group, and so did we
            reservations.take_over(placement, until_ns)
            return
        try:
            reservations.put(placement, until_ns)
        except Overbooked as error:
            raise Refusal(f"the group's cards were taken meanwhile: {error}") from None

    def _reserve(self, pod: PodView, node: str) -> Placement:
        held = self.cluster.reservations.of(pod.uid)
        if held is not None:
            return held.placement
        assert pod.spec is not None
        placement = self.cluster.allocator.choose(pod.spec.ask, [node])
        if placement is None:
            verdict = self._alone(pod, [node], everything=True)
            reason, text = verdict.failed.get(node, ("NoRoom", "no cards here that would do"))
            raise Refusal(f"{reason}: {text}")
        self.cluster.reservations.put(placement, self.clock_ns() + BIND_NS)
        return placement

    async def _write(self, pod: PodView, placement: Placement) -> None:
        """The Binding. Raises after giving back what can be given back."""
        node = self.cluster.book.node(placement.node)
        if node is None or pod.spec is None:
            self._drop(placement)
            raise Refusal(f"node {placement.node} has gone")
        annotations = annotations_of(placement, pod.spec, node, self.wall_ns())
        try:
            await self.kubernetes.bind(pod.namespace, pod.name, pod.uid, placement.node, annotations)
        except Refused as error:
            if error.status == 409 and await self._bound(pod, placement.node):
                return
            self._drop(placement)
            raise
        except Unanswered:
            if await self._bound(pod, placement.node):
                return
            raise  # the reservation stays: the server may yet do it

    async def _bound(self, pod: PodView, node: str) -> bool:
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
        return now is not None and now.node == node and now.placement is not None

    def _drop(self, placement: Placement) -> None:
        """Gives a promise back, here and for all replicas."""
        self.cluster.reservations.drop(placement.pod)
        if self.ledger is not None:
            self.ledger.leave(placement.node, [placement.pod])
            self.ledger.flush(placement.node)
            self.adopt(placement.node, self.ledger.others(placement.node))  # what was ours too may be theirs alone now

    # ---- time

    async def sweep(self) -> None:
        """Gives back reservations whose time is up; a binding nobody answered for is looked up first."""
        groups: set[GroupKey] = set()
        for held in self.cluster.reservations.due(self.clock_ns()):
            uid = held.placement.pod
            if uid in self._binding:
                continue
            if held.group is not None:
                groups.add(held.group)
                continue
            pod = self.cluster.pods.get(uid)
            if pod is not None and not await self._unbound(pod):
                continue
            if self.cluster.reservations.of(uid) is held:
                self._drop(held.placement)
        for held in self.cluster.reservations.due_adopted(self.clock_ns()):
            pod = self.cluster.pods.get(held.placement.pod)
            if pod is None or await self._unbound(pod):
                self.cluster.reservations.disown(held.placement.pod, held.placement.node)
        for key in groups:
            log.info("group namespace=%s name=%s time-out: cards given back", *key)
            self._give_back(key)

    async def _unbound(self, pod: PodView) -> bool:
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

    # ---- preempt, state

    def preempt(self, request: PreemptRequest) -> dict[str, Victims]:
        """Node -> victims; nodes where evicting would not help are left out."""
        pod = self.view(request.pod)
        if pod.spec is None:
            return dict(request.victims)
        found: dict[str, Victims] = {}
        for node, proposed in request.victims.items():
            victims = preempt.victims_on(self.cluster, pod, node, proposed)
            if victims is not None:
                found[node] = victims
        return found

    def dry_run_json(self, verdict: Verdict) -> dict[str, Any]:
        refused = {
            name: {"reason": reason, "message": text, "devices": verdict.cards.get(name, {})}
            for name, (reason, text) in verdict.failed.items()
        }
        return {"nodes": verdict.passed, "refused": refused, "error": verdict.error}

    def state_json(self) -> dict[str, Any]:
        """What GET /state answers, and `kubectl gemini` shows."""
        cluster, book = self.cluster, self.cluster.book
        used = book.snapshot()
        nodes = []
        for node in sorted(book.nodes(), key=lambda n: n.name):
            here = [book.holdings[pod] for pod in book.pods_on(node.name)]
            devices = []
            for device in node.devices:
                core, memory, _, _ = used[node.name, device.type, device.minor]
                pods = []
                for holding in here:
                    held = holding.devices().get((device.type, device.minor))
                    if held is not None:
                        part_core, part_memory, _ = held.total()
                        pods.append({**self._who(holding.placement.pod), "core": part_core, "memory": part_memory})
                devices.append(
                    {
                        "type": device.type,
                        "minor": device.minor,
                        "uuid": device.uuid,
                        "model": device.model,
                        "health": device.health,
                        "cordoned": device.cordoned,
                        "core": device.core,
                        "memory": device.memory,
                        "used_core": core,
                        "used_memory": memory,
                        "pods": sorted(pods, key=lambda p: str(p["pod"])),
                    }
                )
            nodes.append({"name": node.name, "devices": devices, "faults": list(cluster.devices[node.name].faults)})
        waiting = [
            {
                **self._who(pod.uid),
                "why": self.waiting.get(pod.uid, "not asked for yet"),
                "group": (pod.group or ("", None))[1],
            }
            for pod in cluster.pods.values()
            if pod.waits
        ]
        reserved = [{**self._who(r.placement.pod), "node": r.placement.node} for r in cluster.reservations]
        return {
            "nodes": nodes,
            "waiting": sorted(waiting, key=lambda w: str(w["pod"])),
            "reserved": sorted(reserved, key=lambda r: str(r["pod"])),
            "unrecorded": sorted(
                f"{p.namespace}/{p.name}"
                for p in cluster.pods.values()
                if p.node and not p.gone and p.spec and not p.holds
            ),
        }

    def _who(self, uid: str) -> dict[str, Any]:
        pod = self.cluster.pods.get(uid)
        name = f"{pod.namespace}/{pod.name}" if pod else uid
        return {"pod": name, "uid": uid, "reserved": uid in self.cluster.reservations}

    def figures(self) -> dict[str, float]:
        """Numbers for /metrics: of cards and of pods, a handful whatever the cluster's size."""
        counts = dict.fromkeys(("idle", "shared", "full", "unhealthy", "cordoned"), 0)
        core = promised = 0
        used = self.cluster.book.snapshot()
        for node in self.cluster.book.nodes():
            for device in node.devices:
                if device.type != GPU:
                    continue
                taken, _, _, holders = used[node.name, GPU, device.minor]
                core += device.core
                promised += taken
                if not device.health:
                    counts["unhealthy"] += 1
                elif device.cordoned:
                    counts["cordoned"] += 1
                elif taken >= device.core:
                    counts["full"] += 1
                else:
                    counts["shared" if holders else "idle"] += 1
        return {**{f"cards_{k}": v for k, v in counts.items()}, "core": core, "promised": promised}


def summary(verdict: Verdict) -> str:
    """Why a pod waits, in one line: reasons with the number of nodes, and an example of each."""
    if verdict.error:
        return verdict.error
    by_reason: dict[str, list[str]] = {}
    for node, (reason, text) in verdict.failed.items():
        by_reason.setdefault(reason, []).append(
            f"{text}" if reason.startswith("Group") or reason == "Invalid" else f"{node}: {text}"
        )
    parts = [
        f"{reason} on {len(texts)} node{'' if len(texts) == 1 else 's'} ({texts[0]})"
        for reason, texts in by_reason.items()
    ]
    return "; ".join(parts) or "no node was asked about"


def _group_lease(key: GroupKey) -> str:
    return GROUP_LEASE.format(hashlib.sha256("/".join(key).encode()).hexdigest()[:20])


def _owner(version: str, kind: str, given: dict[str, Any] | None) -> dict[str, Any] | None:
    metadata = (given or {}).get("metadata") or {}
    if not metadata.get("uid"):
        return None
    return {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"]}
