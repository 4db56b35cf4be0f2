"""Containers whose cards another scheduler chose and another device plugin gave, held to their time by us.

Such a container asks for `gemini.io/placed: 1` too, so the kubelet calls us for it, whoever placed its pod: library and
socket come with our reply, and before each start we are asked whether it may. No I/O but through what is given: the API
server, the kubelet's checkpoint, the daemon, the host.

    allocate  a fresh tenant name; which pod it is for matters only later
    start     the checkpoint says whose slot it is, and what the other plugin gave that container: these are its cards.
              How much of their time it is promised says the pod's own spec (gemini/kube/placed.py). The daemon is told
    tidy      tenants of pods that are gone are removed, those that the daemon lost are brought back

A container about which any of these is not known does not start, and the kubelet says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gemini import cdi
from gemini.kube import names
from gemini.kube.answer import ApiFault
from gemini.kube.checkpoint import BadCheckpoint, Entry
from gemini.kube.kubelet_api import v1beta1
from gemini.kube.life import gone
from gemini.kube.parts import LISTS, mapping
from gemini.kube.placed import placed_shares
from gemini.kube.pod import MOST_CONTAINERS
from gemini.kube.spelling import InvalidPod
from gemini.placement.model import WHOLE
from gemini.plugin import given, reply
from gemini.plugin.daemon import DaemonFault
from gemini.plugin.host import Host
from gemini.plugin.slots import Card, Kind, choose
from gemini.plugin.view import POD, Kubelet, Refusal

PLACED = Kind(names.RESOURCE_PLACED)
TENANT = re.compile(r"placed-[0-9a-f]{8}")
OUTCOMES = (("allocate", "ok"), ("start", "ok"), ("start", "refused"))
log = logging.getLogger("gemini.plugin")


class Kubernetes(Protocol):
    async def pods_on(self, node: str) -> tuple[list[dict[str, Any]], int]: ...
    async def say(self, pod: Mapping[str, Any], reason: str, message: str) -> None: ...


class Daemon(Protocol):
    async def tenants(self) -> dict[str, dict[str, Any]]: ...
    async def cards(self) -> dict[str, int]: ...
    async def register(self, spec: Mapping[str, Any]) -> None: ...
    async def remove(self, name: str) -> None: ...


@dataclass(frozen=True)
class Holder:
    """A container with a slot of ours, and the tenant that it was given for it."""

    entry: Entry
    tenant: str


class PlacedView:
    """Pods of the node, its cards as the daemon knows them, and the kubelet's record. `changed`: the cards have."""

    def __init__(self, node: str, kubernetes: Kubernetes, kubelet: Kubelet) -> None:
        self.node, self.kind, self.kubernetes, self._kubelet = node, PLACED, kubernetes, kubelet
        self.cards: dict[str, Card] = {}
        self.pods: dict[str, Mapping[str, Any]] = {}
        self.changed: Callable[[], None] = lambda: None

    def replace(self, kind: str, objects: Iterable[Mapping[str, Any]], version: int = 0) -> None:
        self.pods = {}
        for pod in objects:
            self.apply(kind, "ADDED", pod)

    def apply(self, kind: str, event: str, pod: Mapping[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if event == "DELETED" or gone(pod.get("status") or {}):
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = slim(pod)

    async def refresh(self) -> None:
        """By a read that has seen every write before it; what is known will do if the API server does not answer."""
        with contextlib.suppress(ApiFault):
            self.replace(POD, *await self.kubernetes.pods_on(self.node))

    def put_cards(self, sizes: Mapping[str, int]) -> None:
        fresh = {uuid: Card(uuid, minor, size) for minor, (uuid, size) in enumerate(sizes.items())}
        if fresh != self.cards:
            self.cards = fresh
            self.changed()

    def entries(self) -> list[Entry]:
        try:
            return self._kubelet.checkpoint()
        except (OSError, BadCheckpoint) as error:
            raise Refusal(f"the kubelet's checkpoint cannot be read: {error}") from None

    def holders(self) -> list[Holder]:
        found = []
        for entry in self.entries():
            if entry.resource == PLACED.resource and (tenant := _tenant_of(entry.reply)) is not None:
                found.append(Holder(entry, tenant))
        return found


class PlacedService:
    """`token`: eight fresh hexadecimal digits."""

    def __init__(
        self, view: PlacedView, options: reply.Options, daemon: Daemon, host: Host, token: Callable[[], str]
    ) -> None:
        self.view, self.options, self.host = view, options, host
        self.counts: Counter[tuple[str, str]] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._daemon, self._token = daemon, token
        self._changing = asyncio.Lock()

    # ---- the kubelet's verbs

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        return choose(available, must, size, ())

    async def allocate(self, ids: Sequence[str]) -> Any:
        """The ContainerAllocateResponse."""
        tenant = f"placed-{self._token()}"
        environment = self._environment()
        mounts = reply.mounts(tenant, self.options.paths)
        answer = v1beta1.ContainerAllocateResponse(annotations={names.CONTAINER_TENANT: tenant})
        if self.options.cdi:
            self.host.write_cdi(reply.cdi_file(tenant), cdi.spec({tenant: cdi.edits(environment, mounts)}))
            answer.cdi_devices.add(name=f"{names.CDI_KIND}={tenant}")
        else:
            answer.envs.update(environment)
            for host, inside in mounts:
                answer.mounts.add(container_path=inside, host_path=host, read_only=inside != "/dev/shm")
        self.counts["allocate", "ok"] += 1
        return answer

    def _environment(self) -> dict[str, str]:
        said = {names.ENV_PRELOAD: names.LIBRARY_PATH, names.ENV_SOCKET: f"ipc://{names.SOCKET_PATH}"}
        if self.options.machine is not None:
            said |= {names.ENV_SIM: self.options.machine, "LD_LIBRARY_PATH": names.SIM_PATH}
        return said

    async def start(self, ids: Sequence[str]) -> None:
        """Raises Refusal; the kubelet tries again after a while."""
        try:
            async with self._changing:
                await self._start(ids)
        except (DaemonFault, InvalidPod) as error:
            self.counts["start", "refused"] += 1
            raise Refusal(str(error)) from None
        except Refusal:
            self.counts["start", "refused"] += 1
            raise
        self.counts["start", "ok"] += 1

    async def _start(self, ids: Sequence[str]) -> None:
        holder = next((one for one in self.view.holders() if set(one.entry.ids) == set(ids)), None)
        if holder is None:
            raise Refusal(f"the kubelet's record has no container with the slot {', '.join(ids)} of this plugin's")
        uid, container = holder.entry.pod, holder.entry.container
        if uid not in self.view.pods:
            await self.view.refresh()
        pod = self.view.pods.get(uid)
        if pod is None:
            raise Refusal(f"pod {uid} has the slot, but it is not known here (any more)")
        self.view.put_cards(await self._daemon.cards())
        spec = self._promised(pod, holder)
        for other in self._over(pod, holder):
            await self._daemon.remove(other)
        try:
            await self._daemon.register(spec)
        except DaemonFault as fault:
            if not fault.clash:
                raise
            await self._tidy()  # a pod that is gone may hold it still
            await self._daemon.register(spec)
        log.info("placed tenant=%s pod=%s container=%s cards=%s", holder.tenant, uid, container, spec["gpus"])
        with contextlib.suppress(ApiFault):
            await self.view.kubernetes.say(pod, names.PLACED_ENFORCED, _told(container, spec))

    def _promised(self, pod: Mapping[str, Any], holder: Holder) -> dict[str, Any]:
        """What the daemon is told. Raises Refusal, InvalidPod."""
        container = holder.entry.container
        share = placed_shares(pod).get(container)
        if share is None:
            raise Refusal(f"container {container} does not ask for {names.RESOURCE_PLACED}; delete the pod")
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
            known = ", ".join(self.view.cards) or "none"
            raise Refusal(
                f"the plugin of {share.resource} gave {strange}, the daemon's cards are {known}; use whole cards"
            )
        if len(got.cards) != share.count:
            many = f"{len(got.cards)} cards, container {container} asks for {share.count}"
            raise Refusal(f"the plugin of {share.resource} named {many}; let it name them by uuid")
        if got.preloads:
            mend = f"set {names.HAMI_CONTROL_OFF}=true in its env, as admission does in a namespace that opted in"
            raise Refusal(f"container {container} gets another library by {names.PRELOAD_FILE}; {mend}")
        smallest = min(self.view.cards[uuid].memory for uuid in got.cards)
        return {
            "name": holder.tenant,
            "request": share.request / WHOLE,
            "limit": share.limit / WHOLE,
            "memory_bytes": min(got.memory, smallest),
            "latency": False,
            "gpus": list(got.cards),
        }

    def _over(self, pod: Mapping[str, Any], holder: Holder) -> list[str]:
        """Tenants of containers of the pod that have ended when this one starts: init containers come one by one."""
        ended = _ended(pod)
        return [
            one.tenant
            for one in self.view.holders()
            if one.entry.pod == holder.entry.pod and one.entry.container in ended and one.tenant != holder.tenant
        ]

    # ---- what is left of others

    async def tidy(self) -> None:
        """Removes the tenants of pods that are gone, brings back those that the daemon lost. Raises DaemonFault,
        Refusal."""
        async with self._changing:
            await self._tidy()

    async def _tidy(self) -> None:
        self.view.put_cards(await self._daemon.cards())
        there = await self._daemon.tenants()
        holders = {one.tenant: one for one in self.view.holders()}
        suspects = [name for name in there if TENANT.fullmatch(name) and not self._alive(holders.get(name))]
        if suspects:
            await self.view.refresh()
            for name in suspects:
                if not self._alive(holders.get(name)):
                    log.info("tenant-removed tenant=%s", name)
                    await self._daemon.remove(name)
                    self.host.drop_cdi(reply.cdi_file(name))
        fault: DaemonFault | None = None
        for name, holder in holders.items():
            pod = self.view.pods.get(holder.entry.pod)
            if name in there or pod is None or holder.entry.container not in _running(pod):
                continue
            try:
                log.info("tenant-again tenant=%s", name)
                await self._daemon.register(self._promised(pod, holder))
            except DaemonFault as error:
                fault = fault or error
            except (InvalidPod, Refusal) as error:
                fault = fault or DaemonFault(str(error))
        if fault is not None:
            raise fault

    def _alive(self, holder: Holder | None) -> bool:
        return holder is not None and holder.entry.pod in self.view.pods


def slim(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What is looked at of a pod of this node: who may make pods makes them as large as the API server stores them."""
    metadata, spec, status = (mapping(pod.get(key)) for key in ("metadata", "spec", "status"))
    lists = {
        key: [_container(one) for one in spec[key][:MOST_CONTAINERS]]
        for key in LISTS
        if isinstance(spec.get(key), list)
    }
    states = {
        key: [
            {"name": one.get("name"), "state": one.get("state")} for one in map(mapping, status[key][:MOST_CONTAINERS])
        ]
        for key in ("initContainerStatuses", "containerStatuses")
        if isinstance(status.get(key), list)
    }
    known = ("name", "namespace", "uid", "resourceVersion")
    return {
        "metadata": {key: metadata.get(key) for key in known},
        "spec": lists,
        "status": {"phase": status.get("phase"), **states},
    }


def _container(given_: object) -> dict[str, Any]:
    container = mapping(given_)
    env = container.get("env")
    told = [one for one in (env if isinstance(env, list) else ()) if mapping(one).get("name") == names.HAMI_CORE_POLICY]
    kept = {key: container.get(key) for key in ("name", "restartPolicy", "resources")}
    return {**kept, "env": told[-1:]}


def _tenant_of(reply_: bytes) -> str | None:
    try:
        said = v1beta1.ContainerAllocateResponse.FromString(reply_)
    except Exception:  # protobuf's DecodeError
        return None
    tenant = said.annotations.get(names.CONTAINER_TENANT)
    return tenant if tenant and TENANT.fullmatch(tenant) else None


def _told(container: str, spec: Mapping[str, Any]) -> str:
    shares = f"{spec['request']:g} of the time, {spec['limit']:g} at most"
    return f"container {container} is tenant {spec['name']}: {shares}, of {', '.join(spec['gpus'])}"


def _states(pod: Mapping[str, Any], key: str) -> dict[str, Mapping[str, Any]]:
    listed = mapping(pod.get("status")).get(key) or ()
    return {str(one.get("name")): mapping(one.get("state")) for one in listed}


def _ended(pod: Mapping[str, Any]) -> set[str]:
    return {name for name, state in _states(pod, "initContainerStatuses").items() if "terminated" in state}


def _running(pod: Mapping[str, Any]) -> set[str]:
    states = _states(pod, "initContainerStatuses") | _states(pod, "containerStatuses")
    return {name for name, state in states.items() if "running" in state}
