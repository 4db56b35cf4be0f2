"""How often groups are looked at: once until something changes, and those of one namespace for a part of the time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from gemini.extender.asked import ASKED_NS, FEW, REMEMBERED, Asked
from gemini.extender.grouplease import lease_name
from gemini.extender.kinds import DEVICE, NODE, POD
from gemini.extender.ration import FREE_NS, KEPT, LOST_NS, TIMES, Kept, Ration
from gemini.extender.reserve import SECOND, GroupKey
from gemini.kube import names
from gemini.kube.device import write_device
from tests.gemini.extender.world import Object, Replica, World, cards, pod_object

MS = SECOND // 1_000


def group(made: World, size: int, there: int | None = None, **said: str) -> list[Object]:
    name = said.get("pod_group", "g")
    words: dict[str, Any] = {"gpu_request": "100%", "pod_group": name, "pod_group_size": str(size), **said}
    return [made.put(POD, pod_object(f"{name}{i}", **words)) for i in range(there or size)]


def holder(made: World, request: str = "100%", name: str = "holder") -> Object:
    pod = pod_object(name, gpu_request=request)
    made.put(POD, pod)
    replica = Replica(made, "before")

    async def run() -> None:
        await replica.filter(pod, "n1")
        assert await replica.bind(pod, "n1") == ""

    asyncio.run(run())
    made.queues.remove(replica.queue)
    return made.pod_of(f"uid-{name}")


def looks_at(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> list[GroupKey]:
    """The groups that are looked at from now on: their members are gathered then."""
    looked: list[GroupKey] = []
    real = replica.cluster.members

    def members(key: GroupKey) -> Any:
        looked.append(key)
        return real(key)

    monkeypatch.setattr(replica.cluster, "members", members)
    return looked


@pytest.mark.parametrize("alone", [True, False], ids=["one replica", "several"])
@pytest.mark.parametrize("there", [40, 39], ids=["no room", "incomplete"])
def test_a_group_that_is_refused_is_looked_at_once_whichever_member_is_asked_about(
    there: int, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 400 pods had all 400 looked at, for as long as the group waited."""
    made = World()
    made.nodes("n1", count=4)
    replica = Replica(made, alone=alone)
    pods = group(made, 40, there)
    replica.watch()
    looks = looks_at(replica, monkeypatch)

    async def run() -> None:
        for _ in range(2):
            verdicts = [await replica.filter(pod) for pod in pods]
            assert all(verdict.failed == verdicts[0].failed and not verdict.passed for verdict in verdicts)
            replica.cluster.stir()  # that others are asked to come again gives nobody room

    asyncio.run(run())
    assert len(looks) == 1


def test_a_group_whose_pods_differ_is_looked_at_once_and_each_is_told_of_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = World()
    made.nodes("n1", count=1)
    replica = Replica(made)
    said: dict[str, Any] = {"pod_group": "g", "pod_group_size": "9"}
    pods = [made.put(POD, pod_object(f"g{i}", gpu_request=f"{60 + i}%", **said)) for i in range(9)]
    pods[8] = made.put(POD, pod_object("g8", gpu_request="60%", gpu_memory="900Gi", **said))
    replica.watch()
    looks = looks_at(replica, monkeypatch)

    async def run() -> None:
        verdicts = [await replica.filter(pod) for pod in pods]
        assert [verdict.failed["n1"][0] for verdict in verdicts] == ["GroupDoesNotFit"] * 8 + ["InsufficientMemory"]
        assert len({verdict.failed["n1"] for verdict in verdicts}) == 2

    asyncio.run(run())
    assert len(looks) == 1


def labelled(made: World) -> None:
    for name in ("n1", "n2"):
        node = made.objects[NODE, name]
        made.put(NODE, {**node, "metadata": {**node["metadata"], "labels": {names.LEVEL_LABELS["zone"]: "a"}}})


def freed(made: World) -> None:
    made.delete(POD, "uid-holder")


def mended(made: World) -> None:
    made.put(DEVICE, write_device(cards("n1", 4)))


def joined(made: World) -> None:
    pod = pod_object("g3", gpu_request="100%", pod_group="g", pod_group_size="4")
    made.put(POD, pod)


