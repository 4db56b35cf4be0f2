"""Requests to an API server of this test's own on loopback, over both ways there are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from gemini.kube.answer import Refused, Unanswered
from gemini.kube.transport import Transport
from tests.gemini.kube.apiserver import Handler, served


def sent(handle: Handler, folder: Path, talk: str, *arguments: object) -> tuple[object, list[web.Request]]:
    """What that method of a Transport gives, and the requests that came."""
    requests: list[web.Request] = []

    async def note(request: web.Request) -> web.StreamResponse:
        await request.read()
        requests.append(request)
        return await handle(request)

    async def run() -> object:
        async with served(note, folder) as kubeconfig:
            transport = await Transport.connect(kubeconfig)
            try:
                return await getattr(transport, talk)(*arguments)
            finally:
                await transport.close()

    return asyncio.run(run()), requests


async def _done(request: web.Request) -> web.Response:
    return web.json_response({"got": request.method})


@pytest.mark.parametrize("way", ["call", "write"])
def test_a_body_goes_with_who_we_are_over_either_way(way: str, tmp_path: Path) -> None:
    answer, (request,) = sent(_done, tmp_path, way, "POST", "/a", {"b": 1})
    assert (answer, request.method, request.path) == ({"got": "POST"}, "POST", "/a")
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Content-Type"] == "application/json"


def test_a_patch_says_that_it_is_merged_and_a_query_is_quoted(tmp_path: Path) -> None:
    _, (request,) = sent(_done, tmp_path, "call", "PATCH", "/a", {}, {"x": "1 & 2"})
    assert request.headers["Content-Type"] == "application/merge-patch+json"
    assert request.query["x"] == "1 & 2"


def test_an_answer_longer_than_it_may_be_is_none(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"text": "x" * 100_000})

    assert sent(handle, tmp_path, "read", "/a", {}, 10_000)[0] is None
    answer, _ = sent(handle, tmp_path, "read", "/a", {}, 200_000)
    assert answer == ({"text": "x" * 100_000}, 100_012)


@pytest.mark.parametrize("way", ["call", "write"])
def test_a_refusal_and_a_connection_that_ends_are_told_apart(way: str, tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"message": "no"}, status=403)

    async def cut(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    with pytest.raises(Refused, match="403: no"):
        sent(refuse, tmp_path, way, "POST", "/a", {})
    with pytest.raises(Unanswered, match="POST /a: "):
        sent(cut, tmp_path, way, "POST", "/a", {})


def test_a_kubeconfig_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "odd").write_text("- 1\n")
    for path, says in ((tmp_path / "none", "no such file"), (tmp_path, "this is no file")):
        with pytest.raises(FileNotFoundError, match=says):
            asyncio.run(Transport.connect(str(path)))
    with pytest.raises(ValueError, match="no kubeconfig"):
        asyncio.run(Transport.connect(str(tmp_path / "odd")))
