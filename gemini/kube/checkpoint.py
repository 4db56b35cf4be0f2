"""The kubelet's own record of who was given which devices: kubelet_internal_checkpoint, read.

Pure. The format is internal to the kubelet (pkg/kubelet/cm/devicemanager/checkpoint) but has been read by others for
years. It has entries of a pod's uid, a container, a resource, the device ids (by NUMA node, or in older kubelets a
list), and the plugin's own reply. The record is written before an Allocate takes effect, and outlives the kubelet and
the plugin.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

CHECKPOINT = "kubelet_internal_checkpoint"  # in the folder of device plugins


class BadCheckpoint(ValueError):
    """The text is no checkpoint of a kubelet; one line."""


@dataclass(frozen=True)
class Entry:
    """What one container was given of one resource."""

    pod: str  # uid
    container: str
    resource: str
    ids: tuple[str, ...]
    reply: bytes  # the plugin's ContainerAllocateResponse


def read_checkpoint(text: bytes | str) -> list[Entry]:
    """All entries. Raises BadCheckpoint."""
    try:
        entries = json.loads(text)["Data"]["PodDeviceEntries"] or []
        return [_entry(given) for given in entries]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadCheckpoint(f"no checkpoint of a kubelet: {type(error).__name__}: {error}") from None


def _entry(given: Any) -> Entry:
    ids = given["DeviceIDs"] or {}
    listed = ids if isinstance(ids, list) else [one for part in ids.values() for one in part or []]
    try:
        reply = base64.b64decode(given.get("AllocResp") or "", validate=True)
    except binascii.Error:
        reply = b""
    pod, container, resource = (str(given[key]) for key in ("PodUID", "ContainerName", "ResourceName"))
    return Entry(pod, container, resource, tuple(sorted(set(map(str, listed)))), reply)
