"""The extender as a program: HTTP around a Service, watches that keep its Cluster, clocks, metrics.

    POST /filter /prioritize /bind /preempt   kube-scheduler's extender/v1
    POST /dry-run                             the request of filter, without effect, with a reason for every card
    GET  /state /healthz /readyz /metrics

Before the first lists are in, the verbs answer with an error: a book that is not whole would promise cards twice.
A body that cannot be read is answered with 400, whatever goes wrong besides with the verb's own error and a log line.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gemini import heap, serving
from gemini.extender import codec
from gemini.extender.announce import Announcer
from gemini.extender.kept import kept_budget
from gemini.extender.kinds import BUDGET, CLAIM, DEVICE, KINDS, NODE, POD, RESIZE
from gemini.extender.pace import Paced
from gemini.extender.podview import slimmed
from gemini.extender.promises import Verdict
from gemini.extender.service import SHORTLIST, Service
from gemini.extender.shown import by_reason, dry_run_json, figures, state_parts, summary
from gemini.extender.state import Cluster
from gemini.kube import names
from gemini.kube.answer import ApiFault
from gemini.kube.claim import slim_claim
from gemini.kube.client import Client, Keep
from gemini.kube.follow import follow, follow_once_there
from gemini.kube.resize import slim_resize
from gemini.placement.allocate import UnknownPolicy
from gemini.placement.reasons import Reason
from gemini.plain import Answer, Plain

PORT = 8790
LARGEST_BODY = 256 << 20  # 5,000 whole Node objects of 50 KB
SLICE_SECONDS = 0.005  # of GET /state, between which others are answered
METRICS_PART = 0.05  # of the loop's time, at most, for whoever reads the metrics, however often
NEEDED = (NODE, DEVICE, POD, CLAIM, RESIZE)  # without these there is no book
WATCHED = (NODE, DEVICE, POD, BUDGET)  # as they are; claims need an answer besides
LISTED: dict[str, Keep] = {  # what is kept of a list's objects
    POD: slimmed, BUDGET: kept_budget, CLAIM: slim_claim, RESIZE: slim_resize,
}  # fmt: skip
SWEEP_SECONDS = 1.0
LONGEST_WAIT = 10.0
VERBS = ("filter", "prioritize", "bind", "preempt", "dry-run")
RESULTS = ("ok", "400", "500", "503")
BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
log = logging.getLogger("gemini.extender")

Verb = Callable[[bytes], bytes | Awaitable[bytes]]


class App:
    """The routes of one replica. `synced` says which kinds have been listed."""

    def __init__(self, service: Service, announcer: Announcer | None, synced: dict[str, asyncio.Event]) -> None:
        self.service, self.announcer, self.synced = service, announcer, synced
        self.registry = CollectorRegistry()
        self.calls = Counter(
            "gemini_extender_calls", "Calls of the scheduler", ["verb", "result"], registry=self.registry
        )
        for verb in VERBS:  # a counter that begins with its first error has not grown, for Prometheus
            for result in RESULTS:
                self.calls.labels(verb, result)
        self.seconds = Histogram(
            "gemini_extender_seconds", "Time a call took, reading and writing JSON included", ["verb"],
            buckets=BUCKETS, registry=self.registry,
        )  # fmt: skip
        self.refused = Counter(
            "gemini_extender_refused", "Pods that filter found no node for, by the first reason", ["reason"],
            registry=self.registry,
        )  # fmt: skip
        self.victims = Counter("gemini_extender_victims", "Pods proposed for eviction", registry=self.registry)
        self.cards = Gauge("gemini_extender_cards", "Cards by what they are", ["state"], registry=self.registry)
        self.core = Gauge("gemini_extender_core_ratio", "Cards' time in whole cards", ["of"], registry=self.registry)
        self.waiting = Gauge(
            "gemini_extender_waiting_pods",
            "Sharepods that wait, by the first reason",
            ["reason"],
            registry=self.registry,
        )
        self.pods = Gauge("gemini_extender_pods", "Sharepods by where they are", ["state"], registry=self.registry)
        self._metrics, self._metrics_until = b"", 0.0

    def verbs(self) -> dict[str, Plain]:
        """The verbs by path: as aiohttp's routes reach them, and plain requests without it."""
        fails: dict[str, Callable[[str], bytes]] = {"filter": codec.write_filter_error, "bind": codec.write_bind}
        of: dict[str, Verb] = {
            "filter": self.filter, "prioritize": self.prioritize, "bind": self.bind, "preempt": self.preempt,
            "dry-run": self.dry_run,
        }  # fmt: skip
        return {f"/{name}": self._answering(name, of[name], fails.get(name, _plain_error)) for name in VERBS}

    def application(self) -> web.Application:
        application = web.Application(client_max_size=LARGEST_BODY)
        for path, verb in self.verbs().items():
            application.router.add_post(path, _handler(verb))
        application.router.add_get("/state", self.state)
        application.router.add_get("/healthz", self.healthz)
        application.router.add_get("/readyz", self.readyz)
        application.router.add_get("/metrics", self.metrics)
        return application

    def _answering(self, name: str, verb: Verb, fail: Callable[[str], bytes]) -> Plain:
        """The verb with its errors told and its time taken."""
        seconds, ok = self.seconds.labels(name), self.calls.labels(name, "ok")

        def told(started: float, result: bytes, status: int = 200) -> Answer:
            seconds.observe(time.perf_counter() - started)
            (ok if status == 200 else self.calls.labels(name, str(status))).inc()
            return status, result

        def failed(started: float, error: Exception) -> Answer:
            if isinstance(error, codec.BadRequest):
                return told(started, fail(str(error)), 400)
            log.error("verb=%s failed", name, exc_info=error)
            return told(started, fail("the extender failed on this request; see its log"), 500)

        async def later(started: float, awaited: Awaitable[bytes]) -> Answer:
            try:
                return told(started, await awaited)
            except Exception as error:
                return failed(started, error)

        def answer(body: bytes) -> Answer | Awaitable[Answer]:
            started = time.perf_counter()
            try:
                if missing := self.missing():
                    text = f"not ready: {', '.join(missing)} not listed yet"
                    return told(started, fail(text), 503 if name == "dry-run" else 200)
                result = verb(body)
            except Exception as error:
                return failed(started, error)
            return told(started, result) if isinstance(result, bytes) else later(started, result)

        return answer

    # ---- verbs

    def filter(self, body: bytes) -> bytes | Awaitable[bytes]:
        request = codec.read_filter(body)
        verdict = self.service.filter_at_once(request)
        return self._filter_later(request) if verdict is None else self._filtered(request, verdict)

    async def _filter_later(self, request: codec.FilterRequest) -> bytes:
        return self._filtered(request, await self.service.filter(request))

    def _filtered(self, request: codec.FilterRequest, verdict: Verdict) -> bytes:
        if verdict.error:
            return codec.write_filter_error(verdict.error)
        if not verdict.passed:
            self._waits(request, verdict)
        return codec.write_filter(request, verdict.passed, verdict.failed, verdict.rest)

    def _waits(self, request: codec.FilterRequest, verdict: Verdict) -> None:
        reason = next(iter(verdict.failed.values()), (Reason.NO_NODES.text, ""))[0]
        self.refused.labels(reason).inc()
        if self.announcer is not None:
            self.announcer.waits(self.service.view(request.pod), reason, summary(verdict))

    def prioritize(self, body: bytes) -> bytes:
        request = codec.read_filter(body)
        return codec.write_scores(request, self.service.prioritize(request))

    async def bind(self, body: bytes) -> bytes:
        request = codec.read_bind(body)
        error = await self.service.bind(request)
        if error:
            log.info("bind pod=%s/%s node=%s error=%s", request.namespace, request.name, request.node, error)
        return codec.write_bind(error)

    def preempt(self, body: bytes) -> bytes:
        victims = self.service.preempt(codec.read_preempt(body))
        self.victims.inc(sum(len(v.uids) for v in victims.values()))
        return codec.write_preempt(victims)

    async def dry_run(self, body: bytes) -> bytes:
        """Without NodeNames or Nodes: every node that is known."""
        known = tuple(sorted(self.service.cluster.nodes))
        request = codec.read_filter(body, known)
        return json.dumps(dry_run_json(await self.service.dry_run(request))).encode()

    # ---- how it is

    def missing(self) -> list[str]:
        return [kind for kind in NEEDED if not self.synced[kind].is_set()]

    async def state(self, request: web.Request) -> web.StreamResponse:
        """In slices, for a second of silence on 5,000 nodes would be one of the scheduler's."""
        response = web.StreamResponse(headers={"Content-Type": "application/json; charset=utf-8"})
        await response.prepare(request)
        slice_, began = bytearray(), time.perf_counter()
        for part in state_parts(self.service.cluster, self.service.waiting, not self.missing()):
            slice_ += part
            if time.perf_counter() - began > SLICE_SECONDS:
                await response.write(bytes(slice_))
                await asyncio.sleep(0)
                slice_, began = bytearray(), time.perf_counter()
        await response.write(bytes(slice_))
        await response.write_eof()
        return response

    async def healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        if missing := self.missing():
            return web.Response(text=f"not listed yet: {', '.join(missing)}\n", status=503)
        return web.Response(text="ok\n")

    async def metrics(self, request: web.Request) -> web.Response:
        """One text for all who ask within a while: on 5,000 nodes it takes 0.4 s, and every pod may ask."""
        if (began := time.monotonic()) >= self._metrics_until:
            self._metrics = self._told()
            ended = time.monotonic()
            self._metrics_until = ended + (ended - began) / METRICS_PART
        return web.Response(body=self._metrics, content_type="text/plain", charset="utf-8")

    def _told(self) -> bytes:
        numbers = figures(self.service.cluster)
        for key, value in numbers.items():
            if key.startswith("cards_"):
                self.cards.labels(key.removeprefix("cards_")).set(value)
            else:
                self.core.labels(key.removeprefix("core_")).set(value / 100)
        cluster = self.service.cluster
        self.waiting.clear()
        for reason, count in by_reason(cluster, self.service.waiting).items():
            self.waiting.labels(reason).set(count)
        self.pods.labels("waiting").set(sum(pod.waits for pod in cluster.pods.values()))
        self.pods.labels("reserved").set(len(cluster.reservations))
        self.pods.labels("placed").set(sum(pod.holds for pod in cluster.pods.values()))
        return generate_latest(self.registry)


