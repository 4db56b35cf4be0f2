"""What a replica that has ended left in a node's lease: promises to pods that are gone by now hold nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemini.extender.kinds import CLAIM, NODE, POD
from gemini.extender.reserve import BIND_NS
from gemini.kube.answer import Refused, Unanswered
from tests.gemini.extender.world import Replica, World, node_object, pod_object


def inherit(world: World) -> None:
    """A pod was bound by a replica that is no more, and deleted after that; its promise stands in the lease still."""
    world.nodes("n1", count=1)
    old = Replica(world, "old")
    pod = world.put(POD, pod_object("left", gpu_request="0.5"))
    old.watch()
    assert asyncio.run(old.bind(pod, "n1")) == ""
    world.queues.remove(old.queue)
    world.delete(POD, "uid-left")


def late_replica(world: World) -> tuple[dict[str, Any], Replica]:
    """A pod that waits, and a replica whose watch of pods is behind what it will read."""
    inherit(world)
    pod = world.put(POD, pod_object("p", gpu_request="0.6"))
    replica = Replica(world, "b")
    world.put(NODE, node_object("n1", news="later than all that the watch of pods has shown"))
    return pod, replica


def test_pod_takes_the_room_of_one_that_was_deleted_before_this_replica_began() -> None:
    world = World()
    inherit(world)
    pod = world.put(POD, pod_object("p", gpu_request="0.6"))
    replica = Replica(world, "b")

    async def run() -> None:
        assert (await replica.filter(pod)).passed == ["n1"]
        assert await replica.bind(pod, "n1") == ""

    asyncio.run(run())
    assert world.promised()["n1", 0][0] == 60


def test_what_has_ended_holds_nothing_for_a_replica_that_read_all_leases_before_it_listed_pods() -> None:
    """The first binding on a node was refused until the watch of pods showed anything."""
    world = World()
    inherit(world)
    pod = world.put(POD, pod_object("p", gpu_request="0.6"))
    replica = Replica(world, "b", listed=False)
    asyncio.run(replica.begin())
    world.put(NODE, node_object("n1", news="later than all that the watch of pods has shown"))
    world.lease_reads = 0
    assert asyncio.run(replica.bind(pod, "n1")) == ""
    assert world.lease_reads == 0, "one write is enough"
    assert "uid-left" not in str(world.leases)


def test_what_another_replica_promises_counts_for_one_that_has_just_begun() -> None:
    world = World()
    world.nodes("n1", count=1)
    other = Replica(world, "a")
    theirs = world.put(POD, pod_object("theirs", gpu_request="0.5"))
    other.watch()
    world.binds_refused = [Unanswered("time-out")]
    pod = world.put(POD, pod_object("p", gpu_request="0.6"))
    small = world.put(POD, pod_object("q", gpu_request="0.5"))

    async def run() -> None:
        assert "time-out" in await other.bind(theirs, "n1")  # it may be bound yet
        replica = Replica(world, "b", listed=False)
        await replica.begin()
        assert (await replica.filter(pod)).passed == ["n1"], "what it inherited is taken in at the first binding"
        assert "50 free of 100, 60 asked" in await replica.bind(pod, "n1")
        assert await replica.bind(small, "n1") == ""
        assert (await replica.filter(pod)).passed == []

    asyncio.run(run())


@pytest.mark.parametrize("steps", range(8))
def test_what_another_replica_promised_counts_also_where_its_binding_is_seen_between_choice_and_promise(
    steps: int,
) -> None:
    world = World()
    world.nodes("n1", count=1)
    other = Replica(world, "a")
    theirs = world.put(POD, pod_object("theirs", gpu_request="0.5"))
    other.watch()
    pod = world.put(POD, pod_object("p", gpu_request="0.6"))

    async def run() -> None:
        under_way = asyncio.get_running_loop().create_task(other.bind(theirs, "n1"))
        while not world.leases:
            await asyncio.sleep(0)
        replica = Replica(world, "b", listed=False)
        await replica.begin()
        assert await under_way == ""
        ours = asyncio.get_running_loop().create_task(replica.bind(pod, "n1"))
        for _ in range(steps):
            await asyncio.sleep(0)
        replica.watch()
        assert "50 free of 100, 60 asked" in await ours

    asyncio.run(run())
    assert world.promised()["n1", 0][0] == 50


def test_a_replica_that_may_not_list_leases_reads_them_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    """As the roles of an older release say."""
    world = World()
    inherit(world)
    pod = world.put(POD, pod_object("p", gpu_request="0.6"))
    replica = Replica(world, "b", listed=False)

    async def refused(namespace: str) -> list[dict[str, Any]]:
        raise Refused(403, "leases is forbidden")

    world.all_leases = refused  # type: ignore[method-assign]
    asyncio.run(replica.begin())
    assert "cannot list the leases of namespace ns: 403: leases is forbidden" in caplog.text
    assert asyncio.run(replica.bind(pod, "n1")) == ""


def test_promise_counts_until_the_watch_has_come_so_far_that_the_pod_must_be_gone() -> None:
    world = World()
    pod, replica = late_replica(world)

    async def run() -> None:
        assert "50 free of 100, 60 asked" in await replica.bind(pod, "n1")
        replica.watch()
        await replica.service.sweep()
        assert "50 free of 100, 60 asked" in await replica.bind(pod, "n1")
        world.woken = 0
        await replica.service.sweep()
        assert world.woken == 0
        world.put(POD, pod_object("p", gpu_request="0.6"))  # as the scheduler writes its conditions
        replica.watch()
        await replica.service.sweep()
        assert world.woken == 1
        assert await replica.bind(world.pod_of("uid-p"), "n1") == ""

    asyncio.run(run())


def test_promise_to_a_pod_that_the_watch_has_not_shown_yet_counts() -> None:
    world = World()
    world.nodes("n1", count=1)
    other, replica = Replica(world, "a"), Replica(world, "b")
    pod = world.put(POD, pod_object("p", gpu_request="0.6"))
    replica.watch()
    late = world.put(POD, pod_object("late", gpu_request="0.5"))
    other.watch()

    async def run() -> None:
        world.binds_refused = [Unanswered("time-out")]
        assert await other.bind(late, "n1") != ""  # nobody knows whether it was written
        assert "50 free of 100, 60 asked" in await replica.bind(pod, "n1")
        await replica.service.sweep()
        assert "50 free of 100, 60 asked" in await replica.bind(pod, "n1")

    asyncio.run(run())


def test_promise_to_a_pod_that_was_watched_but_could_not_be_read_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.nodes("n1", count=1)
    other, replica = Replica(world, "a"), Replica(world, "b")
    late = world.put(POD, pod_object("late", gpu_request="0.5"))
    other.watch()

    def unreadable(given: dict[str, Any]) -> None:
        raise RuntimeError(given["metadata"]["name"])

    with monkeypatch.context() as patch:
        patch.setattr(replica.cluster, "view", unreadable)  # as a replica of an older release may find it
        with pytest.raises(RuntimeError):
            replica.watch()
    pod = world.put(POD, pod_object("p", gpu_request="0.6"))

    async def run() -> None:
        world.binds_refused = [Unanswered("time-out")]
        assert await other.bind(late, "n1") != ""
        assert "50 free of 100, 60 asked" in await replica.bind(pod, "n1")
        world.put(NODE, node_object("n1", news="later than all that the watch of pods has shown"))
        world.put(POD, pod_object("p", gpu_request="0.6"))
        replica.watch()
        await replica.service.sweep()
        assert "50 free of 100, 60 asked" in await replica.bind(world.pod_of("uid-p"), "n1")

    asyncio.run(run())


def test_scheduler_is_woken_when_the_time_of_anothers_promise_is_up() -> None:
    world = World()
    pod, replica = late_replica(world)

    async def run() -> None:
        assert "50 free of 100, 60 asked" in await replica.bind(pod, "n1")
        await replica.service.sweep()
        world.woken = 0
        replica.now_ns += 2 * BIND_NS
        await replica.service.sweep()
        assert world.woken == 1
        assert await replica.bind(pod, "n1") == ""

    asyncio.run(run())


@pytest.mark.parametrize("ended", ["deleted", "deallocated"])
def test_claim_that_ended_before_this_replica_began_holds_nothing(ended: str) -> None:
    world = World()
    world.nodes("n1", count=1)
    old = Replica(world, "old")
    world.allocate("c", "n1", 0, 50)
    old.watch()

    async def run() -> None:
        await old.service.claims.sweep()
        await old.service.claims.settled()
        assert world.word("c") == "promised"
        world.queues.remove(old.queue)
        world.deallocate("c") if ended == "deallocated" else world.delete(CLAIM, "uid-c")
        pod = world.put(POD, pod_object("p", gpu_request="0.6"))
        assert await Replica(world, "b").bind(pod, "n1") == ""

    asyncio.run(run())
