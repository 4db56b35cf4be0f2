"""The client against an API server of this test's own on loopback: lists, bindings, leases, late watches."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gemini.kube import client as client_module
from gemini.kube.answer import Refused, TooOld, Unanswered, Undefined, is_unknown
from gemini.kube.client import Client
from tests.gemini.kube.apiserver import item, talked


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


def test_a_kind_whose_group_nobody_defined_has_no_objects(tmp_path: Path) -> None:
    """An API server says so in plain text; what stands before one may say other things."""

    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=404, text="404 page not found\n" if "gemini.io" in request.path else "no backend")

    async def talk(client: Client) -> None:
        assert not await client.serves("gemini.io/v1alpha1")
        with pytest.raises(Undefined) as undefined:
            await client.all_of("Resize")
        assert is_unknown(undefined.value)
        with pytest.raises(Unanswered) as raised:
            await client.pod("ns", "p")
        assert not isinstance(raised.value, Undefined)

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


def test_watch_that_is_too_old_says_so(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"message": "too old"}, status=410)

    async def talk(client: Client) -> None:
        with pytest.raises(TooOld):
            async for _ in client.watch("Pod", "1"):
                pass

    talked(handle, talk, tmp_path)


def test_an_event_is_read_whatever_its_length_and_what_is_in_it(tmp_path: Path) -> None:
    """One of 4 MB was the end of the program, which any editor of a namespace can have the API server send: `<` is six
    letters there. And what no quick parser takes had all objects listed again, for ever in vain."""
    deep = b'{"metadata":{"name":"deep","resourceVersion":"4"},"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    large = b'{"metadata":{"name":"large","resourceVersion":"5"},"a":"' + rb"\u003c" * 1_500_000 + b'"}'
    small = b'{"metadata":{"name":"small","resourceVersion":"6"}}'

    async def handle(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=b'{"metadata":{"resourceVersion":"4"},"items":[' + deep + b"]}")
        response = web.StreamResponse()
        await response.prepare(request)
        for one in (deep, large, small, large):
            await response.write(b'{"type":"MODIFIED","object":' + one + b"}\n")
        return response

    async def talk(client: Client) -> None:
        items, version = await client.all_of("ResourceClaim")
        assert ([one["metadata"]["name"] for one in items], version) == (["deep"], "4")
        seen = [(one["metadata"]["name"], len(one.get("a") or "")) async for _, one in client.watch("Pod", "4")]
        assert seen == [("deep", 1), ("large", 1_500_000), ("small", 0), ("large", 1_500_000)]

    talked(handle, talk, tmp_path)


def test_an_event_without_an_end_has_all_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "EVENT_BYTES", 1 << 20)

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(4):
            await response.write(b"x" * (1 << 19))
        return response

    async def talk(client: Client) -> None:
        with pytest.raises(TooOld, match="more than"):
            async for _ in client.watch("Pod", "4"):
                pass

    talked(handle, talk, tmp_path)


def test_a_list_of_large_objects_is_read_in_small_pages_each_made_small_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of 500 pods of 1.4 MB was one page, and all pages were there before the first was looked at."""
    monkeypatch.setattr(client_module, "PAGE_BYTES", 100_000)
    sizes = [10_000] * 130 + [30_000] * 30 + [150_000, 150_000] + [100] * 700
    asked: list[int] = []
    kept: list[int] = []

    async def handle(request: web.Request) -> web.Response:
        begin, many = int(request.query.get("continue", "0")), int(request.query["limit"])
        assert len(kept) == begin, "what was read before is made small"
        end = min(begin + many, len(sizes))
        asked.append(many)
        items = [{"metadata": {"name": str(i)}, "spec": "x" * sizes[i]} for i in range(begin, end)]
        more = {"continue": str(end)} if end < len(sizes) else {}
        return web.json_response({"metadata": {"resourceVersion": "7", **more}, "items": items})

    def keep(given: dict[str, Any]) -> dict[str, Any] | None:
        kept.append(int(given["metadata"]["name"]))
        return given["metadata"] if kept[-1] % 2 else None

    async def talk(client: Client) -> None:
        items, version = await client.all_of("Pod", keep)
        assert ([int(one["name"]) for one in items], version) == ([*range(1, len(sizes), 2)], "7")

    talked(handle, talk, tmp_path)
    assert kept == [*range(len(sizes))]
    assert max(asked) > 2 * client_module.FIRST_PAGE
    assert len(asked) < 130, "most of them are pages of several"


