"""An API server of a test's own on loopback, and a client that talks to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from gemini.kube.client import Client

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
        async with served(note, folder) as kubeconfig:
            client = await Client.connect(kubeconfig)
            try:
                await talk(client)
            finally:
                await client.close()

    asyncio.run(run())
    return calls


@asynccontextmanager
async def served(handle: Handler, folder: Path) -> AsyncIterator[str]:
    """`handle` answers on loopback; the kubeconfig (in `folder`) by which it is reached."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        kubeconfig = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://{host}:{port}"}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        yield str(folder / "kubeconfig")
    finally:
        await runner.cleanup()


def item(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}
