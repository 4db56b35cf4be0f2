"""What other device plugins gave out on this node: the kubelet's checkpoint and PodResources to entries of the Device.

Pure. An entry keeps the kubelet's own shape ({podUID, containerName, resourceName, deviceIDs, allocResp}), but its
deviceIDs are the uuids of our cards, whatever the other plugin calls them: a uuid, a replica of one (GPU-...::3, _-_7),
an index. Where the ids tell nothing, the plugin's own answer does, which the checkpoint holds: the environment or the
device nodes that it gave the container. An entry that still tells nothing may be of any card, and so holds all of them.

Ours are left out: pods that carry our record. A pod without it that nevertheless holds something of ours (it ran before
the extender did, or was bound past it) is adopted from the checkpoint like any other.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gemini.kube import names
from gemini.kube.checkpoint import Entry
from gemini.kube.kubelet_api import v1beta1
from gemini.reporter.inventory import Card

MIG = "MIG-"  # a part of a card in MIG mode, which is none of ours
NVIDIA_CDI = "nvidia.com/gpu="
_NODE = re.compile(r"/dev/nvidia(\d+)")
_NONE = frozenset({"", "none", "void"})


def published(
    entries: Iterable[Entry],
    cards: Sequence[Card],
    pods: Mapping[str, Mapping[str, Any]],
    held: frozenset[str] | None,
    types: Collection[str] = (),
) -> list[dict[str, Any]]:
    """What stands in the Device's devices-checkpoints, in a fixed order.

    `pods`: those of this node that have not ended, by uid. `held`: the device ids that PodResources shows; None where
    it did not answer. The kubelet forgets who has ended only when it next allocates: an entry of a pod that the API
    server does not know counts while PodResources shows its devices (a static pod goes by another uid there), or cannot
    tell.
    `types`: device types besides gpu whose resources are ours.
    """
    result = []
    for entry in sorted(entries, key=lambda e: (e.pod, e.container, e.resource)):
        pod = pods.get(entry.pod)
        if pod is None and held is not None and not held.intersection(entry.ids):
            continue
        annotations = ((pod or {}).get("metadata") or {}).get("annotations") or {}
        if _ours(entry.resource, types) and names.ALLOCATION in annotations:
            continue
        uuids = cards_of(entry, cards)
        if uuids:
            result.append({
                "podUID": entry.pod,
                "containerName": entry.container,
                "resourceName": entry.resource,
                "deviceIDs": uuids,
                "allocResp": base64.b64encode(entry.reply).decode() if len(entry.reply) <= MOST_REPLY else "",
            })  # fmt: skip
    return result


MOST_REPLY = 2048  # bytes of a plugin's answer that are repeated: annotations are 256 KiB in all


def cards_of(entry: Entry, cards: Sequence[Card]) -> list[str]:
    """The uuids of the cards that the container got, in the order of the cards; [] where they are none of ours."""
    if not _of_cards(entry):
        return []
    if entry.ids and all(one.startswith(MIG) for one in entry.ids):
        return []
    found: set[str] = set()
    for one in entry.ids:
        found.update(card.uuid for card in cards if one == card.uuid or one.startswith((f"{card.uuid}::",
                     f"{card.uuid}_-_", f"{card.uuid}-_-")))  # fmt: skip
    if len(found) < len({one.partition("::")[0] for one in entry.ids}) or not found:
        found |= _given(entry, cards)
    if not found:
        found = {card.uuid for card in cards}
    return [card.uuid for card in cards if card.uuid in found]


def _of_cards(entry: Entry) -> bool:
    """Whether the resource is one of NVIDIA's cards, as far as its name, its ids or the plugin's answer tell."""
    domain, _, kind = entry.resource.partition("/")
    if domain == names.NVIDIA:
        return not kind.startswith("mig-")
    return (
        any("GPU-" in one for one in entry.ids)
        or entry.resource == names.ALIYUN_GPU_MEM
        or _ours(entry.resource, ())
        or _reply(entry).envs.get(names.ENV_VISIBLE_DEVICES, "").lower() not in _NONE
    )


def _given(entry: Entry, cards: Sequence[Card]) -> set[str]:
    """The cards that the plugin's answer names."""
    reply = _reply(entry)
    visible = reply.envs.get(names.ENV_VISIBLE_DEVICES, "")
    words = [word.strip() for word in visible.split(",")]
    words += [device.name.removeprefix(NVIDIA_CDI) for device in reply.cdi_devices if NVIDIA_CDI in device.name]
    if "all" in words:
        return {card.uuid for card in cards}
    found = {card.uuid for card in cards for word in words if word in (card.uuid, str(card.index))}
    for device in reply.devices:
        match = _NODE.fullmatch(device.host_path)
        if match:
            found.update(card.uuid for card in cards if card.minor == int(match.group(1)))
    return found


def _reply(entry: Entry) -> Any:
    try:
        return v1beta1.ContainerAllocateResponse.FromString(entry.reply)
    except Exception:  # protobuf's DecodeError: another kubelet's format
        return v1beta1.ContainerAllocateResponse()


def _ours(resource: str, types: Collection[str]) -> bool:
    own = {names.RESOURCE_CORE, names.ALIYUN_GPU_MEM, *(f"{names.DOMAIN}/{kind}" for kind in types)}
    return resource in own
