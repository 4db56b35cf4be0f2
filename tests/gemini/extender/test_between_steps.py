"""Objects that go, or come anew, between filter and bind: an error to the scheduler, and nothing left held."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from gemini.extender.codec import PreemptRequest, Victims
from gemini.extender.kinds import DEVICE, NODE, POD
from gemini.extender.reserve import BIND_NS, SECOND
from gemini.kube import names
from gemini.kube.device import write_device
from gemini.placement.model import Node
from tests.gemini.extender.world import Replica, World, cards, pod_object


def deleted_pod(made: World) -> None:
    made.delete(POD, "uid-p")


def deleted_and_made_anew(made: World) -> None:
    made.delete(POD, "uid-p")
    made.put(POD, pod_object("p", uid="another", gpu_request="0.5"))


def deleted_node(made: World) -> None:
    made.delete(NODE, "n1")


def deleted_device(made: World) -> None:
    made.delete(DEVICE, "n1")


def terminating_pod(made: World) -> None:
    pod = made.pod_of("uid-p")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    made.put(POD, pod)


@pytest.mark.parametrize("seen", [True, False], ids=["watched", "not-yet-watched"])
@pytest.mark.parametrize(
    "step",
    [deleted_pod, deleted_and_made_anew, deleted_node, deleted_device, terminating_pod],
    ids=lambda s: s.__name__,
)
def test_what_goes_between_filter_and_bind_is_an_error_and_leaves_nothing_held(
    step: Callable[[World], None], seen: bool
) -> None:
    made = World()
    made.nodes("n1", count=1)
    replica = Replica(made)
    pod = made.put(POD, pod_object("p", gpu_request="0.5"))
    replica.watch()

    async def run() -> str:
        assert (await replica.filter(pod, "n1")).passed == ["n1"]
        step(made)
        if seen:
            replica.watch()
        return await replica.bind(pod, "n1")

    error = asyncio.run(run())
    replica.watch()
    if seen or step in (deleted_pod, deleted_and_made_anew):  # else the API server has no objection
        assert error
        assert "\n" not in error
        assert made.bindings == []
    assert len(replica.cluster.reservations) == 0
    replica.cluster.book.check()


def test_nodes_that_are_not_known_are_refused_by_name_and_bind_nothing() -> None:
    made = World()
    made.nodes("n1", count=1)
    replica = Replica(made)
    pod = made.put(POD, pod_object("p", gpu_request="0.5"))
    replica.watch()

    async def run() -> Any:
        verdict = await replica.filter(pod, "nowhere")
        return verdict.failed["nowhere"][0], await replica.bind(pod, "nowhere")

    reason, error = asyncio.run(run())
    assert (reason, "reports no devices" in error) == ("InsufficientDevices", True)
    asked = PreemptRequest(pod_object("high", priority=9, gpu_request="0.5"), {"nowhere": Victims(("x",))})
    assert replica.service.preempt(asked) == {}
    assert (made.bindings, len(replica.cluster.reservations)) == ([], 0)


def test_a_card_that_goes_while_a_binding_is_written_down_leaves_the_pod_free_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The binding failed, and failed again each time that it was tried, for the card was held for the pod still."""
    made = World()
    made.nodes("n1", count=2)
    replica = Replica(made)
    pod = made.put(POD, pod_object("p", gpu_request="0.5"))
    replica.watch()
    real, left = made.put_lease, write_device(Node("n1", cards("n1").devices[1:]))

    async def put_lease(namespace: str, name: str, metadata: Any) -> str:
        made.put(DEVICE, left)
        replica.watch()
        return await real(namespace, name, metadata)

    monkeypatch.setattr(made, "put_lease", put_lease)

    async def run() -> tuple[str, str]:
        assert (await replica.filter(pod, "n1")).passed == ["n1"]
        return await replica.bind(pod, "n1"), await replica.bind(pod, "n1")

    first, second = asyncio.run(run())
    assert "has gone" in first
    assert second == ""
    record = json.loads(made.pod_of("uid-p")["metadata"]["annotations"][names.ALLOCATION])
    assert [one["minor"] for one in record["gpu"]] == [1]
    replica.watch()
    replica.cluster.book.check()


@pytest.mark.parametrize("still_seconds", [50, 61, 200])
def test_a_replica_that_stood_still_binds_nothing_by_what_it_promised_before(
    monkeypatch: pytest.MonkeyPatch, still_seconds: int
) -> None:
    """A virtual machine that is moved stands still for a minute, between the answer to its promise and its Binding. The
    other replica had given the promise up by then, and the card to another pod: 180 percent of it."""
    made = World()
    made.nodes("n1", count=1)
    first, second = Replica(made, "a"), Replica(made, "b")
    pods = [made.put(POD, pod_object(name, gpu_request="0.9")) for name in ("p", "q")]
    first.watch()
    second.watch()
    real, said = made.put_lease, list[str]()

    async def put_lease(namespace: str, name: str, metadata: Any) -> str:
        version = await real(namespace, name, metadata)
        monkeypatch.setattr(made, "put_lease", real)
        assert await second.bind(pods[1], "n1"), "the card is promised"
        for _ in range(still_seconds):
            for one in (first, second):
                one.now_ns += SECOND
            await second.service.sweep()
        said.append(await second.bind(pods[1], "n1"))
        return version

    monkeypatch.setattr(made, "put_lease", put_lease)

    async def run() -> str:
        return await first.bind(pods[0], "n1")

    error = asyncio.run(run())
    assert error, "it is tried again"
    assert "\n" not in error
    assert said == [""] if still_seconds > BIND_NS // SECOND else said[0]
    assert max(core for core, _ in made.promised().values() or [(0, 0)]) <= 100
    first.watch()
    first.cluster.book.check()
    for _ in range(3):
        first.now_ns += BIND_NS
        second.now_ns += BIND_NS
        second.watch()
        asyncio.run(first.service.sweep())
        asyncio.run(second.service.sweep())
    asyncio.run(first.bind(pods[0], "n1"))
    assert sorted(core for core, _ in made.promised().values()) == [90]
