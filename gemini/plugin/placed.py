"""Containers whose cards another scheduler chose and another device plugin gave, held to their time by us.

Such a container asks for `gemini.io/placed: 1` too, so the kubelet calls us for it, whoever placed its pod: library and
socket come with our reply, and before each start we are asked whether it may. No I/O but through what is given: the API
server, the kubelet's checkpoint, the daemon, the host.

KAI asks no device plugin for a pod with a part of a card: a pod of its own keeps the whole card, and a label says which
of these. Such a container is shown that card by us, as a CDI device.

    allocate  a fresh tenant name; which pod it is for matters only later
    start     the checkpoint says whose slot it is, and what the other plugin gave that container: these are its cards.
              How much of their time it is promised says the pod's own spec (gemini/kube/placed.py). The daemon is told
    tidy      tenants of pods that are gone are removed, those that the daemon lost are brought back

A container about which any of these is not known does not start, and the kubelet says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from gemini import cdi
from gemini.kube import names
from gemini.kube.answer import ApiFault
from gemini.kube.kubelet_api import v1beta1
from gemini.kube.parts import mapping
from gemini.kube.placed import Share, placed_shares
from gemini.kube.spelling import InvalidPod
from gemini.placement.model import WHOLE
from gemini.plugin import given, reply
from gemini.plugin.daemon import DaemonFault
from gemini.plugin.host import Host
from gemini.plugin.placedview import TENANT, Holder, PlacedView, over, running, starts_now
from gemini.plugin.slots import choose
from gemini.plugin.view import Refusal

OUTCOMES = (("allocate", "ok"), ("start", "ok"), ("start", "refused"))
STALE_TIDYINGS = 2  # what a pod's status says may be older than the start of a container until then
log = logging.getLogger("gemini.plugin")


class Daemon(Protocol):
    async def tenants(self) -> dict[str, dict[str, Any]]: ...
    async def cards(self) -> dict[str, int]: ...
    async def register(self, spec: Mapping[str, Any]) -> None: ...
    async def remove(self, name: str) -> None: ...


class PlacedService:
    """`token`: eight fresh hexadecimal digits."""

    def __init__(
        self, view: PlacedView, options: reply.Options, daemon: Daemon, host: Host, token: Callable[[], str]
    ) -> None:
        self.view, self.options, self.host = view, options, host
        self.counts: Counter[tuple[str, str]] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._daemon, self._token = daemon, token
        self._changing = asyncio.Lock()
        self._begun: dict[str, int] = {}  # pods with init containers: for so many tidyings who has ended is not asked

    # ---- the kubelet's verbs

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        return choose(available, must, size, ())

    async def allocate(self, ids: Sequence[str]) -> Any:
        """The ContainerAllocateResponse."""
        tenant = f"placed-{self._token()}"
        answer = v1beta1.ContainerAllocateResponse(annotations={names.CONTAINER_TENANT: tenant})
        answer.envs.update(self._environment())  # and the mounts, also with --cdi: a runtime may know nothing of that
        for host, inside in reply.mounts(tenant, self.options.paths):
            answer.mounts.add(container_path=inside, host_path=host, read_only=inside != "/dev/shm")
        if self.options.cdi:
            self._show(tenant)
            answer.cdi_devices.add(name=f"{names.CDI_KIND}={tenant}")
        self.counts["allocate", "ok"] += 1
        return answer

    def _environment(self) -> dict[str, str]:
        said = {names.ENV_PRELOAD: names.LIBRARY_PATH, names.ENV_SOCKET: f"ipc://{names.SOCKET_PATH}"}
        if self.options.machine is not None:
            said |= {names.ENV_SIM: self.options.machine, "LD_LIBRARY_PATH": names.SIM_PATH}
        return said

    def _show(self, tenant: str, cards: Sequence[str] = ()) -> None:
        """Writes its CDI file. With cards the container sees these, whatever its environment says: the runtime adds CDI
        devices after that. Once it has started they stay, though the pod's labels change."""
        said = self._environment()
        if cards:
            said[names.ENV_VISIBLE_DEVICES] = ",".join(cards)
            if self.options.machine is not None:
                said["CUDA_VISIBLE_DEVICES"] = ",".join(cards)  # no runtime narrows down a simulated machine
        self.host.write_cdi(reply.cdi_file(tenant), cdi.spec({tenant: cdi.edits(said, ())}))

    def _shown(self, holder: Holder) -> tuple[str, ...]:
        """The cards that it was shown; none: it has not started yet. Raises Refusal."""
        begin = f"{names.ENV_VISIBLE_DEVICES}="
        cards: tuple[str, ...] = ()
        with contextlib.suppress(ValueError, KeyError, IndexError, TypeError, AttributeError):
            env = json.loads(self.host.read_cdi(reply.cdi_file(holder.tenant)))["devices"][0]["containerEdits"]["env"]
            cards = next((tuple(one.removeprefix(begin).split(",")) for one in env if one.startswith(begin)), ())
        if gone := [card for card in cards if card not in self.view.cards]:
            lost = f"container {holder.entry.container} was shown {gone[0]}, the daemon's cards are {self._known()}"
            raise Refusal(f"{lost}; delete the pod")
        return cards

    def _known(self) -> str:
        return ", ".join(self.view.cards) or "none"

    async def start(self, ids: Sequence[str]) -> None:
        """Raises Refusal; the kubelet tries again after a while."""
        try:
            async with self._changing:
                await self._start(ids)
        except (DaemonFault, InvalidPod) as error:
            self.counts["start", "refused"] += 1
            raise Refusal(str(error)) from None
        except OSError as error:
            self.counts["start", "refused"] += 1
            raise Refusal(f"{error.filename}: {error.strerror}; see --cdi-dir") from None
        except Refusal:
            self.counts["start", "refused"] += 1
            raise
        self.counts["start", "ok"] += 1

    async def _start(self, ids: Sequence[str]) -> None:
        holder, pod = await self._owner(ids)
        container = holder.entry.container
        self.view.put_cards(await self._daemon.cards())
        spec = self._promised(pod, holder)
        if self.options.cdi:  # again, for what was there is gone with the node's /run
            self._show(holder.tenant, () if placed_shares(pod)[container].resource else spec["gpus"])
        if pod["spec"].get("initContainers"):
            self._begun[holder.entry.pod] = STALE_TIDYINGS
        for other in self._over(pod, holder, self.view.holders()):
            await self._daemon.remove(other)
        try:
            await self._daemon.register(spec)
        except DaemonFault as fault:
            if not fault.clash:
                raise
            await self._tidy()  # a pod that is gone may hold it still
            await self._daemon.register(spec)
        log.info(
            "placed tenant=%s pod=%s container=%s cards=%s", holder.tenant, holder.entry.pod, container, spec["gpus"]
        )
        with contextlib.suppress(ApiFault):
            await self.view.kubernetes.say(pod, names.PLACED_ENFORCED, _told(container, spec))

    async def _owner(self, ids: Sequence[str]) -> tuple[Holder, Mapping[str, Any]]:
        """Whose slot it is, by the kubelet's record. Raises Refusal."""
        found = [one for one in self.view.holders() if set(one.entry.ids) == set(ids)]
        if not found:
            raise Refusal(f"the kubelet's record has no container with the slot {', '.join(ids)} of this plugin's")
        uid = found[0].entry.pod
        holders = {one.entry.container: one for one in found if one.entry.pod == uid}
        if uid not in self.view.pods or len(holders) > 1:
            await self.view.refresh()
        pod = self.view.pods.get(uid)
        if pod is None:
            raise Refusal(f"pod {uid} has the slot, but it is not known here (any more)")
        return holders[starts_now(pod, holders)], pod

    def _promised(self, pod: Mapping[str, Any], holder: Holder) -> dict[str, Any]:
        """What the daemon is told. Raises Refusal, InvalidPod."""
        container = holder.entry.container
        share = placed_shares(pod).get(container)
        if share is None:
            raise Refusal(f"container {container} does not ask for {names.RESOURCE_PLACED}; delete the pod")
        if share.resource:
            cards, memory = self._given(holder, share)
        elif self.options.cdi:
            cards, memory = self._shown(holder) or self._of_groups(pod, share), share.memory
        else:
            told = f"KAI's ConfigMap says which card container {container} sees, and its namespace may change it"
            raise Refusal(f"{told}; start the device plugin with --cdi (node.cdi)")
        smallest = min(self.view.cards[uuid].memory for uuid in cards)
        part = smallest * share.ratio // WHOLE if share.ratio else smallest
        return {
            "name": holder.tenant,
            "request": share.request / WHOLE,
            "limit": share.limit / WHOLE,
            "memory_bytes": min(memory or part, smallest),  # 0 would be no limit
            "latency": False,
            "gpus": list(cards),
        }

    def _given(self, holder: Holder, share: Share) -> tuple[tuple[str, ...], int]:
        """The cards that the other plugin gave the container, and how much memory of each. Raises Refusal."""
        container = holder.entry.container
        entry = next(
            (
                one for one in self.view.entries()
                if (one.pod, one.container, one.resource) == (holder.entry.pod, container, share.resource)
            ),
            None,
        )  # fmt: skip
        got = given.read(entry.reply) if entry is not None else None
        if got is None:
            raise Refusal(
                f"the kubelet gave container {container} no {share.resource}; see that its device plugin runs"
            )
        if (strange := got.unknown(self.view.cards)) is not None:
            known = self._known()
            raise Refusal(
                f"the plugin of {share.resource} gave {strange}, the daemon's cards are {known}; use whole cards"
            )
        if len(got.cards) != share.count:
            many = f"{len(got.cards)} cards, container {container} asks for {share.count}"
            raise Refusal(f"the plugin of {share.resource} named {many}; let it name them by uuid")
        if got.preloads:
            mend = f"set {names.HAMI_CONTROL_OFF}=true in its env, as admission does in a namespace that opted in"
            raise Refusal(f"container {container} gets another library by {names.PRELOAD_FILE}; {mend}")
        return got.cards, got.memory

    def _of_groups(self, pod: Mapping[str, Any], share: Share) -> tuple[str, ...]:
        """The cards that KAI keeps for the pod's groups: each by a pod of its own, which has the card whole. Raises
        Refusal."""
        labels = mapping(mapping(pod.get("metadata")).get("labels"))
        groups = sorted({str(group) for key, group in labels.items() if key.startswith(names.KAI_GROUP)})
        if len(groups) != share.count:
            raise Refusal(
                f"KAI gave the pod {len(groups)} groups of cards, admission read {share.count}; delete the pod"
            )
        cards = [self._kept_for(group) for group in groups]
        if len(set(cards)) != len(cards):
            raise Refusal(f"KAI gave the pod {', '.join(cards)}, one of them twice; delete the pod")
        return tuple(cards)

    def _kept_for(self, group: str) -> str:
        keepers = [
            uid for uid, pod in self.view.pods.items()
            if pod["metadata"]["namespace"] in names.KAI_RESERVATIONS
            and mapping(pod["metadata"].get("labels")).get(names.KAI_GROUP) == group
        ]  # fmt: skip
        replies = [
            given.read(one.reply)
            for one in self.view.entries()
            if one.pod in keepers and one.resource in names.VENDOR_RESOURCES
        ]
        cards = [card for got in replies if got is not None for card in got.cards]
        if len(cards) != 1 or cards[0] not in self.view.cards:
            told = ", ".join(cards) or "no card"
            raise Refusal(
                f"KAI's reservation of group {group} has {told} here; see the pods of {names.KAI_RESERVATIONS[0]}"
            )
        return cards[0]

    def _over(self, pod: Mapping[str, Any], holder: Holder, holders: Iterable[Holder]) -> list[str]:
        """Tenants of containers of its pod that have ended when this one starts or runs."""
        ended = over(pod, holder.entry.container)
        return [
            one.tenant
            for one in holders
            if one.entry.pod == holder.entry.pod and one.entry.container in ended and one.tenant != holder.tenant
        ]

    # ---- what is left of others

    async def tidy(self) -> None:
        """Removes the tenants of pods that are gone, brings back those that the daemon lost. Raises DaemonFault,
        Refusal."""
        async with self._changing:
            try:
                await self._tidy()
            finally:
                self._begun = {uid: left - 1 for uid, left in self._begun.items() if left > 1}

    async def _tidy(self) -> None:
        self.view.put_cards(await self._daemon.cards())
        there = await self._daemon.tenants()
        holders = {one.tenant: one for one in self.view.holders()}
        suspects = [name for name in there if self._is_left(name, holders)]
        if suspects:
            await self.view.refresh()
            for name in suspects:
                if self._is_left(name, holders):
                    log.info("tenant-removed tenant=%s", name)
                    await self._daemon.remove(name)
                    self.host.drop_cdi(reply.cdi_file(name))
        for name in self.host.cdi_tenants():  # of pods that came and went before a container of theirs began
            if TENANT.fullmatch(name) and name not in holders:
                self.host.drop_cdi(reply.cdi_file(name))
        fault: DaemonFault | None = None
        for name, holder in holders.items():
            pod = self.view.pods.get(holder.entry.pod)
            if pod is None or holder.entry.pod in self._begun or holder.entry.container not in running(pod):
                continue
            try:
                for other in self._over(pod, holder, holders.values()):
                    if other in there:  # the kubelet started another container than was thought
                        log.info("tenant-removed tenant=%s", other)
                        await self._daemon.remove(other)
                if name not in there:
                    log.info("tenant-again tenant=%s", name)
                    await self._daemon.register(self._promised(pod, holder))
            except DaemonFault as error:
                fault = fault or error
            except (InvalidPod, Refusal) as error:
                fault = fault or DaemonFault(str(error))
        if fault is not None:
            raise fault

    def _is_left(self, tenant: str, holders: Mapping[str, Holder]) -> bool:
        """Whether its pod is gone. The node may have served our own shares before, which nobody else would end now."""
        if TENANT.fullmatch(tenant):
            return tenant not in holders or holders[tenant].entry.pod not in self.view.pods
        return reply.TENANT.fullmatch(tenant) is not None and not self.view.has_pod_of(tenant)


def _told(container: str, spec: Mapping[str, Any]) -> str:
    shares = f"{spec['request']:g} of the time, {spec['limit']:g} at most"
    return f"container {container} is tenant {spec['name']}: {shares}, of {', '.join(spec['gpus'])}"
