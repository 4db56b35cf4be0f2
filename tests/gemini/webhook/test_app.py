"""The webhook over HTTP: reviews as the API server sends them, and bodies that are none."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientSession, web

from gemini.kube.answer import Unanswered
from gemini.webhook.app import App
from gemini.webhook.quota import Known
from gemini.webhook.settings import Settings

Find = Callable[[str, str], Awaitable[dict[str, Any] | None]]


def asked(path: str, body: bytes, find: Find | None = None) -> tuple[int, Any]:
    async def run() -> tuple[int, Any]:
        settings = Settings(scheduler="gemini", binders=frozenset({"extender"}))
        runner = web.AppRunner(App(settings, find).application())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        try:
            async with ClientSession() as session, session.post(f"http://{host}:{port}{path}", data=body) as reply:
                return reply.status, await reply.json()
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def review(pod: Any, **more: Any) -> bytes:
    request = {"uid": "r", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": pod, **more}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def sharepod(**annotations: str) -> dict[str, Any]:
    said = {f"gemini.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "u-p", "annotations": said},
        "spec": {"containers": [{"name": "main"}]},
    }


def test_share_in_annotations_becomes_resources_scheduler_and_environment() -> None:
    status, answer = asked("/mutate", review(sharepod(gpu_request="0.5", gpu_memory="4Gi")))
    assert (status, answer["response"]["allowed"], answer["response"]["uid"]) == (200, True, "r")
    patch = {op["path"]: op["value"] for op in json.loads(base64.b64decode(answer["response"]["patch"]))}
    assert patch["/spec/schedulerName"] == "gemini"
    assert patch["/spec/containers/0/resources"]["limits"]["gemini.io/gpu-core"] == "50"
    assert {v["name"] for v in patch["/spec/containers/0/env"]} == {"LD_PRELOAD", "GEMINI_SOCKET"}


def test_bad_share_is_refused_with_field_value_and_mend() -> None:
    for path in ("/mutate", "/validate"):
        _, answer = asked(path, review(sharepod(gpu_request="1.5")))
        assert not answer["response"]["allowed"]
        assert answer["response"]["status"]["message"].startswith("gemini.io/gpu-request: 1.5 is above 1; ")


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"[]", b"{}", b'{"request": 3}', b"\xff\xfe"])
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_body_that_is_no_review_is_a_400_with_one_line(path: str, body: bytes) -> None:
    status, answer = asked(path, body)
    assert status == 400
    assert "\n" not in answer["error"]


def binding(user: str) -> bytes:
    given = {"kind": "Binding", "metadata": {"name": "p", "uid": "u-p"}, "target": {"name": "n1"}}
    return review(
        given, kind={"kind": "Binding"}, subResource="binding", namespace="ns", name="p", userInfo={"username": user}
    )


def test_B23_foreign_binding_of_a_sharepod_is_refused_and_of_a_plain_pod_let_through() -> None:
    async def share(namespace: str, name: str) -> dict[str, Any] | None:
        return sharepod(gpu_request="0.5")

    async def plain(namespace: str, name: str) -> dict[str, Any] | None:
        return sharepod()

    async def broken(namespace: str, name: str) -> dict[str, Any] | None:
        raise Unanswered("no API server")

    answers = {
        (find.__name__, user): asked("/validate", binding(user), find)[1]["response"]["allowed"]
        for find in (share, plain, broken)
        for user in ("extender", "somebody")
    }
    assert answers == {
        ("share", "extender"): True,
        ("share", "somebody"): False,
        ("plain", "extender"): True,
        ("plain", "somebody"): True,
        ("broken", "extender"): True,
        ("broken", "somebody"): False,
    }


@pytest.mark.parametrize(
    ("namespace", "name"),
    [("ns", "../../../../../openapi/v2"), ("..", ".."), ("ns", ""), ("ns", "p?watch=1"), ("a/b", "p"), ("ns", "P" * 9)],
)
def test_a_name_that_leads_elsewhere_is_not_looked_up(namespace: str, name: str) -> None:
    """Whoever reaches the port names the pod: the API server's whole description, 4 MB, was read instead of it."""
    looked: list[tuple[str, str]] = []

    async def find(of: str, called: str) -> dict[str, Any] | None:
        looked.append((of, called))
        return None

    given = {"kind": "Binding", "metadata": {"name": "p", "uid": "u-p"}, "target": {"name": "n1"}}
    body = review(
        given,
        kind={"kind": "Binding"},
        subResource="binding",
        namespace=namespace,
        name=name,
        userInfo={"username": "x"},
    )
    status, answer = asked("/validate", body, find)
    assert (status, answer["response"]["allowed"], looked) == (200, False, [])


def test_nothing_is_judged_before_quotas_and_cards_are_listed() -> None:
    app = App(Settings(), known=Known(), synced={"ResourceQuota": asyncio.Event()})

    async def run() -> None:
        runner = web.AppRunner(app.application())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = "http://{}:{}".format(*runner.addresses[0])
        try:
            async with ClientSession() as session:
                for verb, path in (("GET", "/readyz"), ("POST", "/mutate")):
                    async with session.request(verb, url + path, data=review(sharepod())) as reply:
                        assert (reply.status, "ResourceQuota" in await reply.text()) == (503, True)
                app.synced["ResourceQuota"].set()
                async with session.get(url + "/readyz") as reply:
                    assert reply.status == 200
        finally:
            await runner.cleanup()

    asyncio.run(run())
