"""Preemption by a pod of a group: nobody goes for less than all of it, and all of it finds room when they have gone."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from gemini.extender.codec import PreemptRequest, Victims
from gemini.extender.kinds import DEVICE, NODE, POD
from gemini.kube import names
from gemini.kube.device import write_device
from tests.gemini.extender.world import Object, Replica, World, cards, node_object, pod_object

ZONE = names.LEVEL_LABELS["zone"]


def world(count: int = 2, **zones: str) -> World:
    made = World()
    for name, zone in (zones or {"n1": "a"}).items():
        node = node_object(name)
        node["metadata"]["labels"] = {ZONE: zone}
        node["status"]["allocatable"]["gemini.io/gpu-core"] = str(100 * count)
        made.put(NODE, node)
        made.put(DEVICE, write_device(cards(name, count)))
    return made


def runs(
    replica: Replica, name: str, node: str, minor: int, request: str = "1.0", priority: int = 0, **says: str
) -> None:
    """A pod of that priority holds a part of that card."""
    says = {"gpu_request": request, "gpu_uuid": f"GPU-{node}-{minor}", **says}
    stored = replica.world.put(POD, pod_object(name, priority=priority, **says))
    replica.watch()
    assert asyncio.run(replica.bind(stored, node)) == ""
    replica.watch()


def member(replica: Replica, name: str, size: int, request: str = "1.0", priority: int = 10, **says: str) -> Object:
    said = {"gpu_request": request, "pod_group": "g", "pod_group_size": str(size), **says}
    stored = replica.world.put(POD, pod_object(name, priority=priority, **said))
    replica.watch()
    return stored


def chosen(replica: Replica, pod: Object, **proposed: str) -> dict[str, set[str]]:
    """Node -> the names of the victims. `proposed`: node -> one of the scheduler's own."""
    before = replica.cluster.book.snapshot()
    request = PreemptRequest(pod, {node: Victims((f"uid-{name}",)) for node, name in proposed.items()})
    found = replica.service.preempt(request)
    replica.cluster.book.check()
    assert replica.cluster.book.snapshot() == before  # only asked
    return {node: {uid.removeprefix("uid-") for uid in victims.uids} for node, victims in found.items()}


