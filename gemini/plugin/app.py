"""The plugin as a program: watches on the node's Device and pods, tidying, HTTP for whoever looks.

    kubelet -> GetDevicePluginOptions, ListAndWatch, GetPreferredAllocation, Allocate, PreStartContainer -> shell.py
    kubelet -> NodePrepareResources, NodeUnprepareResources -> draserver.py, dra.py
    GET /healthz /readyz /metrics

Ready: registered with the kubelet that runs now, or waiting for another plugin's end (--wait). A kubelet that starts
again is registered with again, on a fresh socket. Slots are listed once the node's Device is there; a card out of
service is listed as unhealthy and comes back.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import hashlib
import logging
import os
import secrets
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

import libhook
from gemini import serving
from gemini.kube import names
from gemini.kube.client import Client
from gemini.kube.follow import follow, follow_once_there
from gemini.kube.kubelet_api import (
    HEALTHY,
    PLUGIN_FOLDER,
    POD_RESOURCES_SOCKET,
    REGISTRY_FOLDER,
    UNHEALTHY,
)
from gemini.kube.resize import slim_resize
from gemini.kube.spelling import GPUSHARE_UNITS
from gemini.plugin import host as files
from gemini.plugin import placedview, reply
from gemini.plugin.daemon import Daemon, DaemonFault
from gemini.plugin.dra import Claims
from gemini.plugin.draserver import DraServer
from gemini.plugin.kubelet import Kubelet
from gemini.plugin.placed import PlacedService
from gemini.plugin.placedview import PlacedView
from gemini.plugin.service import Service
from gemini.plugin.shell import Plugin, Shell
from gemini.plugin.slots import CORE, TooManySlots, gpushare
from gemini.plugin.turn import Turn
from gemini.plugin.view import DEVICE, POD, RESIZE, Refusal, View, slim
from scheduler_backend.config import folder

PORT = 8792
LIB = Path(libhook.__file__).resolve().parent / "lib"
TIDY_SECONDS = 5.0
STATE_DIR = Path("/run/gemini")
INSTALL_DIR = Path("/var/lib/gemini")
DRIVER_FOLDER = Path(REGISTRY_FOLDER).with_name("plugins") / names.DRIVER
log = logging.getLogger("gemini.plugin")


class Api:
    """What a view asks of the API server, with our name on events."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.pods_on, self.annotate, self.end_pod = client.pods_on, client.annotate, client.end_pod
        self.resize, self.answer_resize = client.resize, client.answer_resize

    async def say(self, pod: Mapping[str, Any], reason: str, message: str) -> None:
        metadata = pod["metadata"]
        told = hashlib.sha256(f"{reason}{message}".encode()).hexdigest()[:12]
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = f"{metadata['name']}.{told}"
        await self._client.event(dict(pod), name, reason, message, 1, stamp, source=names.DEVICE_PLUGIN)


class Metrics:
    """What the service counted, when somebody asks."""

    def __init__(
        self, service: Service | PlacedService, shell: Shell, turn: Turn | None = None, server: DraServer | None = None
    ) -> None:
        self.service, self.shell, self.turn, self.server = service, shell, turn, server
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> list[Any]:
        done = CounterMetricFamily(
            "gemini_plugin_calls", "What the kubelet asked, and how it went", labels=["what", "result"]
        )
        counts = Counter(self.service.counts)
        counts.update(self.server.claims.counts if self.server else ())  # a sum would leave out what is 0 yet
        for (what, result), count in sorted(counts.items()):
            done.add_metric([what, result], count)
        slots = GaugeMetricFamily("gemini_plugin_slots", "Slots by health of their card", labels=["health"])
        for health in (True, False):
            cards = [card for card in self.service.view.cards.values() if card.health is health]
            slots.add_metric([HEALTHY if health else UNHEALTHY], sum(map(self.service.view.kind.count, cards)))
        registered = GaugeMetricFamily("gemini_plugin_registered", "1: the kubelet that runs knows this plugin")
        registered.add_metric([], int(self.shell.registered.is_set()))
        driver = GaugeMetricFamily(
            "gemini_plugin_claims_registered", "1: the kubelet brings ResourceClaims to this plugin"
        )
        driver.add_metric([], int(self.server is not None and self.server.registered.is_set()))
        return [done, slots, registered, driver]

    def application(self) -> web.Application:
        async def metrics(_: web.Request) -> web.Response:
            return web.Response(body=generate_latest(self.registry), content_type="text/plain", charset="utf-8")

        async def healthz(_: web.Request) -> web.Response:
            return web.Response(text="ok\n")

        async def readyz(_: web.Request) -> web.Response:
            ready = self.shell.registered.is_set() or (self.turn is not None and self.turn.waiting)
            return web.Response(
                text="ok\n" if ready else "not registered with the kubelet\n", status=200 if ready else 503
            )

        application = web.Application()
        for path, answer in (("/metrics", metrics), ("/healthz", healthz), ("/readyz", readyz)):
            application.router.add_get(path, answer)
        return application


