"""A real Karpenter on the plane: the nodes that it adds are kwok's, by its own provider for those.

It is told of one kind of node, with cards; of a kind whose resources it does not know it adds none for a sharepod. A
node that it added has no Device until somebody reports its cards, as the reporter does on a real one: `reported`.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from gemini.kube.device import write_device
from gemini.placement.model import Device, Node
from tests.e2e.api import ApiError, Object
from tests.e2e.operators import defined
from tests.e2e.plane import ADMINS, HOST, NODE_CAPACITY, Plane
from tests.e2e.process import free_port
from tests.e2e.test_extender import DEVICES

POOLS, CLAIMS = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.sh/v1/nodeclaims"
CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
TYPE, OF_POOL, POOL = "eight-cards", "karpenter.sh/nodepool", "cards"
CAPACITY_TYPE, ZONE = "karpenter.sh/capacity-type", "topology.kubernetes.io/zone"


class Karpenter:
    def __init__(self, plane: Plane) -> None:
        self.plane = plane

    def nodes(self) -> list[str]:
        """Those that it added."""
        listed = self.plane.api.get("/api/v1/nodes", labelSelector=f"{OF_POOL}={POOL}")["items"]
        return sorted(one["metadata"]["name"] for one in listed)


@contextlib.contextmanager
def karpenter(plane: Plane, parts: Path, capacity: Mapping[str, str]) -> Iterator[Karpenter]:
    """It may add nodes with `capacity` on top of the usual; they go with the block."""
    where = [{"key": CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]},
             {"key": ZONE, "operator": "In", "values": ["a"]}]  # fmt: skip
    kind = {
        "name": TYPE, "architecture": "amd64", "operatingSystems": ["linux"],
        "offerings": [{"Price": 1.0, "Available": True, "Requirements": where}],
        "resources": {**NODE_CAPACITY, **capacity},
    }  # fmt: skip
    kinds = plane.folder / "instance-types.json"
    kinds.write_text(json.dumps([kind]))
    health = free_port()
    environment = {"KUBECONFIG": str(plane.kubeconfig("karpenter", ADMINS)), "KUBERNETES_MIN_VERSION": "1.19.0-0"}
    command: list[str | Path] = [
        parts / "karpenter", f"--instance-types-file-path={kinds}", "--disable-leader-election=true",
        f"--metrics-port={free_port()}", f"--health-probe-port={health}", "--batch-max-duration=2s",
    ]  # fmt: skip
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": POOL}
    template = {
        "metadata": {"labels": {"gemini.io/gpu": "true"}},
        "spec": {"nodeClassRef": reference, "requirements": where[:1], "expireAfter": "Never"},
    }
    pool = {
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": POOL},
        "spec": {
            "template": template, "limits": {"cpu": "400"},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
        },
    }  # fmt: skip
    node_class = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": POOL}}
    with contextlib.ExitStack() as stack:
        for folder in ("karpenter-crds", "kwok-crds"):
            stack.enter_context(defined(plane, parts / folder))
        stack.callback(_forget, plane)
        process = stack.enter_context(plane.running("karpenter", command, environment))
        process.wait_http(f"http://{HOST}:{health}/readyz")
        plane.api.post(CLASSES, node_class)
        plane.api.post(POOLS, pool)
        yield Karpenter(plane)


def _forget(plane: Plane) -> None:
    """Its nodes and their claims, whose finalizers nobody answers any more."""
    for path, label in ((CLAIMS, None), (POOLS, None), (CLASSES, None), ("/api/v1/nodes", f"{OF_POOL}={POOL}")):
        listed = plane.api.get(path, **({"labelSelector": label} if label else {}))["items"]
        for one in listed:
            at = f"{path}/{one['metadata']['name']}"
            with contextlib.suppress(ApiError):
                plane.api.delete(at, 0)
                plane.api.patch(at, {"metadata": {"finalizers": None}})


@contextlib.contextmanager
def reported(scaler: Karpenter, cards: int, memory: int) -> Iterator[None]:
    """Each node that it adds is given a Device with so many cards, as soon as it is there."""
    over, known = threading.Event(), set[str]()

    def follow() -> None:
        api = scaler.plane.api
        while not over.is_set():
            with contextlib.suppress(OSError):
                for event in api.events("/api/v1/nodes", 1.0, labelSelector=f"{OF_POOL}={POOL}"):
                    name = event["object"]["metadata"].get("name")
                    if name is not None and event["type"] == "ADDED" and name not in known:
                        known.add(name)
                        api.post(DEVICES, write_device(_cards(name, cards, memory)))

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for name in known:
            with contextlib.suppress(ApiError):
                scaler.plane.api.delete(f"{DEVICES}/{name}")


def _cards(name: str, cards: int, memory: int) -> Node:
    return Node(name, tuple(Device(m, uuid=f"GPU-{name}-{m}", model="H200", memory=memory) for m in range(cards)))


def waiting(pods: list[Object]) -> list[Object]:
    return [one for one in pods if not one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]]
