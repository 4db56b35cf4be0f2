"""The client against an API server of this test's own on loopback: lists, watches that break, bindings, leases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gemini.kube.client import Client, Refused, TooOld, Unanswered, follow

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def talked(handle: Handler, talk: Callable[[Client], Awaitable[None]], folder: Path) -> list[tuple[str, str, Any]]:
    """Runs `talk` against `handle`; the calls that came."""
    calls: list[tuple[str, str, Any]] = []

    async def note(request: web.Request) -> web.StreamResponse:
        body = await request.text()
        calls.append((request.method, request.path_qs, json.loads(body) if body else None))
        assert request.headers["Authorization"] == "Bearer secret"
        return await handle(request)

    async def run() -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", note)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        kubeconfig = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://{host}:{port}"}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        client = await Client.connect(str(folder / "kubeconfig"))
        try:
            await talk(client)
        finally:
            await client.close()
            await runner.cleanup()

    asyncio.run(run())
    return calls


def item(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def test_list_reads_page_by_page(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        if request.query.get("continue") == "more":
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": [item("b", 2)]})
        return web.json_response({"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [item("a", 1)]})

    async def talk(client: Client) -> None:
        items, version = await client.all_of("Node")
        assert ([i["metadata"]["name"] for i in items], version) == (["a", "b"], "7")

    talked(handle, talk, tmp_path)


def test_binding_is_one_write_with_uid_and_annotations(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def talk(client: Client) -> None:
        await client.bind("ns", "p", "u-1", "n1", {"gemini.io/assigned": "false"})

    ((method, path, body),) = talked(handle, talk, tmp_path)
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/pods/p/binding")
    assert body["metadata"]["uid"] == "u-1"
    assert body["metadata"]["annotations"] == {"gemini.io/assigned": "false"}
    assert body["target"]["name"] == "n1"


@pytest.mark.parametrize(("status", "raised"), [(404, Refused), (409, Refused), (500, Unanswered), (429, Unanswered)])
def test_refusals_carry_their_status_and_other_failures_leave_it_open(
    status: int, raised: type[Exception], tmp_path: Path
) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"message": "why"}, status=status)

    async def talk(client: Client) -> None:
        with pytest.raises(raised, match="why"):
            await client.pod("ns", "p")

    talked(handle, talk, tmp_path)


def test_reply_that_is_no_object_and_a_dead_server_are_no_answer(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        if request.path.endswith("/cut"):
            assert request.transport is not None
            request.transport.close()
        return web.Response(text="<html>")

    async def talk(client: Client) -> None:
        for name in ("html", "cut"):
            with pytest.raises(Unanswered):
                await client.pod("ns", name)

    talked(handle, talk, tmp_path)


def test_lease_is_created_then_replaced_by_version(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response({"message": "none"}, status=404)
        return web.json_response(item("l", 5))

    async def talk(client: Client) -> None:
        assert await client.lease("ns", "l") is None
        assert await client.put_lease("ns", "l", {"annotations": {}}) == "5"
        assert await client.put_lease("ns", "l", {"annotations": {}, "resourceVersion": "5"}) == "5"

    calls = talked(handle, talk, tmp_path)
    assert [method for method, _, _ in calls] == ["GET", "POST", "PUT"]
    assert calls[2][2]["metadata"]["resourceVersion"] == "5"
    assert calls[2][2]["metadata"]["managedFields"] == [{}]  # what Kubernetes takes for: keep none


class Seen:
    def __init__(self, until: int) -> None:
        self.events: list[Any] = []
        self.until, self.done = until, asyncio.Event()

    def replace(self, kind: str, objects: list[Any], version: int) -> None:
        self._note(("list", version, [o["metadata"]["name"] for o in objects]))

    def apply(self, kind: str, event: str, given: Any) -> None:
        self._note((event, given["metadata"]["name"]))

    def _note(self, entry: Any) -> None:
        self.events.append(entry)
        if len(self.events) >= self.until:
            self.done.set()


def test_follow_goes_on_after_a_closed_watch_and_lists_again_when_it_must(tmp_path: Path) -> None:
    watches = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal watches
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "10"}, "items": [item("a", 1)]})
        watches += 1
        lines = {
            1: [{"type": "ADDED", "object": item("b", 11)}, {"type": "BOOKMARK", "object": item("", 15)}],
            2: [{"type": "ERROR", "object": {"code": 410, "message": "Forcing pods watcher close"}}],
            3: [{"type": "DELETED", "object": item("a", 12)}],
        }.get(watches)
        reply = web.StreamResponse()
        await reply.prepare(request)
        for line in lines or ():
            await reply.write(json.dumps(line).encode() + b"\n")
        if watches == 1:
            assert request.query["resourceVersion"] == "10"
        elif watches == 2:
            assert request.query["resourceVersion"] == "15"
        elif lines is None:
            await asyncio.sleep(600)
        return reply

    async def talk(client: Client) -> None:
        seen = Seen(4)
        task = asyncio.create_task(follow(client, "Pod", seen, asyncio.Event()))
        await asyncio.wait_for(seen.done.wait(), 60)
        task.cancel()
        assert seen.events == [("list", 10, ["a"]), ("ADDED", "b"), ("list", 10, ["a"]), ("DELETED", "a")]

    talked(handle, talk, tmp_path)


def test_watch_that_is_too_old_says_so(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"message": "too old"}, status=410)

    async def talk(client: Client) -> None:
        with pytest.raises(TooOld):
            async for _ in client.watch("Pod", "1"):
                pass

    talked(handle, talk, tmp_path)
