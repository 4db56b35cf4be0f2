"""HTTP servers of the cluster parts: an address, TLS whose files may be renewed, and a clean end on SIGTERM.

The I/O that extender and webhook have in common; what is answered is theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import uvloop
from aiohttp import web
from aiohttp.typedefs import Handler

from gemini.door import Door
from gemini.plain import Connection, Plain

SHUTDOWN_SECONDS = 5.0  # for what is under way when the end comes
BACKLOG = 4096  # the kernel's own bound, where it is not lower: who finds no place there tries again after a second
RENEW_SECONDS = 10.0  # how often certificate files are looked at
# Asked by the kubelet and by Prometheus, which have no certificate of our authority: open where --client-ca is given.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})


class CannotServe(ValueError):
    """An address or a certificate that cannot be used; one line. `status` is the exit status."""

    status = 1


class WrongUse(CannotServe):
    """Options that can be used nowhere."""

    status = 2


def port_number(text: str) -> int:
    """A port as an option gives it; 0 is any free one."""
    if not (text.isascii() and text.isdecimal()) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give a number from 1 to 65535, or 0 for any free one")
    return int(text)


def configure(parser: argparse.ArgumentParser, port: int) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=port_number, default=port, help="port to listen on (default: %(default)s)")
    parser.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="certificate chain, PEM; read again when it changes"
    )
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key, PEM")
    parser.add_argument(
        "--client-ca", type=Path, metavar="FILE",
        help="serve only clients with a certificate of this CA, but for " + ", ".join(sorted(OPEN_PATHS)),
    )  # fmt: skip


def tls_context(args: argparse.Namespace) -> ssl.SSLContext | None:
    """None where no certificate is given. Raises CannotServe."""
    if (args.tls_cert is None) != (args.tls_key is None):
        raise WrongUse("--tls-cert and --tls-key go together; give both")
    if args.tls_cert is None:
        if args.client_ca is not None:
            raise WrongUse("--client-ca needs --tls-cert and --tls-key; give them too")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(args.tls_cert, args.tls_key)
        if args.client_ca is not None:
            context.load_verify_locations(args.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL  # a bad one ends the handshake, for one that lacks see _known
    except (OSError, ssl.SSLError) as error:
        raise CannotServe(f"{args.tls_cert}: {error}; give a PEM certificate and its key") from None
    return context


@contextlib.asynccontextmanager
async def listening(
    application: web.Application, host: str, port: int, context: ssl.SSLContext | None = None,
    verbs: Mapping[str, Plain] | None = None, known: bool = False, shared: bool = False,
) -> AsyncIterator[str]:  # fmt: skip
    """Answers on an address for as long as the block runs; its URL. `verbs`: POSTs that are answered without aiohttp
    where they are plain (plain.py), `known` only to peers with a certificate. `shared`: others may listen there too.
    Raises CannotServe."""
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, auto_decompress=False)
    await runner.setup()
    assert runner.server is not None
    rest, given, opened = runner.server, verbs or {}, set[Connection]()
    make = (lambda: Connection(given, rest, opened, known)) if given else rest
    try:
        try:
            listener = _bound(host, port, shared)
        except OSError as error:
            raise CannotServe(f"{host}:{port}: {error.strerror}; give another --host or --port") from None
        at, number = listener.getsockname()[:2]
        door = Door(make, context)
        keeping = asyncio.get_running_loop().create_task(door.keep(listener))
        try:
            yield f"http{'s' if context else ''}://{at}:{number}"
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            door.close()
            listener.close()
            if opened:
                await asyncio.wait([asyncio.ensure_future(one.end()) for one in opened], timeout=SHUTDOWN_SECONDS)
    finally:
        await runner.cleanup()


def _bound(host: str, port: int, shared: bool) -> socket.socket:
    """A socket that listens there. Raises OSError."""
    family, kind, proto, _, at = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(at)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


async def serve(
    application: web.Application, args: argparse.Namespace, context: ssl.SSLContext | None,
    ready: Callable[[str], None], verbs: Mapping[str, Plain] | None = None,
) -> None:  # fmt: skip
    """Serves until SIGTERM or SIGINT; `ready` is called with the URL. `verbs`: see listening."""
    known = args.client_ca is not None
    if known:
        application.middlewares.append(_known)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with listening(application, args.host, args.port, context, verbs, known) as url:
        ready(url)
        renewing = loop.create_task(_renew(context, args)) if context else None
        await ended.wait()
        if renewing is not None:
            renewing.cancel()


@web.middleware
async def _known(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses who showed no certificate."""
    if request.path not in OPEN_PATHS and not (request.transport and request.transport.get_extra_info("peercert")):
        return web.Response(status=403, text=f"{request.path} needs a client certificate of --client-ca's authority\n")
    return await handler(request)


async def _renew(context: ssl.SSLContext, args: argparse.Namespace) -> None:
    """New connections get the new certificate once its files have changed (cert-manager, a mounted secret)."""
    known = _stamps(args)
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        now = _stamps(args)
        if now != known:
            with contextlib.suppress(OSError, ssl.SSLError):  # half written: the next look finds it whole
                context.load_cert_chain(args.tls_cert, args.tls_key)
                known = now


def _stamps(args: argparse.Namespace) -> list[tuple[int, int]]:
    stamps = []
    for path in (args.tls_cert, args.tls_key):
        with contextlib.suppress(OSError):
            at = os.stat(path)
            stamps.append((at.st_mtime_ns, at.st_ino))
    return stamps


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Runs `main` on a uvloop of its own."""

    async def body() -> None:
        await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(body())
