"""`kubectl gemini resize POD`: another share for a pod that runs, without ending it.

Writes the wish (the spec of the pod's Resize, gemini/kube/resize.py), and tells what became of it: refused by the
extender with the reason, in force on the node, or what the node waits for. What is not named stays as it is.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemini.cli.problem import Problem
from gemini.kube import names
from gemini.kube.allocation import record_of
from gemini.kube.answer import ApiFault, Object, Refused, is_unknown
from gemini.kube.client import Client
from gemini.kube.paths import resize_path
from gemini.kube.pod import parse_pod
from gemini.kube.quantity import parse_share
from gemini.kube.resize import Amounts, Resize, cards, full_name, read_resize
from gemini.kube.spelling import InvalidPod
from gemini.placement.explain import format_bytes
from gemini.placement.model import WHOLE
from gemini.units import BadValue, parse_memory
from scheduler_backend.logs import printable

LOOK_SECONDS = 0.1
# For the extender, and for the node, each. What a replica that was killed had promised stands for 60 s (BIND_NS), and
# another one answers when that is over.
PATIENCE_SECONDS = 90.0


@dataclass(frozen=True)
class Said:
    """What the options say; None: it stays as it is."""

    request: int | None
    limit: int | None
    memory: int | None

    def beside(self, now: Amounts) -> Amounts:
        """The share that is wished. Raises Problem."""
        request = now.request if self.request is None else self.request
        limit = now.limit if self.limit is None else self.limit
        if request > limit:
            raise Problem(
                f"request {request / WHOLE:g} is above limit {limit / WHOLE:g}; lower --request, or raise --limit"
            )
        return Amounts(request, limit, now.memory if self.memory is None else self.memory)


def said_by(args: argparse.Namespace) -> Said:
    """Raises Problem, BadValue."""
    if args.request is args.limit is args.memory is None:
        raise Problem("resize changes nothing; give --request, --limit or --memory")
    request = None if args.request is None else _percent(args.request, "--request")
    limit = None if args.limit is None else _percent(args.limit, "--limit")
    if limit == 0:
        raise Problem(f"--limit {args.limit} lets nothing run; give one above 0")
    return Said(request, limit, None if args.memory is None else parse_memory(args.memory))


def _percent(text: str, option: str) -> int:
    try:
        return parse_share(text)
    except BadValue as error:
        raise Problem(f"{option}: {error}") from None


async def carried_out(client: Client, wanted: Said, namespace: str, name: str) -> AsyncIterator[str]:
    """What has been done, line by line. Raises Problem, ApiFault."""
    pod = await _pod(client, namespace, name)
    said = printable(f"{namespace}/{name}")
    before = await _resize(client, pod)
    wish = wanted.beside((before and before.booked) or by_record(pod))
    written = await _write(client, pod, before, wish)
    generation = written.generation
    wish_told = told(wish)
    until = time.monotonic() + PATIENCE_SECONDS
    booked = False
    while True:
        resize = await _resize(client, pod)
        if resize is None:
            raise Problem(f"{said}: the Resize went; is the pod there still?")
        if resize.generation != generation:
            raise Problem(f"{said}: somebody else wishes {told(resize.wanted)} by now; see kubectl get resizes")
        if not resize.waiting and resize.refused:
            raise Problem(f"{said}: {resize.refused}")
        if not resize.waiting and not booked:
            booked, until = True, time.monotonic() + PATIENCE_SECONDS
            yield f"{said}: {wish_told}: booked"
        if booked and resize.settled and resize.enforced == wish:
            yield f"{said}: {wish_told}: in force"
            return
        if booked and resize.waits:
            raise Problem(f"{said}: {wish_told}: waits: {resize.waits}; another resize takes its place")
        if time.monotonic() > until:
            who = "device plugin on its node" if booked else "extender"
            raise Problem(f"{said}: {wish_told}: no answer in {PATIENCE_SECONDS:g} s; does the {who} run?")
        await asyncio.sleep(LOOK_SECONDS)


def told(amounts: Amounts) -> str:
    request, limit = amounts.request / WHOLE, amounts.limit / WHOLE
    return f"request {request:g}, limit {limit:g}, memory {format_bytes(amounts.memory)}"


def by_record(pod: Mapping[str, Any]) -> Amounts:
    """The share that the pod was bound with, of each card. Raises Problem."""
    metadata = pod.get("metadata") or {}
    name = printable(f"{metadata.get('namespace')}/{metadata.get('name')}")
    node = (pod.get("spec") or {}).get("nodeName")
    try:
        found = record_of("", str(node), metadata.get("annotations") or {}) if node else None
        spec = None if found is None else parse_pod(pod)
    except InvalidPod as error:
        raise Problem(f"{name}: {error}") from None
    grants = [] if found is None else cards(found[0])
    if not grants or spec is None:
        what = f"no share by {names.ALLOCATION}" if node else "no node yet"
        raise Problem(f"{name} has {what}; only pods that Gemini placed can be resized")
    if len(spec.shares) != 1:
        raise Problem(f"{name} has several shares; only a pod with one share for its whole life can be resized")
    least = min(grants, key=lambda one: (one.core, one.memory))
    return Amounts(least.core, spec.shares[0].limit or WHOLE, least.memory)


async def _pod(client: Client, namespace: str, name: str) -> Object:
    try:
        return await client.pod(namespace, name)
    except Refused as error:
        if error.status != 404:
            raise
        raise Problem(f"there is no pod {namespace}/{name}; kubectl get pods --all-namespaces has them") from None


def _full_name(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return full_name(metadata["namespace"], metadata["name"], metadata["uid"])


async def _resize(client: Client, pod: Mapping[str, Any]) -> Resize | None:
    """The pod's own. One of a pod of before that had its name goes with that: it is waited for."""
    metadata, until = pod["metadata"], time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            given = await client.resize(metadata["namespace"], metadata["name"])
        except ApiFault as error:
            if is_unknown(error):
                return None
            raise
        found = read_resize(given)
        if found is not None and found.pod == _full_name(pod):
            return found
        if time.monotonic() > until:
            raise Problem(
                f"the Resize {metadata['namespace']}/{metadata['name']} is not this pod's; delete it: kubectl -n "
                f"{metadata['namespace']} delete resize {metadata['name']}"
            )
        await asyncio.sleep(LOOK_SECONDS)


async def _write(client: Client, pod: Mapping[str, Any], before: Resize | None, wish: Amounts) -> Resize:
    metadata = pod["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    if before is None:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": metadata["uid"]}
        body: Object = {
            "apiVersion": names.DEVICE_API_VERSION,
            "kind": names.RESIZE_KIND,
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]},
            "spec": wish.written(),
        }
        try:
            given = await client.call("POST", resize_path(namespace), body)
        except ApiFault as error:
            if not is_unknown(error):
                raise
            raise Problem(
                f"the cluster defines no {names.RESIZE_DEFINITION}; update the chart, or deploy/kustomize"
            ) from None
    else:
        change = {"spec": wish.written(), "metadata": {"uid": before.own}}
        if before.wanted == wish and before.refused:  # it is answered once; another wish between makes it another one
            other = replace(wish, memory=wish.memory + 1)
            await client.call("PATCH", resize_path(namespace, name), {**change, "spec": other.written()})
        given = await client.call("PATCH", resize_path(namespace, name), change)
    written = read_resize(given)
    if written is None:
        raise Problem(
            f"the Resize {namespace}/{name} cannot be read; see kubectl -n {namespace} get resize {name} -o yaml"
        )
    return written
