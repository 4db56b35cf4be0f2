"""The extender over HTTP: real requests on loopback, as kube-scheduler writes them."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from gemini import plain, serving
from gemini.extender import app
from gemini.extender.announce import Announcer
from gemini.extender.app import App
from gemini.extender.kinds import KINDS, POD
from gemini.extender.shown import state_json
from tests.gemini.extender.world import Replica, World, node_object, pod_object

Talk = Callable[[ClientSession, str, Replica], Awaitable[None]]


def served(made: World, talk: Talk, ready: bool = True) -> Replica:
    """Runs `talk` with an extender on a port of its own."""

    async def run() -> Replica:
        replica = Replica(made)
        synced = {kind: asyncio.Event() for kind in KINDS}
        if ready:
            for event in synced.values():
                event.set()
        announcer = Announcer(made, lambda: replica.now_ns)
        saying = asyncio.create_task(announcer.run())
        app = App(replica.service, announcer, synced)
        try:
            async with (
                serving.listening(app.application(), "127.0.0.1", 0, verbs=app.verbs()) as url,
                ClientSession() as session,
            ):
                await talk(session, url, replica)
        finally:
            saying.cancel()
        return replica

    return asyncio.run(run())


async def post(session: ClientSession, url: str, body: Any) -> Any:
    async with session.post(url, data=json.dumps(body)) as reply:
        assert reply.status == 200
        return await reply.json()


def names(pod: Any, *nodes: str) -> Any:
    return {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)}


def whole(pod: Any, *nodes: str) -> Any:
    return {"Pod": pod, "Nodes": {"items": [node_object(name) for name in nodes]}, "NodeNames": None}


@pytest.mark.parametrize("asked", [names, whole], ids=["node-names", "whole-nodes"])
def test_filter_prioritize_and_bind_as_the_scheduler_calls_them(asked: Any) -> None:
    made = World()
    made.nodes("n1", "n2", count=1)
    made.put(POD, pod_object("p", gpu_request="0.5"))

    async def talk(session: ClientSession, url: str, replica: Replica) -> None:
        replica.watch()
        pod = made.pod_of("uid-p")
        answer = await post(session, f"{url}/filter", asked(pod, "n1", "n2", "n3"))
        kept = answer["NodeNames"] or [n["metadata"]["name"] for n in answer["Nodes"]["items"]]
        assert (kept, list(answer["FailedNodes"]), answer["Error"]) == (["n1", "n2"], ["n3"], "")
        assert await post(session, f"{url}/prioritize", asked(pod, "n1", "n2")) == []  # alike
        bind = {"PodName": "p", "PodNamespace": "ns", "PodUID": "uid-p", "Node": "n2"}
        assert await post(session, f"{url}/bind", bind) == {"Error": ""}

    served(made, talk)
    assert made.bindings == [("uid-p", "n2")]


def test_a_pod_that_is_filtered_before_the_one_ahead_of_it_is_bound_is_not_sent_after_the_same_cards() -> None:
    """Kube-scheduler binds aside: the second pod's filter comes before the first one's bind. Of two nodes with room for
    one of them each, the second pod is told of the other."""
    made = World()
    made.nodes("n1", "n2", count=1)
    pods = [made.put(POD, pod_object(name, gpu_request="0.6")) for name in ("first", "second")]

    async def talk(session: ClientSession, url: str, replica: Replica) -> None:
        replica.watch()
        answer = await post(session, f"{url}/filter", names(pods[0], "n1", "n2"))
        assert answer["NodeNames"] == ["n1", "n2"]
        second = asyncio.create_task(post(session, f"{url}/filter", names(pods[1], "n1", "n2")))
        await asyncio.wait([second], timeout=0.1)  # it is there before the first one's bind, or answered
        bind = {"PodName": "first", "PodNamespace": "ns", "PodUID": "uid-first", "Node": "n1"}
        assert await post(session, f"{url}/bind", bind) == {"Error": ""}
        answer = await second
        assert answer["NodeNames"] == ["n2"]
        bind = {"PodName": "second", "PodNamespace": "ns", "PodUID": "uid-second", "Node": "n2"}
        assert await post(session, f"{url}/bind", bind) == {"Error": ""}

    served(made, talk)
    assert made.bindings == [("uid-first", "n1"), ("uid-second", "n2")]


def test_pod_that_waits_gets_an_event_that_says_why_and_not_one_for_each_try() -> None:
    made = World()
    made.nodes("n1", count=1)
    made.put(POD, pod_object("p", gpu_request="0.5", gpu_memory="64Gi"))

    async def talk(session: ClientSession, url: str, replica: Replica) -> None:
        replica.watch()
        for _ in range(3):
            answer = await post(session, f"{url}/filter", names(made.pod_of("uid-p"), "n1"))
            assert "16Gi free of 16Gi, 64Gi asked" in answer["FailedNodes"]["n1"]
        while not made.said:
            await asyncio.sleep(0)
        replica.now_ns += 61 * 10**9
        await post(session, f"{url}/filter", names(made.pod_of("uid-p"), "n1"))
        while len(made.said) < 2:
            await asyncio.sleep(0)

    served(made, talk)
    assert [(name, count) for name, count, _ in made.said] == [("p", 1), ("p", 2)]
    assert "InsufficientMemory on 1 node (n1: 0 of 1 card can take the ask" in made.said[0][2]


def test_dry_run_tells_reasons_for_every_card_and_changes_nothing() -> None:
    made = World()
    made.nodes("n1", "n2", count=2)
    pods = [made.put(POD, pod_object(f"g{i}", gpu_request="1.0", pod_group="g", pod_group_size="2")) for i in range(2)]

    async def talk(session: ClientSession, url: str, replica: Replica) -> None:
        replica.watch()
        answer = await post(session, f"{url}/dry-run", {"Pod": pod_object("x", gpu_request="0.5", gpu_model="A100")})
        assert answer["nodes"] == []
        assert set(answer["refused"]["n1"]["devices"]) == {"0", "1"}
        answer = await post(session, f"{url}/dry-run", names(pods[0], "n1", "n2"))
        assert len(answer["nodes"]) == 1
        assert len(replica.cluster.reservations) == 0

    served(made, talk)
    assert made.leases == {}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'{"Pod": 3}', b'{"Pod": {}}', b'{"Pod":{},"NodeNames":[3]}'])
@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind", "preempt"])
def test_malformed_body_is_a_400_with_one_line(verb: str, body: bytes) -> None:
    async def talk(session: ClientSession, url: str, replica: Replica) -> None:
        async with session.post(f"{url}/{verb}", data=body) as reply:
            answer = await reply.json()
            if verb == "preempt" and reply.status == 200:  # a pod and nobody to evict is a request
                assert answer == {"NodeNameToMetaVictims": {}}
            else:
                assert reply.status == 400
                assert "\n" not in answer["Error"]

    served(World(), talk)


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind", "preempt", "dry-run"])
def test_body_above_the_limit_is_refused_and_the_next_call_is_served(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "LARGEST_BODY", 1 << 16)
    monkeypatch.setattr(plain, "LONGEST_BODY", 1 << 16)
    made = World()
    made.nodes("n1")

    async def talk(session: ClientSession, url: str, replica: Replica) -> None:
        body = json.dumps(names(pod_object("p", gpu_request="0.5"), *(["n1"] * 50_000)))
        async with session.post(f"{url}/{verb}", data=body) as reply:
            assert reply.status == 413
        answer = await post(session, f"{url}/filter", names(pod_object("p", gpu_request="0.5"), "n1"))
        assert answer["NodeNames"] == ["n1"]

    served(made, talk)


def test_before_the_first_lists_nothing_is_promised() -> None:
    made = World()
    made.nodes("n1")

    async def talk(session: ClientSession, url: str, replica: Replica) -> None:
        answer = await post(session, f"{url}/filter", names(pod_object("p", gpu_request="0.5"), "n1"))
        assert "not ready" in answer["Error"]
        async with session.get(f"{url}/readyz") as reply:
            assert reply.status == 503
        async with session.get(f"{url}/healthz") as reply:
            assert reply.status == 200

    served(made, talk, ready=False)


@pytest.mark.flaky(reruns=3)
@pytest.mark.parametrize(
    "file",
    [
        "deploy/helm/gemini/templates/_helpers.tpl",
        "deploy/kustomize/cluster/configmap-scheduler.yaml",
        "docs/cluster.md",
    ],
)
def test_a_scheduler_waits_for_a_replica_that_hangs_for_five_seconds(file: str) -> None:
    said = re.findall(r"httpTimeout: (\w+)", (Path(__file__).parents[3] / file).read_text())
    assert said == ["5s"]


@pytest.mark.parametrize(
    "file",
    ["deploy/helm/gemini/templates/deployment-extender.yaml", "deploy/kustomize/cluster/deployment-extender.yaml"],
)
def test_a_replica_that_hangs_is_out_before_a_second_call_can_be_given_to_it(file: str) -> None:
    """The first one that it is given ends after five seconds; by then no new connection goes there."""
    text = (Path(__file__).parents[3] / file).read_text()
    (said,) = re.findall(r"readinessProbe:\s*({.*})", text)
    probe = {
        key: int(number) for key, number in re.findall(r"(periodSeconds|timeoutSeconds|failureThreshold): (\d+)", said)
    }
    of_kubernetes = {"periodSeconds": 10, "timeoutSeconds": 1, "failureThreshold": 3}
    period, timeout, times = (of_kubernetes | probe).values()
    assert period * times + timeout <= 5


def test_a_large_state_holds_the_loop_for_a_small_part_of_what_it_takes() -> None:
    made = World()
    made.nodes(*(f"n{i}" for i in range(1000)), count=8)

    async def talk(session: ClientSession, url: str, replica: Replica) -> None:
        began = time.perf_counter()
        json.dumps(state_json(replica.cluster, {}))
        at_once, longest, over = time.perf_counter() - began, 0.0, asyncio.Event()

        async def look() -> None:
            nonlocal longest
            last = time.perf_counter()
            while not over.is_set():
                await asyncio.sleep(0)
                now = time.perf_counter()
                longest, last = max(longest, now - last), now

        looking = asyncio.create_task(look())
        async with session.get(f"{url}/state") as reply:
            text = await reply.read()
        over.set()
        await looking
        assert len(json.loads(text)["nodes"]) == 1000
        assert longest < at_once / 4, f"{longest:.3f} of {at_once:.3f} s"

    served(made, talk)


def test_state_and_metrics_answer() -> None:
    made = World()
    made.nodes("n1", count=2)

    async def talk(session: ClientSession, url: str, replica: Replica) -> None:
        await post(session, f"{url}/filter", names(pod_object("p", gpu_request="0.5"), "n1"))
        async with session.get(f"{url}/state") as reply:
            state = await reply.json()
            assert [len(node["devices"]) for node in state["nodes"]] == [2]
        async with session.get(f"{url}/metrics") as reply:
            text = await reply.text()
            assert 'gemini_extender_cards{state="idle"} 2.0' in text
            assert 'gemini_extender_calls_total{result="ok",verb="filter"} 1.0' in text

    served(made, talk)


def test_readers_of_the_metrics_share_one_text_for_as_long_as_it_took_twenty_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them held the loop: 0.4 s at 5,000 nodes, and any pod may ask."""
    monkeypatch.setattr(app, "METRICS_PART", 1e-9)
    made = World()
    made.nodes("n1")

    async def talk(session: ClientSession, url: str, replica: Replica) -> None:
        async def read() -> str:
            async with session.get(f"{url}/metrics") as reply:
                return await reply.text()

        first = await read()
        made.put(POD, pod_object("new", gpu_request="0.5"))
        replica.watch()
        assert await read() == first

    served(made, talk)
