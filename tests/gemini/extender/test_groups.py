"""Groups at their last step: all of their pods are bound, or none is."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from gemini.extender import grouproom
from gemini.extender.grouplease import AT_ONCE, FIRST_REST, GROUP_LEASE, LONGEST_REST, GroupState, read_state
from gemini.extender.groups import FEW
from gemini.extender.kinds import NODE, POD
from gemini.extender.ledger import NODE_LEASE
from gemini.extender.reserve import GROUP_NS, SECOND
from gemini.extender.slices import in_slices
from gemini.kube import names
from tests.gemini.extender.world import Object, Replica, World, pod_object

SOON = 0.05  # a patience that ends in the test


def world(*names: str, count: int = 4) -> World:
    made = World()
    made.nodes(*names, count=count)
    return made


def group(made: World, size: int, name: str = "g", request: str = "50%") -> list[Object]:
    said = {"gpu_request": request, "pod_group": name, "pod_group_size": str(size)}
    return [made.put(POD, pod_object(f"{name}{i}", **said)) for i in range(size)]


def lease(made: World) -> Object | None:
    found = [given for name, given in made.leases.items() if name.startswith(GROUP_LEASE.format(""))]
    assert len(found) < 2
    return found[0] if found else None


def told(made: World, pod: Object, message: str) -> None:
    """kube-scheduler's own word on a pod."""
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    made.put(POD, {**pod, "status": {"phase": "Pending", "conditions": [said]}})


@pytest.mark.parametrize("alone", [True, False], ids=["one replica", "several"])
def test_a_member_is_not_bound_before_the_others_have_come(alone: bool) -> None:
    made = world("n1")
    replica = Replica(made, alone=alone)
    pods = group(made, 3)
    replica.watch()

    async def run() -> None:
        for pod in pods:
            assert (await replica.filter(pod)).passed == ["n1"]
        first = [asyncio.create_task(replica.bind(pod, "n1")) for pod in pods[:2]]
        for _ in range(50):
            await asyncio.sleep(0)
        assert not any(task.done() for task in first)
        assert made.bindings == []
        assert await replica.bind(pods[2], "n1") == ""
        assert await asyncio.gather(*first) == ["", ""]

    asyncio.run(run())
    assert len(made.bindings) == 3


@pytest.mark.parametrize("alone", [True, False], ids=["one replica", "several"])
def test_a_member_that_does_not_come_is_named_and_the_cards_are_given_back_together(alone: bool) -> None:
    made = world("n1")
    replica = Replica(made, alone=alone, patience=SOON)
    pods = group(made, 3)
    replica.watch()

    async def run() -> None:
        for pod in pods:
            assert (await replica.filter(pod)).passed == ["n1"]
        told(made, pods[2], "0/1 nodes are available: 1 Insufficient cpu.")
        replica.watch()
        answers = await asyncio.gather(*(replica.bind(pod, "n1") for pod in pods[:2]))
        why = "could not be bound to n1 beside the others (g2: 0/1 nodes are available: 1 Insufficient cpu.)"
        assert all(why in answer for answer in answers), answers
        assert len(replica.cluster.reservations) == 0
        verdict = await replica.filter(pods[0])
        assert verdict.failed["n1"][0] == "GroupRests"
        assert why in verdict.failed["n1"][1]
        other = made.put(POD, pod_object("other", gpu_request="100%", gpu_count="4"))
        replica.watch()
        assert await replica.bind(other, "n1") == ""  # its cards are anybody's

    asyncio.run(run())
    assert [uid for uid, _ in made.bindings] == ["uid-other"]


def test_a_rest_ends_by_waking_the_members_and_the_next_try_goes_to_another_node() -> None:
    made = world("n1", "n2")
    replica = Replica(made, patience=SOON)
    pods = group(made, 2)
    replica.watch()

    async def run() -> None:
        (node,) = (await replica.filter(pods[0])).passed
        assert "tried again in 12 s" in await replica.bind(pods[0], node)
        await replica.service.sweep()
        woken = made.woken
        replica.now_ns += FIRST_REST * SECOND
        await replica.service.sweep()
        assert made.woken == woken + 1
        (other,) = (await replica.filter(pods[0])).passed
        assert other != node
        assert "tried again in 24 s" in await replica.bind(pods[0], other)
        replica.now_ns += 2 * FIRST_REST * SECOND
        for pod in pods:
            (either,) = (await replica.filter(pod)).passed  # both failed: one is as good as the other
        assert await asyncio.gather(*(replica.bind(pod, either) for pod in pods)) == ["", ""]

    asyncio.run(run())


