"""Pods between filter and bind: which of them the next one waits for, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from gemini.extender.kinds import POD
from gemini.extender.onway import LOOKED_AT, VAIN_NS, OnWay
from gemini.extender.podview import PodView
from gemini.extender.reserve import AWAITED_NS
from tests.gemini.extender.world import Replica, World, admitted, pod_object

PATIENCE = 0.05


class Rig:
    """One replica's, on nodes of one card."""

    def __init__(self, *nodes: str) -> None:
        self.world = World()
        self.world.nodes(*nodes, count=1)
        self.replica = Replica(self.world)
        self.on_way = OnWay(self.replica.cluster, lambda: self.replica.now_ns, PATIENCE)

    def pod(self, name: str, **said: str) -> PodView:
        self.world.put(POD, pod_object(name, **said))
        self.replica.watch()
        return self.replica.cluster.pods[f"uid-{name}"]


def test_a_pod_waits_for_those_beside_which_it_would_not_fit_and_for_no_others() -> None:
    rig = Rig("n1", "n2")
    rig.on_way.send(rig.pod("half", gpu_request="0.5"), ["n1"])
    rig.on_way.send(rig.pod("small", gpu_request="0.1"), ["n2"])
    assert rig.on_way.in_way_of(rig.pod("fits", gpu_request="0.5")) == []
    assert rig.on_way.in_way_of(rig.pod("large", gpu_request="0.6")) == ["uid-half"]
    assert rig.on_way.in_way_of(rig.pod("whole", gpu_request="1")) == ["uid-half", "uid-small"]
    assert rig.on_way.in_way_of(rig.pod("plain")) == []
    assert not list(rig.replica.cluster.book.pods_on("n1"))


@pytest.mark.parametrize("end", ["bound", "deleted", "filtered again", "late"])
def test_a_pod_is_not_on_its_way_any_more_when_its_end_is_known(end: str) -> None:
    rig = Rig("n1")
    first, second = rig.pod("first", gpu_request="0.6"), rig.pod("second", gpu_request="0.6")
    rig.on_way.send(first, ["n1"])
    assert rig.on_way.in_way_of(second)
    if end == "bound":  # by another replica: it is seen
        rig.world.put(POD, {**first.object, "spec": {**first.object["spec"], "nodeName": "n1"}})
        rig.replica.watch()
    elif end == "deleted":
        rig.world.delete(POD, "uid-first")
        rig.replica.watch()
    elif end == "filtered again":
        rig.on_way.in_way_of(first)
    else:
        rig.replica.now_ns += AWAITED_NS
    assert rig.on_way.in_way_of(second) == []


def test_each_pod_is_waited_for_once_and_not_for_long() -> None:
    """Its volumes may come first, or it is never bound."""
    rig = Rig("n1")
    rig.on_way.send(rig.pod("first", gpu_request="0.6"), ["n1"])
    second = rig.pod("second", gpu_request="0.6")

    async def both() -> None:
        await rig.on_way.wait(second)
        assert rig.on_way.in_way_of(second) == []

    asyncio.run(asyncio.wait_for(both(), 60))


def test_a_namespace_whose_pods_are_not_bound_holds_up_the_others_once_in_a_while() -> None:
    """Each such pod (its volume never comes) cost all others half a second, as often as it was tried."""
    rig = Rig("n1")

    def elsewhere(name: str) -> PodView:
        given = pod_object(name, gpu_request="0.6")
        given["metadata"]["namespace"] = "hostile"
        rig.world.put(POD, given)
        rig.replica.watch()
        return rig.replica.cluster.pods[f"uid-{name}"]

    visitor = rig.pod("visitor", gpu_request="0.6")
    for name in ("never", "nor this"):
        rig.on_way.send(elsewhere(name), ["n1"])
    assert len(rig.on_way.in_way_of(visitor)) == 2
    asyncio.run(asyncio.wait_for(rig.on_way.wait(visitor), 60))
    rig.on_way.send(elsewhere("never"), ["n1"])
    rig.on_way.send(elsewhere("new"), ["n1"])
    assert rig.on_way.in_way_of(visitor) == []
    rig.on_way.send(rig.pod("another's", gpu_request="0.6"), ["n1"])
    assert rig.on_way.in_way_of(visitor) == ["uid-another's"]
    rig.replica.now_ns += VAIN_NS
    rig.on_way.send(elsewhere("new"), ["n1"])
    assert rig.on_way.in_way_of(visitor) == ["uid-new"]


def test_how_many_shares_a_pod_on_its_way_has_makes_no_other_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight pods of a hundred shares each, on eight nodes, all were worked out for each pod that came: 0.5 s."""
    rig = Rig("n1", "n2")
    many = pod_object("many", gpu_request="0")
    many["spec"]["containers"] = [{"name": f"c{i}", "image": "x"} for i in range(40)]
    many["metadata"]["annotations"] = {f"gemini.io/gpu-request.c{i}": "1%" for i in range(40)}
    rig.world.put(POD, admitted(many))
    rig.replica.watch()
    searched = []
    allocator = rig.replica.cluster.allocator
    real = allocator.choose
    monkeypatch.setattr(allocator, "choose", lambda *words: searched.append(words[0]) or real(*words))
    rig.on_way.send(rig.replica.cluster.pods["uid-many"], ["n1", "n2"])
    assert rig.on_way.in_way_of(rig.pod("other", gpu_request="0.1")) == ["uid-many"]
    assert sum(len(ask.tenants) for ask in searched) <= LOOKED_AT
