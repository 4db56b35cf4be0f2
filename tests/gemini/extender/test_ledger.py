"""The lease of a node: compare and set, shared writes, and what nonsense in it does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gemini.extender.kinds import DEVICE, NODE, POD
from gemini.extender.leaseroom import TOO_MUCH
from gemini.extender.ledger import ENTRIES, FORGET_NS, Ledger, Promise, Stale, read_entries, write_entries
from gemini.kube.answer import Refused
from gemini.kube.resize import Amounts
from gemini.placement.model import Grant, Placement, Role
from tests.gemini.extender.world import MOST_ANNOTATIONS, Replica, World, admitted, pod_object


def placement(pod: str) -> Placement:
    return Placement(pod, "n1", (Grant("gpu", 0, 50, 7, 1, Role.INIT), Grant("rdma", 1, 10, 0)))


class Keeper:
    """Whose book it would be."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.read: list[dict[str, Any]] = []  # claims that a read has shown
        self.adopted: list[Placement] = []

    def settled(self, pod: str) -> bool:
        return pod in self.known

    def gone(self, pod: str, pods: int, claims: int) -> bool:
        return False

    def over(self, pod: str) -> bool:
        return False

    def namespace_of(self, key: str) -> str:
        return ""

    def see(self, pods: Sequence[dict[str, Any]]) -> None:
        pass

    def see_claims(self, claims: Sequence[dict[str, Any]]) -> None:
        self.read = list(claims)

    def see_resizes(self, resizes: Sequence[dict[str, Any]]) -> None:
        pass

    def see_grown(self, grown: Mapping[str, Amounts]) -> None:
        pass

    def adopt(self, node: str, placements: Sequence[Placement]) -> None:
        self.adopted = list(placements)

    def owner_of(self, node: str) -> None:
        return None


def entries(world: World) -> set[str]:
    return {p.placement.pod for p in read_entries(world.leases["gemini-node-n1"])}


def test_promises_survive_writing_and_reading() -> None:
    said = [Promise(placement("p"), "a"), Promise(placement("q"), "b")]
    assert read_entries({"metadata": {"annotations": {ENTRIES: write_entries(said)}}}) == said


@pytest.mark.parametrize("text", ["", "{}", "[3]", "[" * 100_000, '[["a","p","n1",["gpu"]]]', "[[]]", "null", 3, None])
def test_lease_that_is_no_such_text_says_nothing(text: object) -> None:
    assert read_entries({"metadata": {"annotations": {ENTRIES: text}}}) == []


def test_promises_that_come_together_share_one_write() -> None:
    world, keeper = World(), Keeper()
    ledger = Ledger(world, keeper, "ns", lambda: 0, "a")

    async def run() -> None:
        await asyncio.gather(*(ledger.enter("n1", [placement(f"p{i}")], ledger.mark("n1")) for i in range(50)))

    asyncio.run(run())
    assert len(entries(world)) == 50
    assert world.version <= 2


def test_another_writer_makes_it_stale_once_and_its_promises_are_adopted() -> None:
    world, keepers = World(), [Keeper(), Keeper()]
    one, two = (Ledger(world, keeper, "ns", lambda: 0, name) for keeper, name in zip(keepers, "ab", strict=True))

    async def run() -> None:
        await one.enter("n1", [placement("p")], one.mark("n1"))
        with pytest.raises(Stale):
            await two.enter("n1", [placement("q")], two.mark("n1"))
        assert [p.pod for p in keepers[1].adopted] == ["p"]
        await two.enter("n1", [placement("q")], two.mark("n1"))

    asyncio.run(run())
    assert entries(world) == {"p", "q"}


def test_claims_are_read_with_a_lease_from_the_first_promise_of_one_on() -> None:
    world, keepers = World(), [Keeper(), Keeper()]
    one, two = (Ledger(world, keeper, "ns", lambda: 0, name) for keeper, name in zip(keepers, "ab", strict=True))
    world.allocate("c", "n1", 0, 50)

    async def stale() -> None:
        with pytest.raises(Stale):
            await two.enter("n1", [placement("q")], two.mark("n1"))

    async def run() -> None:
        await one.enter("n1", [placement("p")], one.mark("n1"))
        await stale()
        assert keepers[1].read == []
        await one.enter("n1", [placement("claim/u/1")], one.mark("n1"))
        keepers[0].known.add("claim/u/1")
        await one.enter("n1", [placement("r")], one.mark("n1"))
        assert entries(world) == {"p", "r"}
        await stale()
        assert [claim["metadata"]["name"] for claim in keepers[1].read] == ["c"]

    asyncio.run(run())