def _handler(verb: Plain) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        answer = verb(await request.read())  # raises 413 by itself
        status, result = answer if isinstance(answer, tuple) else await answer
        return web.Response(body=result, status=status, content_type="application/json")

    return handle


def _plain_error(text: str) -> bytes:
    return json.dumps({"Error": text}).encode()


# ---- the program


def configure(parser: argparse.ArgumentParser) -> None:
    serving.configure(parser, PORT)
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, else the pod's service account")
    parser.add_argument(
        "--policies", default="", metavar="NAMES", help="placement policies, in order (docs/placement.md)"
    )
    parser.add_argument(
        "--device-types", default=",".join(sorted(names.DEVICE_TYPES)), metavar="NAMES",
        help="types of devices besides gpu (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--namespace", metavar="NAME", help="of the leases (default: the pod's own, else kube-system)")
    parser.add_argument(
        "--alone", action="store_true", help="no other replica runs: binds with one write instead of two"
    )
    parser.add_argument(
        "--shortlist", type=_whole, default=SHORTLIST, metavar="N",
        help="where more than N nodes will do and the pod prefers none itself, answer filter with the one that the "
        "policies like best, without policies with N; 0: always with all (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--no-claims", action="store_true", help="leave ResourceClaims alone: those on our cards are never answered"
    )
    parser.add_argument("--no-events", action="store_true", help="write no events on pods that wait")


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of nodes; give a whole one, or 0 for all")
    return int(text)


def listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


async def run(args: argparse.Namespace, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM. Raises serving.CannotServe."""
    heap.keep_freed()
    context = serving.tls_context(args)
    try:
        cluster = Cluster(listed(args.policies), frozenset(listed(args.device_types)))
    except UnknownPolicy as error:
        raise serving.WrongUse(f"--policies: {error}") from None
    kubeconfig = args.kubeconfig or os.environ.get("KUBECONFIG")
    try:
        client = await Client.connect(kubeconfig)
    except Exception as error:  # each way of logging in fails in its own way
        where = kubeconfig or "the service account"
        raise serving.CannotServe(f"{where}: {' '.join(str(error).split())}; give --kubeconfig FILE") from None
    client.keeps = LISTED
    leases = None if args.alone else args.namespace or _own_namespace()
    replica = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}"
    service = Service(cluster, client, time.monotonic_ns, time.time_ns, leases, replica, args.shortlist)
    announcer = None if args.no_events else Announcer(client, time.monotonic_ns)
    synced = {kind: asyncio.Event() for kind in KINDS}
    app = App(service, announcer, synced)
    try:
        await service.inherit()
        async with asyncio.TaskGroup() as group:
            devices = Paced(cluster, time.monotonic_ns)
            kept = dict.fromkeys(WATCHED, cluster) | {DEVICE: devices}
            tasks = [
                group.create_task(follow(client, kind, kept[kind], synced[kind], log, LISTED.get(kind)))
                for kind in WATCHED
            ]
            tasks.append(group.create_task(_claims(client, service, synced[CLAIM], not args.no_claims)))
            resizes = _Answering(cluster, service.resizes.kick)
            tasks.append(
                group.create_task(follow_once_there(client, RESIZE, resizes, synced[RESIZE], log, LISTED[RESIZE]))
            )
            tasks.append(group.create_task(_sweep(service, devices)))
            tasks.append(group.create_task(_settle([synced[kind] for kind in NEEDED])))
            if announcer is not None:
                tasks.append(group.create_task(announcer.run()))
            try:
                await serving.serve(app.application(), args, context, ready, app.verbs())
            finally:
                for task in tasks:
                    task.cancel()
    except* serving.CannotServe as several:
        raise several.exceptions[0] from None
    finally:
        await client.close()


class _Answering:
    """The service's cluster for a watch of what is answered: each that comes to wait is seen to at once."""

    def __init__(self, cluster: Cluster, kick: Callable[[], None]) -> None:
        self._cluster, self._kick = cluster, kick

    def replace(self, kind: str, objects: list[object], version: int = 0) -> None:
        self._cluster.replace(kind, objects, version)
        self._kick()

    def apply(self, kind: str, event: str, given: object) -> None:
        self._cluster.apply(kind, event, given)
        self._kick()


async def _claims(client: Client, service: Service, synced: asyncio.Event, wanted: bool) -> None:
    """Follows ResourceClaims where the API server has them."""
    wait = 0.1
    while wanted:
        try:
            wanted = await client.serves(names.RESOURCE_API_VERSION)
        except ApiFault as error:
            log.warning("look for=%s error=%s retry_seconds=%.1f", names.RESOURCE_API_VERSION, error, wait)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)
            continue
        if wanted:
            answering = _Answering(service.cluster, service.claims.kick)
            await follow(client, CLAIM, answering, synced, log, LISTED[CLAIM])
    synced.set()  # there are none to know of


async def _sweep(service: Service, devices: Paced) -> None:
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            devices.sweep()
            await service.sweep()
        except Exception:  # a fault in one reservation must not end the replica
            log.exception("sweep failed")


async def _settle(listed: list[asyncio.Event]) -> None:
    """Leaves what was listed out of Python's collector, once: nodes and pods are no garbage, and walking all of those
    of a large cluster is a pause of a tenth of a second in the middle of a call. What changes later is walked."""
    for event in listed:
        await event.wait()
    gc.collect()
    gc.freeze()


def _own_namespace() -> str:
    try:
        return Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read_text().strip()
    except OSError:
        return "kube-system"
