"""What users of others complain about most, by the numbers of docs/seeds.md: those that placement can answer for.

The others are tests of the device plugin, the reporter and the library; the table in docs/seeds.md names them.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from gemini.extender.codec import FilterRequest
from gemini.extender.kinds import NODE, POD
from gemini.extender.reserve import BIND_NS
from gemini.kube import names
from gemini.kube.answer import Refused
from gemini.webhook.review import mutate
from gemini.webhook.settings import Settings
from tests.gemini.extender.world import GIB, Replica, World, admitted, node_object, pod_object

Object = dict[str, Any]


def world(*nodes: str, **more: Any) -> World:
    made = World()
    made.nodes(*(nodes or ("n1",)), **more)
    return made


def record(made: World, uid: str) -> list[Object]:
    found: list[Object] = json.loads(made.pod_of(uid)["metadata"]["annotations"][names.ALLOCATION])["gpu"]
    return found


def test_complaint_02_a_binding_that_hangs_holds_up_no_other_on_its_node_and_leaves_no_lock() -> None:
    made = world(count=1)
    replica, other = Replica(made, "one"), Replica(made, "two")
    stuck, free, later = (made.put(POD, pod_object(name, gpu_request="0.4")) for name in ("stuck", "free", "later"))
    replica.watch(), other.watch()
    answer = made.bind

    async def run() -> None:
        never = asyncio.Event()

        async def bind(namespace: str, name: str, *rest: Any) -> None:
            if name == "stuck":
                await never.wait()
            await answer(namespace, name, *rest)

        made.bind = bind  # type: ignore[method-assign]
        hanging = asyncio.create_task(replica.bind(stuck, "n1"))
        assert await replica.bind(free, "n1") == ""  # at once, on the same node and card
        assert "InsufficientCore" in await other.bind(later, "n1")  # its share counts all the while, for all replicas
        hanging.cancel()  # the replica dies with its binding under way
        made.delete(POD, "uid-stuck")
        other.watch()
        assert await other.bind(later, "n1") == ""  # nothing is left to be unlocked

    asyncio.run(run())
    assert made.promised() == {("n1", 0): (80, 2 * (16 * GIB * 40 // 100))}


def test_complaint_02_what_a_dead_replica_had_promised_is_free_after_the_time_out() -> None:
    made = world(count=1)
    dead, alive = Replica(made, "dead"), Replica(made, "alive")
    lost, later = (made.put(POD, pod_object(name, gpu_request="0.7")) for name in ("lost", "later"))
    dead.watch(), alive.watch()

    async def run() -> None:
        never = asyncio.Event()
        dead_world: Any = dead.world
        answer = made.bind

        async def bind(namespace: str, name: str, *rest: Any) -> None:
            if name == "lost":
                await never.wait()
            await answer(namespace, name, *rest)

        dead_world.bind = bind
        task = asyncio.create_task(dead.bind(lost, "n1"))
        while not made.leases:
            await asyncio.sleep(0)
        task.cancel()
        assert "InsufficientCore" in await alive.bind(later, "n1")
        alive.now_ns += BIND_NS
        await alive.service.sweep()
        assert await alive.bind(later, "n1") == ""

    asyncio.run(run())


def test_complaint_04_a_pod_is_never_bound_without_its_cards_and_their_record() -> None:
    """gpushare annotates, then binds: what fails in between leaves a pod that starts without a card."""
    made = world(count=1)
    replica = Replica(made, alone=True)
    pod = made.put(POD, pod_object("p", gpu_request="0.5"))
    replica.watch()
    made.binds_refused = [Refused(500, "etcd is away")]
    asyncio.run(replica.bind(pod, "n1"))
    assert names.ALLOCATION not in made.pod_of("uid-p")["metadata"]["annotations"]
    assert asyncio.run(replica.bind(pod, "n1")) == ""
    bound = made.pod_of("uid-p")
    assert bound["spec"]["nodeName"] == "n1"
    assert {names.ALLOCATION, names.ASSUME_TIME, names.ASSIGNED} <= set(bound["metadata"]["annotations"])


def test_complaint_05_containers_init_containers_and_sidecars_hold_what_they_need_at_once() -> None:
    made = world(count=1)
    replica = Replica(made, alone=True)
    shares = {"first": "0.9", "second": "0.2", "side": "0.1", "a": "0.3", "b": "0.5"}
    pod = pod_object("p")
    pod["metadata"]["annotations"] = {f"gemini.io/gpu-request.{name}": share for name, share in shares.items()}
    pod["spec"]["initContainers"] = [{"name": "first"}, {"name": "second"}, {"name": "side", "restartPolicy": "Always"}]
    pod["spec"]["containers"] = [{"name": "a"}, {"name": "b"}]
    pod["spec"]["restartPolicy"] = "Never"
    made.put(POD, admitted(pod))
    replica.watch()
    assert asyncio.run(replica.bind(pod, "n1")) == ""
    replica.watch()
    grants = sorted(
        (entry["resources"]["gemini.io/gpu-core"], entry.get("role", "always")) for entry in record(made, "uid-p")
    )
    assert [core for core, _ in grants] == [10, 20, 30, 50, 90]
    assert replica.cluster.book.snapshot()["n1", "gpu", 0][0] == 10 + max(30 + 50, 90)
    running = made.pod_of("uid-p")
    running["status"] = {"phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}]}
    made.put(POD, running)
    replica.watch()
    assert replica.cluster.book.snapshot()["n1", "gpu", 0][0] == 10 + 30 + 50


def test_complaint_07_cards_of_different_size_on_one_node_are_each_what_they_are() -> None:
    made = World()
    made.put(NODE, node_object("n1"))
    device = {"metadata": {"name": "n1"}, "spec": {"devices": [
        {"id": f"GPU-{m}", "minor": m, "type": "gpu", "resources": {"gemini.io/gpu-memory": size}}
        for m, size in enumerate(("16Gi", "80Gi"))
    ]}}  # fmt: skip
    made.put("Device", device)
    replica = Replica(made, alone=True)
    for name, memory in (("large", "60Gi"), ("half", None)):
        more = {"gpu_memory": memory} if memory else {"gpu_memory_ratio": "50", "gpu_uuid": "GPU-0"}
        pod = made.put(POD, pod_object(name, gpu_request="0.3", **more))
        replica.watch()
        assert asyncio.run(replica.bind(pod, "n1")) == ""
    assert made.promised() == {("n1", 1): (30, 60 * GIB), ("n1", 0): (30, 8 * GIB)}
    average = pod_object("average", gpu_request="0.1", gpu_memory="40Gi")  # of the node's cards on average
    assert asyncio.run(replica.filter(average)).passed == []


def test_complaint_10_what_was_deleted_while_nobody_watched_is_free_again() -> None:
    made = world(count=1)
    replica = Replica(made, alone=True)
    pod = made.put(POD, pod_object("p", gpu_request="0.7"))
    replica.watch()
    asyncio.run(replica.bind(pod, "n1"))
    replica.watch()
    replica.queue.clear()
    made.delete(POD, "uid-p")
    replica.queue.clear()  # the watch broke, and this event with it
    replica.cluster.replace(POD, [o for (kind, _), o in made.objects.items() if kind == POD], made.version)
    restarted = Replica(made, "another", alone=True)
    for one in (replica, restarted):
        assert one.cluster.book.snapshot()["n1", "gpu", 0] == (0, 0, 0, 0)


def test_complaint_12_forty_pods_at_once_are_filtered_ranked_and_bound_in_seconds() -> None:
    made = world(*(f"n{i}" for i in range(50)), count=8)
    replica = Replica(made, policies=("binpack",))
    pods = [made.put(POD, pod_object(f"p{i}", gpu_request="0.5")) for i in range(40)]
    replica.watch()

    async def one(pod: Object) -> str:
        error = "not tried"
        for _ in range(10):  # as the scheduler tries again where another pod was faster
            passed = (await replica.filter(pod)).passed
            ranks = replica.service.prioritize(FilterRequest(pod, tuple(passed)))
            error = await replica.bind(pod, passed[int(ranks.argmin())])
            if not error:
                break
        return error

    async def run() -> list[str]:
        return await asyncio.gather(*map(one, pods))

    started = time.process_time()
    assert asyncio.run(run()) == [""] * 40
    assert time.process_time() - started < 10  # others: 15 to 30 minutes; here some tenths of a second
    assert sorted(core for core, _ in made.promised().values()) == [100] * 20


def test_complaint_13_an_autoscalers_imagined_nodes_are_judged_by_their_cards() -> None:
    made = world(count=1)
    replica = Replica(made)
    template = node_object("template")
    template["metadata"]["labels"] = {names.NODE_MODEL_LABEL: "H200"}
    template["status"]["allocatable"] |= {"gemini.io/gpu-core": "800", "gemini.io/gpu-memory": str(8 * 141 * GIB)}

    def verdict(**asks: str) -> Any:
        pod = pod_object("p", **asks)
        nodes = {"template": template, "plain": {"metadata": {"name": "plain"}}}
        return asyncio.run(replica.service.dry_run(FilterRequest(pod, tuple(nodes), nodes)))

    assert verdict(gpu_request="1.0", gpu_count="8", gpu_model="h200").passed == ["template"]
    assert verdict(gpu_request="0.5", gpu_memory="200Gi").passed == []  # the node has it, no card of it does
    refused = verdict(gpu_request="0.5", gpu_model="A100")
    assert (refused.failed["template"][0], refused.failed["plain"][0]) == ("ModelMismatch", "InsufficientDevices")
    assert set(refused.cards["template"]) == {str(m) for m in range(8)}
    assert list(replica.cluster.book.nodes()) == [replica.cluster.book.node("n1")]


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"gemini.io/gpu-requst": "0.5"}, "gemini.io/gpu-requst: is no annotation of gemini.io; use one of"),
        ({"gemini.io/gpu-request": "50"}, "gemini.io/gpu-request: 50 is above 1;"),
        ({"gemini.io/gpu-request": "0.5", "gemini.io/gpu-memory": "lots"}, "gemini.io/gpu-memory: lots is not"),
    ],
)
def test_complaint_15_what_is_not_understood_is_refused_and_never_means_a_whole_card(
    annotations: dict[str, str], problem: str
) -> None:
    pod = pod_object("p")
    pod["metadata"]["annotations"] = annotations
    asked = {"request": {"uid": "u", "operation": "CREATE", "object": {"kind": "Pod", **pod}}}
    response = mutate(asked, Settings())["response"]
    assert not response["allowed"]
    assert problem in response["status"]["message"]


def test_complaint_15_a_share_that_says_no_memory_gets_its_part_and_not_all() -> None:
    made = world(count=1)
    replica = Replica(made, alone=True)
    pod = made.put(POD, pod_object("p", gpu_request="0.25"))
    replica.watch()
    assert asyncio.run(replica.bind(pod, "n1")) == ""
    assert made.promised() == {("n1", 0): (25, 4 * GIB)}