def left(made: World) -> None:
    """The preemptor for which cards are held goes elsewhere."""
    made.delete(POD, "uid-preemptor")


@pytest.mark.parametrize("change", [labelled, freed, mended, joined, left])
def test_what_may_give_a_group_room_has_it_looked_at_again(change: Any) -> None:
    made, said, size = World(), dict[str, str](), 4
    made.nodes("n1", count=4)
    if change is labelled:
        made.nodes("n2", count=4)
        said, size = {"pod_group_required_topology": "zone"}, 8
    if change is freed:
        holder(made)
    if change is mended:
        made.put(DEVICE, write_device(cards("n1", 4, health=False)))
    if change is left:
        preemptor = pod_object("preemptor", priority=9, gpu_request="100%")
        made.put(POD, {**preemptor, "status": {"phase": "Pending", "nominatedNodeName": "n1"}})
    for name in ("n1", "n2"):
        if (NODE, name) in made.objects:
            node = made.objects[NODE, name]
            node["status"]["allocatable"]["gemini.io/gpu-core"] = "400"
            made.put(NODE, node)
    replica = Replica(made)
    pods = group(made, size, size - (change is joined), **said)
    replica.watch()
    assert not asyncio.run(replica.filter(pods[0])).passed
    change(made)
    replica.watch()
    assert asyncio.run(replica.filter(pods[0])).passed


def test_a_member_that_may_go_elsewhere_is_looked_at() -> None:
    made = World()
    made.nodes("n1", count=1)
    made.nodes("n2", count=4)
    node = made.objects[NODE, "n2"]
    node["status"]["allocatable"]["gemini.io/gpu-core"] = "400"
    made.put(NODE, node)
    replica = Replica(made)
    pods = group(made, 4)
    replica.watch()

    async def run() -> None:
        for pod in pods:
            assert not (await replica.filter(pod, "n1")).passed
        assert not (await replica.filter(pods[0], "n1", "n2")).passed, "the others may not go to n2 yet"
        for pod in pods[1:]:
            verdict = await replica.filter(pod, "n1", "n2")
        assert verdict.passed == ["n2"]

    asyncio.run(run())


def test_what_another_replica_has_chosen_counts_though_the_group_was_refused_here() -> None:
    made = World()
    made.nodes("n1", count=4)
    holder(made)
    behind, other = Replica(made, "behind"), Replica(made, "other")
    pods = group(made, 4)
    behind.watch()
    other.watch()

    async def run() -> None:
        assert not (await behind.filter(pods[0])).passed
        made.delete(POD, "uid-holder")
        other.watch()
        assert (await other.filter(pods[1])).passed == ["n1"]
        assert (await behind.filter(pods[0])).passed == ["n1"]

    asyncio.run(run())


class Slow(Replica):
    """Each look at its clock takes some of its time."""

    tick_ns, at_ns = 0, 1_000

    @property
    def now_ns(self) -> int:
        self.at_ns += self.tick_ns
        return self.at_ns

    @now_ns.setter
    def now_ns(self, at_ns: int) -> None:
        self.at_ns = at_ns


def test_groups_of_one_namespace_wait_their_turn_and_those_of_others_do_not() -> None:
    made = World()
    made.nodes("n1", count=4)
    node = made.objects[NODE, "n1"]
    node["status"]["allocatable"]["gemini.io/gpu-core"] = "400"
    made.put(NODE, node)
    held = holder(made)
    replica = Slow(made)
    crowds = [group(made, 4, pod_group=f"many{i}-") for i in range(20)]
    other = [pod_object(f"o{i}", gpu_request="50%", pod_group="o", pod_group_size="2") for i in range(2)]
    for pod in other:
        pod["metadata"]["namespace"] = "elsewhere"
        made.put(POD, pod)
    replica.watch()
    replica.tick_ns = 10 * MS

    async def told() -> Counter[str]:
        verdicts = [await replica.filter(pods[0]) for pods in crowds]
        said = [one for verdict in verdicts for one in verdict.failed.values()]
        assert all("as a queue (Kueue) does" in text for reason, text in said if reason == "GroupRests")
        return Counter(reason for reason, _ in said)

    async def run() -> None:
        first = await told()
        assert 1 <= first["GroupDoesNotFit"] <= 4, first
        assert first["GroupRests"] == 20 - first["GroupDoesNotFit"]
        assert (await replica.filter(other[0])).passed == ["n1"]
        replica.now_ns = replica.at_ns + 40 * SECOND
        await replica.service.sweep()  # what was held for the other group is over
        woken = made.woken
        replica.now_ns = replica.at_ns + 20 * SECOND
        await replica.service.sweep()
        made.delete(POD, held["metadata"]["uid"])
        replica.watch()
        assert made.woken >= woken
        passed = 0
        for _ in range(60):  # one after another has its turn, and the first finds room
            replica.now_ns = replica.at_ns + SECOND
            await replica.service.sweep()
            passed = sum([bool((await replica.filter(pods[0])).passed) for pods in crowds])
            if passed:
                break
        assert passed == 1

    asyncio.run(run())