def test_promises_are_left_out_when_taken_back_settled_or_too_old() -> None:
    world, keeper, now = World(), Keeper(), [0]
    ledger = Ledger(world, keeper, "ns", lambda: now[0], "a")

    async def run() -> None:
        await ledger.enter("n1", [placement(name) for name in ("back", "bound", "old")], ledger.mark("n1"))
        assert ledger.entered("n1", placement("back"))
        ledger.leave("n1", ["back"])
        assert not ledger.entered("n1", placement("back"))
        keeper.known.add("bound")
        now[0] = FORGET_NS - 1
        await ledger.enter("n1", [placement("new")], ledger.mark("n1"))
        assert entries(world) == {"old", "new"}
        now[0] += 1
        await ledger.enter("n1", [placement("newer")], ledger.mark("n1"))

    asyncio.run(run())
    assert entries(world) == {"new", "newer"}
    assert json.loads(world.leases["gemini-node-n1"]["metadata"]["annotations"][ENTRIES])[0][0].startswith("a+")


def test_a_pod_that_is_promised_anew_has_its_promise_stand_as_long_as_the_first_time() -> None:
    """A group is placed, rests for minutes, and is placed again by the same replica. Another one, which had seen the
    first of it and nothing since, took the second for as old: with its next write there the entry was gone, and a
    second later the cards were free in its book, while the group's pods waited for each other."""
    world, now = World(), [0]
    keepers = [Keeper(), Keeper()]
    one, two = (Ledger(world, keeper, "ns", lambda: now[0], name) for keeper, name in zip(keepers, "ab", strict=True))

    async def enter(ledger: Ledger, pod: str) -> None:
        with contextlib.suppress(Stale):
            await ledger.enter("n1", [placement(pod)], ledger.mark("n1"))
            return
        await ledger.enter("n1", [placement(pod)], ledger.mark("n1"))

    async def run() -> None:
        await enter(one, "p")
        await enter(two, "q")
        one.leave("n1", ["p"])
        now[0] = FORGET_NS
        await enter(one, "p")
        await enter(two, "r")
        assert entries(world) == {"p", "r"}
        assert [other.pod for other in two.others("n1")] == ["p"]
        now[0] += FORGET_NS
        await enter(two, "s")
        assert entries(world) == {"s"}, "and no longer"

    asyncio.run(run())


def test_a_page_is_forgotten_once_no_promise_of_ours_on_it_may_count() -> None:
    world, keeper, now = World(), Keeper(), [0]
    ledger = Ledger(world, keeper, "ns", lambda: now[0], "a")

    async def run() -> None:
        await ledger.enter("n1", [placement("bound"), placement("lost")], ledger.mark("n1"))
        keeper.known.add("bound")
        now[0] = FORGET_NS - 1
        ledger.forget("n1")
        assert ledger.nodes() == {"n1"}
        now[0] += 1
        writing = asyncio.ensure_future(ledger.enter("n1", [placement("new")], ledger.mark("n1")))
        await asyncio.sleep(0)
        ledger.forget("n1")
        assert ledger.nodes() == {"n1"}
        await writing
        keeper.known.add("new")
        ledger.forget("n1")
        assert ledger.nodes() == set()

    asyncio.run(run())


@pytest.mark.parametrize("collected", [True, False], ids=["its lease has gone with it", "its lease is there still"])
def test_a_node_that_comes_again_is_known_by_its_lease_alone(collected: bool) -> None:
    world, keepers = World(), [Keeper(), Keeper()]
    one, two = (Ledger(world, keeper, "ns", lambda: 0, name) for keeper, name in zip(keepers, "ab", strict=True))

    async def run() -> None:
        await one.enter("n1", [placement("own"), placement("claim/u/1")], one.mark("n1"))
        with pytest.raises(Stale):
            await two.enter("n1", [placement("theirs")], two.mark("n1"))
        await two.enter("n1", [placement("theirs")], two.mark("n1"))
        with pytest.raises(Stale):
            await one.enter("n1", [placement("q")], one.mark("n1"))
        before = one.mark("n1")
        keepers[0].known |= {"own", "claim/u/1"}
        one.forget("n1")
        assert one.nodes() == set()
        keepers[0].known.remove("own")  # it was ours in truth, and its pod is tried again
        if collected:
            del world.leases["gemini-node-n1"]
            await one.enter("n1", [placement("r")], one.mark("n1"))
        else:
            with pytest.raises(Stale):
                await one.enter("n1", [placement("r")], one.mark("n1"))
            assert [p.pod for p in keepers[0].adopted] == ["theirs"]
            assert not one.entered("n1", placement("own"))  # the others may leave it out any time now
            with pytest.raises(Stale):  # chosen before the node had gone
                await one.enter("n1", [placement("s")], before)
            await one.enter("n1", [placement("own")], one.mark("n1"))
            assert one.entered("n1", placement("own"))
        with pytest.raises(Stale):
            await two.enter("n1", [placement("t")], two.mark("n1"))
        assert "gemini.io/claims" in world.leases["gemini-node-n1"]["metadata"]["annotations"]

    asyncio.run(run())


