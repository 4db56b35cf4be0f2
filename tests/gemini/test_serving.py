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