def test_a_group_of_which_a_pod_comes_ever_anew_takes_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time it was placed again, however long that took: of 400 pods 0.9 s."""
    made = World()
    made.nodes("n1", count=4)
    replica = Slow(made, alone=True)
    pods = group(made, 4, gpu_request="1%")
    replica.watch()
    replica.tick_ns = 100 * MS
    looks = looks_at(replica, monkeypatch)

    async def run() -> None:
        for turn in range(20):
            made.delete(POD, pods[0]["metadata"]["uid"])
            words: dict[str, Any] = {"gpu_request": "1%", "pod_group": "g", "pod_group_size": "4"}
            pods[0] = made.put(POD, pod_object("g0", uid=f"again-{turn}", **words))
            replica.watch()
            began_ns = replica.at_ns
            await replica.filter(pods[0])
        assert replica.at_ns > began_ns
        assert len(looks) < 10
        replica.now_ns = replica.at_ns + 60 * SECOND
        await replica.service.sweep()
        assert (await replica.filter(pods[0])).passed == ["n1"]

    asyncio.run(run())


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.mark.parametrize("seed", range(20))
def test_a_namespace_has_a_part_of_the_time_and_each_of_its_groups_a_turn(seed: int) -> None:
    """kube-scheduler asks about all groups when it is woken, in any order, and so does whoever changes something."""
    chance, clock = random.Random(seed), Clock()
    ration = Ration(clock)
    groups = [("ns", f"g{i}") for i in range(chance.choice((5, 100, 1_000)))]
    longest_ns = chance.choice((1, 20, 500)) * MS
    costs = {key: chance.randint(1, longest_ns) for key in groups}
    looked: Counter[GroupKey] = Counter()
    spent_ns, epoch = 0, 0
    seconds = 0
    while min(looked[key] for key in groups) < 2 and seconds < 100_000:
        seconds += 1
        clock.now_ns = max(clock.now_ns, seconds * SECOND)
        changed = chance.random() < 0.5
        epoch += changed
        if not (ration.due() or changed):
            continue
        for key in chance.sample(groups, len(groups)):
            if ration.may(key, epoch):
                clock.now_ns += costs[key]
                spent_ns += costs[key]
                looked[key] += 1
                ration.refused(key, epoch, costs[key])
        assert spent_ns <= (clock.now_ns + 2 * SECOND) // TIMES + FREE_NS + longest_ns
    assert min(looked[key] for key in groups) >= 2
    assert seconds * SECOND <= 4 * TIMES * sum(costs.values()) + 60 * SECOND, "the turn of each comes in time"


def test_small_groups_come_to_no_rest() -> None:
    clock = Clock()
    ration = Ration(clock)
    for i in range(1_000):
        assert ration.may(("ns", f"g{i % 16}"), i)
        clock.now_ns += 5 * MS
        ration.refused(("ns", f"g{i % 16}"), i, 5 * MS)
        clock.now_ns += 50 * MS
    assert not ration.due()


def test_who_launches_many_small_groups_that_find_room_does_not_wait() -> None:
    """As quickly as kube-scheduler binds their pods, 200 a second."""
    clock = Clock()
    ration = Ration(clock)
    for i in range(1_000):
        assert ration.may(("ns", f"g{i}"), i)
        clock.now_ns += 3 * MS
        ration.placed(("ns", f"g{i}"), 3 * MS)
        clock.now_ns += 17 * MS
    assert not ration.due()


def test_who_is_looked_at_already_is_not_woken_for() -> None:
    clock = Clock()
    ration = Ration(clock)
    assert ration.may(("ns", "g"), 1)
    ration.refused(("ns", "g"), 1, SECOND)
    assert not ration.may(("ns", "g"), 1), "its namespace rests"
    clock.now_ns += TIMES * SECOND
    assert not ration.due(), "nothing has changed since it was looked at"
    ration.refused(("ns", "g"), 1, SECOND)
    assert not ration.may(("ns", "g"), 2)
    assert not ration.due(), "not before the rest is over"
    clock.now_ns += TIMES * SECOND
    assert ration.due()
    assert not ration.due(), "once"
    assert not ration.may(("ns", "another"), 2), "who waits comes first"
    clock.now_ns += LOST_NS
    assert ration.may(("ns", "another"), 2), "and is forgotten where it does not come"


def test_what_is_kept_of_groups_has_a_bound_in_each_namespace() -> None:
    clock = Clock()
    kept, asked = Kept[str](clock), Asked(clock)
    for i in range(KEPT + 1):
        kept.keep(("many", f"g{i}"), 1, "no")
    kept.keep(("few", "g"), 1, "no")
    assert (kept.of(("many", "g0"), 1), kept.of(("many", "g1"), 1), kept.of(("few", "g"), 1)) == (None, "no", "no")
    assert kept.of(("few", "g"), 2) is None
    world = World()
    replica = Replica(world)
    views = [replica.cluster.view(pod_object(f"p{i}", gpu_request="1%")) for i in range(REMEMBERED + 1)]
    for view in views:
        asked.note(view, ("n1", "n2"))
    assert asked.among(views[:2], ("n3",)) == [{"n3"}, {"n1", "n2"}]
    asked.note(views[0], [f"n{i}" for i in range(FEW + 1)])
    assert asked.among(views[:1], ("n3",)) == [{"n3"}], "a part of the nodes says nothing"
    clock.now_ns += 2 * ASKED_NS
    kept.sweep()
    asked.sweep()
    assert kept.of(("few", "g"), 1) is None
    assert asked.among(views[1:2], ("n3",)) == [{"n3"}]


def test_a_group_that_is_made_anew_is_not_told_of_its_former_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group whose search came to no end was refused for 30 s by its name, whatever pods it had by then."""
    made = World()
    made.nodes("n1", count=8)
    node = made.objects[NODE, "n1"]
    node["status"]["allocatable"]["gemini.io/gpu-core"] = "800"
    made.put(NODE, node)
    replica = Replica(made)
    said: dict[str, Any] = {"pod_group": "g", "pod_group_size": "17"}
    pods = [made.put(POD, pod_object(f"p{i}", gpu_request=f"{34 + i % 13}%", **said)) for i in range(17)]
    replica.watch()

    async def run() -> None:
        assert not (await replica.filter(pods[0])).passed
        assert replica.service._groups._room.is_endless(("ns", "g"))
        for pod in pods:
            made.delete(POD, pod["metadata"]["uid"])
        fresh = group(made, 4)
        replica.watch()
        assert (await replica.filter(fresh[0])).passed == ["n1"]

    asyncio.run(run())


def test_a_group_whose_lease_is_not_answered_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    made = World()
    made.nodes("n1", count=2)
    replica = Replica(made)
    slow, quick = group(made, 1, pod_group="slow"), group(made, 1, pod_group="quick")
    replica.watch()
    answered, real = asyncio.Event(), made.lease

    async def lease(namespace: str, name: str) -> Object | None:
        if name == lease_name(("ns", "slow")):
            await answered.wait()
        return await real(namespace, name)

    monkeypatch.setattr(made, "lease", lease)

    async def run() -> None:
        waits = asyncio.create_task(replica.filter(slow[0]))
        assert (await asyncio.wait_for(replica.filter(quick[0]), 10)).passed == ["n1"]
        assert not waits.done()
        answered.set()
        assert (await waits).passed == ["n1"]

    asyncio.run(run())