# ---- the program


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--node", metavar="NAME", default=os.environ.get("NODE_NAME"), help="this node (default: $NODE_NAME)")
    add("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, else the pod's service account")
    add(
        "--mode",
        choices=("core", "gpushare", "placed"),
        default="core",
        help="core serves gemini.io/gpu-core; gpushare serves aliyun.com/gpu-mem instead, and no card-based pods; "
        "placed serves gemini.io/placed, by which pods that another scheduler placed are held to their time",
    )
    add(
        "--unit", choices=sorted(GPUSHARE_UNITS), default="MiB", help="of one aliyun.com/gpu-mem (default: %(default)s)"
    )
    add("--state-dir", type=folder, default=STATE_DIR, metavar="DIR", help="the daemon's (default: %(default)s)")
    add(
        "--install-dir",
        type=folder,
        default=INSTALL_DIR,
        metavar="DIR",
        help="where the library is put for containers to mount; not on a file system that forbids execution, as "
        "/run often is (default: %(default)s)",
    )
    add(
        "--ld-so-preload",
        action="store_true",
        help="mount /etc/ld.so.preload too, so that kubectl exec and env -i are inside",
    )
    add("--cdi", action="store_true", help="give the library and the socket by CDI devices instead of mounts")
    add(
        "--cdi-dir",
        type=folder,
        default=Path("/var/run/cdi"),
        metavar="DIR",
        help="where the runtime looks for CDI files (default: %(default)s)",
    )
    add("--gpu-cdi", metavar="KIND", help="give the cards as CDI devices of this kind, such as nvidia.com/gpu")
    add(
        "--device-nodes", action="store_true", help="pass /dev/nvidia* of the cards, for runtimes without NVIDIA's hook"
    )
    add(
        "--sim",
        metavar="SPEC",
        nargs="?",
        const="",
        help="the node's cards are simulated ones; containers get that driver",
    )
    add(
        "--device-types",
        default=",".join(sorted(names.DEVICE_TYPES)),
        metavar="NAMES",
        help="types of devices besides gpu, as the extender is told (default: %(default)s)",
    )
    add(
        "--wait",
        action="store_true",
        help="wait until a plugin that runs here with --wait ends, and take over; ready meanwhile, its port shared",
    )
    add("--ready-file", type=Path, metavar="FILE", help="make this file once the plugin is registered, or waits to be")
    add(
        "--kubelet-dir",
        type=folder,
        default=Path(PLUGIN_FOLDER),
        metavar="DIR",
        help="the kubelet's folder of device plugins (default: %(default)s)",
    )
    add(
        "--pod-resources",
        type=Path,
        default=Path(POD_RESOURCES_SOCKET),
        metavar="SOCKET",
        help="the kubelet's PodResources (default: %(default)s)",
    )
    add("--no-claims", action="store_true", help="leave ResourceClaims of the class gemini.io to nobody")
    add(
        "--registry-dir",
        type=folder,
        default=Path(REGISTRY_FOLDER),
        metavar="DIR",
        help="where the kubelet looks for plugins that serve ResourceClaims (default: %(default)s)",
    )
    add(
        "--driver-dir",
        type=folder,
        default=DRIVER_FOLDER,
        metavar="DIR",
        help="of the socket for these, by a path that is the kubelet's too (default: %(default)s)",
    )
    add("--host", default="127.0.0.1", help="address of /metrics and /readyz (default: %(default)s)")
    add("--port", type=serving.port_number, default=PORT, help="their port (default: %(default)s)")  # fmt: skip


def _options(args: argparse.Namespace) -> reply.Options:
    """Puts into place what containers mount. Raises serving.CannotServe."""
    sim = LIB / "sim" if args.sim is not None else None
    try:
        library, preload, simulated = files.install(
            LIB / "libgemini_hook.so", args.install_dir, args.ld_so_preload, sim
        )
    except OSError as error:
        name = error.filename or args.install_dir
        raise serving.CannotServe(f"{name}: {error.strerror}; give another --install-dir") from None
    paths = reply.Paths(library, str(args.state_dir / "tenants"), preload, simulated)
    return reply.Options(paths, args.cdi, args.gpu_cdi, args.sim)


