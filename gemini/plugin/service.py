"""The plugin's verbs: prefer, allocate, start.

No I/O but through what is given: the API server and the kubelet (view.py), the daemon (tenancy.py), the host.

Nothing is remembered that must survive us. Who holds what is read from the kubelet's checkpoint, where our own replies
stand as well; what was promised, from the pods. So a plugin or kubelet that starts again in between changes nothing.

    prefer    which pod is being admitted, by PodResources; slots of the cards that its record names
    allocate  slots name cards; the pod that was promised these is meant; a fresh tenant name for it, and its amounts
    start     the checkpoint says who really got the slots; is that not who was meant, exchange.py exchanges two pods'
              cards, or the start is refused, with the reason as an event; then the daemon is told the tenant
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from gemini.kube import names
from gemini.kube.answer import ApiFault
from gemini.kube.checkpoint import Entry
from gemini.plugin import repair, reply
from gemini.plugin.binding import Binding
from gemini.plugin.claims import Claim, PodClaims
from gemini.plugin.daemon import DaemonFault
from gemini.plugin.exchange import Exchanges
from gemini.plugin.host import CannotBind, Host
from gemini.plugin.matching import Candidate, Holder, admitting, meant, room
from gemini.plugin.resizing import Resizing
from gemini.plugin.slots import card_of, choose
from gemini.plugin.tenancy import Tenancy, Tenants
from gemini.plugin.view import Refusal, View, annotations_of

OUTCOMES = (
    ("allocate", "ok"), ("allocate", "elsewhere"), ("allocate", "nobody"), ("start", "ok"), ("start", "refused"),
    ("repair", "exchanged"), ("repair", "impossible"),
)  # fmt: skip
log = logging.getLogger("gemini.plugin")


class Service:
    """`token`: eight fresh hexadecimal digits."""

    def __init__(
        self,
        view: View,
        options: reply.Options,
        daemon: Tenants,
        host: Host,
        token: Callable[[], str],
        device_nodes: bool = False,
    ) -> None:
        self.view, self.options, self.host = view, options, host
        self.counts: Counter[tuple[str, str]] = Counter(dict.fromkeys(OUTCOMES, 0))  # (what, how it went)
        self._token, self._device_nodes = token, device_nodes
        self._expected: Holder | None = None
        self._choosing = asyncio.Lock()  # prefer, allocate and exchanges see one another's effects
        self._tasks: set[asyncio.Task[None]] = set()
        self._exchanges = Exchanges(view, self._choosing, self.counts)
        self._binding = Binding(host, self._soon)
        self.tenancy = Tenancy(view, daemon, host, self._binding.forget)
        self.resizing = Resizing(view, daemon, self.tenancy)

    # ---- verbs

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        async with self._choosing:
            listed = await self.view.kubelet.listed()
            entries = self.view.entries()
            among = self.view.candidates(entries, size)
            if not among or (listed is not None and not _known(among, listed)):
                await self.view.refresh()
                among = self.view.candidates(entries, size)
            one = admitting(among, listed, available)
            self._expected = (one.pod.uid, one.claim.container) if one else None
            return choose(available, must, size, self._wished(one, available) if one else ())

    def _wished(self, one: Candidate, available: Sequence[str]) -> tuple[str, ...]:
        """Its cards; where others were given their slots by mistake, those of a pod with which it can exchange them."""
        free = Counter(map(card_of, available))
        if not room(free, one.claim.cards, one.claim.slots):
            for other in self.view.unsettled():
                claim = other.claim(one.claim.container)
                fits = claim is not None and room(free, claim.cards, claim.slots)
                if claim is not None and fits and repair.partner_of(one.pod, claim.cards, [other]) is not None:
                    return claim.cards
        return one.claim.cards

    async def allocate(self, ids: Sequence[str]) -> Any:
        """The ContainerAllocateResponse. Raises Refusal: a container is never given what nobody was promised."""
        for uuid in sorted({card_of(slot) for slot in ids}):
            if uuid not in self.view.cards:
                raise Refusal(f"{uuid} is no card of this node; {', '.join(self.view.cards) or 'none is known'}")
        async with self._choosing:
            entries = self.view.entries()
            among = self.view.candidates(entries, len(ids))
            if not among:
                await self.view.refresh()
                among = self.view.candidates(entries, len(ids))
            one = meant(among, ids, self._expected)
            self._expected = None
            if one is None:
                self.counts["allocate", "nobody"] += 1
                raise Refusal(self._nobody(len(ids)))
            claim, cards = one.claim, {card_of(slot) for slot in ids}
            if cards != set(claim.cards):  # the slots of its own card went to another: it will have that one's
                partner = repair.partner_of(one.pod, sorted(cards), self.view.unsettled())
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
                nodes = self.host.device_nodes(
                    tuple(self.view.cards[c].minor for c in claim.cards if c in self.view.cards)
                )
            self._show(claim, tenant)
            return reply.build(claim, tenant, self.options, nodes)

    def _show(self, claim: Claim, tenant: str) -> None:
        """Writes its CDI file, if it is given by one. Raises Refusal."""
        if self.options.cdi:
            try:
                self.host.write_cdi(reply.cdi_file(tenant), reply.cdi_spec(claim, tenant, self.options))
            except OSError as error:
                raise Refusal(f"{error.filename}: {error.strerror}; see --cdi-dir") from None

    def _nobody(self, size: int) -> str:
        faults = [f"{pod.namespace}/{pod.name}: {pod.fault}" for pod in self.view.pods.values() if pod.fault]
        told = f"; {faults[0]}" if faults else ""
        node, resource = self.view.node, self.view.kind.resource
        return f"no pod bound to {node} with a record of the extender waits for {size} {resource}{told}"

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
        pod = self.view.pods.get(entry.pod)
        if pod is None or pod.claim(entry.container) is None:
            await self.view.refresh()
            pod = self.view.pods.get(entry.pod)
        if pod is None or pod.fault:
            fault = pod.fault if pod else "it is not known here (any more)"
            raise Refusal(f"pod {entry.pod} has the slots, but {fault}")
        pod, claim = await self._exchanges.verified(pod, entry, given)
        try:
            self._show(claim, given.tenant)  # again: what was there is gone with the node's /run, or by somebody's hand
            await self.tenancy.register(pod, claim, given.tenant)
            if claim.cpu_bind:
                await self._binding.bind(pod, claim, given.tenant, self.view.cards.get(claim.cards[0]))
        except (DaemonFault, CannotBind, ValueError) as error:
            self.counts["start", "refused"] += 1
            raise Refusal(str(error)) from None
        except Refusal:
            self.counts["start", "refused"] += 1
            raise
        self.counts["start", "ok"] += 1
        if annotations_of(pod).get(names.ASSIGNED) != "true":
            self._soon(self._assign(pod))

    def _owner(self, ids: Sequence[str]) -> tuple[Entry, reply.Given]:
        """Whose slots these are, by the kubelet's record, and what we gave for them."""
        entries = [entry for entry in self.view.entries() if set(entry.ids) == set(ids)]
        if not entries:
            raise Refusal(f"the kubelet's record has no container with just these {len(ids)} slots")
        entry = entries[0]
        if len(entries) > 1:  # an init container's slots are used again by a later container of its pod
            pod = self.view.pods.get(entry.pod)
            ended = _ended(pod.object if pod else {})
            entry = next((one for one in entries if one.container not in ended), entries[-1])
        given = reply.read(entry.reply)
        if given is None:
            raise Refusal("what the container was given is not ours (an older plugin's?); delete the pod")
        return entry, given

    async def _assign(self, pod: PodClaims) -> None:
        told: dict[str, str | None] = {names.ASSIGNED: "true"}
        if names.ALIYUN_ASSIGNED in annotations_of(pod):
            told[names.ALIYUN_ASSIGNED] = "true"
        try:
            self.view.put_pod(await self.view.kubernetes.annotate(pod.namespace, pod.name, pod.uid, told))
        except ApiFault as error:  # the next start of a container, or tick, says it again
            log.warning("assigned pod=%s/%s error=%s", pod.namespace, pod.name, error)

    def _soon(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Until what was begun in the background is done."""
        await asyncio.gather(*self._tasks)


def _known(among: Iterable[Any], listed: Collection[tuple[str, str]]) -> bool:
    return any((one.pod.namespace, one.pod.name) in listed for one in among)


def _ended(pod: Mapping[str, Any]) -> set[str]:
    """Init containers that have done their work, or run as far as is known: what starts then is what comes after."""
    found = set()
    for one in (pod.get("status") or {}).get("initContainerStatuses") or []:
        state = one.get("state") or {}
        if "running" in state or (state.get("terminated") or {}).get("exitCode") == 0:
            found.add(one.get("name", ""))
    return found
