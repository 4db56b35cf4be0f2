"""Pods that really run (image.py) on a node of ours, as dicts of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.e2e.api import Object
from tests.e2e.fake_node import FakeNode
from tests.e2e.image import IMAGE
from tests.e2e.node import Node
from tests.e2e.vendor import SIMULATED

LIBRARIES = SIMULATED.parent
INSIDE = "/opt/gemini-e2e"  # where a container sees LIBRARIES


def pod(
    name: str, node: Node | FakeNode, script: str, limits: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None, **spec: Any,
) -> Object:  # fmt: skip
    """One container, `main`, that runs `script` in bash and is not started again when that ends."""
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/bash", "-c", script],
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
        "resources": {"limits": dict(limits or {})},
    }
    placed = {"nodeSelector": {"kubernetes.io/hostname": node.name}, "terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {}},
        "spec": {**placed, "restartPolicy": "Never", "containers": [container], **spec},
    }


def with_simulated_gpu(pod: Object, machine: str) -> Object:
    """The pod with the cards of `machine` (as GEMINI_SIM says it) where a driver would be, and gemini-load in $LOAD.

    The simulated machine is shared memory whose users know each other by process id: so /dev/shm is the node's, and so
    are the process ids. A real card asks for neither.
    """
    spec = pod["spec"]
    volumes = {"gemini-e2e": str(LIBRARIES), "shm": "/dev/shm"}
    spec["hostPID"] = True
    spec["volumes"] = [{"name": name, "hostPath": {"path": path}} for name, path in volumes.items()]
    env = {"GEMINI_SIM": machine, "LD_LIBRARY_PATH": f"{INSIDE}/sim", "LOAD": f"{INSIDE}/gemini-load"}
    for container in spec["containers"]:
        container["env"] += [{"name": key, "value": value} for key, value in env.items()]
        mounts = [
            {"name": "gemini-e2e", "mountPath": INSIDE, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
        ]
        container["volumeMounts"] = mounts
    return pod
