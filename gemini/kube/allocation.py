"""The record of a placement in a pod's annotations, written at bind and read back by whoever rebuilds the book.

Pure. `gemini.io/allocation` is JSON, type -> list of {minor, uuid, resources}: one entry for each device and tenant.
Where a pod has several tenants an entry also says whose it is (`tenant`, `containers`), and `role` when it is held, if
that matters to what the device holds in all. Pods in gpushare's spelling get that project's annotations besides.
Reading trusts nothing: what is no such record is an InvalidPod.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gemini.kube import names
from gemini.kube.pod import PodSpec
from gemini.kube.quantity import shown
from gemini.kube.spelling import GPUSHARE_UNITS, InvalidPod
from gemini.placement.model import GPU, WHOLE, Grant, Node, Placement, Role

ABSENT = -1  # the minor of a card that its node does not have


def annotations_of(placement: Placement, spec: PodSpec, node: Node, now_ns: int) -> dict[str, str]:
    """What a Binding carries. `assigned` turns "true" when the device plugin has handed the cards over."""
    devices = {(d.type, d.minor): d for d in node.devices}
    tenants = spec.ask.tenants
    record: dict[str, list[dict[str, Any]]] = {}
    for grant in placement.grants:
        entry: dict[str, Any] = {"minor": grant.minor, "uuid": devices[grant.type, grant.minor].uuid}
        if grant.type == GPU:
            entry["resources"] = {names.RESOURCE_CORE: grant.core, names.RESOURCE_MEMORY: grant.memory}
            want = next(w for w in tenants[grant.tenant].wants if w.type == GPU)
            if want.ratio is not None:
                entry["resources"][names.RESOURCE_RATIO] = want.ratio
        else:
            entry["resources"] = {f"{names.DOMAIN}/{grant.type}": grant.core}
        if len(tenants) > 1:
            entry["tenant"] = grant.tenant
            entry["containers"] = list(tenants[grant.tenant].containers)
        if grant.role is Role.INIT or (grant.role is Role.APP and len(tenants) > 1):
            entry["role"] = grant.role.value
        record.setdefault(grant.type, []).append(entry)
    result = {
        names.ALLOCATION: json.dumps(record, separators=(",", ":")),
        names.ASSUME_TIME: str(now_ns),
        names.ASSIGNED: "false",
    }
    return result | _gpushare(placement, spec, node, now_ns)


def _gpushare(placement: Placement, spec: PodSpec, node: Node, now_ns: int) -> dict[str, str]:
    ours = {i for i, share in enumerate(spec.shares) if share.spelling == names.ALIYUN}
    grants = [g for g in placement.grants if g.tenant in ours and g.type == GPU]
    if not grants:
        return {}
    minors = sorted({g.minor for g in grants})
    sizes, unit = {d.minor: d.memory for d in node.devices if d.type == GPU}, GPUSHARE_UNITS[spec.unit]
    return {
        names.ALIYUN_INDEX: ",".join(map(str, minors)),
        names.ALIYUN_POD: str(sum(g.memory for g in grants) // unit),
        names.ALIYUN_DEVICE: str(sizes[minors[0]] // unit),
        names.ALIYUN_ASSUME_TIME: str(now_ns),
        names.ALIYUN_ASSIGNED: "false",
    }


def located(placement: Placement, uuids: Sequence[str], node: Node) -> Placement:
    """The placement on the cards as they are numbered now, for a driver may number them anew at each start: a card that
    the record names by uuid counts where that uuid is. One that is not there (any more) counts nowhere, and the card
    that has its number now is not it."""
    minors = {(d.type, d.uuid): d.minor for d in node.devices if d.uuid}
    taken = {(d.type, d.minor) for d in node.devices if d.uuid}
    grants = []
    for grant, uuid in zip(placement.grants, uuids, strict=True):
        minor = minors.get((grant.type, uuid)) if uuid else grant.minor
        if minor is None:
            minor = ABSENT if (grant.type, grant.minor) in taken else grant.minor
        grants.append(grant if minor == grant.minor else replace(grant, minor=minor))
    return replace(placement, grants=tuple(grants))


def record_of(pod: str, node: str, annotations: Mapping[str, object]) -> tuple[Placement, tuple[str, ...]] | None:
    """What the record says, and the uuid of each grant's card ("" where it has none); None where there is no record."""
    text = annotations.get(names.ALLOCATION)
    if text is None:
        return None
    try:
        record = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise InvalidPod(names.ALLOCATION, f"{shown(text)} is no record of an allocation; delete the pod")
    grants, uuids = [], []
    for kind, entries in record.items():
        for entry in entries if isinstance(entries, list) else [None]:
            grants.append(_grant(kind, entry))
            uuid = (entry or {}).get("uuid")
            uuids.append(uuid if isinstance(uuid, str) else "")
    return Placement(pod, node, tuple(grants)), tuple(uuids)


def _grant(kind: str, entry: object) -> Grant:
    given: dict[str, Any] = entry if isinstance(entry, dict) else {}
    resources = given.get("resources")
    amounts: dict[str, Any] = resources if isinstance(resources, dict) else {}
    core: Any = amounts.get(names.RESOURCE_CORE if kind == GPU else f"{names.DOMAIN}/{kind}")
    memory = amounts.get(names.RESOURCE_MEMORY, 0)
    minor: Any = given.get("minor")
    tenant: Any = given.get("tenant", 0)
    role = given.get("role", Role.ALWAYS.value)
    if not (_whole(minor) and _whole(core, WHOLE) and _whole(memory) and _whole(tenant)) or role not in _ROLES:
        raise InvalidPod(names.ALLOCATION, f"{shown(entry)} is no device of a record; delete the pod")
    return Grant(kind, minor, core, memory, tenant, Role(role))


_ROLES = [role.value for role in Role]


def _whole(value: Any, most: int = 2**63 - 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
