"""The servers as programs: addresses, certificates, and what a person did wrong in one line."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gemini import serving
from gemini.door import MOST_STANDING
from gemini.plain import Plain
from tests.e2e.pki import Authority, Pair


def gemini(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gemini", *words], text=True, capture_output=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["extender", "--kubeconfig", "/nowhere"], "/nowhere"),
        (["extender", "--tls-cert", "x"], "--tls-cert and --tls-key go together"),
        (["extender", "--client-ca", "x"], "--client-ca needs --tls-cert"),
        (["extender", "--policies", "best"], "'best' is no policy"),
        (["webhook"], "HTTPS only; give --tls-cert and --tls-key"),
        (["webhook", "--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "give a PEM certificate"),
    ],
)
def test_wrong_use_is_one_line_and_no_traceback(words: list[str], said: str, tmp_path: Path) -> None:
    done = gemini(*words)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def ask(url: str, trusted: Path, pair: Pair | None, method: str = "GET") -> int | None:
    """The status; None: the connection was refused."""
    context = ssl.create_default_context(cafile=trusted)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    try:
        async with aiohttp.ClientSession() as session, session.request(method, url, ssl=context) as reply:
            return reply.status
    except aiohttp.ClientError:
        return None


def test_with_a_client_authority_strangers_see_health_and_metrics_alone(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    pair = ours.issue("server", hosts=("127.0.0.1",))
    parser = argparse.ArgumentParser()
    serving.configure(parser, 0)
    args = parser.parse_args(
        f"--tls-cert {pair.certificate} --tls-key {pair.key} --client-ca {ours.certificate}".split()
    )
    found: dict[tuple[str, str], int | None] = {}

    async def main() -> None:
        at = asyncio.get_running_loop().create_future()
        application = web.Application()
        for path in ("/state", "/healthz", "/readyz", "/metrics"):
            application.router.add_get(path, answer)
        application.router.add_post("/filter", answer)
        context = serving.tls_context(args)
        verbs: dict[str, Plain] = {"/filter": lambda body: (200, b"{}")}
        served = asyncio.create_task(serving.serve(application, args, context, at.set_result, verbs))
        url = await at
        for path in ("/filter", "/state", "/healthz", "/readyz", "/metrics"):
            for who, shown in (("nobody", None), ("ours", ours.issue("us")), ("theirs", others.issue("them"))):
                method = "POST" if path == "/filter" else "GET"
                found[who, path] = await ask(url + path, ours.certificate, shown, method)
        os.kill(os.getpid(), signal.SIGTERM)
        await served

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    serving.run(main)
    assert found.pop(("nobody", "/filter")) == found.pop(("nobody", "/state")) == 403
    assert {status for (who, _), status in found.items() if who == "theirs"} == {None}
    assert {status for (who, _), status in found.items() if who != "theirs"} == {200}


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_connections_that_say_nothing_take_no_room_from_who_asks(loop: str, tmp_path: Path) -> None:
    """Any pod reaches the extender and the webhook. Of many silent connections a bounded number stands; one that showed
    a certificate goes on, and strangers are let in."""
    authority = Authority(tmp_path / "ours")
    pair = authority.issue("server", hosts=("127.0.0.1",))
    parser = argparse.ArgumentParser()
    serving.configure(parser, 0)
    args = parser.parse_args(
        f"--tls-cert {pair.certificate} --tls-key {pair.key} --client-ca {authority.certificate}".split()
    )
    mine = authority.issue("us")
    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(mine.certificate, mine.key)

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def main() -> None:
        application = web.Application()
        application.router.add_get("/healthz", answer)
        verbs: dict[str, Plain] = {"/filter": lambda body: (200, b"{}")}
        async with (
            serving.listening(application, "127.0.0.1", 0, serving.tls_context(args), verbs, known=True) as url,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session,
        ):
            async with session.post(f"{url}/filter", ssl=context, data=b"{}") as reply:
                own = reply.connection and reply.connection.transport
                assert reply.status == 200
            port = int(url.rpartition(":")[2])
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_STANDING + 100)]
            ends = [asyncio.create_task(reader.read()) for reader, _ in silent]
            while sum(end.done() for end in ends) < 100:
                await asyncio.wait([end for end in ends if not end.done()], return_when=asyncio.FIRST_COMPLETED)
            assert await ask(f"{url}/healthz", authority.certificate, None) == 200
            async with session.post(f"{url}/filter", ssl=context, data=b"{}") as reply:
                assert reply.status == 200
                assert own is None or (reply.connection is None or reply.connection.transport is own)
            for end in ends:
                end.cancel()
            for _, writer in silent:
                writer.close()

    async def within() -> None:
        await asyncio.wait_for(main(), 60)

    if loop == "uvloop":
        serving.run(within)
    else:
        asyncio.run(within())