def end(replica: Replica, *names_of: str, grace: int = 30, preempted: bool = False) -> None:
    """They are told to end, and go on for a while."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    for name in names_of:
        pod = replica.world.pod_of(f"uid-{name}")
        ends = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
        status = {**pod["status"], "conditions": [condition] if preempted else []}
        replica.world.put(POD, {**pod, "metadata": {**pod["metadata"], **ends}, "status": status})
    replica.watch()


def nominate(replica: Replica, name: str, node: str) -> Object:
    pod = replica.world.pod_of(f"uid-{name}")
    stored = replica.world.put(POD, {**pod, "status": {**pod["status"], "nominatedNodeName": node}})
    replica.watch()
    return stored


def test_nobody_goes_before_all_of_the_group_are_there() -> None:
    replica = Replica(world(), alone=True)
    for minor in range(2):
        runs(replica, f"low{minor}", "n1", minor)
    first = member(replica, "a", 2)
    assert chosen(replica, first, n1="low0") == {}
    member(replica, "b", 2)
    assert chosen(replica, first, n1="low0") == {"n1": {"low0", "low1"}}


def test_nobody_goes_for_a_group_that_would_have_no_room_even_so() -> None:
    replica = Replica(world(), alone=True)
    runs(replica, "low", "n1", 0)
    runs(replica, "high", "n1", 1, priority=10)
    pods = [member(replica, name, 2) for name in "ab"]
    assert chosen(replica, pods[0], n1="low") == {}
    single = replica.world.put(POD, pod_object("single", priority=10, gpu_request="1.0"))
    assert chosen(replica, single, n1="low") == {"n1": {"low"}}


def test_the_first_that_asks_has_room_made_for_all_of_it_and_no_more() -> None:
    replica = Replica(world(count=4), alone=True)
    for minor, priority in enumerate((5, 1, 2, 1)):
        runs(replica, f"low{minor}", "n1", minor, "0.6", priority)
    pods = [member(replica, f"m{i}", 4, "0.4") for i in range(4)]
    # Of four halves two fit on each card; beside 0.6 one does.
    assert chosen(replica, pods[0], n1="low0") == {}  # each fits beside one that is there
    pods = [member(replica, f"x{i}", 3, "0.5", pod_group="h") for i in range(3)]
    assert chosen(replica, pods[0], n1="low0") == {"n1": {"low1", "low3"}}


def test_who_is_being_evicted_counts_as_gone_and_the_others_follow_to_that_node() -> None:
    replica = Replica(world(n1="a", n2="a"), alone=True)
    for node in ("n1", "n2"):
        for minor in range(2):
            runs(replica, f"{node}-low{minor}", node, minor)
    pods = [member(replica, name, 2) for name in "ab"]
    both = {"n1": "n1-low0", "n2": "n2-low0"}
    assert chosen(replica, pods[0], **both) == {name: {f"{name}-low0", f"{name}-low1"} for name in both}
    end(replica, "n1-low0", "n1-low1")
    nominate(replica, "a", "n1")
    assert chosen(replica, pods[1], **both) == {}
    # Some of it was taken by somebody else meanwhile: room is made there still, not on the other node.
    replica.world.delete(POD, "uid-n1-low0")
    nominate(replica, "a", "")
    runs(replica, "quick", "n1", 0, "0.1")
    nominate(replica, "a", "n1")
    assert chosen(replica, pods[1], **both) == {"n1": {"quick"}}


def test_pods_that_have_years_to_end_keep_no_group_waiting_for_their_cards() -> None:
    """Who makes a pod says how long it may take to end. One that was deleted counted as gone for groups that preempt:
    nobody was evicted for these, and they waited as long as it said."""
    replica = Replica(world(n1="a", n2="a"), alone=True)
    for node in ("n1", "n2"):
        for minor in range(2):
            runs(replica, f"{node}-low{minor}", node, minor)
    pods = [member(replica, name, 2) for name in "ab"]
    end(replica, "n1-low0", "n1-low1", grace=10**9)
    both = {"n1": "n1-low0", "n2": "n2-low0"}
    assert chosen(replica, pods[0], **both) == {"n2": {"n2-low0", "n2-low1"}}
    # What was evicted for the group itself it waits for, as kube-scheduler does.
    end(replica, "n1-low0", "n1-low1", grace=10**9, preempted=True)
    assert chosen(replica, pods[0], **both) == {"n2": {"n2-low0", "n2-low1"}}
    nominate(replica, "a", "n1")
    assert chosen(replica, pods[1], **both) == {}


def test_a_group_on_several_nodes_has_each_member_make_room_on_its_own_or_nobody_goes() -> None:
    replica = Replica(world(1, n1="a", n2="a", n3="b"), alone=True)
    for node in ("n1", "n2", "n3"):
        runs(replica, f"low-{node}", node, 0, priority=9 if node == "n3" else 1)
    says = {"pod_group_required_topology": "zone"}
    pods = [member(replica, name, 2, **says) for name in "ab"]
    every = {node: f"low-{node}" for node in ("n1", "n2", "n3")}
    (here,) = chosen(replica, pods[0], **every)
    (there,) = chosen(replica, pods[1], **every)
    assert {here, there} == {"n1", "n2"}
    assert chosen(replica, pods[0], **every) == {here: {f"low-{here}"}}
    end(replica, f"low-{here}")
    nominate(replica, "a", here)
    assert chosen(replica, pods[1], **every) == {there: {f"low-{there}"}}
    three = [member(replica, f"x{i}", 3, pod_group="h", **says) for i in range(3)]
    assert chosen(replica, three[0], **every) == {}  # no zone has three cards


def test_a_group_of_which_one_is_being_bound_is_no_victim() -> None:
    """It would run without the others."""
    replica = Replica(world(), alone=True)
    said = {"gpu_request": "1.0", "pod_group": "low", "pod_group_size": "2"}
    pods = [replica.world.put(POD, pod_object(f"low{i}", **said)) for i in range(2)]
    replica.watch()

    async def place() -> None:
        for pod in pods:
            assert (await replica.filter(pod)).passed == ["n1"]
        await asyncio.gather(*(replica.bind(pod, "n1") for pod in pods))

    asyncio.run(place())
    replica.watch(1)  # of one binding: the watch is behind with the other
    bound = [uid for uid in ("uid-low0", "uid-low1") if replica.cluster.pods[uid].node is not None]
    assert len(bound) == 1
    high = replica.world.put(POD, pod_object("high", priority=10, gpu_request="1.0"))
    assert chosen(replica, high, n1=bound[0].removeprefix("uid-")) == {}
    replica.watch()
    assert chosen(replica, high, n1="low0") == {"n1": {"low0", "low1"}}


def test_what_was_freed_for_a_group_is_held_for_all_of_it() -> None:
    replica = Replica(world(), alone=True)
    pods = [member(replica, name, 2) for name in "ab"]
    lesser = replica.world.put(POD, pod_object("lesser", priority=5, gpu_request="0.5"))
    nominate(replica, "a", "n1")

    async def run() -> None:
        assert (await replica.filter(lesser)).passed == []
        for pod in pods:
            assert (await replica.filter(replica.world.pod_of(pod["metadata"]["uid"]))).passed == ["n1"]

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(60))
def test_a_group_is_placed_when_those_have_gone_who_went_for_it(seed: int) -> None:
    """Member after member asks, as kube-scheduler does; who was named is gone before the next one asks, or ending."""
    pick = random.Random(seed)
    zones = {"n1": "a", "n2": "a", "n3": "b"}
    replica = Replica(world(2, **zones), alone=True)
    said: dict[str, Any] = {"pod_group_required_topology": pick.choice(["node", "zone", "cluster"])}
    for node in zones:
        for minor in range(2):
            for i in range(pick.randint(0, 2)):
                priority = pick.choice([0, 1, 5, 20])
                runs(replica, f"{node}-{minor}-{i}", node, minor, pick.choice(["0.3", "0.5"]), priority)
    size, request = pick.randint(1, 4), pick.choice(["0.5", "0.8", "1.0"])
    pods = [member(replica, f"m{i}", size, request, **said) for i in range(size)]

    def passed(pod: Object) -> list[str]:
        return list(asyncio.run(replica.filter(pod)).passed)

    went: set[str] = set()
    for _ in range(4 * size):
        pod = pick.choice(pods)
        if passed(replica.world.pod_of(pod["metadata"]["uid"])):
            break
        every = {
            node: next(iter(one.name for one in map(replica.cluster.pods.get, sorted(uids)) if one), "nobody")
            for node, uids in replica.cluster.on_node.items() if uids
        }  # fmt: skip
        found = chosen(replica, pod, **every)
        if found:
            node = pick.choice(sorted(found))
            went |= found[node]
            end(replica, *found[node])
            if pick.random() < 0.5:
                nominate(replica, pod["metadata"]["name"], node)
        for one in list(replica.cluster.pods.values()):
            if one.terminating and pick.random() < 0.7:
                replica.world.delete(POD, one.uid)
        replica.watch()
    for one in list(replica.cluster.pods.values()):
        if one.terminating:
            replica.world.delete(POD, one.uid)
    replica.watch()
    assert not went or passed(replica.world.pod_of(pods[0]["metadata"]["uid"])), (went, size, request, said)
