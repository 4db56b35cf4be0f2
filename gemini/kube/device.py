"""The custom resource Device (gemini.io/v1alpha1, cluster scope, named after its node): what a node has, both ways.

Pure. `read_device` turns an object into a Node of the allocator and the cards that other device plugins gave out;
`write_device` is its inverse, for the reporter. The shape is that of the proposal (S2: id, minor, type, health,
resources), with the model, where the device sits, and the links besides:

    spec:
      devices: [{id, minor, type, health, model, slots, resources: {gemini.io/gpu-core, gpu-memory, gpu-memory-ratio},
                 topology: {numa, pcie, cpus, address}, conditions: [{type: Healthy, ...}]}]
      links: [{a, b, kind, count}]
      partitions: {policy: honor | prefer, sets: [[0, 1]]}

Reading trusts nothing: an entry that makes no sense is left out and named among the faults, the others count.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemini.kube import names, quantity
from gemini.kube.quantity import shown
from gemini.kube.spelling import S2_DOMAINS
from gemini.placement.model import GPU, WHOLE, Device, Link, Node, Partitions
from gemini.placement.tree import NVLINK, PAIR_SCORE
from gemini.units import BadValue

# Of a node, and of one type; each is compared with each, for all to wait. The token of a node writes its Device.
MOST_DEVICES, MOST_CARDS = 256, 64
MOST_LINKS, MOST_SETS = 4096, 1024


@dataclass(frozen=True)
class Reported:
    """A node as its Device object says; `foreign`: (pod uid, device uuid) given out by other device plugins."""

    node: Node
    foreign: tuple[tuple[str, str], ...] = ()
    settled: frozenset[tuple[str, str]] = frozenset()  # (pod uid, container) whose devices are all among these
    faults: tuple[str, ...] = ()


class _Fault(ValueError):
    """An entry that cannot be used; one line."""


def read_device(given: object) -> Reported:
    """Raises nothing: what cannot be read stands among the faults."""
    top = given if isinstance(given, dict) else {}
    metadata = _mapping(top.get("metadata"))
    spec = _mapping(top.get("spec"))
    faults: list[str] = []
    devices: list[Device] = []
    seen: set[tuple[str, int]] = set()
    many: Counter[str] = Counter()
    for i, entry in enumerate(_first(MOST_DEVICES, spec, "devices", faults)):
        try:
            device = _device(entry, f"spec.devices[{i}]")
            if many[device.type] >= MOST_CARDS:
                raise _Fault(f"spec.devices[{i}]: {MOST_CARDS} of type {shown(device.type)} stand before it")
            if (device.type, device.minor) in seen:
                raise _Fault(f"spec.devices[{i}]: {device.type} {device.minor} is there twice")
        except (_Fault, BadValue) as error:
            faults.append(str(error))
            continue
        seen.add((device.type, device.minor))
        many[device.type] += 1
        devices.append(device)
    cards = {d.minor for d in devices if d.type == GPU}
    links: list[Link] = []
    for i, entry in enumerate(_first(MOST_LINKS, spec, "links", faults)):
        try:
            links.append(_link(entry, cards, f"spec.links[{i}]"))
        except _Fault as error:
            faults.append(str(error))
    partitions = _partitions(spec.get("partitions"), cards, faults)
    name = metadata.get("name")
    node = Node(name if isinstance(name, str) else "", tuple(devices), tuple(links), partitions)
    foreign, settled = _foreign(_mapping(metadata.get("annotations")), faults)
    return Reported(node, foreign, settled, tuple(faults))


def write_device(
    node: Node,
    checkpoint: Collection[Mapping[str, Any]] = (),
    more: Mapping[tuple[str, int], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The object of a node; `checkpoint`: entries of pods that other device plugins gave devices to. `more`: what a
    device's entry says besides, by (type, minor), for people and for device plugins; its topology is added to."""
    spec: dict[str, Any] = {"devices": [_entry(device) for device in node.devices]}
    for entry in spec["devices"]:
        said = dict((more or {}).get((entry["type"], entry["minor"]), {}))
        topology = {**entry.get("topology", {}), **said.pop("topology", {})}
        entry.update({**said, **({"topology": topology} if topology else {})})
    if node.links:
        spec["links"] = [{"a": link.a, "b": link.b, "kind": link.kind, "count": link.count} for link in node.links]
    if node.partitions is not None:
        policy = "honor" if node.partitions.strict else "prefer"
        spec["partitions"] = {"policy": policy, "sets": [list(members) for members in node.partitions.sets]}
    metadata: dict[str, Any] = {"name": node.name}
    if checkpoint:
        text = json.dumps([dict(entry) for entry in checkpoint], separators=(",", ":"))
        metadata["annotations"] = {names.DEVICES_CHECKPOINTS: text}
    return {"apiVersion": names.DEVICE_API_VERSION, "kind": names.DEVICE_KIND, "metadata": metadata, "spec": spec}


