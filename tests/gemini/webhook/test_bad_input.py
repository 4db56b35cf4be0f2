"""Shares that make no sense, one by one: refused at admission with field, value and mend, or admitted as documented."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientSession, web

from gemini.extender.kinds import POD
from gemini.webhook import app
from gemini.webhook.review import mutate, validate
from gemini.webhook.settings import Settings
from tests.gemini.extender.world import Replica, World, pod_object

Object = dict[str, Any]


def says(**annotations: str) -> Object:
    return pod_object("p", **annotations)


def spec(**more: Any) -> Object:
    pod = says(gpu_request="0.5")
    pod["spec"].update(more)
    return pod


def review(pod: Object) -> Object:
    return {"request": {"uid": "u", "operation": "CREATE", "object": {"kind": "Pod", **pod}}}


REFUSED: dict[str, tuple[Object, str, str, str]] = {  # what -> pod, field, value, mend
    "negative": (says(gpu_request="-0.1"), "gemini.io/gpu-request", "-0.1", "write a share from 0 to 1"),
    "NaN": (says(gpu_request="NaN"), "gemini.io/gpu-request", "NaN", "write a share from 0 to 1"),
    "above 1": (says(gpu_request="1.5"), "gemini.io/gpu-request", "1.5", "write a share from 0 to 1"),
    "several cards": (says(gpu_request="2"), "gemini.io/gpu-request", "2", "gemini.io/gpu-count for several"),
    "above the limit": (says(gpu_request="0.8", gpu_limit="0.5"), "gemini.io/gpu-request", "0.8", "raise the limit"),
    "memory and ratio": (
        says(gpu_request="0.5", gpu_memory="4Gi", gpu_memory_ratio="50"),
        "gemini.io/gpu-memory-ratio", "50", "keep one"),
    "no quantity": (says(gpu_request="0.5", gpu_memory="4Quarts"), "gemini.io/gpu-memory", "4Quarts", "such as 4Gi"),
    "unknown key": (says(gpu_requst="0.5"), "gemini.io/gpu-requst", "", "use one of"),
    "more than a card": (says(gpu_memory_ratio="120"), "gemini.io/gpu-memory-ratio", "120", "from 1 to 100"),
    "count of 0": (says(gpu_request="0.5", gpu_count="0"), "gemini.io/gpu-count", "0", "at least 1"),
    "preset node": (spec(nodeName="n1"), "spec.nodeName", "n1", "use nodeSelector"),
    "privileged": (
        spec(containers=[{"name": "a", "securityContext": {"privileged": True}}]),
        "spec.containers[0].securityContext.privileged", "", "remove it"),
    "every card": (
        spec(containers=[{"name": "a", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]),
        "spec.containers[0].env", "NVIDIA_VISIBLE_DEVICES", "remove it"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused_at_admission_with_field_value_and_mend(what: str) -> None:
    pod, field, value, mend = REFUSED[what]
    for answer in (mutate(review(pod), Settings()), validate(review(pod), Settings())):
        response = answer["response"]
        assert not response["allowed"]
        message = response["status"]["message"]
        assert message.startswith(field)
        assert value in message
        assert mend in message
        assert "\n" not in message


def test_a_model_that_no_node_has_is_admitted_and_waits_with_the_reason() -> None:
    pod = says(gpu_request="0.5", gpu_model="Voodoo2")
    assert mutate(review(pod), Settings())["response"]["allowed"]
    made = World()
    made.nodes("n1", model="H200")
    replica = Replica(made)
    verdict = asyncio.run(replica.filter(made.put(POD, pod), "n1"))
    assert verdict.failed["n1"][0] == "ModelMismatch"
    assert "Voodoo2" in verdict.failed["n1"][1]


def test_more_memory_than_any_card_has_is_admitted_and_waits_with_the_reason() -> None:
    pod = says(gpu_request="0.5", gpu_memory="10Ti")
    assert mutate(review(pod), Settings())["response"]["allowed"]
    made = World()
    made.nodes("n1")
    verdict = asyncio.run(Replica(made).filter(made.put(POD, pod), "n1"))
    assert verdict.failed["n1"][0] == "InsufficientMemory"


def test_a_pod_with_100_containers_is_admitted_with_a_slot_for_each() -> None:
    names = [f"c{i}" for i in range(100)]
    pod = pod_object("p")
    pod["metadata"]["annotations"] = {f"gemini.io/gpu-request.{name}": "0.01" for name in names}
    pod["spec"]["containers"] = [{"name": name, "image": "x"} for name in names]
    assert mutate(review(pod), Settings())["response"]["allowed"]
    made = World()
    made.nodes("n1", count=1)
    replica = Replica(made, alone=True)
    made.put(POD, pod)
    replica.watch()
    assert asyncio.run(replica.bind(pod, "n1")) == ""
    assert {core for core, _ in made.promised().values()} == {100}


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_review_above_the_limit_is_refused_and_the_next_one_is_served(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "LARGEST_BODY", 1 << 16)

    async def run() -> tuple[int, int]:
        runner = web.AppRunner(app.App(Settings(), None).application())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = "http://{}:{}{}".format(*runner.addresses[0][:2], path)
        try:
            async with ClientSession() as session:
                large = json.dumps(review(says(gpu_request="0.5", note="x" * (1 << 17))))
                async with session.post(url, data=large) as reply:
                    first = reply.status
                async with session.post(url, data=json.dumps(review(says(gpu_request="0.5")))) as reply:
                    return first, reply.status
        finally:
            await runner.cleanup()

    assert asyncio.run(run()) == (413, 200)
