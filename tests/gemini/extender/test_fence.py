"""What was freed for preemptors is held for them; how often that is looked for, whoever they are."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from gemini.extender.fence import MOST_CARDS, Fence, _fellows
from gemini.extender.kinds import POD
from gemini.extender.podview import PodView
from gemini.extender.ration import TIMES_PLACED
from gemini.extender.reserve import SECOND
from gemini.extender.state import Cluster
from gemini.placement.model import Ask, Grant, Placement
from tests.gemini.extender.world import GIB, Object, Replica, World, admitted, pod_object

NODES = ("n1", "n2", "n3")
Amounts = dict[str, dict[tuple[str, int], tuple[int, int]]]


class Rig:
    """One replica. `searched`: the pods (uid) for which cards were looked for, each of which takes `search_ns`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int = 2, search_ns: int = 0) -> None:
        self.world = World()
        self.world.nodes(*NODES, count=count)
        self.replica = Replica(self.world, alone=True)
        self.cluster = self.replica.cluster
        self.searched: list[str] = []
        real = self.cluster.allocator.choose

        def choose(ask: Ask, nodes: list[str]) -> Placement | None:
            self.searched.append(ask.pod)
            self.replica.now_ns += search_ns
            return real(ask, nodes)

        monkeypatch.setattr(self.cluster.allocator, "choose", choose)

    def put(self, given: Object, nominated: str = "", namespace: str = "ns") -> PodView:
        given["metadata"]["namespace"] = namespace
        given["status"]["nominatedNodeName"] = nominated
        self.world.put(POD, given)
        self.replica.watch()
        return self.cluster.pods[given["metadata"]["uid"]]

    def passed(self, pod: PodView) -> list[str]:
        """The nodes for the pod."""
        found = asyncio.run(self.replica.filter(self.world.pod_of(pod.uid))).passed
        self.replica.service._on_way.arrived(pod.uid)
        return list(found)


def test_what_a_preemptor_would_take_is_looked_for_once_until_something_changes_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fifty of a hundred shares each, whose victims took hours to end, made each call of everybody's 0.5 s longer."""
    rig = Rig(monkeypatch, count=1)
    for i in range(4):
        rig.put(pod_object(f"high{i}", priority=10, gpu_request="0.3"), NODES[i % 2])
    low = rig.put(pod_object("low", gpu_request="0.5"))
    assert rig.passed(low) == ["n3"]
    assert len(rig.searched) == 4
    assert rig.passed(low) == rig.passed(low) == ["n3"]
    assert len(rig.searched) == 4
    rig.cluster.book.place(Placement("came", "n1", (Grant("gpu", 0, 60, GIB),)))
    assert rig.passed(low) == ["n3"]
    assert len(rig.searched) == 6  # the two of n1
    rig.cluster.book.release("came")
    rig.world.delete(POD, "uid-high0")
    rig.replica.watch()
    assert rig.passed(low) == ["n1", "n3"]
    assert rig.passed(low) == ["n1", "n3"]
    assert len(rig.searched) == 7
    rig.cluster.book.check()