async def run(args: argparse.Namespace, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM. Raises serving.CannotServe."""
    if not args.node:
        raise serving.WrongUse("no node is named; give --node NAME, or NODE_NAME from the pod's spec.nodeName")
    if not args.kubelet_dir.is_dir():
        raise serving.CannotServe(
            f"{args.kubelet_dir}: there is no such folder; mount the kubelet's, or give --kubelet-dir"
        )
    options = _options(args)
    kubeconfig = args.kubeconfig or os.environ.get("KUBECONFIG")
    try:
        client = await Client.connect(kubeconfig)
    except Exception as error:  # each way of logging in fails in its own way
        where = kubeconfig or "the service account"
        raise serving.CannotServe(f"{where}: {' '.join(str(error).split())}; give --kubeconfig FILE") from None
    client.keeps = {POD: placedview.slim if args.mode == "placed" else slim}
    kubelet, daemon = Kubelet(args.kubelet_dir, args.pod_resources), Daemon(args.state_dir)
    service = _service(args, options, client, kubelet, daemon)
    shell = Shell(Plugin(service), kubelet)
    server = None
    if isinstance(service, Service) and _serves_claims(args):
        view = service.view
        claims = Claims(
            args.node, options, client, daemon, files.Host(args.cdi_dir), args.install_dir / "claims",
            lambda: view.cards, service.tenancy.tidy, args.device_nodes,
        )  # fmt: skip
        server = DraServer(claims, args.registry_dir, args.driver_dir)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    turn = Turn(args.state_dir / "device-plugin.lock") if args.wait else None
    metrics = Metrics(service, shell, turn, server)
    try:
        async with (
            serving.listening(metrics.application(), args.host, args.port, shared=args.wait),
            asyncio.TaskGroup() as group,
        ):
            work = group.create_task(_work(client, service, shell, args, ready, turn, server))
            await ended.wait()
            work.cancel()
    except* (TooManySlots, serving.CannotServe) as several:
        raise serving.CannotServe(str(_first(several))) from None
    finally:
        if server is not None:
            await server.stop()
        await shell.stop()
        if turn is not None:
            turn.give()
        await kubelet.close()
        await client.close()


def _service(
    args: argparse.Namespace, options: reply.Options, client: Client, kubelet: Kubelet, daemon: Daemon
) -> Service | PlacedService:
    host = files.Host(args.cdi_dir if args.cdi else None)
    if args.mode == "placed":
        view = PlacedView(args.node, Api(client), kubelet)
        return PlacedService(view, options, daemon, host, lambda: secrets.token_hex(4))
    kind = gpushare(args.unit) if args.mode == "gpushare" else CORE
    types = frozenset(name.strip() for name in args.device_types.split(",") if name.strip())
    known = View(args.node, kind, Api(client), kubelet, types)
    return Service(known, options, daemon, host, lambda: secrets.token_hex(4), args.device_nodes)


def _first(several: BaseExceptionGroup[Any]) -> BaseException:
    one = several.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else one


def _serves_claims(args: argparse.Namespace) -> bool:
    if args.no_claims or args.mode != "core":
        return False
    if not args.registry_dir.is_dir():
        log.warning("claims folder=%s: there is none, so ResourceClaims are not served here", args.registry_dir)
        return False
    return True


async def _work(
    client: Client,
    service: Service | PlacedService,
    shell: Shell,
    args: argparse.Namespace,
    ready: Callable[[str], None],
    turn: Turn | None,
    server: DraServer | None,
) -> None:
    """Everything that goes on until the end; what fails for good ends all of it."""

    def tell() -> None:
        try:
            if args.ready_file is not None:
                args.ready_file.touch()
        except OSError as error:
            raise serving.CannotServe(f"--ready-file {args.ready_file}: {error.strerror}; name another") from None

    if turn is not None:
        try:
            await turn.take(tell)
        except OSError as error:
            raise serving.CannotServe(f"{turn.path}: {error.strerror}; give --state-dir as to the daemon") from None
    async with asyncio.TaskGroup() as group:
        await _follow(group, client, service, args.node)
        group.create_task(shell.run())
        if isinstance(service, PlacedService):
            group.create_task(_tidy(service.tidy))
        else:
            group.create_task(_tidy(service.tenancy.tidy))
            group.create_task(service.resizing.run())
        if server is not None:
            try:
                await server.start()
            except OSError as error:
                raise serving.CannotServe(
                    f"{error}; give another --registry-dir or --driver-dir, or --no-claims"
                ) from None
            group.create_task(_tidy(server.claims.tidy))
        await shell.registered.wait()
        tell()
        ready(service.view.kind.resource)


async def _follow(group: asyncio.TaskGroup, client: Client, service: Service | PlacedService, node: str) -> None:
    """Until what is watched has been listed."""
    view, pods, here = service.view, asyncio.Event(), {"fieldSelector": f"spec.nodeName={node}"}
    if isinstance(view, PlacedView):
        group.create_task(follow(client, POD, view, pods, log, placedview.slim, **here))
        await pods.wait()
        return
    devices, resizes = asyncio.Event(), asyncio.Event()
    group.create_task(follow(client, DEVICE, view, devices, log, fieldSelector=f"metadata.name={node}"))
    group.create_task(follow(client, POD, view, pods, log, slim, **here))
    group.create_task(follow_once_there(client, RESIZE, view, resizes, log, slim_resize))
    for event in (devices, pods, resizes):
        await event.wait()
    if not view.cards:
        log.warning("device node=%s: no Device object with cards yet; the reporter writes it", node)


async def _tidy(tidy: Callable[[], Awaitable[None]]) -> None:
    told = ""
    while True:
        try:
            await tidy()
            told = ""
        except (DaemonFault, Refusal) as error:
            if str(error) != told:
                log.warning("tidy error=%s", error)
            told = str(error)
        except Exception:
            log.exception("tidy failed")
        await asyncio.sleep(TIDY_SECONDS)
