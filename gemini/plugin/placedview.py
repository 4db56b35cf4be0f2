"""What a node's plugin knows of pods that another scheduler placed: the pods, the daemon's cards, the kubelet's record.

Pods are watched; who holds what is read from the kubelet's checkpoint each time it matters. Nothing is remembered that
must survive us.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gemini.kube import names
from gemini.kube.answer import ApiFault
from gemini.kube.checkpoint import BadCheckpoint, Entry
from gemini.kube.kubelet_api import v1beta1
from gemini.kube.life import gone
from gemini.kube.parts import LISTS, mapping
from gemini.kube.pod import MOST_CONTAINERS
from gemini.plugin import reply
from gemini.plugin.slots import Card, Kind
from gemini.plugin.view import POD, Kubelet, Refusal

PLACED = Kind(names.RESOURCE_PLACED)
TENANT = re.compile(r"placed-[0-9a-f]{8}")
MOST_GROUPS = 64  # of KAI's that are kept of a pod; it is in as many as it has cards


class Kubernetes(Protocol):
    async def pods_on(self, node: str) -> tuple[list[dict[str, Any]], int]: ...
    async def say(self, pod: Mapping[str, Any], reason: str, message: str) -> None: ...


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

    def has_pod_of(self, tenant: str) -> bool:
        """Whether a pod here may be the one of a tenant of our own, which the node had before it was another's."""
        stems = {reply.tenant_stem(str(one["metadata"]["namespace"]), str(one["metadata"]["name"]))
                 for one in self.pods.values()}  # fmt: skip
        return tenant.rpartition("-")[0] in stems

    def holders(self) -> list[Holder]:
        found = []
        for entry in self.entries():
            if entry.resource == PLACED.resource and (tenant := _tenant_of(entry.reply)) is not None:
                found.append(Holder(entry, tenant))
        return found


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
    groups = [(key, value) for key, value in mapping(metadata.get("labels")).items() if key.startswith(names.KAI_GROUP)]
    return {
        "metadata": {**{key: metadata.get(key) for key in known}, "labels": dict(groups[:MOST_GROUPS])},
        "spec": lists,
        "status": {"phase": status.get("phase"), **states},
    }


def _container(given_: object) -> dict[str, Any]:
    container = mapping(given_)
    env = container.get("env")
    listed = {mapping(one).get("name"): one for one in (env if isinstance(env, list) else ())}  # the last one counts
    kept = {key: container.get(key) for key in ("name", "restartPolicy", "resources")}
    return {**kept, "env": [listed[name] for name in (names.HAMI_CORE_POLICY, names.ENV_PLACED) if name in listed]}


def _tenant_of(given: bytes) -> str | None:
    try:
        said = v1beta1.ContainerAllocateResponse.FromString(given)
    except Exception:  # protobuf's DecodeError
        return None
    tenant = said.annotations.get(names.CONTAINER_TENANT)
    return tenant if tenant and TENANT.fullmatch(tenant) else None


def _states(pod: Mapping[str, Any], key: str) -> dict[str, Mapping[str, Any]]:
    listed = mapping(pod.get("status")).get(key) or ()
    return {str(one.get("name")): mapping(one.get("state")) for one in listed}


def running(pod: Mapping[str, Any]) -> set[str]:
    states = _states(pod, "initContainerStatuses") | _states(pod, "containerStatuses")
    return {name for name, state in states.items() if "running" in state}


def starts_now(pod: Mapping[str, Any], containers: Collection[str]) -> str:
    """Which of these containers of the pod the kubelet starts, where they have one slot: an init container's is used
    again by what comes after it. So it is the first that has neither ended well nor runs, as far as is known."""
    begun = {
        name for name, state in _states(pod, "initContainerStatuses").items()
        if "running" in state or mapping(state.get("terminated")).get("exitCode") == 0
    }  # fmt: skip
    listed = [name for name in (*_names(pod, "initContainers"), *_names(pod, "containers")) if name in containers]
    return next((name for name in listed if name not in begun), (*listed, *containers)[-1])


def over(pod: Mapping[str, Any], container: str) -> set[str]:
    """The containers of the pod that have ended where this one starts, or runs. Init containers come one after the
    other, and where one of them begins again, so does all that comes after it. Sidecars run beside."""
    plain = _names(pod, "initContainers", sidecars=False)
    every = [*_names(pod, "initContainers"), *_names(pod, "containers")]
    if container not in _names(pod, "initContainers"):
        return set(plain)
    at = every.index(container)
    return {one for one in plain if one in every[:at]} | (set(every[at + 1 :]) if container in plain else set())


def _names(pod: Mapping[str, Any], part: str, sidecars: bool = True) -> list[str]:
    listed = mapping(pod.get("spec")).get(part) or ()
    return [str(one.get("name")) for one in listed if sidecars or one.get("restartPolicy") != "Always"]
