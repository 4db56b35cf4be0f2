"""What `kubectl gemini` shows of a cluster, and how it is laid out in tables.

Pure: the cluster as the extender sees it goes in, plain JSON and text come out. Cards and holders come from the very
book that the extender keeps, and why a pod waits from the very filter that it answers with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gemini.extender.codec import FilterRequest
from gemini.extender.podview import PodView
from gemini.extender.service import Service
from gemini.extender.shown import state_json, summary
from gemini.extender.state import Cluster
from gemini.kube import names
from gemini.placement.explain import format_bytes
from gemini.placement.model import GPU
from gemini.units import format_size
from scheduler_backend.logs import printable

Object = dict[str, Any]
NODE_COLUMNS = ("NODE", "MODEL", "CARDS", "IDLE", "SHARED", "FULL", "OUT", "CORE", "MEMORY", "LARGEST", "FRAGMENTED")
CARD_COLUMNS = ("NODE", "CARD", "MODEL", "STATE", "CORE", "MEMORY", "HOLDER", "CORE", "MEMORY")
WAITING_COLUMNS = ("WAITING POD", "SINCE", "ASKS", "WHY")
LOOSE_COLUMNS = ("SHARE NOT ENFORCED", "NODE", "WHY")


def picture(
    cluster: Cluster, events: Iterable[Mapping[str, Any]] = (), node: str | None = None, namespace: str | None = None
) -> Object:
    """Everything as JSON; of one node, of pods of one namespace, where they are given. `events`: those of the API
    server whose reason is NOT_ENFORCED."""
    known = state_json(cluster, {})
    nodes = [_node(entry) for entry in known["nodes"] if node in (None, entry["name"])]
    return {
        "nodes": nodes,
        "total": _sum_up([card for entry in nodes for card in entry["devices"]]),
        "waiting": [
            _waiting(cluster, pod)
            for pod in sorted(cluster.pods.values(), key=lambda p: p.order)
            if (pod.waits or (pod.fault is not None and pod.node is None and not pod.gone))
            and namespace in (None, pod.namespace)
        ],
        "not_enforced": [
            entry
            for entry in _not_enforced(cluster, events)
            if node in (None, entry["node"]) and namespace in (None, entry["pod"].split("/")[0])
        ],
    }


def _node(entry: Object) -> Object:
    cards = [{**device, "state": _state(device)} for device in entry["devices"]]
    return {"name": entry["name"], **_sum_up(cards), "devices": cards, "faults": entry["faults"]}


def _state(device: Mapping[str, Any]) -> str:
    if not device["health"]:
        return "unhealthy"
    if device["cordoned"]:
        return "cordoned"
    if device["used_core"] >= device["core"]:
        return "full"
    return "shared" if device["pods"] else "idle"


def _sum_up(devices: Sequence[Object]) -> Object:
    """`fragmented`: the part of the free time that is on partly used cards, where no whole card can be had."""
    cards = [device for device in devices if device["type"] == GPU]
    in_service = [card for card in cards if card["state"] not in ("unhealthy", "cordoned")]
    free = {id(card): card["core"] - card["used_core"] for card in in_service}
    total = sum(free.values())
    broken = sum(free[id(card)] for card in in_service if card["state"] == "shared")
    states = [card["state"] for card in cards]
    return {
        "cards": len(cards),
        **{state: states.count(state) for state in ("idle", "shared", "full")},
        "out_of_service": len(cards) - len(in_service),
        "core": sum(card["core"] for card in cards),
        "used_core": sum(card["used_core"] for card in cards),
        "memory": sum(card["memory"] for card in cards),
        "used_memory": sum(card["used_memory"] for card in cards),
        "free_core": total,
        "largest_free_core": max(free.values(), default=0),
        "fragmented": round(broken / total, 3) if total else 0.0,
    }


def _waiting(cluster: Cluster, pod: PodView) -> Object:
    metadata = pod.object.get("metadata") or {}
    return {
        "pod": f"{pod.namespace}/{pod.name}",
        "since": str(metadata.get("creationTimestamp", "")),
        "asks": _asks(pod),
        "priority": pod.priority,
        "why": _why(cluster, pod),
    }


def _asks(pod: PodView) -> str:
    parts = []
    for tenant in pod.spec.ask.tenants if pod.spec is not None else ():
        for want in tenant.wants:
            amounts = [f"{want.core}%"] if want.core else []
            if want.memory is not None:
                amounts.append(format_bytes(want.memory))
            elif want.ratio is not None and not want.follows:
                amounts.append(f"{want.ratio}% of memory")
            parts.append(f"{want.count if want.count > 1 else ''}{'x ' if want.count > 1 else ''}{want.type} "
                         f"{' '.join(amounts) or 'best effort'}")  # fmt: skip
    return " + ".join(parts) or "?"


def _why(cluster: Cluster, pod: PodView) -> str:
    if pod.fault is not None:
        return f"Invalid: {pod.fault}"
    known = tuple(sorted(cluster.nodes))
    # Without effect nothing is asked of an API server, nor of a clock.
    service = Service(cluster, None, lambda: 0, lambda: 0, None)  # type: ignore[arg-type]
    verdict = asyncio.run(service.filter(FilterRequest(pod.object, known), effect=False))
    if not verdict.passed:
        return summary(verdict)
    said = _condition(pod, "PodScheduled")
    room = f"there is room for it on {len(verdict.passed)} node{'' if len(verdict.passed) == 1 else 's'}"
    return f"{room}; the scheduler says: {said}" if said else f"{room}; the scheduler has not tried it since"


def _condition(pod: PodView, kind: str) -> str:
    conditions = (pod.object.get("status") or {}).get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("type") == kind and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""


def _not_enforced(cluster: Cluster, events: Iterable[Mapping[str, Any]]) -> list[Object]:
    told = _told(events)
    found = []
    for pod in sorted(cluster.pods.values(), key=lambda p: (p.namespace, p.name)):
        if pod.node is None or pod.gone or (pod.spec is None and pod.fault is None and pod.recorded is None):
            continue
        annotations = (pod.object.get("metadata") or {}).get("annotations") or {}
        running = (pod.object.get("status") or {}).get("phase") == "Running"
        if pod.fault is not None:
            why = pod.fault
        elif pod.recorded is None:
            why = "it was bound by a scheduler that did not ask the extender: it has no card of ours"
        elif (pod.namespace, pod.name, pod.uid) in told:
            why = told[pod.namespace, pod.name, pod.uid]
        elif running and annotations.get(names.ASSIGNED) != "true":
            why = "it runs, but the device plugin has not confirmed its cards: the library may not be in front"
        else:
            continue
        found.append({"pod": f"{pod.namespace}/{pod.name}", "node": pod.node, "why": why})
    return found


def _told(events: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], str]:
    """(namespace, name, uid) of a pod -> what the device plugin says of it. The API server keeps an event in the
    namespace of what it names, but anybody's uid may stand in it: so all three have to be the pod's."""
    told = {}
    for event in events:
        source, about, metadata = (event.get(key) for key in ("source", "involvedObject", "metadata"))
        if not (isinstance(source, dict) and isinstance(about, dict) and isinstance(metadata, dict)):
            continue
        here = metadata.get("namespace")
        ours = source.get("component") == names.DEVICE_PLUGIN and event.get("reason") == names.NOT_ENFORCED
        if ours and about.get("kind") == "Pod" and about.get("namespace") == here:
            told[str(here), str(about.get("name")), str(about.get("uid"))] = str(event.get("message", ""))
    return told


# ---- tables


def tables(given: Object, cards: bool) -> str:
    """For people. `cards`: each card and who holds it, instead of a line for each node."""
    blocks = [_card_rows(given["nodes"]) if cards else _node_rows(given)]
    if given["waiting"]:
        rows = [(w["pod"], w["since"] or "-", w["asks"], w["why"]) for w in given["waiting"]]
        blocks.append([WAITING_COLUMNS, *rows])
    if given["not_enforced"]:
        blocks.append([LOOSE_COLUMNS, *((e["pod"], e["node"], e["why"]) for e in given["not_enforced"])])
    faults = [(entry["name"], fault) for entry in given["nodes"] for fault in entry["faults"]]
    if faults:
        blocks.append([("NODE", "WRONG IN ITS DEVICE OBJECT"), *faults])
    return "\n".join(_laid_out(block) for block in blocks)


def _node_rows(given: Object) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [NODE_COLUMNS]
    for entry in given["nodes"]:
        models = sorted({card["model"] for card in entry["devices"] if card["type"] == GPU})
        rows.append((entry["name"], ",".join(models) or "-", *_amounts(entry)))
    if len(given["nodes"]) != 1:
        rows.append(("all", "", *_amounts(given["total"])))
    return rows


def _amounts(entry: Object) -> tuple[str, ...]:
    counts = [str(entry[key]) for key in ("cards", "idle", "shared", "full", "out_of_service")]
    core = f"{entry['used_core']}/{entry['core']}%"
    memory = _memory(entry["used_memory"], entry["memory"])
    return (*counts, core, memory, f"{entry['largest_free_core']}%", f"{100 * entry['fragmented']:.0f}%")


def _card_rows(nodes: Iterable[Object]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [CARD_COLUMNS]
    for entry in nodes:
        for number, card in enumerate(entry["devices"]):
            first = (
                entry["name"] if number == 0 else "", f"{card['type']}/{card['minor']}", card["model"] or "-",
                card["state"], f"{card['used_core']}/{card['core']}%", _memory(card["used_memory"], card["memory"]),
            )  # fmt: skip
            held = [
                (pod["pod"] + (" (reserved)" if pod["reserved"] else ""), f"{pod['core']}%", _memory(pod["memory"]))
                for pod in card["pods"]
            ]
            rows.append((*first, *(held[0] if held else ("-", "", ""))))
            rows += [("",) * 6 + more for more in held[1:]]
    return rows


def _memory(*amounts: int) -> str:
    return "/".join(format_size(amount) for amount in amounts) if amounts[-1] else "-"


def _laid_out(given: Sequence[tuple[str, ...]]) -> str:
    """What stands in cells is strangers' (models, faults, messages): none of it ends a line or reaches the terminal."""
    rows = [tuple(printable(cell) for cell in row) for row in given]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = ["   ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]
    return "\n".join(line.rstrip() for line in lines) + "\n"
