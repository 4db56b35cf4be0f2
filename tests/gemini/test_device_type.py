"""A new type of device ("npu"): named in the configuration of webhook and extender, reported by its node, no code."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from gemini.cli.kubectl_view import picture
from gemini.extender.kinds import DEVICE, NODE, POD
from gemini.extender.state import Cluster
from gemini.kube import names
from gemini.webhook.review import mutate
from gemini.webhook.settings import Settings
from tests.gemini.extender.world import Replica, World, node_object, pod_object

Object = dict[str, Any]
TYPES = frozenset({"npu"})
NPUS: Object = {
    "metadata": {"name": "n1"},
    "spec": {"devices": [{"id": f"NPU-{m}", "minor": m, "type": "npu", "health": True} for m in range(2)]},
}


def asks(name: str, amount: str) -> Object:
    pod = pod_object(name)
    pod["spec"]["containers"][0]["resources"] = {"limits": {"gemini.io/npu": amount}}
    return pod


def test_npu_needs_configuration_only_from_admission_to_the_binding() -> None:
    answer = mutate({"request": {"uid": "u", "operation": "CREATE", "object": {"kind": "Pod", **asks("p", "60")}}},
                    Settings(types=TYPES))["response"]  # fmt: skip
    assert answer["allowed"]
    assert all("gpu" not in json.dumps(op) for op in json.loads(base64.b64decode(answer.get("patch", "W10="))))
    made = World()
    made.put(NODE, node_object("n1"))
    made.put(DEVICE, NPUS)
    replica = Replica(made, alone=True, types=TYPES)
    for name, amount, minor in (("p", "60", 0), ("q", "60", 1), ("r", "40", 0)):
        pod = made.put(POD, asks(name, amount))
        replica.watch()
        assert asyncio.run(replica.bind(pod, "n1")) == ""
        record = json.loads(made.pod_of(f"uid-{name}")["metadata"]["annotations"][names.ALLOCATION])
        assert record == {
            "npu": [{"minor": minor, "uuid": f"NPU-{minor}", "resources": {"gemini.io/npu": int(amount)}}]
        }
    replica.watch()
    refused = asyncio.run(replica.filter(made.put(POD, asks("s", "50")), "n1"))
    assert (refused.passed, refused.failed["n1"][0]) == ([], "InsufficientCore")
    replica.watch()
    restarted = Replica(made, alone=True, types=TYPES)
    assert restarted.cluster.picture() == replica.cluster.picture()
    devices = picture(restarted.cluster)["nodes"][0]["devices"]
    assert [(device["type"], device["used_core"]) for device in devices] == [("npu", 100), ("npu", 60)]


def test_npu_without_the_configuration_is_refused_with_the_types_that_are_known() -> None:
    fault = Cluster().view(asks("p", "60")).fault
    assert fault is not None
    assert "gemini.io/npu" in fault
    assert "rdma" in fault
