"""The plugin's verbs: prefer, allocate, start; and the tenants of pods that are gone, removed.

No I/O but through what is given: the API server, the kubelet (its checkpoint and PodResources), the daemon, the host.

Nothing is remembered that must survive us. Who holds what is read from the kubelet's checkpoint, where our own replies
stand as well; what was promised, from the pods. So a plugin or kubelet that starts again in between changes nothing.

    prefer    which pod is being admitted, by PodResources; slots of the cards that its record names
    allocate  slots name cards; the pod that was promised these is meant; a fresh tenant name for it, and its amounts
    start     the checkpoint says who really got the slots; is that not who was meant, repair.py exchanges two pods'
              cards, or the start is refused, with the reason as an event; then the daemon is told the tenant
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gemini.kube import names
from gemini.kube.checkpoint import BadCheckpoint, Entry
from gemini.kube.client import ApiFault, Refused
from gemini.kube.life import gone
from gemini.placement.model import WHOLE, Role
from gemini.plugin import repair, reply
from gemini.plugin.claims import Claim, PodClaims, claims_of
from gemini.plugin.cores import nearest, parse_cpus
from gemini.plugin.daemon import DaemonFault
from gemini.plugin.host import CannotBind, Host
from gemini.plugin.matching import Candidate, Holder, admitting, candidates, meant, room
from gemini.plugin.slots import Card, Kind, card_of, cards_of, check_size, choose

POD, DEVICE = "Pod", "Device"
ROUNDS = 3
OUTCOMES = (
    ("allocate", "ok"), ("allocate", "elsewhere"), ("allocate", "nobody"), ("start", "ok"), ("start", "refused"),
    ("repair", "exchanged"), ("repair", "impossible"),
)  # fmt: skip
_STEM = re.compile(r"(.*)-[0-9a-f]{8}")
log = logging.getLogger("gemini.plugin")


class Refusal(Exception):
    """The kubelet is told no; the text is one line for its event."""


class Kubernetes(Protocol):
    async def pods_on(self, node: str) -> tuple[list[dict[str, Any]], int]: ...
    async def annotate(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> dict[str, Any]: ...
    async def say(self, pod: Mapping[str, Any], reason: str, message: str) -> None: ...
    async def evict(self, namespace: str, name: str, uid: str) -> None: ...


class Kubelet(Protocol):
    def checkpoint(self) -> list[Entry]: ...
    async def listed(self) -> set[tuple[str, str]] | None: ...


class Tenants(Protocol):
    async def tenants(self) -> dict[str, dict[str, Any]]: ...
    async def register(self, spec: Mapping[str, Any]) -> None: ...
    async def remove(self, name: str) -> None: ...


class Service:
    """`token`: eight fresh hexadecimal digits. `changed` is called when the list of slots has changed."""

    def __init__(
        self,
        node: str,
        kind: Kind,
        options: reply.Options,
        kubernetes: Kubernetes,
        kubelet: Kubelet,
        daemon: Tenants,
        host: Host,
        token: Callable[[], str],
        types: Collection[str] = names.DEVICE_TYPES,
        device_nodes: bool = False,
    ) -> None:
        self.node, self.kind, self.options, self.types = node, kind, options, types
        self.kubernetes, self.kubelet, self.daemon, self.host = kubernetes, kubelet, daemon, host
        self._token, self._device_nodes = token, device_nodes
        self.cards: dict[str, Card] = {}
        self.pods: dict[str, PodClaims] = {}
        self.changed: Callable[[], None] = lambda: None
        self.counts: Counter[tuple[str, str]] = Counter(dict.fromkeys(OUTCOMES, 0))  # (what, how it went)
        self._expected: Holder | None = None
        self._choosing = asyncio.Lock()  # prefer, allocate and exchanges see one another's effects
        self._bound: dict[str, set[int]] = {}  # tenant -> cores
        self._told: set[str] = set()  # tenants whose pods were told that their share is not enforced
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- what is watched (gemini.kube.client.follow)

    def replace(self, kind: str, objects: Iterable[Mapping[str, Any]], version: int = 0) -> None:
        if kind == DEVICE:
            for device in objects:
                self._put_device(device)
            return
        listed = {pod["metadata"]["uid"]: pod for pod in objects}
        for uid in set(self.pods) - set(listed):
            del self.pods[uid]
        for pod in listed.values():
            self._put_pod(pod)

    def apply(self, kind: str, event: str, given: Mapping[str, Any]) -> None:
        if kind == DEVICE:
            if event != "DELETED":  # the cards are there still, whatever becomes of what is said of them
                self._put_device(given)
        elif event == "DELETED":
            self.pods.pop(given["metadata"]["uid"], None)
        else:
            self._put_pod(given)

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
            self._put_pod(pod.object)  # their cards' sizes are looked up anew
        self.changed()

    def _put_pod(self, pod: Mapping[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        known = self.pods.get(uid)
        if known is not None and _version(known.object) >= max(1, _version(pod)):
            return  # known, or older than what our own write answered
        claims = None if gone(pod.get("status") or {}) else claims_of(pod, self.kind, self.cards, self.types)
        if claims is None:
            self.pods.pop(uid, None)
            return
        if claims.fault and (known is None or known.fault != claims.fault):
            log.warning("pod=%s/%s fault=%s", claims.namespace, claims.name, claims.fault)
        self.pods[uid] = claims

    async def _refresh(self) -> None:
        """The node's pods by a read that has seen every write before it: the watch may lag behind the kubelet's."""
        with contextlib.suppress(ApiFault):
            self.replace(POD, *await self.kubernetes.pods_on(self.node))

    # ---- what the kubelet knows

    def _entries(self) -> list[Entry]:
        try:
            return [entry for entry in self.kubelet.checkpoint() if entry.resource == self.kind.resource]
        except (OSError, BadCheckpoint) as error:
            raise Refusal(f"the kubelet's checkpoint cannot be read: {error}") from None

    def _candidates(self, entries: list[Entry], size: int) -> list[Candidate]:
        """Who may be meant. A pod that got cards for one container of a tenant goes on with these for the others."""
        held = {(entry.pod, entry.container) for entry in entries}
        by_pod: dict[str, list[tuple[Entry, reply.Given]]] = defaultdict(list)
        for entry in entries:
            if (given := reply.read(entry.reply)) is not None:
                by_pod[entry.pod].append((entry, given))
        return candidates((_going_on(pod, by_pod.get(pod.uid, [])) for pod in self.pods.values()), held, size)

    # ---- verbs

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        async with self._choosing:
            listed = await self.kubelet.listed()
            entries = self._entries()
            among = self._candidates(entries, size)
            if not among or (listed is not None and not _known(among, listed)):
                await self._refresh()
                among = self._candidates(entries, size)
            one = admitting(among, listed, available)
            self._expected = (one.pod.uid, one.claim.container) if one else None
            return choose(available, must, size, self._wished(one, available) if one else ())

    def _wished(self, one: Candidate, available: Sequence[str]) -> tuple[str, ...]:
        """Its cards; where others were given their slots by mistake, those of a pod with which it can exchange them."""
        free = Counter(map(card_of, available))
        if not room(free, one.claim.cards, one.claim.slots):
            for other in self._free():
                claim = other.claim(one.claim.container)
                fits = claim is not None and room(free, claim.cards, claim.slots)
                if claim is not None and fits and repair.partner_of(one.pod, claim.cards, [other]) is not None:
                    return claim.cards
        return one.claim.cards

    async def allocate(self, ids: Sequence[str]) -> Any:
        """The ContainerAllocateResponse. Raises Refusal: a container is never given what nobody was promised."""
        for uuid in sorted({card_of(slot) for slot in ids}):
            if uuid not in self.cards:
                raise Refusal(f"{uuid} is no card of this node; {', '.join(self.cards) or 'none is known'}")
        async with self._choosing:
            entries = self._entries()
            among = self._candidates(entries, len(ids))
            if not among:
                await self._refresh()
                among = self._candidates(entries, len(ids))
            one = meant(among, ids, self._expected)
            self._expected = None
            if one is None:
                self.counts["allocate", "nobody"] += 1
                raise Refusal(self._nobody(len(ids)))
            claim, cards = one.claim, {card_of(slot) for slot in ids}
            if cards != set(claim.cards):  # the slots of its own card went to another: it will have that one's
                partner = repair.partner_of(one.pod, sorted(cards), self._free())
                claim = (partner.claim(claim.container) if partner else None) or claim
            elsewhere = cards != set(claim.cards)
            self.counts["allocate", "elsewhere" if elsewhere else "ok"] += 1
            if elsewhere:
                log.warning(
                    "allocate pod=%s/%s container=%s cards=%s slots_of=%s", one.pod.namespace, one.pod.name,
                    claim.container, ",".join(claim.cards), ",".join(sorted(cards)),
                )  # fmt: skip
            tenant = self._tenant_of(entries, one.pod.uid, claim)
            if tenant is None:
                tenant = reply.tenant_name(one.pod.namespace, one.pod.name, self._token())
            nodes: tuple[str, ...] = ()
            if self._device_nodes:
                nodes = self.host.device_nodes(tuple(self.cards[c].minor for c in claim.cards if c in self.cards))
            if self.options.cdi:
                self.host.write_cdi(reply.cdi_file(tenant), reply.cdi_spec(claim, tenant, self.options))
            return reply.build(claim, tenant, self.options, nodes)

    def _nobody(self, size: int) -> str:
        faults = [f"{pod.namespace}/{pod.name}: {pod.fault}" for pod in self.pods.values() if pod.fault]
        told = f"; {faults[0]}" if faults else ""
        return f"no pod bound to {self.node} with a record of the extender waits for {size} {self.kind.resource}{told}"

    def _tenant_of(self, entries: Iterable[Entry], uid: str, claim: Claim) -> str | None:
        """The name that another container of the same tenant got."""
        for entry in entries:
            if entry.pod == uid and entry.container in claim.containers and entry.container != claim.container:
                given = reply.read(entry.reply)
                if given is not None:
                    return given.tenant
        return None

    async def start(self, ids: Sequence[str]) -> None:
        """Raises Refusal; the kubelet tries again after a while."""
        entry, given = self._owner(ids)
        pod = self.pods.get(entry.pod)
        if pod is None or pod.claim(entry.container) is None:
            await self._refresh()
            pod = self.pods.get(entry.pod)
        if pod is None or pod.fault:
            fault = pod.fault if pod else "it is not known here (any more)"
            raise Refusal(f"pod {entry.pod} has the slots, but {fault}")
        pod, claim = await self._verified(pod, entry, given)
        try:
            await self._register(pod, claim, given.tenant)
            if claim.cpu_bind:
                await self._bind(pod, claim, given.tenant)
        except (DaemonFault, CannotBind, ValueError) as error:
            self.counts["start", "refused"] += 1
            raise Refusal(str(error)) from None
        self.counts["start", "ok"] += 1
        if _annotations(pod).get(names.ASSIGNED) != "true":
            self._soon(self._assign(pod))

    def _owner(self, ids: Sequence[str]) -> tuple[Entry, reply.Given]:
        """Whose slots these are, by the kubelet's record, and what we gave for them."""
        entries = [entry for entry in self._entries() if set(entry.ids) == set(ids)]
        if not entries:
            raise Refusal(f"the kubelet's record has no container with just these {len(ids)} slots")
        entry = entries[0]
        if len(entries) > 1:  # an init container's slots are used again by a later container of its pod
            pod = self.pods.get(entry.pod)
            ended = _ended(pod.object if pod else {})
            entry = next((one for one in entries if one.container not in ended), entries[-1])
        given = reply.read(entry.reply)
        if given is None:
            raise Refusal("what the container was given is not ours (an older plugin's?); delete the pod")
        return entry, given

    # ---- verification and repair

    async def _verified(self, pod: PodClaims, entry: Entry, given: reply.Given) -> tuple[PodClaims, Claim]:
        """The pod and its claim, in step with what the container was given. Raises Refusal."""
        why = ""
        for _ in range(ROUNDS):
            claim = pod.claim(entry.container)
            if claim is None:
                raise Refusal(f"container {entry.container} of pod {pod.name} was promised nothing")
            if set(claim.cards) == set(given.cards):
                said = reply.settings(claim)
                differs = [key for key in reply.SETTINGS if said.get(key) != given.settings.get(key)]
                if not differs:
                    return pod, claim
                why = f"was given {differs[0]} {given.settings.get(differs[0])}, the record says {said.get(differs[0])}"
                break
            why = await self._exchange(pod, given.cards)
            pod = self.pods.get(pod.uid, pod)
            if why:
                break
        self.counts["repair", "impossible"] += 1
        message = f"container {entry.container} {why or 'is exchanged with another pod; that is tried again'}"
        log.error("start pod=%s/%s %s", pod.namespace, pod.name, message)
        with contextlib.suppress(ApiFault):
            await self.kubernetes.say(pod.object, "GeminiMismatch", message)
            owners = pod.object["metadata"].get("ownerReferences") or []
            if why and any(owner.get("controller") for owner in owners):
                await self.kubernetes.evict(pod.namespace, pod.name, pod.uid)
        raise Refusal(f"{message}; delete the pod and create it anew")

    async def _exchange(self, pod: PodClaims, given: Sequence[str]) -> str:
        """Carries out the repair. What stands in its way; empty where it was done, or is worth another look."""
        async with self._choosing:
            try:
                self.replace(POD, *await self.kubernetes.pods_on(self.node))  # what was written without an answer, too
                for other in list(self.pods.values()):
                    if other.uid != pod.uid and repair.begun(other) and (cards := self._given(other)):
                        await self._carry_out(other, repair.resume(other, cards, self._partner(other)))
                pod = self.pods.get(pod.uid, pod)
                if not repair.begun(pod) and self._settled(pod):
                    return ""  # meanwhile another's exchange, which had this one for its partner, has mended it
                if repair.begun(pod):
                    plan = repair.resume(pod, given, self._partner(pod))
                else:
                    plan = repair.plan(pod, given, self._free())
                if plan.reason:
                    return plan.reason
                await self._carry_out(pod, plan)
            except ApiFault as error:
                if isinstance(error, Refused) and error.status in (404, 409, 422):  # one of them is gone
                    return ""
                raise Refusal(f"the exchange of cards with another pod was not written: {error}") from None
        return ""

    async def _carry_out(self, pod: PodClaims, plan: repair.Plan) -> None:
        """Raises ApiFault; then the exchange goes on at the next try."""
        for step in plan.steps:
            about = step.pod
            self._put_pod(await self.kubernetes.annotate(about.namespace, about.name, about.uid, step.annotations))
        self.counts["repair", "exchanged"] += 1
        log.info("exchanged pods=%s", ",".join(sorted({f"{s.pod.namespace}/{s.pod.name}" for s in plan.steps})))

    def _partner(self, pod: PodClaims) -> PodClaims | None:
        return self.pods.get(repair.begun(pod) or "")

    def _given(self, pod: PodClaims) -> tuple[str, ...]:
        """The cards that the pod's container got."""
        for entry in self._entries():
            if entry.pod == pod.uid and (given := reply.read(entry.reply)) is not None:
                return given.cards
        return ()

    def _free(self) -> list[PodClaims]:
        return [pod for pod in self.pods.values() if not self._settled(pod)]

    def _settled(self, pod: PodClaims) -> bool:
        """Whether the pod's containers were given just the cards that its record names: then it keeps them."""
        for entry in self._entries():
            if entry.pod == pod.uid and (given := reply.read(entry.reply)) is not None:
                claim = pod.claim(entry.container)
                if claim is not None and set(claim.cards) == set(given.cards):
                    return True
        return False

    async def _assign(self, pod: PodClaims) -> None:
        told: dict[str, str | None] = {names.ASSIGNED: "true"}
        if names.ALIYUN_ASSIGNED in _annotations(pod):
            told[names.ALIYUN_ASSIGNED] = "true"
        try:
            self._put_pod(await self.kubernetes.annotate(pod.namespace, pod.name, pod.uid, told))
        except ApiFault as error:  # the next start of a container, or tick, says it again
            log.warning("assigned pod=%s/%s error=%s", pod.namespace, pod.name, error)

    def _soon(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Until what was begun in the background is done."""
        await asyncio.gather(*self._tasks)

    # ---- tenants

    async def _register(self, pod: PodClaims, claim: Claim, tenant: str) -> None:
        """Raises DaemonFault."""
        for other, name in self._of_pod(pod):  # what init containers held is the later ones' now
            if other.role is Role.INIT and name != tenant:
                await self.daemon.remove(name)
        try:
            await self.daemon.register(_tenant(claim, tenant))
        except DaemonFault as fault:
            if not fault.clash:
                raise
            await self.tidy()  # a pod that is gone may hold it still
            await self.daemon.register(_tenant(claim, tenant))

    def _of_pod(self, pod: PodClaims) -> list[tuple[Claim, str]]:
        found = []
        for entry in self._entries():
            given, claim = reply.read(entry.reply), pod.claim(entry.container)
            if entry.pod == pod.uid and given is not None and claim is not None:
                found.append((claim, given.tenant))
        return found

    async def tidy(self) -> None:
        """Removes the tenants of pods that are gone, brings back those that the daemon lost, and says of which pods the
        share is not enforced. Raises DaemonFault."""
        there = await self.daemon.tenants()
        holders: dict[str, tuple[Entry, reply.Given]] = {}
        for entry in self._entries():
            if (given := reply.read(entry.reply)) is not None:
                holders[given.tenant] = (entry, given)
        ours = [name for name in there if reply.TENANT.fullmatch(name)]
        if suspects := [name for name in ours if not self._alive(name, holders)]:
            await self._refresh()
            for name in suspects:
                if not self._alive(name, holders):
                    log.info("tenant-removed tenant=%s", name)
                    await self.daemon.remove(name)
                    self.host.drop_cdi(reply.cdi_file(name))
                    self._bound.pop(name, None)
                    self._told.discard(name)
        for name, (entry, given) in holders.items():
            pod = self.pods.get(entry.pod)
            claim = pod.claim(entry.container) if pod else None
            if pod is not None and there.get(name, {}).get("ungated_lookups") and name not in self._told:
                self._told.add(name)
                await self._not_enforced(pod, entry.container)
            if name in there or pod is None or claim is None or set(claim.cards) != set(given.cards):
                continue
            if entry.container in _running(pod.object):
                log.info("tenant-again tenant=%s pod=%s/%s", name, pod.namespace, pod.name)
                await self.daemon.register(_tenant(claim, name))

    async def _not_enforced(self, pod: PodClaims, container: str) -> None:
        why = f"container {container} uses driver calls that are newer than the library, which neither holds them back "
        with contextlib.suppress(ApiFault):  # the daemon's metric says it too
            await self.kubernetes.say(
                pod.object, names.NOT_ENFORCED, why + "nor counts them; update gemini on the node"
            )

    def _alive(self, tenant: str, holders: Mapping[str, tuple[Entry, reply.Given]]) -> bool:
        """Whether a pod of this node stands behind the tenant. The kubelet may have lost its record; then a pod of that
        name is enough."""
        if tenant in holders:
            return holders[tenant][0].pod in self.pods
        match = _STEM.fullmatch(tenant)
        stems = {reply.tenant_stem(pod.namespace, pod.name) for pod in self.pods.values()}
        return match is not None and match.group(1) in stems

    # ---- cores

    async def _bind(self, pod: PodClaims, claim: Claim, tenant: str) -> None:
        """Raises CannotBind, ValueError."""
        group = self.host.pod_cgroup(pod.uid)
        card = self.cards.get(claim.cards[0])
        near: set[int] = set()
        if card is not None:
            near = parse_cpus(card.cpus) if card.cpus else set()
            if not near and card.numa is not None:
                near = self.host.cores_of_node(card.numa)
        load = Counter(core for cores in self._bound.values() for core in cores)
        cores = self.host.bound(group)  # by us, before this start of the container
        if len(cores) != claim.cpu_bind:
            cores = self._bound.get(tenant) or nearest(claim.cpu_bind, self.host.allowed(group), near, load)
        self._bound[tenant] = cores
        assert pod.spec is not None
        if all(one.cpu_bind == claim.cpu_bind for one in pod.spec.containers) and len(pod.spec.ask.tenants) == 1:
            self.host.bind(group, cores)  # before the container is made: no process of it ever runs elsewhere
        else:
            self._soon(self._bind_next(group, self.host.containers(group), cores))

    async def _bind_next(self, group: Any, before: set[Any], cores: set[int]) -> None:
        """The container that is made next in the pod's cgroup: the one whose start we were asked about."""
        for _ in range(12_000):  # a minute
            if fresh := self.host.containers(group) - before:
                for one in fresh:
                    try:
                        self.host.bind(one, cores)
                    except CannotBind as error:
                        log.error("cpu-bind error=%s", error)
                return
            await asyncio.sleep(0.005)


def _going_on(pod: PodClaims, got: Sequence[tuple[Entry, reply.Given]]) -> PodClaims:
    cards = {entry.container: given.cards for entry, given in got}
    if not cards:
        return pod
    claims = []
    for claim in pod.claims:
        other = next((cards[name] for name in claim.containers if name in cards), None)
        claims.append(claim if other is None else replace(claim, cards=other))
    return replace(pod, claims=tuple(claims))


def _known(among: Iterable[Any], listed: Collection[tuple[str, str]]) -> bool:
    return any((one.pod.namespace, one.pod.name) in listed for one in among)


def _tenant(claim: Claim, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "request": claim.request / WHOLE,
        "limit": claim.limit / WHOLE,
        "memory_bytes": claim.memory,
        "latency": claim.latency,
        "gpus": list(claim.cards),
    }


def _annotations(pod: PodClaims) -> Mapping[str, Any]:
    annotations: Mapping[str, Any] = pod.object["metadata"].get("annotations") or {}
    return annotations


def _version(given: Mapping[str, Any]) -> int:
    text = str(given.get("metadata", {}).get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def _statuses(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _running(pod: Mapping[str, Any]) -> set[str]:
    return {one.get("name", "") for one in _statuses(pod) if "running" in (one.get("state") or {})}


def _ended(pod: Mapping[str, Any]) -> set[str]:
    """Init containers that have done their work, or run as far as is known: what starts then is what comes after."""
    found = set()
    for one in (pod.get("status") or {}).get("initContainerStatuses") or []:
        state = one.get("state") or {}
        if "running" in state or (state.get("terminated") or {}).get("exitCode") == 0:
            found.add(one.get("name", ""))
    return found
