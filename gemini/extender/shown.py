"""What the extender shows of itself: GET /state, dry runs, figures for /metrics, why a pod waits. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gemini.extender.codec import cut
from gemini.extender.promises import Verdict
from gemini.extender.state import Cluster
from gemini.kube.claim import PREFIX
from gemini.kube.resize import uid_of
from gemini.placement.model import GPU
from gemini.placement.reasons import Reason

_REASON = re.compile(r"([A-Z][A-Za-z]*) on ")


def dry_run_json(verdict: Verdict) -> dict[str, Any]:
    refused = {
        name: {"reason": reason, "message": text, "devices": verdict.cards.get(name, {})}
        for name, (reason, text) in verdict.failed.items()
    }
    return {"nodes": list(verdict.passed), "refused": refused, "error": verdict.error}


def state_json(cluster: Cluster, reasons: Mapping[str, str]) -> dict[str, Any]:
    """What `kubectl gemini` shows."""
    names = sorted(filter(None, cluster.book.names))
    return {"nodes": [_node(cluster, name) for name in names], **_pods(cluster, reasons)}


def state_parts(cluster: Cluster, reasons: Mapping[str, str], ready: bool) -> Iterator[bytes]:
    """The same as JSON, for GET /state, piece by piece: what comes between two pieces may change the cluster, so a node
    is as it is when its piece is asked for."""
    before = b'{"nodes": ['
    for name in sorted(filter(None, cluster.book.names)):
        if cluster.book.node(name) is not None:  # it may have gone meanwhile
            yield before + json.dumps(_node(cluster, name)).encode()
            before = b", "
    if before != b", ":
        yield before
    yield b"]"
    for key, value in {**_pods(cluster, reasons), "ready": ready}.items():
        yield f", {json.dumps(key)}: {json.dumps(value)}".encode()
    yield b"}"


def _node(cluster: Cluster, name: str) -> dict[str, Any]:
    book = cluster.book
    node = book.node(name)
    assert node is not None
    used, here = book.used_on(name), [book.holdings[pod] for pod in book.pods_on(name)]
    devices = []
    for device in node.devices:
        core, memory, _, _ = used[device.type, device.minor]
        pods = []
        for holding in here:
            held = holding.devices().get((device.type, device.minor))
            if held is not None:
                part_core, part_memory, _ = held.total()
                pods.append({**_who(cluster, holding.placement.pod), "core": part_core, "memory": part_memory})
        devices.append(
            {
                "type": device.type,
                "minor": device.minor,
                "uuid": device.uuid,
                "model": device.model,
                "health": device.health,
                "cordoned": device.cordoned,
                "core": device.core,
                "memory": device.memory,
                "used_core": core,
                "used_memory": memory,
                "pods": sorted(pods, key=lambda p: str(p["pod"])),
            }
        )
    return {"name": name, "devices": devices, "faults": list(cluster.devices[name].faults)}


def _pods(cluster: Cluster, reasons: Mapping[str, str]) -> dict[str, Any]:
    waiting = [
        {
            **_who(cluster, pod.uid),
            "why": reasons.get(pod.uid, "not asked for yet"),
            "group": (pod.group or ("", None))[1],
        }
        for pod in cluster.pods.values()
        if pod.waits
    ]
    reserved = [{**_who(cluster, r.placement.pod), "node": r.placement.node} for r in cluster.reservations]
    return {
        "waiting": sorted(waiting, key=lambda w: str(w["pod"])),
        "reserved": sorted(reserved, key=lambda r: str(r["pod"])),
        "unrecorded": sorted(
            f"{p.namespace}/{p.name}"
            for p in cluster.pods.values()
            if p.node and not p.gone and p.spec and p.recorded is None
        ),
    }


def _who(cluster: Cluster, uid: str) -> dict[str, Any]:
    if uid.startswith(PREFIX):
        claim = cluster.claims.get(uid.removeprefix(PREFIX).partition("/")[0])
        name = f"{PREFIX}{claim.namespace}/{claim.name}" if claim else uid
        return {"pod": name, "uid": uid, "reserved": uid in cluster.reservations}
    pod = cluster.pods.get(uid_of(uid) or uid)
    name = f"{pod.namespace}/{pod.name}" if pod else uid
    return {"pod": name, "uid": uid, "reserved": uid in cluster.reservations}


def by_reason(cluster: Cluster, waiting: dict[str, str]) -> dict[str, int]:
    """How many pods wait for each reason: the first of those that summary() tells of a pod, by its name alone."""
    found: dict[str, int] = {}
    for pod in cluster.pods.values():
        if pod.waits:
            named = _REASON.match(waiting.get(pod.uid, "NotAsked on "))
            reason = named[1] if named else "Other"
            found[reason] = found.get(reason, 0) + 1
    return found


def figures(cluster: Cluster) -> dict[str, float]:
    """Numbers for /metrics: of cards and of their time, a handful whatever the cluster's size. `free` is what may still
    be promised, `fragmented` that part of it which is on partly used cards, where no whole card can be had."""
    counts = dict.fromkeys(("idle", "shared", "full", "unhealthy", "cordoned"), 0)
    core = promised = free = fragmented = 0
    used = cluster.book.snapshot()
    for node in cluster.book.nodes():
        for device in node.devices:
            if device.type != GPU:
                continue
            taken, _, _, holders = used[node.name, GPU, device.minor]
            core += device.core
            promised += taken
            if not device.health:
                counts["unhealthy"] += 1
            elif device.cordoned:
                counts["cordoned"] += 1
            elif taken >= device.core:
                counts["full"] += 1
            else:
                counts["shared" if holders else "idle"] += 1
                free += device.core - taken
                fragmented += device.core - taken if holders else 0
    sums = {"all": core, "promised": promised, "free": free, "fragmented": fragmented}
    return {**{f"cards_{k}": v for k, v in counts.items()}, **{f"core_{k}": v for k, v in sums.items()}}


def summary(verdict: Verdict) -> str:
    """Why a pod waits, in one line: reasons with the number of nodes, and an example of each."""
    if verdict.error:
        return verdict.error
    by_reason: dict[str, list[str]] = {}
    for node, (reason, text) in verdict.failed.items():
        by_reason.setdefault(reason, []).append(
            f"{text}" if reason.startswith("Group") or reason == Reason.INVALID.text else f"{node}: {text}"
        )
    parts = [
        f"{reason} on {len(texts)} node{'' if len(texts) == 1 else 's'} ({cut(texts[0])})"
        for reason, texts in by_reason.items()
    ]
    return "; ".join(parts) or "no node was asked about"