def test_a_rest_is_of_these_members_alone() -> None:
    made = world("n1")
    replica = Replica(made, patience=SOON)
    pods = group(made, 2)
    replica.watch()

    async def run() -> None:
        await replica.filter(pods[0])
        assert "g1" in await replica.bind(pods[0], "n1")
        made.delete(POD, "uid-g1")
        fresh = pod_object("g1", uid="another", gpu_request="50%", pod_group="g", pod_group_size="2")
        made.put(POD, fresh)
        replica.watch()
        for pod in (pods[0], fresh):
            assert (await replica.filter(pod)).passed == ["n1"]
        assert await asyncio.gather(*(replica.bind(pod, "n1") for pod in (pods[0], fresh))) == ["", ""]

    asyncio.run(run())


def test_members_at_several_replicas_come_together_or_go_back_together() -> None:
    made = world("n1")
    replicas = [Replica(made, name) for name in ("one", "two")]
    pods = group(made, 4)
    for replica in replicas:
        replica.watch()

    async def run() -> None:
        for pod in pods:
            assert (await replicas[0].filter(pod)).passed == ["n1"]
        # The second was never asked about any of them.
        answers = await asyncio.gather(*(replicas[i % 2].bind(pod, "n1") for i, pod in enumerate(pods)))
        assert answers == [""] * 4

    asyncio.run(run())
    made = world("n1")
    late = [Replica(made, name, patience=patience) for name, patience in (("one", SOON), ("two", 60))]
    pods = group(made, 3)
    for replica in late:
        replica.watch()

    async def back() -> None:
        for pod in pods:
            assert (await late[0].filter(pod)).passed == ["n1"]
        answers = await asyncio.gather(late[0].bind(pods[0], "n1"), late[1].bind(pods[1], "n1"))
        assert all("(g2)" in answer for answer in answers), answers

    asyncio.run(back())
    assert made.bindings == []


def test_a_member_that_is_deleted_ends_the_wait_of_the_others() -> None:
    made = world("n1")
    replica = Replica(made)
    pods = group(made, 2)
    replica.watch()

    async def run() -> None:
        assert (await replica.filter(pods[0])).passed == ["n1"]
        task = asyncio.create_task(replica.bind(pods[0], "n1"))
        await asyncio.sleep(0)
        made.delete(POD, "uid-g1")
        replica.watch()
        assert "a member of it is gone" in await task

    asyncio.run(run())
    assert made.bindings == []


def test_pods_behind_a_gate_are_no_members_yet() -> None:
    made = world("n1")
    replica = Replica(made)
    first, gated = group(made, 2)
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}, {"name": "b"}]
    made.put(POD, gated)
    replica.watch()

    async def run() -> None:
        reason, text = (await replica.filter(first)).failed["n1"]
        assert (reason, "g1 behind a scheduling gate" in text) == ("GroupIncomplete", True), text
        await replica.service.sweep()
        woken = made.woken
        free = {key: value for key, value in gated["spec"].items() if key != "schedulingGates"}
        made.put(POD, {**gated, "spec": free})
        replica.watch()
        await replica.service.sweep()
        assert made.woken == woken + 1
        assert (await replica.filter(first)).passed == ["n1"]

    asyncio.run(run())


def test_a_group_goes_where_kube_scheduler_lets_all_of_its_pods_go() -> None:
    made = world("n1", "n2", "n3")
    replica = Replica(made)
    pods = group(made, 2)
    replica.watch()

    async def run() -> None:
        (node,) = (await replica.filter(pods[0], "n1", "n2")).passed
        assert node == "n1"
        assert (await replica.filter(pods[1], "n2", "n3")).passed == ["n2"]  # n1 is none for it
        assert (await replica.filter(pods[0], "n1", "n2")).passed == ["n2"]
        assert len(replica.cluster.reservations) == 2
        assert await asyncio.gather(*(replica.bind(pod, "n2") for pod in pods)) == ["", ""]

    asyncio.run(run())


