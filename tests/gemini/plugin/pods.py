"""Pods as the API server has them once the extender has bound them, for these tests."""

from __future__ import annotations

import itertools
import json
from typing import Any

from gemini.kube import names
from gemini.kube.allocation import annotations_of
from gemini.kube.pod import injected, parse_pod
from gemini.placement.allocate import Allocator
from gemini.placement.book import Book
from gemini.placement.model import GPU, Device, Grant, Node, Placement
from gemini.plugin.slots import CORE, Card, Kind

Object = dict[str, Any]
GIB = 2**30
_order = itertools.count(1)


def cards(count: int = 2, memory: int = 16 * GIB, **more: Any) -> dict[str, Card]:
    return {f"GPU-{minor}": Card(f"GPU-{minor}", minor, memory, **more) for minor in range(count)}


def node(known: dict[str, Card]) -> Node:
    return Node("n", tuple(Device(card.minor, uuid=card.uuid, memory=card.memory) for card in known.values()))


def bound(
    name: str, known: dict[str, Card], on: list[int] | None = None, containers: tuple[str, ...] = ("main",),
    init: tuple[str, ...] = (), limits: Object | None = None, version: int = 1, **annotations: str,
) -> Object:  # fmt: skip
    """A pod bound to cards `on`, or where the allocator puts it on an empty node. `gpu_request="0.5"` says
    gemini.io/gpu-request; `gpu_request__side` says it for the container `side`."""
    said = {}
    for key, value in annotations.items():
        stem, dot, container = key.replace("__", ".").partition(".")
        said[f"gemini.io/{stem.replace('_', '-')}{dot}{container}"] = value
    pod: Object = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": said},
        "spec": {
            "nodeName": "n",
            "initContainers": [{"name": one, "image": "x"} for one in init],
            "containers": [{"name": one, "image": "x"} for one in containers],
        },
        "status": {"phase": "Pending"},
    }
    if limits:
        pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    spec = parse_pod(pod)
    for container, asked in injected(spec).items():
        for one in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
            if one["name"] == container:
                one["resources"] = {"limits": {key: str(amount) for key, amount in asked.items()}}
    here = node(known)
    if on is None:
        book = Book()
        book.put_node(here)
        placement = Allocator(book, ()).choose(spec.ask, ["n"])
        assert placement is not None
    else:
        want = spec.ask.tenants[0].wants[0]
        sizes = {device.minor: device.memory for device in here.devices}
        grants = (Grant(GPU, m, want.core_on(sizes[m]), want.memory_on(sizes[m])) for m in on)
        placement = Placement(name, "n", tuple(grants))
    pod["metadata"]["annotations"] |= annotations_of(placement, spec, here, next(_order))
    pod["metadata"]["resourceVersion"] = str(version)
    return pod


def record(pod: Object) -> list[str]:
    """The uuids of a pod's record."""
    return [entry["uuid"] for entry in json.loads(pod["metadata"]["annotations"][names.ALLOCATION])[GPU]]


def all_slots(known: dict[str, Card], kind: Kind = CORE) -> list[str]:
    return [f"{card.uuid}::{number}" for card in known.values() for number in range(kind.count(card))]
