"""What was seen, as objects of the API: the Device, and what a node's own object says of its devices.

Pure. The Device has every card and adapter, also those out of service, with the reason as a condition. The node
advertises memory (bytes), ratio and other devices as capacity of all and as allocatable of those in service, and the
model as a label. `gemini.io/gpu-core` is not advertised here: it is the device plugin's, whose slots the kubelet
counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gemini.kube import names
from gemini.kube.device import write_device
from gemini.placement.model import GPU, WHOLE, Device, Node
from gemini.reporter.health import Fault
from gemini.reporter.inventory import Inventory
from gemini.reporter.sysfs import Place, write_cpus

RDMA = "rdma"


def node_of(name: str, seen: Inventory, faults: Mapping[str, Fault], slots: int | None = None) -> Node:
    """The allocator's node. `slots`: the most tenants of a card at once."""
    cards = [
        Device(
            card.minor, uuid=card.uuid, model=card.model, memory=card.memory, health=card.uuid not in faults,
            numa=card.place.numa, pcie=card.place.pcie, slots=slots,
        )
        for card in seen.cards
    ]  # fmt: skip
    adapters = [
        Device(i, RDMA, adapter.name, health=adapter.health, numa=adapter.place.numa, pcie=adapter.place.pcie)
        for i, adapter in enumerate(seen.adapters)
    ]
    return Node(name, (*cards, *adapters), seen.links)


def device_object(
    node: Node,
    seen: Inventory,
    faults: Mapping[str, Fault],
    checkpoint: Sequence[Mapping[str, Any]],
    owner: Mapping[str, Any],
    wall_ns: int,
    now_ns: int,
) -> dict[str, Any]:
    """The Device. `owner`: the Node object, with which it goes. `wall_ns` and `now_ns`, of one moment, turn the faults'
    times into dates."""
    more: dict[tuple[str, int], dict[str, Any]] = {}
    for card in seen.cards:
        fault = faults.get(card.uuid)
        entry: dict[str, Any] = {"topology": {**_cpus(card.place), "address": card.address}}
        if fault is not None:
            stamp = datetime.fromtimestamp((wall_ns - now_ns + fault.since_ns) // 10**9, UTC)
            entry["conditions"] = [{
                "type": "Healthy", "status": "False", "reason": fault.reason, "message": fault.message,
                "lastTransitionTime": stamp.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }]  # fmt: skip
        more[GPU, card.minor] = entry
    for i, adapter in enumerate(seen.adapters):
        if adapter.place.cpus:
            more[RDMA, i] = {"topology": _cpus(adapter.place)}
    given = write_device(node, checkpoint, more)
    metadata = owner.get("metadata") or {}
    reference = {"apiVersion": "v1", "kind": "Node", "name": metadata.get("name"), "uid": metadata.get("uid")}
    given["metadata"]["ownerReferences"] = [reference]
    return given


def merged(known: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """The Device to write over `known`: ours where we have a say, what others put there besides; None: nothing to do.
    Partitions are an administrator's, who knows the switches: they stay."""
    if known is None:
        return dict(wanted)
    result: dict[str, Any] = {**known, "metadata": dict(known.get("metadata") or {}), "spec": dict(wanted["spec"])}
    metadata = result["metadata"]
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if key != names.DEVICES_CHECKPOINTS
    }
    annotations |= wanted["metadata"].get("annotations", {})
    if annotations or metadata.get("annotations"):
        metadata["annotations"] = annotations
    metadata["ownerReferences"] = wanted["metadata"]["ownerReferences"]
    partitions = (known.get("spec") or {}).get("partitions")
    if partitions and "partitions" not in result["spec"]:
        result["spec"]["partitions"] = partitions
    return None if result == known else result


def node_patches(given: Mapping[str, Any], node: Node) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Merge patches of the Node object and of its status; None where it says so already."""
    status = given.get("status") or {}
    wanted = advertised(node, names.ALIYUN_GPU_MEM in (status.get("capacity") or {}))
    rdma = f"{names.DOMAIN}/{RDMA}"
    if rdma not in wanted and (status.get("capacity") or {}).get(rdma, "0") != "0":
        wanted[rdma] = ("0", "0")  # they were there, and went
    patch: dict[str, dict[str, str]] = {}
    for part, place in (("capacity", 0), ("allocatable", 1)):
        said = status.get(part) or {}
        missing = {key: amounts[place] for key, amounts in wanted.items() if said.get(key) != amounts[place]}
        if missing:
            patch[part] = missing
    label = model_label(node)
    labels = (given.get("metadata") or {}).get("labels") or {}
    named = {"metadata": {"labels": {names.NODE_MODEL_LABEL: label or None}}}
    return named if labels.get(names.NODE_MODEL_LABEL, "") != label else None, {"status": patch} if patch else None


def advertised(node: Node, gpushare: bool = False) -> dict[str, tuple[str, str]]:
    """Resource -> (capacity, allocatable). `gpushare`: the node serves gpushare's resource, and so says how many cards
    it has in that project's words too."""
    cards = [device for device in node.devices if device.type == GPU]
    good = [card for card in cards if card.health]
    result = {
        names.RESOURCE_MEMORY: (str(sum(c.memory for c in cards)), str(sum(c.memory for c in good))),
        names.RESOURCE_RATIO: (str(WHOLE * len(cards)), str(WHOLE * len(good))),
    }
    if gpushare:
        result[names.ALIYUN_GPU_COUNT] = (str(len(cards)), str(len(good)))
    for kind in sorted({device.type for device in node.devices} - {GPU}):
        these = [device for device in node.devices if device.type == kind]
        counts = (sum(d.core for d in these), sum(d.core for d in these if d.health))
        result[f"{names.DOMAIN}/{kind}"] = (str(counts[0]), str(counts[1]))
    return result


def model_label(node: Node) -> str:
    """The model of most of the node's cards as the value of a label; "" where there are none."""
    models = Counter(device.model for device in node.devices if device.type == GPU and device.model)
    if not models:
        return ""
    model = max(models, key=lambda one: (models[one], one))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-._")[:63].strip("-._")


def _cpus(place: Place) -> dict[str, str]:
    return {"cpus": write_cpus(place.cpus)} if place.cpus else {}
