"""The webhook as a program: HTTPS around review.py. The API server asks, /mutate and /validate answer.

    POST /mutate     pods that are created: annotations, resources, library and socket; the templates of Jobs
    POST /validate   pods that are created or changed, and bindings of pods
    POST /mutate/opted-in /validate/opted-in      the same for namespaces that opted in to the spellings of others
    POST /mutate/placed /validate/placed          pods that another scheduler is to place, where their time is enforced
    GET  /healthz /readyz /metrics

A body that is no AdmissionReview is answered with 400 and one line. Senders have their turns by address: one that asks
very much, or much that is large, waits behind itself. To judge a Binding the pod is read from the API server, where a
kubeconfig or a service account is at hand. Without one bindings are refused by user name alone, for a webhook that
cannot look must not guess in favour. Quotas and Devices are watched there (quota.py); before they are listed no pod is
judged. Namespaces are chosen in the webhook configuration, not here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, generate_latest

from gemini import serving
from gemini.kube import names
from gemini.kube.answer import ApiFault, Refused
from gemini.kube.client import Client
from gemini.kube.escapes import ALLOWANCES
from gemini.kube.follow import follow
from gemini.kube.scope import OTHERS, SPELLINGS, Reading
from gemini.kube.spelling import GPUSHARE_UNITS, MEBI
from gemini.turns import Turns
from gemini.webhook import review
from gemini.webhook.quota import KINDS, Known
from gemini.webhook.settings import SIDECARS, Settings

PORT = 8791
PLACED = "/placed"  # behind the path, for namespaces where the time of others' pods is enforced
OPTED_IN = "/opted-in"  # behind the path, for namespaces that opted in to the spellings of others
LARGEST_BODY = 4 << 20  # etcd keeps no object above 1.5 MB, and an update brings the old one too
# Whoever reaches the port may send a review. A body above PLAIN_BODY is read when it is its sender's turn,
# LARGE_AT_ONCE at a time. It must come within BODY_SECONDS: then the API server has given up (timeoutSeconds).
PLAIN_BODY = 128 << 10
LARGE_AT_ONCE = 2
BODY_SECONDS = 5.0
log = logging.getLogger("gemini.webhook")

FindPod = Callable[[str, str], Awaitable[dict[str, Any] | None]]
Judge = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class App:
    """`find_pod`: (namespace, name) -> the pod, None: there is none. It may raise ApiFault. `known`: quotas and cards;
    `synced`, by kind, says which of these have been listed."""

    def __init__(
        self,
        settings: Settings,
        find_pod: FindPod | None = None,
        known: Known | None = None,
        synced: Mapping[str, asyncio.Event] | None = None,
    ) -> None:
        self.settings, self.find_pod, self.known, self.synced = settings, find_pod, known, synced or {}
        self.opted_in = settings.opted_in()
        self.registry = CollectorRegistry()
        self.reviews = Counter("gemini_webhook_reviews", "Reviews", ["path", "result"], registry=self.registry)
        self._judging, self._reading = Turns(), Turns(LARGE_AT_ONCE)

    def application(self) -> web.Application:
        application = web.Application(client_max_size=LARGEST_BODY)
        for path in ("/mutate", f"/mutate{OPTED_IN}"):
            application.router.add_post(path, self.mutate)
        for path in ("/validate", f"/validate{OPTED_IN}"):
            application.router.add_post(path, self.validate)
        application.router.add_post(f"/mutate{PLACED}", self.mutate_placed)
        application.router.add_post(f"/validate{PLACED}", self.validate_placed)
        application.router.add_get("/healthz", self.healthz)
        application.router.add_get("/readyz", self.readyz)
        application.router.add_get("/metrics", self.metrics)
        return application

    async def mutate(self, request: web.Request) -> web.Response:
        async def judge(given: dict[str, Any]) -> dict[str, Any]:
            async with self._judging.of(_sender(request), review.takes_long(given)):
                return review.mutate(given, self._settings(request), self.known)

        return await self._answered(request, judge)

    async def mutate_placed(self, request: web.Request) -> web.Response:
        async def judge(given: dict[str, Any]) -> dict[str, Any]:
            async with self._judging.of(_sender(request), review.takes_long(given)):
                return review.mutate_placed(given, self.settings)

        return await self._answered(request, judge)

    async def validate_placed(self, request: web.Request) -> web.Response:
        async def judge(given: dict[str, Any]) -> dict[str, Any]:
            async with self._judging.of(_sender(request), review.takes_long(given)):
                return review.validate_placed(given, self.settings)

        return await self._answered(request, judge)

    async def validate(self, request: web.Request) -> web.Response:
        async def judge(given: dict[str, Any]) -> dict[str, Any]:
            return await self._validate(given, self._settings(request), _sender(request))

        return await self._answered(request, judge)

    def _settings(self, request: web.Request) -> Settings:
        return self.opted_in if request.path.endswith(OPTED_IN) else self.settings

    async def _validate(self, given: dict[str, Any], settings: Settings, sender: str) -> dict[str, Any]:
        asked = given.get("request")
        asked = asked if isinstance(asked, dict) else {}
        resource = asked.get("resource")
        bindings = isinstance(resource, dict) and resource.get("resource") == "bindings"  # the older way to bind
        if asked.get("subResource") != "binding" and not bindings:
            async with self._judging.of(sender, review.takes_long(given)):
                return review.validate(given, settings, self.known)
        pod: object = {}
        if self.find_pod is not None and review.binds_by_uid(asked, settings):
            try:
                pod = await self.find_pod(str(asked.get("namespace", "")), str(asked.get("name", "")))
            except ApiFault as error:
                log.warning("binding pod=%s/%s error=%s", asked.get("namespace"), asked.get("name"), error)
        return review.validate_binding(given, pod, settings)

    async def _answered(self, request: web.Request, judge: Judge) -> web.Response:
        length, sender = request.content_length, _sender(request)
        large = length is None or length > PLAIN_BODY
        async with self._reading.of(sender) if large else nullcontext():  # kept in memory until it is answered
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    body = await request.read()
            except TimeoutError:
                self.reviews.labels(request.path, "bad").inc()
                raise web.HTTPRequestTimeout(text=f"the body did not come within {BODY_SECONDS:g} s\n") from None
            return await self._answer(request, body, judge)

    async def _answer(self, request: web.Request, body: bytes, judge: Judge) -> web.Response:
        try:
            async with self._judging.of(_sender(request)):
                given = json.loads(body)
        except (ValueError, RecursionError) as error:
            given, fault = None, f"the body is not JSON: {error}"
        else:
            fault = "the body is not an AdmissionReview"
        if not isinstance(given, dict) or not isinstance(given.get("request"), dict):
            self.reviews.labels(request.path, "bad").inc()
            return web.json_response({"error": fault}, status=400)
        if missing := self.missing():
            self.reviews.labels(request.path, "failed").inc()
            return web.json_response({"error": f"the webhook has not listed {missing} yet"}, status=503)
        try:
            answer = await judge(given)
        except Exception:  # review.py raises nothing that we know of; whatever it is, the API server gets an answer
            log.exception("path=%s failed", request.path)
            self.reviews.labels(request.path, "failed").inc()
            return web.json_response({"error": "the webhook failed on this review; see its log"}, status=500)
        response = answer["response"]
        result = "refused" if not response["allowed"] else "changed" if "patch" in response else "passed"
        self.reviews.labels(request.path, result).inc()
        if result == "refused":
            log.info("path=%s refused: %s", request.path, response["status"]["message"])
        return web.json_response(answer)

    def missing(self) -> str:
        """What has to be known before pods are judged, for what nobody knows of would count nothing."""
        return ", ".join(kind for kind, event in self.synced.items() if not event.is_set())

    async def healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        missing = self.missing()
        return web.Response(text=f"waiting for {missing}\n" if missing else "ok\n", status=503 if missing else 200)

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self.registry), content_type="text/plain", charset="utf-8")


def _sender(request: web.Request) -> str:
    return request.remote or ""


# ---- the program


def configure(parser: argparse.ArgumentParser) -> None:
    serving.configure(parser, PORT)
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, else the pod's service account")
    parser.add_argument(
        "--scheduler-name", metavar="NAME",
        help="schedulerName that sharepods get (default: they keep theirs; the extender serves the default scheduler)",
    )  # fmt: skip
    parser.add_argument(
        "--binder", action="append", default=[], metavar="USER",
        help="user name that may bind sharepods, such as system:serviceaccount:gemini:extender; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--device-types", default=",".join(sorted(names.DEVICE_TYPES)), metavar="NAMES",
        help="types of devices besides gpu (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--gpushare-unit", choices=sorted(GPUSHARE_UNITS), default=MEBI,
        help="of one aliyun.com/gpu-mem, where a pod does not say; as the nodes' device plugins count (default: "
        "%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--allow", action="append", default=[], choices=ALLOWANCES, metavar="WHAT",
        help="admit with a share what goes round it: " + ", ".join(ALLOWANCES) + "; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--cards-by-cdi", action="store_true",
        help="the device plugins give cards as CDI devices (--gpu-cdi): the environment is made to name none",
    )  # fmt: skip
    parser.add_argument(
        "--spellings", type=_spellings, default=names.DOMAIN, metavar="NAMES",
        help="spellings of a share that are read in every pod, with commas between: " + ", ".join(SPELLINGS)
        + " (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--opt-in", type=_spellings, default=",".join(OTHERS), metavar="NAMES",
        help=f"those that are read besides in reviews that come to /mutate{OPTED_IN} and /validate{OPTED_IN}, and in "
        "pods that select the nodes of --pool (default: " + ", ".join(OTHERS) + ")",
    )  # fmt: skip
    parser.add_argument(
        "--pool", type=_label, action="append", default=[], metavar="LABEL=VALUE",
        help="a label of our nodes: a pod whose nodeSelector has all of these is meant for us; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--sidecars", type=_names, default=",".join(sorted(SIDECARS)), metavar="NAMES",
        help="containers that others' webhooks add, with commas between: a share of the whole pod does not mean them "
        "(default: those of well-known service meshes and agents)",
    )  # fmt: skip
    parser.add_argument("--library", default=names.LIBRARY_PATH, metavar="PATH", help="the library inside containers")
    parser.add_argument("--socket", default=names.SOCKET_PATH, metavar="PATH", help="the socket inside containers")


def _names(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _spellings(text: str) -> frozenset[str]:
    named = _names(text)
    if unknown := sorted(named - set(SPELLINGS)):
        raise argparse.ArgumentTypeError(f"{unknown[0]} is no spelling; use some of {', '.join(SPELLINGS)}")
    return named


def _label(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not key or not sign:
        raise argparse.ArgumentTypeError(f"{text} is no label; write LABEL=VALUE")
    return key, value


def settings_of(args: argparse.Namespace) -> Settings:
    types = frozenset(name.strip() for name in args.device_types.split(",") if name.strip())
    binders = frozenset(args.binder)
    return Settings(
        args.scheduler_name, types, args.library, args.socket, binders, args.gpushare_unit,
        frozenset(args.allow), args.cards_by_cdi, args.sidecars,
        Reading(args.spellings | {names.DOMAIN}, args.opt_in, tuple(args.pool)),
    )  # fmt: skip


async def run(args: argparse.Namespace, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM. Raises serving.CannotServe."""
    context = serving.tls_context(args)
    if context is None:
        raise serving.WrongUse("the API server speaks to webhooks by HTTPS only; give --tls-cert and --tls-key")
    kubeconfig = args.kubeconfig or os.environ.get("KUBECONFIG")
    client: Client | None = None
    try:
        client = await Client.connect(kubeconfig)
    except Exception as error:  # each way of logging in fails in its own way
        if kubeconfig:
            text = " ".join(str(error).split())
            raise serving.CannotServe(f"{kubeconfig}: {text}; give the file of a kubeconfig") from None
        log.warning("no API server (%s): bindings are judged by user name alone, and quotas count no ratio", error)
    watches: list[asyncio.Task[None]] = []
    try:
        find, known = (_finder(client), Known()) if client is not None else (None, None)
        synced = {kind: asyncio.Event() for kind in KINDS} if client is not None else {}
        for kind, event in synced.items():
            assert client is not None
            watches.append(asyncio.create_task(follow(client, kind, known, event, log)))
        await serving.serve(App(settings_of(args), find, known, synced).application(), args, context, ready)
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        if client is not None:
            await client.close()


def _finder(client: Client) -> FindPod:
    async def find(namespace: str, name: str) -> dict[str, Any] | None:
        try:
            return await client.pod(namespace, name)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    return find
