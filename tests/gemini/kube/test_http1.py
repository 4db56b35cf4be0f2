"""Small calls over kept connections: what a reply is, and that none is ever taken for that of another request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from gemini.kube.http1 import BadReply, Connections, Reply, read_reply
from tests.e2e.pki import Authority

LIMIT = 60.0  # seconds; nothing here takes that long
REQUEST = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"

Serve = Callable[[int, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        (OK + b"{}", Reply(200, b"{}", True)),
        (b"HTTP/1.1 404 Not Found\r\ncontent-LENGTH:  3 \r\nX: y\r\n\r\nabc", Reply(404, b"abc", True)),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", Reply(200, b"", False)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", Reply(200, b"", False)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Reply(204, b"", True)),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"{}", Reply(200, b"{}", True)),
        (
            b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
            Reply(201, b"abc0123456789", True),
        ),
    ],
)
def test_reply_is_read_when_its_last_byte_has_come_and_not_before(text: bytes, reply: Reply) -> None:
    assert read_reply(text) == reply
    for length in range(len(text)):
        assert read_reply(text[:length]) is None


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 2xx OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",  # ends with the connection: nobody could tell whether all of it has come
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n",
        OK + b"{}HTTP/1.1 200 OK",
    ],
)
def test_what_is_no_reply_or_not_one_alone_is_refused(text: bytes) -> None:
    with pytest.raises(BadReply):
        read_reply(text)


async def request_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(len(REQUEST))


def talked(
    serve: Serve,
    talk: Callable[[Connections], Awaitable[None]],
    tls: Path | None = None,
    most: int = 4,
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> int:
    """Runs `talk` against a server that hands each connection to `serve` with its number; how many came."""
    opened = 0

    async def run() -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal opened
            opened += 1
            try:
                await serve(opened, reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        authority = Authority(tls) if tls is not None else None
        serving, asking = None, None
        if authority is not None:
            serving = authority.issue("server", hosts=("127.0.0.1",)).server_context()
            asking = authority.client_context("client")
        server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=serving)
        port = server.sockets[0].getsockname()[1]
        connections = Connections("127.0.0.1", port, asking, None, most)
        try:
            async with asyncio.timeout(LIMIT):
                await talk(connections)
        finally:
            connections.close()
            server.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
    return opened


async def echo(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        assert await request_of(reader) == REQUEST
        writer.write(OK + b"%02d" % number)


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_calls_one_after_another_share_a_connection(
    secure: bool, loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def talk(connections: Connections) -> None:
        for _ in range(5):
            assert await connections.exchange(REQUEST, LIMIT) == Reply(200, b"01", True)

    assert talked(echo, talk, tmp_path if secure else None, loop=loop) == 1


def test_calls_at_the_same_time_have_a_connection_each_up_to_the_most() -> None:
    async def talk(connections: Connections) -> None:
        for _ in range(2):
            replies = await asyncio.gather(*(connections.exchange(REQUEST, LIMIT) for _ in range(12)))
            assert {reply.status for reply in replies} == {200}

    assert 1 < talked(echo, talk, most=4) <= 4


@pytest.mark.parametrize("left", [b"", b"garbage\r\n\r\n", OK + b"{} and more", b"HTTP/1.1 200 OK\r\nContent-Len"])
def test_connection_that_fails_is_used_no_more_and_nothing_is_sent_twice(left: bytes) -> None:
    asked: list[int] = []

    async def serve(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        asked.append(number)
        if number == 1:
            writer.write(left)  # and the end
        else:
            writer.write(OK + b"{}")
            await reader.read()

    async def talk(connections: Connections) -> None:
        with pytest.raises(ConnectionError):
            await connections.exchange(REQUEST, LIMIT)
        assert asked == [1]
        assert (await connections.exchange(REQUEST, LIMIT)).body == b"{}"

    talked(serve, talk)
    assert asked == [1, 2]


def test_reply_to_a_request_that_was_given_up_is_nobodys() -> None:
    asked, late = asyncio.Event(), asyncio.Event()

    async def serve(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        asked.set()
        if number == 1:
            await late.wait()
        writer.write(OK + b"%02d" % number)
        await reader.read()

    async def talk(connections: Connections) -> None:
        given_up = asyncio.create_task(connections.exchange(REQUEST, LIMIT))
        await asked.wait()
        given_up.cancel()
        await asyncio.wait([given_up])
        late.set()
        assert (await connections.exchange(REQUEST, LIMIT)).body == b"02"

    assert talked(serve, talk) == 2


def test_reply_that_does_not_come_is_a_time_out() -> None:
    async def serve(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def talk(connections: Connections) -> None:
        with pytest.raises(TimeoutError):
            await connections.exchange(REQUEST, 0.05)

    talked(serve, talk)


def test_connection_that_the_server_closed_or_that_is_old_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = asyncio.Event()

    async def serve(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(OK + b"%02d" % number)
        if number == 1:
            writer.close()
            closed.set()
        else:
            await reader.read()

    async def talk(connections: Connections) -> None:
        await connections.exchange(REQUEST, LIMIT)
        await closed.wait()
        while any(one.usable for one in connections._idle):
            await asyncio.sleep(0.001)
        assert (await connections.exchange(REQUEST, LIMIT)).body == b"02"
        monkeypatch.setattr("gemini.kube.http1.IDLE_SECONDS", 0.0)
        assert (await connections.exchange(REQUEST, LIMIT)).body == b"03"

    assert talked(serve, talk) == 3


def test_nobody_there_is_an_error_at_once() -> None:
    async def run() -> None:
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionError):
            await Connections("127.0.0.1", port, None, None, 1).exchange(REQUEST, LIMIT)

    asyncio.run(run())
