"""The harness itself: real programs come up, schedule, call an extender, and a client outlives the API server."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.api import Api, ApiError, Object, condition, unscheduled
from tests.e2e.pki import Pair
from tests.e2e.plane import Plane, extender, scheduler_configuration
from tests.e2e.process import free_port

RESOURCE = "toy.gemini.io/card"


def pod(name: str, requests: dict[str, str] | None = None, **spec: Any) -> Object:
    container = {"name": "main", "image": "toy", "resources": {"requests": requests or {}, "limits": requests or {}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


@contextmanager
def serving(handlers: dict[str, Any], pair: Pair | None = None) -> Iterator[str]:
    """POST handlers by path, on a port and a thread of their own; the URL, with TLS where a pair is given."""
    loop = asyncio.new_event_loop()
    application = web.Application(client_max_size=64 << 20)
    application.add_routes([web.post(path, handler) for path, handler in handlers.items()])
    runner, port = web.AppRunner(application), free_port()

    async def start() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=pair.server_context() if pair else None).start()

    loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http{'s' if pair else ''}://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class ToyExtender:
    """Takes any node but the first, the second best, and binds with an annotation; `calls` keeps what was asked."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.calls: list[tuple[str, Object]] = []

    async def filter(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.calls.append(("filter", asked))
        names = asked.get("NodeNames") or [node["metadata"]["name"] for node in asked["Nodes"]["items"]]
        good = [name for name in names if not name.endswith("-0")]
        failed = {name: "no card here" for name in names if name not in good}
        nodes = (
            {"items": [n for n in asked["Nodes"]["items"] if n["metadata"]["name"] in good]} if asked["Nodes"] else None
        )
        return web.json_response({"nodenames": good if nodes is None else None, "nodes": nodes, "failedNodes": failed})

    async def prioritize(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.calls.append(("prioritize", asked))
        names = asked.get("NodeNames") or [node["metadata"]["name"] for node in asked["Nodes"]["items"]]
        return web.json_response([{"host": name, "score": 10 if name.endswith("-1") else 0} for name in names])

    async def bind(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.calls.append(("bind", asked))
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": asked["PodName"], "uid": asked["PodUID"], "annotations": {"gemini.io/toy": "bound"}},
            "target": {"kind": "Node", "name": asked["Node"]},
        }
        path = f"/api/v1/namespaces/{asked['PodNamespace']}/pods/{asked['PodName']}/binding"
        try:
            await asyncio.to_thread(self._api.post, path, binding)
        except ApiError as why:
            return web.json_response({"error": str(why)})
        return web.json_response({"error": ""})


@pytest.fixture(params=[False, True], ids=["whole-nodes", "node-names"])
def toy(plane: Plane, request: pytest.FixtureRequest) -> Iterator[ToyExtender]:
    toy = ToyExtender(plane.api)
    with serving({"/filter": toy.filter, "/prioritize": toy.prioritize, "/bind": toy.bind}) as url:
        entry = extender(url, [RESOURCE], ignored=[RESOURCE], node_cache_capable=request.param)
        with plane.scheduler(scheduler_configuration([entry])):
            yield toy


def test_pod_without_our_resource_is_scheduled_and_runs_on_a_fake_node(plane: Plane, namespace: str) -> None:
    with plane.nodes(2) as names, plane.scheduler():
        plane.kubectl("-n", namespace, "apply", "-f", "-", text=json.dumps(pod("plain")))
        running = plane.api.wait_one(f"/api/v1/namespaces/{namespace}/pods/plain", condition("Ready"))
        assert running["spec"]["nodeName"] in names


def test_extender_filters_prioritizes_and_binds_with_annotations(
    plane: Plane, namespace: str, toy: ToyExtender
) -> None:
    with plane.nodes(3) as names:
        created = plane.api.post(f"/api/v1/namespaces/{namespace}/pods", pod("asks", {RESOURCE: "1"}))
        bound = plane.api.wait_one(f"/api/v1/namespaces/{namespace}/pods/asks", condition("Ready"))
    assert bound["spec"]["nodeName"] == names[1]
    assert bound["metadata"]["annotations"]["gemini.io/toy"] == "bound"
    assert [verb for verb, _ in toy.calls] == ["filter", "prioritize", "bind"]
    assert toy.calls[-1][1]["PodUID"] == created["metadata"]["uid"]


def test_extender_is_not_asked_for_a_pod_without_its_resource(plane: Plane, namespace: str, toy: ToyExtender) -> None:
    with plane.nodes(1):
        plane.api.post(f"/api/v1/namespaces/{namespace}/pods", pod("plain"))
        plane.api.wait_one(f"/api/v1/namespaces/{namespace}/pods/plain", condition("Ready"))
    assert toy.calls == []


def test_extenders_reason_stands_in_the_pods_condition(plane: Plane, namespace: str, toy: ToyExtender) -> None:
    with plane.nodes(1):  # the toy refuses the first node
        plane.api.post(f"/api/v1/namespaces/{namespace}/pods", pod("asks", {RESOURCE: "1"}))
        plane.api.wait_one(f"/api/v1/namespaces/{namespace}/pods/asks", unscheduled("no card here"))


def test_binding_twice_or_with_another_uid_is_refused(plane: Plane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with plane.nodes(1) as (node,):
        plane.api.post(path, pod("late"))
        target = {"kind": "Node", "name": node}
        with pytest.raises(ApiError) as stale:
            plane.api.post(f"{path}/late/binding", {"metadata": {"name": "late", "uid": "other"}, "target": target})
        assert stale.value.status == 409
        plane.api.post(f"{path}/late/binding", {"metadata": {"name": "late"}, "target": target})
        with pytest.raises(ApiError) as twice:
            plane.api.post(f"{path}/late/binding", {"metadata": {"name": "late"}, "target": target})
        assert twice.value.status == 409


def test_wait_outlives_a_restart_of_the_api_server(plane: Plane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    listening = threading.Event()

    def seen(objects: list[Object]) -> bool:
        listening.set()
        return any(one["metadata"]["name"] == "late" for one in objects)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(plane.api.wait, path, seen, "the late configmap", 180)
        assert listening.wait(60)
        plane.restart_apiserver()
        plane.api.post(path, {"metadata": {"name": "late"}})
        assert waiting.result(180)


def test_webhook_changes_a_pod_and_refuses_another(plane: Plane, namespace: str) -> None:
    async def mutate(request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        reply: Object = {"uid": asked["uid"], "allowed": asked["object"]["metadata"]["name"] != "bad"}
        if reply["allowed"]:
            patch = [{"op": "add", "path": "/metadata/annotations", "value": {"gemini.io/toy": "seen"}}]
            reply |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        else:
            reply["status"] = {"message": "toy: another name would do"}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": reply})

    pair = plane.authority.issue("toy-webhook", hosts=("127.0.0.1",))
    with serving({"/mutate": mutate}, pair) as url, plane.webhook("toy", f"{url}/mutate"):
        plane.kubectl("-n", namespace, "apply", "-f", "-", text=json.dumps(pod("good")))
        refused = plane.kubectl("-n", namespace, "apply", "-f", "-", text=json.dumps(pod("bad")), check=False)
    assert (
        plane.api.get(f"/api/v1/namespaces/{namespace}/pods/good")["metadata"]["annotations"]["gemini.io/toy"] == "seen"
    )
    assert "toy: another name would do" in refused.stderr


def test_service_account_has_the_rights_that_rbac_gives_it(plane: Plane, namespace: str) -> None:
    kubeconfig = plane.account_kubeconfig(namespace, "default")
    refused = plane.kubectl("--kubeconfig", str(kubeconfig), "-n", namespace, "get", "pods", check=False)
    assert "Forbidden" in refused.stderr
    plane.kubectl(
        "-n", namespace, "create", "rolebinding", "see", "--clusterrole=view", f"--serviceaccount={namespace}:default"
    )
    plane.kubectl("--kubeconfig", str(kubeconfig), "-n", namespace, "get", "pods")
