"""A node of the plane whose kubelet is the fake one: pods come from the API server, and their fate goes back to it.

The test decides when what is bound here is admitted, in which order, and when the kubelet restarts in between; the node
itself is registered, Ready, and renews its lease. Containers do not run: an admitted pod is simply said to be Running.
"""

from __future__ import annotations

import contextlib
import datetime
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tests.e2e.api import ApiError, Object
from tests.e2e.fake_kubelet import AdmissionError, FakeKubelet
from tests.e2e.plane import NODE_CAPACITY, Plane

HEARTBEAT_SECONDS = 10.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class FakeNode:
    """Node `name`, Ready; `kubelet.plugin_folder` is where a device plugin registers. Use as a context."""

    def __init__(self, plane: Plane, name: str = "fake-kubelet", seed: int = 0) -> None:
        self.plane, self.name = plane, name
        self.kubelet = FakeKubelet(plane.folder / name, seed)
        self._random = random.Random(seed)
        self._path = f"/api/v1/nodes/{name}"
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> FakeNode:
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux"}
        self.plane.api.post("/api/v1/nodes", {"metadata": {"name": self.name, "labels": labels}, "status": _ready({})})
        self._heart.start()
        self.plane.wait_nodes([self.name])
        self.kubelet.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._heart.join()
        self.kubelet.stop()
        with contextlib.suppress(ApiError):
            self.plane.api.delete(self._path)

    def publish(self) -> None:
        """Says on the node how many devices its plugins offer, as the kubelet does with each status."""
        counts = {name: (len(devices), len(healthy)) for name, devices, healthy in self.kubelet.offered()}
        self.plane.api.patch(f"{self._path}/status", {"status": _ready(counts)})

    def wait_capacity(self, resource: str, amount: int) -> None:
        """Until a plugin offers so many healthy devices; then the node says so."""
        self.kubelet.wait_devices(resource, amount)
        self.publish()

    def bound(self, namespace: str, count: int, seconds: float = 180) -> list[Object]:
        """The pods bound to this node and not yet admitted, once there are `count` of them."""

        def waiting(pods: list[Object]) -> list[Object] | None:
            mine = [pod for pod in pods if pod["spec"].get("nodeName") == self.name]
            mine = [pod for pod in mine if pod["status"].get("phase") == "Pending"]
            return mine if len(mine) >= count else None

        path = f"/api/v1/namespaces/{namespace}/pods"
        found: list[Object] = self.plane.api.wait(path, waiting, f"{count} pods bound to {self.name}", seconds)
        return found

    def admit(self, pod: Object) -> bool:
        """Lets the kubelet allocate for the pod, and says Running or, as the kubelet would, Failed."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
        try:
            self.kubelet.admit(pod)
        except AdmissionError as why:
            failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": f"Pod was rejected: {why}"}
            self.plane.api.patch(path, {"status": failed})
            return False
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds]
        containers = [
            {"name": one["name"], "image": one["image"], "imageID": "", "ready": True, "started": True,
             "restartCount": 0, "state": {"running": {"startedAt": now}}}
            for one in pod["spec"]["containers"]
        ]  # fmt: skip
        running = {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": containers}
        self.plane.api.patch(path, {"status": running})
        return True

    def admit_all(
        self, pods: Sequence[Object], restarts: int = 0, after_restart: Callable[[], Any] = lambda: None
    ) -> list[bool]:
        """Admits the pods in random order; the kubelet restarts so often in between, at random places.

        `after_restart` waits for the plugins to be back: a pod that is admitted before that fails, in life too.
        """
        order = self._random.sample(list(pods), len(pods))
        places = set(self._random.sample(range(1, len(pods)), restarts))
        admitted = []
        for place, pod in enumerate(order):
            if place in places:
                self.kubelet.restart()
                after_restart()
            admitted.append(self.admit(pod))
        return admitted

    def remove(self, pod: Object) -> None:
        """The pod's containers have ended and it is deleted."""
        meta = pod["metadata"]
        self.kubelet.remove(meta["uid"])
        with contextlib.suppress(ApiError):
            self.plane.api.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", grace_seconds=0)

    def _beat(self) -> None:
        """Renews the node's lease, without which the node would be NotReady after a while."""
        lease = {"metadata": {"name": self.name}, "spec": {"holderIdentity": self.name, "leaseDurationSeconds": 40}}
        with contextlib.suppress(ApiError):
            self.plane.api.post(LEASES, lease)
        while not self._ended.is_set():
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            with contextlib.suppress(ApiError, OSError):
                self.plane.api.patch(f"{LEASES}/{self.name}", {"spec": {"renewTime": now}})
            self._ended.wait(HEARTBEAT_SECONDS)


def _ready(devices: dict[str, tuple[int, int]]) -> Object:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake",
             "lastHeartbeatTime": now, "lastTransitionTime": now}  # fmt: skip
    return {
        "conditions": [ready],
        "capacity": {**NODE_CAPACITY, **{name: str(known) for name, (known, _) in devices.items()}},
        "allocatable": {**NODE_CAPACITY, **{name: str(healthy) for name, (_, healthy) in devices.items()}},
    }