def template_node(given: Mapping[str, Any]) -> Node | None:
    """A node that has no Device object, as its own capacity tells: equal cards that nobody uses. For nodes that do not
    exist yet, as the cluster autoscaler imagines them. None where it speaks of no cards."""
    metadata, status = _mapping(given.get("metadata")), _mapping(given.get("status"))
    has = _mapping(status.get("allocatable")) or _mapping(status.get("capacity"))
    try:
        cards = quantity.parse_whole(has.get(names.RESOURCE_CORE, 0)) // WHOLE
        memory = quantity.parse_whole(has.get(names.RESOURCE_MEMORY, 0))
    except BadValue:
        return None
    name, model = metadata.get("name"), _mapping(metadata.get("labels")).get(names.NODE_MODEL_LABEL)
    if not cards or cards > MOST_CARDS or not isinstance(name, str):
        return None
    kind = model if isinstance(model, str) else ""
    return Node(name, tuple(Device(m, model=kind, memory=memory // cards) for m in range(cards)))


def cordoned(node: Node, uuids: Collection[str]) -> Node:
    """The node with those of its devices out of service for new pods."""
    if not uuids:
        return node
    return replace(node, devices=tuple(replace(d, cordoned=d.cordoned or d.uuid in uuids) for d in node.devices))


def _entry(device: Device) -> dict[str, Any]:
    if device.type == GPU:
        resources = {
            names.RESOURCE_CORE: str(device.core),
            names.RESOURCE_MEMORY: str(device.memory),
            names.RESOURCE_RATIO: str(WHOLE),
        }
    else:
        resources = {f"{names.DOMAIN}/{device.type}": str(device.core)}
    entry: dict[str, Any] = {
        "id": device.uuid,
        "minor": device.minor,
        "type": device.type,
        "health": device.health,
        "resources": resources,
    }
    if device.model:
        entry["model"] = device.model
    if device.slots is not None:
        entry["slots"] = device.slots
    topology = {key: value for key, value in (("numa", device.numa), ("pcie", device.pcie)) if value is not None}
    if topology:
        entry["topology"] = topology
    return entry


def _device(entry: object, where: str) -> Device:
    given = _mapping(entry)
    kind = given.get("type", GPU)
    if not isinstance(kind, str) or not kind:
        raise _Fault(f"{where}.type: {shown(kind)} is no type of device")
    resources = _mapping(given.get("resources"))
    uuid, model = given.get("id", ""), given.get("model", "")
    for key, value in (("id", uuid), ("model", model)):
        if not isinstance(value, str):
            raise _Fault(f"{where}.{key}: {shown(value)} is not text")
    memory = _amount(resources, "gpu-memory") if kind == GPU else None
    core = _amount(resources, "gpu-core" if kind == GPU else kind)
    if kind == GPU and memory is None:
        raise _Fault(f"{where}.resources: a gpu needs {names.RESOURCE_MEMORY}")
    topology = _mapping(given.get("topology"))
    health = given.get("health", True)
    if not isinstance(health, bool):
        raise _Fault(f"{where}.health: {shown(health)} is neither true nor false")
    slots = given.get("slots")
    return Device(
        minor=_whole(given.get("minor"), f"{where}.minor"),
        type=kind,
        uuid=uuid,
        model=model,
        memory=memory or 0,
        core=WHOLE if core is None else min(core, WHOLE),
        # A card whose resources are all zero is out of service: that is how Koordinator reports an unhealthy one.
        health=health and core != 0,
        numa=_place(topology.get("numa")),
        pcie=_place(topology.get("pcie")),
        slots=None if slots is None else max(1, _whole(slots, f"{where}.slots")),
    )


def _amount(resources: Mapping[str, Any], rest: str) -> int | None:
    for domain in S2_DOMAINS:
        value = resources.get(f"{domain}/{rest}")
        if value is not None:
            return 0 if value in (0, "0") else quantity.parse_bytes(value)
    return None


def _link(entry: object, cards: set[int], where: str) -> Link:
    given = _mapping(entry)
    a, b = _whole(given.get("a"), f"{where}.a"), _whole(given.get("b"), f"{where}.b")
    kind = given.get("kind")
    if a not in cards or b not in cards or a == b:
        raise _Fault(f"{where}: {a} and {b} are no two gpus of the node")
    if kind != NVLINK and kind not in PAIR_SCORE:
        raise _Fault(f"{where}.kind: {shown(kind)} is no kind of link")
    return Link(min(a, b), max(a, b), kind, _whole(given.get("count", 1), f"{where}.count") if kind == NVLINK else 0)


def _partitions(value: object, cards: set[int], faults: list[str]) -> Partitions | None:
    given = _mapping(value)
    if not given:
        return None
    sets = []
    for members in _first(MOST_SETS, given, "sets", faults):
        if not isinstance(members, list) or not members or not all(m in cards for m in members if isinstance(m, int)):
            faults.append(f"spec.partitions: {shown(members)} is no set of the node's gpus")
            continue
        sets.append(tuple(sorted({m for m in members if isinstance(m, int)})))
    return Partitions(given.get("policy") != "prefer", tuple(sets))


def _foreign(
    annotations: Mapping[str, Any], faults: list[str]
) -> tuple[tuple[tuple[str, str], ...], frozenset[tuple[str, str]]]:
    """The entries of devices-checkpoints: {podUID, containerName, resourceName, deviceIDs}, as (pod, device) and as
    (pod, container). A replica of a card, whose id has something behind the uuid (GPU-...::3), counts as the card."""
    text = annotations.get(names.DEVICES_CHECKPOINTS)
    if text is None:
        return (), frozenset()
    try:
        entries = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list):
        faults.append(f"{names.DEVICES_CHECKPOINTS}: {shown(text)} is no list of what other plugins gave out")
        return (), frozenset()
    found: set[tuple[str, str]] = set()
    settled: set[tuple[str, str]] = set()
    for entry in entries:
        given = _mapping(entry)
        pod, container = given.get("podUID"), given.get("containerName")
        for identity in _list(given.get("deviceIDs")):
            if isinstance(pod, str) and isinstance(identity, str):
                found.add((pod, identity.partition("::")[0]))
                settled.add((pod, container if isinstance(container, str) else ""))
    return tuple(sorted(found)), frozenset(settled)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _first(most: int, given: Mapping[str, Any], key: str, faults: list[str]) -> list[Any]:
    """The first entries of a list; where it has more, that is a fault."""
    listed = _list(given.get(key))
    if len(listed) > most:
        faults.append(f"{key}: {len(listed)} are more than {most}; the first of them count")
    return listed[:most]


def _whole(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise _Fault(f"{where}: {shown(value)} is not a whole number from 0")
    return value


def _place(value: object) -> str | None:
    return None if value is None or value in (-1, "-1", "") else str(value)