def test_of_a_nodes_pods_those_that_have_not_ended_are_read(tmp_path: Path) -> None:
    """With 5,000 that have ended a binding took seconds: where another device plugin serves the node too, and where
    another replica has bound there."""
    phases = ["Succeeded", "Failed"] * 1_000 + ["Running", "Pending", "Unknown"]

    async def handle(request: web.Request) -> web.Response:
        begin, many = int(request.query.get("continue", "0")), int(request.query["limit"])
        here = [
            {"metadata": {"name": str(i)}, "spec": {"nodeName": "n1"}, "status": {"phase": phase}}
            for i, phase in enumerate(phases)
        ]
        for term in request.query["fieldSelector"].split(","):
            path, negated, value = re.fullmatch(r"([a-zA-Z.]+)(!?)=(.*)", term).groups()  # type: ignore[union-attr]
            first, second = path.split(".")
            here = [one for one in here if (one[first][second] == value) is not bool(negated)]
        more = {"continue": str(begin + many)} if begin + many < len(here) else {}
        return web.json_response({"metadata": {"resourceVersion": "7", **more}, "items": here[begin : begin + many]})

    async def talk(client: Client) -> None:
        pods, version = await client.pods_on("n1")
        assert ([pod["status"]["phase"] for pod in pods], version) == (["Running", "Pending", "Unknown"], 7)

    assert len(talked(handle, talk, tmp_path)) == 1


def test_a_large_object_by_itself_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PAGE_BYTES", 1_000)

    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": [{"spec": "x" * 100_000}]})

    async def talk(client: Client) -> None:
        assert len((await client.all_of("Pod"))[0]) == 1

    talked(handle, talk, tmp_path)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('{"a":1}', ["PUT"]),
        ('{"a":"<&"}', ["PUT"]),
        ('{"a":1.50}', ["PUT", "PATCH"]),
        ('{"a":1e3}', ["PUT", "PATCH"]),
        (r'{"a":"\u003c"}', ["PUT", "PATCH"]),
        (r'{"a":"\u00e9"}', ["PUT", "PATCH"]),
        (r'{"a":"\ud800"}', ["PUT", "PATCH"]),
        ('{"a":' + "7" * 30 + "}", ["PUT", "PATCH"]),
        ('{"a":' + "7" * 30 + r',"b":"\ud800"}', ["PATCH"]),
        ('{"a": 1, "b": [1, 2]}', ["PUT", "PATCH", "PUT"]),
        (r'{"a": "\u00e9"}', ["PUT", "PATCH", "PUT"]),
    ],
)
def test_a_claim_is_answered_however_somebody_wrote_what_he_configured(
    tmp_path: Path, text: str, calls: list[str]
) -> None:
    """A status is refused in which a byte of that is another than what is kept, and pods waited for ever: of whoever
    made claims by Python's client. The API server tells of it without blanks, and with some letters escaped."""
    kept = f'"parameters":{text}'.encode()
    told = re.sub(r"([,:]) ", r"\1", text).replace("<", r"\u003c").replace("&", r"\u0026")

    async def handle(request: web.Request) -> web.Response:
        body = await request.read()
        if request.method == "GET":
            whole = {"metadata": {"name": "c", "namespace": "ns", "resourceVersion": "5"}}
            text_of = json.dumps({**whole, "status": {"x": {"parameters": "HERE"}}}).replace('"HERE"', told)
            return web.Response(text=text_of, content_type="application/json")
        fits = told == text if request.method == "PATCH" else kept in body.replace(b'"parameters": ', b'"parameters":')
        return web.json_response({"message": "status.allocation: immutable"}, status=200 if fits else 422)

    async def talk(client: Client) -> None:
        given = await client.claim("ns", "c")
        await client.answer_claim({**given, "status": {**given["status"], "devices": [{"driver": "gemini.io"}]}})

    made = talked(handle, talk, tmp_path)
    assert [method for method, _, _ in made[1:]] == calls
    if calls[-1] == "PATCH":
        assert made[-1][2] == {"metadata": {"resourceVersion": "5"}, "status": {"devices": [{"driver": "gemini.io"}]}}


def test_an_event_that_somebody_took_away_is_said_anew(tmp_path: Path) -> None:
    """Of a pod that waits nothing more was said, for as long as the extender ran."""

    async def handle(request: web.Request) -> web.Response:
        return web.json_response({}, status=404 if request.method == "PATCH" else 201)

    async def talk(client: Client) -> None:
        pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}
        await client.event(pod, "p.1", "NoRoom", "no card", 2, "2026-01-01T00:00:00Z")

    calls = talked(handle, talk, tmp_path)
    assert [method for method, _, _ in calls] == ["PATCH", "POST"]
    assert (calls[1][2]["count"], calls[1][2]["message"]) == (2, "no card")