def test_a_namespaces_preemptors_have_a_part_of_the_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that come and go on the nodes where they wait have all of it looked for again."""
    rig = Rig(monkeypatch, count=1, search_ns=SECOND // 50)
    for i in range(50):
        rig.put(pod_object(f"high{i}", priority=10, gpu_request="1%"), NODES[i % 2], namespace="many")
    rig.put(pod_object("own", priority=10, gpu_request="0.6"), "n3")
    low = rig.put(pod_object("low", gpu_request="0.5"))
    began_ns = rig.replica.now_ns
    while rig.replica.now_ns < began_ns + 100 * SECOND:
        for node in NODES[:2]:
            rig.cluster.book.place(Placement("came", node, (Grant("gpu", 0, 1, GIB),)))
            rig.cluster.book.release("came")
        assert rig.passed(low) == ["n1", "n2"]
        rig.replica.now_ns += SECOND // 20
    took_ns = rig.searched.count("uid-own") * SECOND // 50
    assert took_ns == SECOND // 50  # nothing has changed there
    assert (len(rig.searched) * SECOND // 50) * TIMES_PLACED < 110 * SECOND
    rig.cluster.book.check()


def test_while_a_namespace_rests_what_was_found_is_held_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, count=1, search_ns=SECOND)
    rig.put(pod_object("high", priority=10, gpu_request="0.6"), "n1")
    low = rig.put(pod_object("low", gpu_request="0.5"))
    assert rig.passed(low) == ["n2", "n3"]
    rig.cluster.book.place(Placement("came", "n1", (Grant("gpu", 0, 10, GIB),)))
    assert rig.passed(low) == ["n2", "n3"]
    rig.cluster.book.release("came")
    rig.cluster.book.place(Placement("came", "n1", (Grant("gpu", 0, 45, GIB),)))
    assert rig.passed(low) == ["n1", "n2", "n3"]
    assert len(rig.searched) == 1
    rig.cluster.book.check()


def test_of_a_namespace_so_much_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of it is entered in the book, and taken out again, for every pod that is placed meanwhile."""
    rig = Rig(monkeypatch, count=8)
    for i in range(MOST_CARDS // 8 + 5):
        high = pod_object(f"high{i}", priority=10, gpu_request="1%", gpu_count="8")
        rig.put(high, NODES[i % 2], namespace="many")
    many = pod_object("shares", priority=10)
    many["spec"]["containers"] = [{"name": f"c{i}", "image": "x"} for i in range(90)]
    many["metadata"]["annotations"] = {f"gemini.io/gpu-request.c{i}": "1%" for i in range(90)}
    rig.put(admitted(many), "n3")
    low = rig.put(pod_object("low", gpu_request="0.5"))
    with rig.replica.service._promises.fence.around(low):
        held = [one.placement for key, one in rig.cluster.book.holdings.items() if key.startswith("nominated/")]
    assert sum(len(one.grants) for one in held if one.node != "n3") == MOST_CARDS
    assert [(len(one.grants), sum(grant.core for grant in one.grants)) for one in held if one.node == "n3"] == [(1, 90)]
    rig.cluster.book.check()


# ---- the same is held as where all is looked for each time


def _plainly(cluster: Cluster, pod: PodView) -> Amounts:
    """What is held for whom, by what the fence is to be. Of a group on a node the first preemptor says who goes too."""
    held: list[str] = []
    own = dict[tuple[object, str | None], bool]()
    for uid in sorted(cluster.nominated - {pod.uid}):
        preemptor = cluster.pods[uid]
        if preemptor.priority <= pod.priority:
            continue
        of, fellows = (preemptor.group, preemptor.nominated), _fellows(cluster, preemptor)
        if preemptor.group is not None and own.setdefault(of, pod.uid in {one.uid for one in fellows}):
            continue
        for one in (preemptor, *fellows):
            key = f"nominated/{one.uid}"
            if one.spec is not None and key not in held:
                choice = cluster.allocator.choose(one.spec.ask, [preemptor.nominated or ""])
                if choice is not None:
                    held.append(key)
                    cluster.book.place(replace(choice, pod=key))
    found = _held(cluster)
    for key in held:
        cluster.book.release(key)
    return found


def _held(cluster: Cluster) -> Amounts:
    found = {key: one for key, one in cluster.book.holdings.items() if key.startswith("nominated/")}
    return {key: {at: amounts[:2] for at, amounts in one.amounts().items()} for key, one in found.items()}


@pytest.mark.parametrize("seed", range(20))
def test_the_same_is_held_as_where_all_is_looked_for_each_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, dice = Rig(monkeypatch), random.Random(seed)
    fence, placed = Fence(rig.cluster, lambda: rig.replica.now_ns), 0
    for step in range(120):
        what = dice.randrange(6)
        pods = sorted(rig.cluster.pods)
        if what == 0 and pods:
            rig.world.delete(POD, dice.choice(pods))
            rig.replica.watch()
        elif what == 1:
            grants = (Grant("gpu", dice.randrange(2), dice.choice((20, 50)), GIB),)
            rig.cluster.book.place(Placement(f"other{step}", dice.choice(NODES), grants), strict=False)
            placed += 1
        elif what == 2 and placed:
            others = [key for key in rig.cluster.book.holdings if key.startswith("other")]
            rig.cluster.book.release(dice.choice(others))
            placed -= 1
        elif what == 3 and dice.random() < 0.3:
            rig.world.nodes(dice.choice(NODES), count=dice.randrange(1, 4))
            rig.replica.watch()
        else:
            said = {"gpu_request": dice.choice(("0.2", "0.4", "0.7", "2"))}
            if dice.random() < 0.3:
                said |= {"pod_group": dice.choice("ab"), "pod_group_size": "3"}
            nominated = dice.choice(("", *NODES)) if dice.random() < 0.7 else ""
            rig.put(pod_object(f"p{step}", priority=dice.randrange(3), **said), nominated)
        for _ in range(2):
            uids = sorted(uid for uid, one in rig.cluster.pods.items() if one.spec is not None)
            if uids:
                pod = rig.cluster.pods[dice.choice(uids)]
                with fence.around(pod):
                    found = _held(rig.cluster)
                assert found == _plainly(rig.cluster, pod)
        if dice.random() < 0.1:
            fence.sweep()
    rig.cluster.book.check()