def test_a_group_without_a_node_for_all_is_told_so() -> None:
    made = world("n1", "n2")
    replica = Replica(made)
    pods = group(made, 2)
    replica.watch()

    async def run() -> None:
        await replica.filter(pods[0], "n1")
        reason, text = (await replica.filter(pods[1], "n2")).failed["n2"]
        assert (reason, "no node that all of them may go to" in text) == ("GroupDoesNotFit", True)
        assert len(replica.cluster.reservations) == 0

    asyncio.run(run())


def test_a_member_that_fits_nowhere_is_named() -> None:
    made = world("n1")
    replica = Replica(made)
    said: dict[str, Any] = {"pod_group": "g", "pod_group_size": "2"}
    small = made.put(POD, pod_object("small", gpu_request="10%", **said))
    made.put(POD, pod_object("large", gpu_request="10%", gpu_memory="900Gi", **said))
    replica.watch()

    async def run() -> None:
        reason, text = (await replica.filter(small)).failed["n1"]
        assert (reason, "large finds none by itself" in text) == ("GroupDoesNotFit", True), text

    asyncio.run(run())


def test_where_a_part_of_the_nodes_is_asked_about_members_are_bound_as_they_come() -> None:
    names = [f"n{i:03}" for i in range(2 * FEW + 2)]
    made = world(*names, count=2)
    replica = Replica(made)
    pods = group(made, 2)
    replica.watch()

    async def run() -> None:
        (node,) = (await replica.filter(pods[0], *names)).passed
        task = asyncio.create_task(replica.bind(pods[0], node))
        await asyncio.sleep(0)
        others = [name for name in names if name != node]
        assert not (await replica.filter(pods[1], *others)).passed
        assert await task == ""
        assert (await replica.filter(pods[1], *names)).passed == [node]
        assert await replica.bind(pods[1], node) == ""

    asyncio.run(run())


def test_a_groups_lease_has_no_owner_and_is_taken_away_when_its_time_is_up() -> None:
    made = world("n1")
    replica = Replica(made)
    pods = group(made, 2)
    replica.watch()

    async def run() -> None:
        for pod in pods:
            await replica.filter(pod)
        given = lease(made)
        assert given is not None
        assert "ownerReferences" not in given["metadata"]  # of another namespace it would be garbage
        assert await asyncio.gather(*(replica.bind(pod, "n1") for pod in pods)) == ["", ""]
        await replica.service.sweep()
        assert lease(made) is not None
        replica.now_ns += GROUP_NS
        await replica.service.sweep()
        assert lease(made) is None
        assert NODE_LEASE.format("n1") in made.leases

    asyncio.run(run())


def test_a_lease_that_somebody_left_is_taken_away_by_who_finds_it() -> None:
    made = world("n1")
    first = Replica(made, "one")
    pods = group(made, 2)
    first.watch()

    async def run() -> None:
        await first.filter(pods[0])
        second = Replica(made, "two", listed=False)
        await second.begin()
        second.now_ns += GROUP_NS - 1
        await second.service.sweep()
        assert lease(made) is not None
        second.now_ns += 1
        await second.service.sweep()
        assert lease(made) is None

    asyncio.run(run())


