"""Following a kind against an API server whose watches break."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gemini.kube.client import Client
from gemini.kube.follow import follow, follow_once_there
from tests.gemini.kube.apiserver import item, talked


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


def test_a_kind_whose_group_nobody_defined_yet_is_known_to_have_no_objects(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=404, text="404 page not found\n")

    async def talk(client: Client) -> None:
        synced = asyncio.Event()
        following = asyncio.ensure_future(
            follow_once_there(client, "Resize", Seen(1), synced, logging.getLogger("follow"))
        )
        await asyncio.wait_for(synced.wait(), 20)
        following.cancel()

    talked(handle, talk, tmp_path)


@pytest.mark.parametrize("status", [429, 503])
def test_nothing_is_listed_again_because_the_api_server_has_too_much_to_do(tmp_path: Path, status: int) -> None:
    """Each part on each node of a cluster listed all that it follows, where an API server that begins anew turns some
    of the watches away."""
    watches: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "10"}, "items": [item("a", 1)]})
        watches.append(request.query["resourceVersion"])
        if len(watches) == 1:
            return web.json_response({"message": "try again later"}, status=status)
        reply = web.StreamResponse()
        await reply.prepare(request)
        await reply.write(json.dumps({"type": "ADDED", "object": item("b", 11)}).encode() + b"\n")
        await asyncio.sleep(600)
        return reply

    async def talk(client: Client) -> None:
        seen = Seen(2)
        following = asyncio.create_task(follow(client, "Pod", seen, log=logging.getLogger("test")))
        await asyncio.wait_for(seen.done.wait(), 60)
        following.cancel()
        assert seen.events == [("list", 10, ["a"]), ("ADDED", "b")]

    talked(handle, talk, tmp_path)
    assert watches == ["10", "10"]