@pytest.mark.parametrize("collected", [True, False], ids=["its lease has gone with it", "its lease is there still"])
def test_a_replica_forgets_nodes_that_are_gone_and_binds_to_one_that_comes_again(collected: bool) -> None:
    world = World()
    world.nodes("n1", "n2", count=1)
    replica = Replica(world)
    ledger = replica.service.claims._promises.ledger
    assert ledger is not None

    async def bind(name: str, node: str, core: str) -> str:
        pod = world.put(POD, pod_object(name, gpu_request=core))
        replica.watch()
        return await replica.bind(pod, node)

    async def run() -> None:
        assert await bind("p", "n1", "0.6") == ""
        assert await bind("q", "n2", "0.6") == ""
        for kind in (NODE, DEVICE):
            world.delete(kind, "n1")
        world.delete(POD, "uid-p")
        if collected:
            del world.leases["gemini-node-n1"]
        await replica.service.sweep()
        assert ledger.nodes() == {"n1", "n2"}  # the watch has not told of it yet
        replica.watch()
        await replica.service.sweep()
        assert ledger.nodes() == {"n2"}
        world.nodes("n1", count=1)
        assert await bind("r", "n1", "0.7") == ""
        assert "30 free of 100, 60 asked" in await bind("s", "n1", "0.6")

    asyncio.run(run())
    assert world.promised()["n1", 0][0] == 70


def large(name: str, namespace: str, group: str, size: int, shares: int, count: int) -> dict[str, Any]:
    """A pod of many shares that reserve next to nothing, each of several cards."""
    named = [f"i{i}" for i in range(shares - 1)]
    said: dict[str, str] = {"pod-group": group, "pod-group-size": str(size)}
    for i, one in enumerate((*named, "main")):
        said |= {f"gpu-request.{one}": "0", f"gpu-memory.{one}": str(2**20 + i), f"gpu-count.{one}": str(count)}
    annotations = {f"gemini.io/{key}": value for key, value in said.items()}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": annotations}
    init = [{"name": one, "image": "x"} for one in named]
    spec = {"priority": 0, "containers": [{"name": "main", "image": "x"}], "initContainers": init}
    return admitted({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})


@pytest.mark.parametrize("many", [1, 6])
def test_what_one_namespace_has_under_way_on_a_node_leaves_room_in_its_lease_for_others(many: int) -> None:
    """An object has 256 KiB of annotations; what would be larger is refused, whoever writes it: three namespaces that
    had as much as one may have filled it."""
    world = World()
    world.nodes("n1", count=8)
    replica, refused = Replica(world), 0

    async def place(*pods: dict[str, Any]) -> bool:
        stored = [world.put(POD, pod) for pod in pods]
        replica.watch()
        return bool((await replica.filter(stored[0], "n1")).passed)

    async def run() -> None:
        nonlocal refused
        for i in range(30):  # each waits for members that are not bound
            pods = [large(f"g{i}-{j}", f"mine{i % many}", f"g{i}", 3, 99, 8) for j in range(3)]
            refused += not await place(*pods)
        for shares in (20, 8, 4, 2, 1):  # and what is left is filled by smaller and smaller ones
            for namespace in (f"mine{i}" for i in range(many)):
                for i in range(20):
                    name = f"s{shares}-{i}-{namespace}"
                    if not await place(large(name, namespace, name, 1, shares, 1)):
                        break
        pod = pod_object("theirs", gpu_request="0.5")
        pod["metadata"]["namespace"] = "theirs"
        pod = world.put(POD, pod)
        replica.watch()
        assert await replica.bind(pod, "n1") == ""

    asyncio.run(run())
    assert refused > 20
    left = MOST_ANNOTATIONS - len(world.leases["gemini-node-n1"]["metadata"]["annotations"][ENTRIES])
    assert left > (MOST_ANNOTATIONS // 2 if many == 1 else MOST_ANNOTATIONS // 2 // many)


def test_a_namespace_whose_promises_are_too_many_is_told_and_comes_again() -> None:
    world, keeper = World(), Keeper()
    ledger = Ledger(world, keeper, "ns", lambda: 0, "a")
    keeper.namespace_of = lambda key: key.partition("/")[0]  # type: ignore[method-assign]
    grants = tuple(Grant("gpu", minor, 0, 2**20, tenant) for minor in range(8) for tenant in range(100))

    told: set[str] = set()

    async def enter(pod: str) -> bool:
        try:
            await ledger.enter("n1", [Placement(pod, "n1", grants)], ledger.mark("n1"))
        except Refused as error:
            told.add(str(error))
            return False
        return True

    async def run() -> None:
        entered = [i for i in range(10) if await enter(f"mine/{i}")]
        assert 2 <= len(entered) <= 5
        assert told == {f"413: {TOO_MUCH.format('n1')}"}
        assert await enter("theirs/0"), "another namespace has its own part"
        ledger.leave("n1", [f"mine/{i}" for i in entered])
        assert await enter("mine/10"), "what is over takes nothing"

    asyncio.run(run())