def test_leases_of_many_groups_are_taken_away_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, each by two calls, they kept the claims and the wake-up of others waiting that come after."""
    made = world("n1", count=8)
    replica = Replica(made)
    many = [group(made, 1, f"g{i}-", "1%")[0] for i in range(5 * AT_ONCE)]
    replica.watch()
    together, most, real = 0, 0, made.lease

    async def lease(namespace: str, name: str) -> Object | None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.001)
        together -= 1
        return await real(namespace, name)

    async def run() -> None:
        for pod in many:
            await replica.filter(pod)
        monkeypatch.setattr(made, "lease", lease)
        assert len([name for name in made.leases if name.startswith(GROUP_LEASE.format(""))]) == len(many)
        replica.now_ns += GROUP_NS
        while any(name.startswith(GROUP_LEASE.format("")) for name in made.leases):
            await replica.service.sweep()

    asyncio.run(run())
    assert most == AT_ONCE


def test_what_is_no_state_says_nothing() -> None:
    for said in ({}, {"gemini.io/rest": "[1]"}, {"gemini.io/arrived": "[]"}, {"gemini.io/promised-until": "-"}):
        state = read_state({"metadata": {"annotations": said, "resourceVersion": "7"}})
        assert (state.promises, state.until_ns, state.arrived, state.rest) == ((), 0, {}, None), said
    state = GroupState((), 9, {"a": 3}, True)
    assert read_state({"metadata": {"annotations": state.annotations(), "resourceVersion": "1"}}).arrived == {"a": 3}


@pytest.mark.parametrize("seed", range(8))
def test_no_group_is_ever_bound_in_part(seed: int) -> None:
    """Random groups, of which some members never come, at any of three replicas, until all others are bound."""
    chance, made = random.Random(seed), world("n1", "n2", "n3", count=4)
    replicas = [Replica(made, name, patience=SOON) for name in ("one", "two", "three")]
    sizes = {f"r{i}": chance.randrange(1, 7) for i in range(12)}
    lame = {name for name in sizes if chance.random() < 0.4}

    pods: dict[str, list[Object]] = {}
    for name, size in sizes.items():
        said = {"gpu_request": "10%", "pod_group": name, "pod_group_size": str(size)}
        pods[name] = [made.put(POD, pod_object(f"{name}-{i}", **said)) for i in range(size)]

    def bound(name: str) -> int:
        return sum(uid.startswith(f"uid-{name}-") for uid, _ in made.bindings)

    async def one(name: str) -> None:
        coming = pods[name][1:] if name in lame and sizes[name] > 1 else pods[name]
        verdicts = [await chance.choice(replicas).filter(pod) for pod in coming]
        passed = [(pod, said.passed[0]) for pod, said in zip(coming, verdicts, strict=True) if said.passed]
        await asyncio.gather(*(chance.choice(replicas).bind(pod, node) for pod, node in passed))

    async def run() -> None:
        while not all(bound(name) for name in sizes if name not in lame):
            for replica in replicas:
                replica.watch()
                await replica.service.sweep()
            await asyncio.gather(*(one(name) for name in sizes if not bound(name)))
            for name, size in sizes.items():
                assert bound(name) in ((0,) if name in lame and size > 1 else (0, size)), name
            for replica in replicas:
                replica.now_ns += LONGEST_REST * SECOND

    asyncio.run(run())
    assert max(core for core, _ in made.promised().values()) <= 100


def spread(made: World, size: int, level: str = "zone", request: str = "100%") -> list[Object]:
    said = {"gpu_request": request, "pod_group": "g", "pod_group_size": str(size), "pod_group_required_topology": level}
    return [made.put(POD, pod_object(f"g{i}", **said)) for i in range(size)]


def zones(made: World, **of: str) -> None:
    for name, zone in of.items():
        node = made.objects[NODE, name]
        node["metadata"]["labels"] = {names.LEVEL_LABELS["zone"]: zone}
        node["status"]["allocatable"]["gemini.io/gpu-core"] = "400"
        made.put(NODE, node)


@pytest.mark.parametrize("alone", [True, False], ids=["one replica", "several"])
def test_a_group_on_two_nodes_is_bound_together_or_given_back_together(alone: bool) -> None:
    made = world("n1", "n2", "n3", count=2)
    zones(made, n1="a", n2="b", n3="b")
    replica = Replica(made, alone=alone, patience=SOON)
    pods = spread(made, 4)
    replica.watch()

    async def run() -> None:
        went = [(await replica.filter(pod)).passed for pod in pods]
        assert sorted(went) == [["n2"], ["n2"], ["n3"], ["n3"]]
        answers = await asyncio.gather(*(replica.bind(pods[i], went[i][0]) for i in range(3)))
        assert all(f"could not be bound to {went[3][0]} beside the others (g3)" in one for one in answers), answers
        assert made.bindings == []
        assert len(replica.cluster.reservations) == 0
        replica.now_ns += FIRST_REST * SECOND
        went = [(await replica.filter(pod)).passed for pod in pods]
        answers = await asyncio.gather(*(replica.bind(pod, node) for pod, (node,) in zip(pods, went, strict=True)))
        assert answers == [""] * 4

    asyncio.run(run())
    assert sorted(node for _, node in made.bindings) == ["n2", "n2", "n3", "n3"]


def test_members_that_wish_for_other_domains_are_told_in_one_line() -> None:
    made = world("n1")
    replica = Replica(made)
    (pod, _), (other, _) = spread(made, 2), spread(made, 2, "rack")
    made.put(POD, {**other, "metadata": {**other["metadata"], "name": "g1", "uid": "uid-g1"}})
    made.put(POD, pod)
    replica.watch()
    reason, text = asyncio.run(replica.filter(pod)).failed["n1"]
    assert (reason, text) == (
        "Invalid", "gemini.io/pod-group-required-topology: zone differs from rack, said by g1; say the same",
    )  # fmt: skip


def test_a_node_that_lacks_processors_is_passed_over_where_another_does() -> None:
    made = world("n1", "n2")
    zones(made, n1="a", n2="a")
    full = {"metadata": {"name": "full", "namespace": "ns", "uid": "uid-full", "annotations": {}}}
    spec = {"nodeName": "n1", "containers": [{"name": "main", "resources": {"requests": {"cpu": "63"}}}]}
    made.put(POD, {**full, "spec": spec, "status": {"phase": "Running"}})
    replica = Replica(made)
    pods = group(made, 2)
    for pod in pods:
        pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
        made.put(POD, pod)
    replica.watch()
    assert asyncio.run(replica.filter(pods[0])).passed == ["n2"]


def test_what_another_replica_gave_back_is_no_member_that_runs() -> None:
    """Before, the cards that a replica held still were taken for those of members that run: the others were chosen for
    without them, and bound when they alone had come."""
    made = world("n1")
    one, two = (Replica(made, name, patience=SOON) for name in ("one", "two"))
    pods = group(made, 4)
    for replica in (one, two):
        replica.watch()

    async def run() -> None:
        for pod in pods:
            await two.filter(pod)
        await asyncio.gather(two.bind(pods[0], "n1"), one.bind(pods[1], "n1"))  # the others do not come
        for replica in (one, two):
            replica.now_ns += FIRST_REST * SECOND
        await two.filter(pods[0])
        await one.filter(pods[1])  # takes over what the other chose
        assert len(one.cluster.reservations) == 4
        state = read_state(lease(made))
        await two.service._groups.give_back(("ns", "g"))
        assert len(state.promises) == 4
        fresh = made.put(POD, pod_object("g0", uid="again", gpu_request="50%", pod_group="g", pod_group_size="4"))
        made.delete(POD, "uid-g0")
        for replica in (one, two):
            replica.watch()
        await one.filter(fresh)
        promised = {promise.placement.pod for promise in read_state(lease(made)).promises}
        assert promised == {"again", "uid-g1", "uid-g2", "uid-g3"}

    asyncio.run(run())


@pytest.mark.parametrize("taken", [False, True], ids=["room is left", "a card of the last ones is taken"])
def test_others_are_answered_while_room_for_a_large_group_is_sought(
    taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They waited until it was found. What one of them takes meanwhile is not promised twice."""
    made = world(*(f"n{i}" for i in range(10)), count=4)
    replica = Replica(made)
    said = {"pod_group": "g", "pod_group_size": "40", "pod_group_required_topology": "cluster"}
    shares = [{"gpu_request": f"{60 + i}%" if taken else f"{1 + i}%", **said} for i in range(40)]
    pods = [made.put(POD, pod_object(f"g{i}", **share)) for i, share in enumerate(shares)]
    other = made.put(POD, pod_object("other", gpu_request="50%"))
    replica.watch()
    begun: list[str] = []

    async def sliced(search: Any) -> Any:
        begun.append("")
        return await in_slices(search, slice_ns=0)

    monkeypatch.setattr(grouproom, "in_slices", sliced)

    async def run() -> None:
        seeking = asyncio.get_running_loop().create_task(replica.filter(pods[0]))
        while not begun:
            await asyncio.sleep(0)
        assert await replica.bind(other, "n3") == ""
        assert not seeking.done()
        verdict = await seeking
        replica.cluster.book.check()
        if taken:
            assert "GroupDoesNotFit" in verdict.failed["n0"]
            assert len(replica.cluster.reservations) <= 1
        else:
            assert len(verdict.passed) == 1
            assert all(pod["metadata"]["uid"] in replica.cluster.reservations for pod in pods)

    asyncio.run(run())
