"""B22: from another scheduler of cards to this one, in the proposal's seven steps, without giving a card out twice."""

from __future__ import annotations

import asyncio
import json

from gemini.extender.app import App
from gemini.extender.kinds import DEVICE, KINDS, NODE, POD
from gemini.kube import names
from gemini.kube.device import write_device
from tests.gemini.extender.world import Replica, World, cards, node_object, pod_object


def test_B22_upgrade_in_seven_steps_never_gives_a_card_out_twice() -> None:
    made = World()
    # 1. All is installed, and the reporters are up: each node's Device says which cards the old way has given out.
    for node in ("n1", "n2"):
        made.put(NODE, node_object(node))
    old = [
        made.put(POD, {**pod_object(f"old-{i}"), "spec": {"nodeName": "n1", "containers": [{"name": "c"}]}})
        for i in (0, 1)
    ]
    given = [{"podUID": old[i]["metadata"]["uid"], "containerName": "c", "deviceIDs": [f"GPU-n1-{i}"]} for i in (0, 1)]
    # 2. The makers of pods are stopped. 3. The old scheduler is stopped; no pod is pending.
    replica = Replica(made)
    synced = {kind: asyncio.Event() for kind in KINDS}
    app = App(replica.service, None, synced)
    assert app.missing()  # not ready before it has listed nodes, Devices and pods
    # 4. Until a node's Device is there it takes nobody, so it does not matter whose reporter is late.
    for event in synced.values():
        event.set()
    first = made.put(POD, pod_object("first", gpu_request="0.5"))
    replica.watch()
    assert asyncio.run(replica.filter(first, "n1", "n2")).passed == []
    for node, held in (("n1", given), ("n2", [])):
        made.put(DEVICE, write_device(cards(node), held))
    replica.watch()
    # 5. The name of the scheduler is changed (admission's affair). 6. One pod is tried: it goes beside the old ones.
    assert asyncio.run(replica.filter(first, "n1", "n2")).passed == ["n2"]
    assert asyncio.run(replica.bind(first, "n2")) == ""
    # 7. The makers are there again: whatever they make, no card of the old pods is touched, and none is promised twice.
    for i in range(12):
        pod = made.put(POD, pod_object(f"new-{i}", gpu_request="0.3"))
        replica.watch()
        for node in ("n1", "n2"):
            if asyncio.run(replica.bind(pod, node)) == "":
                break
    assert {node for node, _ in made.promised()} == {"n2"}
    assert all(core <= 100 for core, _ in made.promised().values())
    # The old pods end, and their cards are to be had.
    for pod in old:
        made.delete(POD, pod["metadata"]["uid"])
    made.put(DEVICE, write_device(cards("n1")))
    replica.watch()
    last = made.put(POD, pod_object("last", gpu_request="1.0", gpu_count="2"))
    replica.watch()
    assert asyncio.run(replica.bind(last, "n1")) == ""
    record = json.loads(made.pod_of("uid-last")["metadata"]["annotations"][names.ALLOCATION])
    assert [entry["minor"] for entry in record["gpu"]] == [0, 1]
