"""Claims are answered: promised where there is room in the book, refused where not, by one of several replicas."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gemini.extender.kinds import CLAIM, DEVICE, NODE, POD
from gemini.extender.reserve import BIND_NS, SECOND
from gemini.extender.wishes import AT_ONCE
from gemini.kube.answer import Refused, Unanswered
from gemini.kube.device import write_device
from tests.gemini.extender.world import GIB, Replica, World, cards, node_object, pod_object

OPERATIONS = int(os.environ.get("GEMINI_OPERATIONS", "3000")) // 4


def world(*names: str, count: int = 1) -> World:
    made = World()
    made.nodes(*names, count=count)
    return made


async def answer(*replicas: Replica) -> None:
    for replica in replicas:
        replica.watch()
        replica.service.claims.kick()
    for replica in replicas:
        await replica.service.claims.settled()


def run(talk: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await talk()

    asyncio.run(main())


@pytest.mark.parametrize("alone", [True, False])
def test_claim_with_room_is_promised_and_one_without_is_refused(alone: bool) -> None:
    made = world("n1")
    replica = Replica(made, alone=alone)

    async def talk() -> None:
        assert await replica.bind(made.put(POD, pod_object("p", gpu_request="0.6", gpu_memory="1Gi")), "n1") == ""
        made.allocate("c", "n1", 0, 40)
        made.allocate("d", "n1", 0, 40)
        await answer(replica)

    run(talk)
    assert sorted([made.word("c"), made.word("d")]) == ["promised", "refused"]
    assert made.promised() == {("n1", 0): (100, 2 * GIB)}


def test_claim_of_no_memory_is_refused_for_the_node_would_not_limit_it() -> None:
    made = world("n1")
    replica = Replica(made)

    async def talk() -> None:
        made.allocate("c", "n1", 0, 10, memory=0)
        await answer(replica)

    run(talk)
    assert made.word("c") == "refused"
    assert "ask for a size" in json.dumps(made.objects[CLAIM, "uid-c"]["status"])
    assert not replica.cluster.book.holdings


def test_a_claim_of_administrators_access_is_refused_and_not_left_without_an_answer() -> None:
    """kube-scheduler waits for the condition of such a device too: its pod stood for ten minutes, and again."""
    made = world("n1")
    replica = Replica(made)

    async def talk() -> None:
        given = made.allocate("c", "n1", 0, 10)
        given["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
        made.put(CLAIM, given)
        await answer(replica)

    run(talk)
    assert made.word("c") == "refused"
    assert not replica.cluster.book.holdings


@pytest.mark.parametrize("alone", [True, False])
def test_pod_is_bound_only_beside_what_claims_have_left(alone: bool) -> None:
    made = world("n1")
    replica = Replica(made, alone=alone)

    async def talk() -> None:
        made.allocate("c", "n1", 0, 50)
        await answer(replica)
        assert "InsufficientCore" in await replica.bind(made.put(POD, pod_object("p", gpu_request="0.6")), "n1")
        assert await replica.bind(made.put(POD, pod_object("q", gpu_request="0.5", gpu_memory="1Gi")), "n1") == ""

    run(talk)
    assert made.promised() == {("n1", 0): (100, 2 * GIB)}


def test_promise_ends_with_its_allocation_and_the_next_one_is_asked_for_anew() -> None:
    made = world("n1", count=2)
    replica = Replica(made)

    async def talk() -> None:
        made.allocate("c", "n1", 0, 50)
        await answer(replica)
        made.deallocate("c")
        await answer(replica)
        assert replica.cluster.book.snapshot()["n1", "gpu", 0] == (0, 0, 0, 0)
        made.allocate("c", "n1", 1, 30)
        await answer(replica)
        assert made.promised() == {("n1", 1): (30, GIB)}
        made.delete(CLAIM, "uid-c")
        await answer(replica)

    run(talk)
    assert replica.cluster.book.snapshot()["n1", "gpu", 1] == (0, 0, 0, 0)
    assert Replica(made).cluster.picture() == replica.cluster.picture()


def test_claim_on_a_card_that_is_gone_or_out_of_service_is_refused_and_one_without_a_device_object_waits() -> None:
    made = world("n1")
    made.put(NODE, node_object("bare"))
    replica = Replica(made)

    async def talk() -> None:
        made.allocate("gone", "n1", 7, 10)
        made.allocate("early", "bare", 0, 10)
        await answer(replica)
        assert (made.word("gone"), made.word("early")) == ("refused", "")
        made.put(DEVICE, write_device(cards("bare", 1, health=False)))
        replica.watch()
        await replica.service.sweep()
        await replica.service.claims.settled()

    run(talk)
    assert made.word("early") == "refused"


def test_card_that_another_plugin_gives_out_is_not_the_claims() -> None:
    made = world("n1")
    made.put(NODE, {**node_object("n1"), "status": {"capacity": {"nvidia.com/gpu": "1"}}})
    replica = Replica(made)
    theirs = pod_object("theirs")
    theirs["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    theirs["spec"]["nodeName"] = "n1"
    made.put(POD, theirs)  # our watch has yet to tell

    async def talk() -> None:
        stored = made.allocate("c", "n1", 0, 10)
        replica.cluster.apply(CLAIM, "ADDED", stored)
        replica.service.claims.kick()
        await replica.service.claims.settled()
        assert "InsufficientCore" in await replica.bind(made.put(POD, pod_object("p", gpu_request="0.1")), "n1")

    run(talk)
    assert made.word("c") == "refused"


def test_two_replicas_answer_one_claim_once_and_neither_refuses_what_the_other_promised() -> None:
    for seed in range(20):
        made = World(seed)
        made.nodes("n1", count=1)
        replicas = [Replica(made, "one"), Replica(made, "two")]

        async def talk(made: World = made, replicas: list[Replica] = replicas) -> None:
            made.allocate("c", "n1", 0, 80)
            for replica in replicas:
                replica.watch()
            order = random.Random(made.version).sample(replicas, 2)
            for replica in order:
                replica.service.claims.kick()
            for replica in replicas:
                await replica.service.claims.settled()
            await answer(*replicas)

        run(talk)
        assert made.word("c") == "promised"
        for replica in replicas:
            assert replica.cluster.book.snapshot()["n1", "gpu", 0][0] == 80
            assert len(replica.cluster.reservations) == 0


def test_replica_that_has_seen_nothing_of_a_claim_reads_it_with_the_lease() -> None:
    made = world("n1")
    one, two = Replica(made, "one"), Replica(made, "two")

    async def talk() -> None:
        made.allocate("c", "n1", 0, 80)
        await answer(one)
        one.watch()
        assert await one.bind(made.put(POD, pod_object("p", gpu_request="0.1", gpu_memory="1Gi")), "n1") == ""
        assert "uid-c" not in made.leases["gemini-node-n1"]["metadata"]["annotations"]["gemini.io/promises"]
        why = await two.bind(made.put(POD, pod_object("q", gpu_request="0.3", gpu_memory="1Gi")), "n1")
        assert "10 free of 100, 30 asked" in why

    run(talk)
    assert made.promised() == {("n1", 0): (90, 2 * GIB)}


def test_answer_that_was_lost_is_looked_up_and_given_again() -> None:
    made = world("n1")
    replica = Replica(made)
    lost = [True, True]

    async def fails(given: dict[str, Any], write: Any = made.answer_claim) -> dict[str, Any]:
        if lost and lost.pop():
            raise Unanswered("lost on the way there")
        written: dict[str, Any] = await write(given)
        return written

    made.answer_claim = fails  # type: ignore[method-assign]

    async def talk() -> None:
        made.allocate("c", "n1", 0, 50)
        await answer(replica)
        assert made.word("c") == ""
        assert replica.cluster.book.snapshot()["n1", "gpu", 0][0] == 50  # nobody else gets it meanwhile
        for _ in range(2):
            await replica.service.sweep()
            await replica.service.claims.settled()

    run(talk)
    assert made.word("c") == "promised"


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_claim_whose_answer_is_refused_for_what_it_says_is_tried_ever_more_seldom(status: int) -> None:
    """Each of a namespace's claims may be so, and a try costs half a dozen calls and two writes of the node's lease."""
    made = world("n1")
    replica, tries, real = Replica(made), 0, made.answer_claim

    async def refused(given: dict[str, Any]) -> dict[str, Any]:
        nonlocal tries
        tries += 1
        if tries == 8:
            return await real(given)
        raise Refused(status, "status.allocation: immutable")

    made.answer_claim = refused  # type: ignore[method-assign]

    async def talk() -> None:
        made.allocate("c", "n1", 0, 40)
        for second in range(200):
            await answer(replica)
            if second == 100:
                assert 4 <= tries <= 7
            replica.now_ns += SECOND
            await replica.service.claims.sweep()
            await replica.service.claims.settled()

    run(talk)
    assert (tries, made.word("c")) == (8, "promised")
    assert not replica.service.claims._rests


def test_a_replica_that_stood_still_promises_no_claim_by_what_it_reserved_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one had given that up, and the card to a pod, and had not answered the claim yet: 180 percent."""
    made = world("n1")
    first, second = Replica(made, "a"), Replica(made, "b")
    pod, real = made.put(POD, pod_object("q", gpu_request="0.9")), made.put_lease
    monkeypatch.setattr(second.service.claims, "kick", lambda: None)

    async def put_lease(namespace: str, name: str, metadata: dict[str, Any]) -> str:
        version = await real(namespace, name, metadata)
        monkeypatch.setattr(made, "put_lease", real)
        assert await second.bind(pod, "n1"), "the card is promised"
        for _ in range(1 + BIND_NS // SECOND):
            for one in (first, second):
                one.now_ns += SECOND
            await second.service.sweep()
        assert await second.bind(pod, "n1") == ""
        return version

    monkeypatch.setattr(made, "put_lease", put_lease)

    async def talk() -> None:
        made.allocate("c", "n1", 0, 90)
        second.watch()
        await answer(first)
        assert made.word("c") == ""
        await answer(first)

    run(talk)
    assert made.word("c") == "refused"
    assert [core for core, _ in made.promised().values()] == [90]


def test_one_namespaces_thousand_claims_keep_anothers_waiting_for_no_more_than_a_few() -> None:
    """All were begun at once, each of them some calls to the API server; whoever came behind them waited for all."""
    made = world("n1")
    replica, answered, real = Replica(made), list[str](), made.answer_claim

    async def told(given: dict[str, Any]) -> dict[str, Any]:
        answered.append(given["metadata"]["namespace"])
        return await real(given)

    made.answer_claim = told  # type: ignore[method-assign]

    async def talk() -> None:
        for i in range(1000):
            claim = made.allocate(f"c{i}", "n1", 0, 1)
            made.put(CLAIM, {**claim, "metadata": {**claim["metadata"], "namespace": "crowd"}})
        replica.watch()
        tasks = len(asyncio.all_tasks())
        replica.service.claims.kick()
        assert len(asyncio.all_tasks()) - tasks <= AT_ONCE
        while not answered:
            await asyncio.sleep(0)
        made.allocate("late", "n1", 0, 1)
        await answer(replica)
        assert "ns" in answered[: 3 * AT_ONCE]
        assert len(answered) == 1001, "and each is answered at once, by turns"

    run(talk)
    words = [made.word(f"c{i}") for i in range(1000)]
    assert words.count("promised") in (15, 16), "a GiB each"
    assert words.count("promised") + words.count("refused") == 1000
    assert not replica.service.claims._turns._under_way


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_replicas_eight_binders_and_a_scheduler_that_allocates_blindly_never_promise_more_than_a_card(
    seed: int,
) -> None:
    made = World(seed)
    made.nodes("n1", "n2", count=2)
    made.fault_rate = 0.02
    replicas = [Replica(made, "one"), Replica(made, "two")]
    chance = random.Random(seed)
    done = promised = 0
    pods: list[str] = []

    def check() -> None:
        for core, memory in made.promised().values():
            assert core <= 100
            assert memory <= 16 * GIB

    def schedule() -> None:
        """What the scheduler may do to a claim at any moment; it knows nothing of what is free."""
        nonlocal promised
        name = f"c{chance.randrange(10)}"
        stored = made.objects.get((CLAIM, f"uid-{name}"))
        if stored is None or not stored["status"].get("allocation"):
            made.allocate(name, chance.choice(["n1", "n2"]), chance.randrange(2), chance.choice([20, 30, 50, 100]))
        elif made.word(name) == "refused" or chance.random() < 0.3:
            promised += made.word(name) == "promised"
            made.deallocate(name)

    async def actor(number: int) -> None:
        nonlocal done
        while done < OPERATIONS:
            done += 1
            replica = chance.choice(replicas)
            what = chance.random()
            if what < 0.3:
                schedule()
            elif what < 0.4 and pods:
                made.delete(POD, pods.pop(chance.randrange(len(pods))))
            elif what < 0.7:
                if replica is replicas[0] or chance.random() < 0.1:  # the other is far behind
                    replica.watch(chance.randrange(24))
                replica.service.claims.kick()
            elif what < 0.73:
                for one in replicas:
                    one.now_ns += BIND_NS // 10
                await replica.service.sweep()
            else:
                pod = made.put(POD, pod_object(f"p{done}", gpu_request=chance.choice(["0.2", "0.3", "0.5"])))
                pods.append(f"uid-p{done}")
                await replica.bind(pod, chance.choice(["n1", "n2"]))
            await asyncio.sleep(0)
            check()
            if len(pods) > 6:
                made.delete(POD, pods.pop(0))

    async def talk() -> None:
        await asyncio.gather(*(actor(i) for i in range(8)))
        made.fault_rate = 0
        for _ in range(3):
            for replica in replicas:
                await replica.service.claims.settled()
                replica.watch()
                replica.now_ns += 3 * BIND_NS
                await replica.service.sweep()
                await replica.service.claims.settled()
        await answer(*replicas)

    run(talk)
    check()
    assert promised > OPERATIONS // 100
    assert len(made.bindings) > OPERATIONS // 100
    assert not any(replica.cluster.unanswered for replica in replicas)
    assert [len(replica.cluster.reservations) for replica in replicas] == [0, 0]
    fresh = Replica(made)
    for replica in replicas:
        replica.cluster.book.check()
        assert replica.cluster.picture()["holdings"] == fresh.cluster.picture()["holdings"]
