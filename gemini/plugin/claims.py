"""What the containers of a pod on this node were promised: its spec and the record that the extender bound it with.

Pure. A container that asks slots of our resource has one Claim; claims stand in the order in which the kubelet
allocates: init containers first. A pod without a record, or with one that makes no sense, has a fault instead.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gemini.kube import names
from gemini.kube.allocation import record_of
from gemini.kube.covered import asked_by
from gemini.kube.pod import PodSpec, parse_pod
from gemini.kube.quantity import shown
from gemini.kube.spelling import GPUSHARE_UNITS, InvalidPod
from gemini.placement.model import GPU, WHOLE, Role
from gemini.plugin.slots import Card, Kind

LATENCY = "latency"
MOST_DIGITS = 19  # of nanoseconds; Python makes no number of some thousand digits


@dataclass(frozen=True)
class Claim:
    """One container's. Request and limit are percent of a card's time, memory bytes on each card (0: no limit)."""

    container: str
    role: Role
    slots: int
    tenant: int
    containers: tuple[str, ...]  # of this tenant
    cards: tuple[str, ...]  # uuids
    request: int
    limit: int
    memory: int
    card_memory: int  # of the smallest of its cards; 0: unknown
    latency: bool
    cpu_bind: int
    more: Mapping[str, str] = field(default_factory=dict)  # environment of the spelling that the pod speaks


@dataclass(frozen=True)
class PodClaims:
    """A pod that is bound to this node and asks slots. `order`: when it was promised, in nanoseconds."""

    uid: str
    namespace: str
    name: str
    order: int
    claims: tuple[Claim, ...]
    spec: PodSpec | None
    record: Mapping[str, Any]
    object: Mapping[str, Any]
    fault: str = ""

    def claim(self, container: str) -> Claim | None:
        return next((claim for claim in self.claims if claim.container == container), None)


def claims_of(
    pod: Mapping[str, Any], kind: Kind, cards: Mapping[str, Card], types: Collection[str] = names.DEVICE_TYPES
) -> PodClaims | None:
    """None where no container of the pod asks slots of this kind."""
    metadata, spec = _mapping(pod.get("metadata")), _mapping(pod.get("spec"))
    listed = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    asked = {str(one.get("name")): count for one in listed if (count := _asked(one, kind.resource))}
    if not asked:
        return None
    annotations = _mapping(metadata.get("annotations"))
    order = str(annotations.get(names.ASSUME_TIME, ""))
    about = (
        str(metadata.get("uid")),
        str(metadata.get("namespace")),
        str(metadata.get("name")),
        int(order) if order.isdecimal() and len(order) <= MOST_DIGITS else 0,
    )
    try:
        parsed = parse_pod(pod, types)
        if kind.unit and GPUSHARE_UNITS[parsed.unit] != kind.unit:
            problem = (
                f"{parsed.unit} is not what this node counts; use a node of that unit, or the webhook's --gpushare-unit"
            )
            raise InvalidPod(names.GPUSHARE_UNIT, problem)
        record = _record(pod, about[2], cards)
        found = _claims(parsed, record, asked, cards, annotations, kind)
    except InvalidPod as error:
        return PodClaims(*about, (), None, {}, pod, str(error))
    return PodClaims(*about, found, parsed, record, pod)


def _asked(container: Mapping[str, Any], resource: str) -> int:
    amount = str(_mapping(_mapping(container.get("resources")).get("limits")).get(resource, "0"))
    return int(amount) if amount.isdecimal() else 0


def _record(pod: Mapping[str, Any], name: str, cards: Mapping[str, Card]) -> dict[str, Any]:
    """The record, where the part of the pod that nobody can change covers it."""
    annotations = _mapping(_mapping(pod.get("metadata")).get("annotations"))
    found = record_of(name, "", annotations)  # which raises where it makes no sense
    if found is None:
        problem = "the pod has none, so it was not bound by the Gemini extender; delete it and create it anew"
        raise InvalidPod(names.ALLOCATION, problem)
    both = [(grant, uuid) for grant, uuid in zip(found[0].grants, found[1], strict=True) if grant.type == GPU]
    sizes = {grant.minor: cards[uuid].memory for grant, uuid in both if uuid in cards}
    times = (1, 2) if annotations.get(names.EXCHANGE) else (1,)
    if not any(asked_by(pod).covers([grant for grant, _ in both], sizes, many) for many in times):
        problem = "it does not add up to what the pod's containers ask for; delete the pod and create it anew"
        raise InvalidPod(names.ALLOCATION, f"{shown(annotations[names.ALLOCATION])}: {problem}")
    record: dict[str, Any] = json.loads(annotations[names.ALLOCATION])
    return record


def _claims(
    spec: PodSpec,
    record: Mapping[str, Any],
    asked: Mapping[str, int],
    cards: Mapping[str, Card],
    annotations: Mapping[str, Any],
    kind: Kind,
) -> tuple[Claim, ...]:
    result = []
    for container in spec.containers:
        if container.name not in asked:
            continue
        index = next((i for i, tenant in enumerate(spec.ask.tenants) if container.name in tenant.containers), None)
        entries = [one for one in record.get(GPU, []) if one.get("tenant", 0) == index]
        if index is None or not entries:
            problem = f"says nothing of container {container.name}; delete the pod and create it anew"
            raise InvalidPod(names.ALLOCATION, problem)
        share, tenant = spec.shares[index], spec.ask.tenants[index]
        amounts = [one["resources"] for one in entries]
        uuids = tuple(str(one.get("uuid")) for one in entries)
        sizes = [cards[uuid].memory for uuid in uuids if uuid in cards]
        slots = asked[container.name]
        result.append(
            Claim(
                container.name, container.role, slots, index, tenant.containers, uuids,
                min(amount[names.RESOURCE_CORE] for amount in amounts), share.limit or WHOLE,
                min(amount.get(names.RESOURCE_MEMORY, 0) for amount in amounts), min(sizes, default=0),
                share.tenant_class == LATENCY, container.cpu_bind, _gpushare(annotations, slots, entries, sizes, kind),
            )
        )  # fmt: skip
    return tuple(result)


def _gpushare(
    annotations: Mapping[str, Any], slots: int, entries: list[Any], sizes: list[int], kind: Kind
) -> dict[str, str]:
    """That project's environment, in the unit that the node serves."""
    if not kind.unit:
        return {}
    said = str(annotations.get(names.ALIYUN_POD, slots))
    return {
        names.ALIYUN_INDEX: ",".join(str(one["minor"]) for one in entries),
        names.ALIYUN_POD: said,
        names.ALIYUN_CONTAINER: str(slots),
        names.ALIYUN_DEVICE: str(min(sizes, default=0) // kind.unit),
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
