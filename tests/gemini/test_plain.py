"""Plain requests: what is one, and that everything else is served as if this were not there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from aiohttp import web

from gemini import plain, serving
from gemini.plain import Answer, Plain, read_head

LIMIT = 60.0  # seconds; nothing here takes that long
GO = (
    b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1:1\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 5\r\n"
    b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)  # as kube-scheduler writes it


def test_what_kube_scheduler_sends_is_plain() -> None:
    assert read_head(GO.removesuffix(b"\r\n\r\n")) == ("/echo", 5)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /echo HTTP/1.1\r\nContent-Length: 0",
        b"POST /echo HTTP/1.0\r\nContent-Length: 0",
        b"POST  /echo HTTP/1.1\r\nContent-Length: 0",
        b"POST /echo HTTP/1.1 x\r\nContent-Length: 0",
        b"POST /\xc3\xa4 HTTP/1.1\r\nContent-Length: 0",
        b"POST /echo HTTP/1.1\r\nHost: h",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1",
        b"POST /echo HTTP/1.1\r\nContent-Length: +1",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1, 1",
        b"POST /echo HTTP/1.1\r\nContent-Length: " + b"9" * 5000,
        b"POST /echo HTTP/1.1\r\nContent-Length : 1",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nConnection: close",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Encoding: gzip",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nHost: h\nTransfer-Encoding: chunked",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nHost: h\r Transfer-Encoding: chunked",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nHost: h\0",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\n folded",
        b"",
    ],
)
def test_whatever_may_mean_more_is_not(head: bytes) -> None:
    assert read_head(head) is None


class Server:
    """/echo answers at once, /later when `gate` opens; aiohttp's own routes say so."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.asked: list[bytes] = []
        self.begun = asyncio.Event()
        self.url = ""

    def verbs(self) -> dict[str, Plain]:
        def echo(body: bytes) -> Answer:
            self.asked.append(body)
            return (400 if body == b"wrong" else 200), b"plain " + body

        async def later(body: bytes) -> Answer:
            self.asked.append(body)
            self.begun.set()
            await self.gate.wait()
            return 200, b"later " + body

        return {"/echo": echo, "/later": later}

    def application(self) -> web.Application:
        async def whole(request: web.Request) -> web.Response:
            return web.Response(body=b"aiohttp " + await request.read())

        application = web.Application()
        application.router.add_route("*", "/echo", whole)
        return application


def served(
    talk: Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> None:
    async def run() -> None:
        server = Server()
        async with (
            asyncio.timeout(LIMIT),
            serving.listening(server.application(), "127.0.0.1", 0, verbs=server.verbs()) as server.url,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
            try:
                await talk(server, reader, writer)
            finally:
                writer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return int(head.split(b" ")[1]), await reader.readexactly(length)


def post(path: str, body: bytes) -> bytes:
    return GO.replace(b"/echo", path.encode()).replace(b"Length: 5", b"Length: %d" % len(body)) + body


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_requests_one_after_another_are_answered_however_they_come_in(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in post("/echo", b"hello"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert await answer(reader) == (200, b"plain hello")
        writer.write(post("/echo", b"wrong"))
        assert await answer(reader) == (400, b"plain wrong")
        writer.write(post("/echo", b"x" * (1 << 20)))
        assert await answer(reader) == (200, b"plain " + b"x" * (1 << 20))

    served(talk, loop)


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize(
    "other",
    [
        b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nX-More: y\r\nContent-Length: 2\r\n\r\nhi",
    ],
)
def test_connection_on_which_anything_else_comes_is_aiohttps(
    other: bytes, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(post("/echo", b"first"))
        assert await answer(reader) == (200, b"plain first")
        for part in (other[:10], other[10:]):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        body = b"hi" if b"hi" in other else b""
        assert await answer(reader) == (200, b"aiohttp " + body)
        writer.write(post("/echo", b"again"))
        assert await answer(reader) == (200, b"aiohttp again")

    served(talk, loop)


def test_what_is_no_request_and_an_unknown_path_are_answered_by_aiohttp() -> None:
    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(post("/nowhere", b"hello"))
        assert (await answer(reader))[0] == 404
        writer.write(b"x" * (plain.LONGEST_HEAD + 1) + b"\r\n\r\n")
        assert (await answer(reader))[0] == 400

    served(talk)


def test_answers_come_in_the_order_of_the_requests() -> None:
    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(post("/later", b"one") + post("/echo", b"two") + post("/echo", b"three"))
        await server.begun.wait()
        writer.write(post("/echo", b"four"))
        assert server.asked == [b"one"], "one at a time"
        server.gate.set()
        assert [await answer(reader) for _ in range(4)] == [
            (200, b"later one"), (200, b"plain two"), (200, b"plain three"), (200, b"plain four"),
        ]  # fmt: skip

    served(talk)


def test_peer_that_reads_no_answers_is_not_served_on_and_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "LONGEST_BODY", 1 << 16)
    body, many = b"x" * (1 << 15), 2000  # 64 MB: more than the sockets' buffers hold

    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send() -> None:
            for _ in range(many):
                writer.write(post("/echo", body))
                await writer.drain()

        sending = asyncio.create_task(send())
        seen = -1
        while seen != len(server.asked) or not seen:  # until nothing moves any more
            seen = len(server.asked)
            await asyncio.sleep(0.2)
        assert seen < many
        for _ in range(many):
            assert await answer(reader) == (200, b"plain " + body)
        await sending

    served(talk)


def test_answer_under_way_is_given_before_the_end() -> None:
    async def run() -> None:
        server = Server()
        async with asyncio.timeout(LIMIT):
            async with serving.listening(server.application(), "127.0.0.1", 0, verbs=server.verbs()) as url:
                reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
                writer.write(post("/later", b"one"))
                await server.begun.wait()
                asyncio.get_running_loop().call_soon(server.gate.set)
            assert await answer(reader) == (200, b"later one")
            assert await reader.read() == b"", "and the connection is closed"
            writer.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_caller_that_goes_harms_nobody() -> None:
    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(post("/later", b"one"))
        await server.begun.wait()
        writer.transport.abort()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        server.gate.set()
        writer.write(post("/echo", b"hello"))
        assert await answer(reader) == (200, b"plain hello")
        writer.close()

    served(talk)
