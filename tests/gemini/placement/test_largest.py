"""The largest amounts that can be asked for: sums with them must not wrap around to less than nothing."""

from __future__ import annotations

import pytest

from gemini.extender.kinds import POD
from tests.gemini.extender.world import GIB, Replica, World, admitted, pod_object

MOST = 2**63 - 1


def asking(main: int, side: int, init: bool = False) -> Replica:
    """A card that is in use, and a pod of two containers that ask for so many bytes."""
    world = World()
    world.nodes("n1", count=1)
    pod = pod_object("p")
    for name, size in (("main", main), ("side", side)):
        said = {f"gemini.io/gpu-request.{name}": "0.1", f"gemini.io/gpu-memory.{name}": str(size)}
        pod["metadata"]["annotations"] |= said
    pod["spec"].setdefault("initContainers" if init else "containers", []).append({"name": "side"})
    world.put(POD, admitted(pod))
    replica = Replica(world)
    held = pod_object("held", gpu_request="0.1", gpu_memory=str(GIB))
    spec = replica.cluster.view(held).spec
    assert spec is not None
    placement = replica.cluster.allocator.choose(spec.ask, ["n1"])
    assert placement is not None
    replica.cluster.book.place(placement)
    return replica


@pytest.mark.parametrize("least", [1, 1024, GIB])
@pytest.mark.parametrize("first", [True, False], ids=["main", "side"])
@pytest.mark.parametrize("init", [False, True])
def test_what_no_card_has_fits_on_none_and_is_refused_with_its_reason(least: int, first: bool, init: bool) -> None:
    for most in (MOST, MOST - least):
        replica = asking(*((most, least) if first else (least, most)), init=init)
        view = replica.cluster.pods["uid-p"]
        if view.spec is None:
            assert "is above" in str(view.fault)
            continue
        ask, cluster = view.spec.ask, replica.cluster
        assert cluster.allocator.choose(ask, ["n1"]) is None
        assert not cluster.standings.of(ask).fits(["n1"]).any()
        refusal = cluster.allocator.explain(ask)["n1"]
        assert refusal.reason == "InsufficientMemory"
        assert f"{'main' if first else 'side'}: 0 of 1 card" in refusal.message
