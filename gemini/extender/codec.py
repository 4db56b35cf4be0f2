"""kube-scheduler's extender/v1 JSON: bytes to requests, answers to bytes.

Pure. The Go structs carry no JSON tags, so names are Go's own (`Pod`, `NodeNames`); as Go's decoder, reading does not
care about case. An extender with nodeCacheCapable gets and answers names, one without whole Node objects: a reply is in
the form of its request. Whatever is no such JSON is a BadRequest, one line.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Any

# Reasons that no eviction mends: kube-scheduler need not try to preempt on such nodes.
UNRESOLVABLE = frozenset({"Invalid", "InsufficientDevices", "ModelMismatch", "UuidMismatch", "Unhealthy", "Cordoned"})
MAX_SCORE = 10  # extender/v1 MaxExtenderPriority


class BadRequest(ValueError):
    """A body that is not what the verb's request looks like."""


@dataclass(frozen=True)
class FilterRequest:
    """For filter and prioritize. `nodes` holds the Node objects by name where the scheduler sent them."""

    pod: dict[str, Any]
    names: tuple[str, ...]
    nodes: dict[str, dict[str, Any]] | None = None


@dataclass(frozen=True)
class BindRequest:
    name: str
    namespace: str
    uid: str
    node: str


@dataclass(frozen=True)
class Victims:
    """Pods to evict on a node, by uid, and how many of them break a PodDisruptionBudget."""

    uids: tuple[str, ...]
    violations: int = 0


@dataclass(frozen=True)
class PreemptRequest:
    pod: dict[str, Any]
    victims: dict[str, Victims] = field(default_factory=dict)


def read_filter(body: bytes, otherwise: tuple[str, ...] | None = None) -> FilterRequest:
    """`otherwise`: the nodes where the request names none; without it such a request is bad."""
    given = _body(body)
    pod = _object(given.get("pod"), "Pod")
    listed = given.get("nodenames")
    if listed is not None:
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise BadRequest("NodeNames is not a list of names")
        return FilterRequest(pod, tuple(listed))
    if given.get("nodes") is None:
        if otherwise is not None:
            return FilterRequest(pod, otherwise)
        raise BadRequest("there are neither NodeNames nor Nodes")
    items = _lower(_object(given["nodes"], "Nodes")).get("items")
    nodes: dict[str, dict[str, Any]] = {}
    for item in items if isinstance(items, list) else []:
        metadata = _object(_object(item, "Nodes.items").get("metadata"), "Nodes.items.metadata")
        nodes[_text(metadata.get("name"), "Nodes.items.metadata.name")] = item
    return FilterRequest(pod, tuple(nodes), nodes)


def write_filter(request: FilterRequest, passed: Collection[str], failed: Mapping[str, tuple[str, str]]) -> bytes:
    """`failed`: node -> (reason, text)."""
    texts = {name: f"{reason}: {text}" for name, (reason, text) in failed.items()}
    hopeless = {name for name, (reason, _) in failed.items() if reason in UNRESOLVABLE}
    answer: dict[str, Any] = {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": {name: text for name, text in texts.items() if name not in hopeless},
        "FailedAndUnresolvableNodes": {name: text for name, text in texts.items() if name in hopeless},
        "Error": "",
    }
    kept = [name for name in request.names if name in passed]
    if request.nodes is None:
        answer["NodeNames"] = kept
    else:
        answer["Nodes"] = {"metadata": {}, "items": [request.nodes[name] for name in kept]}
    return _bytes(answer)


def write_filter_error(text: str) -> bytes:
    return _bytes(
        {"Nodes": None, "NodeNames": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": text}
    )


def write_scores(request: FilterRequest, ranks: Mapping[str, int]) -> bytes:
    """Ranks (0 is best) as scores: the best alone gets the most, the others what is left, evenly by rank."""
    worst = max(ranks.values(), default=0)
    score = {rank: MAX_SCORE if rank == 0 else (MAX_SCORE - 1) * (worst - rank) // worst for rank in {*ranks.values()}}
    entries = [
        f'{{"Host":{encode_basestring_ascii(name)},"Score":{score[ranks[name]] if name in ranks else 0}}}'
        for name in request.names
    ]
    return f"[{','.join(entries)}]".encode()


def read_bind(body: bytes) -> BindRequest:
    given = _body(body)
    keys = ("podname", "podnamespace", "poduid", "node")
    return BindRequest(*(_text(given.get(key), key) for key in keys))


def write_bind(error: str = "") -> bytes:
    return _bytes({"Error": error})


def read_preempt(body: bytes) -> PreemptRequest:
    """Victims come as uids (nodeCacheCapable) or as whole pods."""
    given = _body(body)
    pod = _object(given.get("pod"), "Pod")
    whole, meta = given.get("nodenametovictims"), given.get("nodenametometavictims")
    victims: dict[str, Victims] = {}
    for node, entry in _object(whole if whole is not None else meta if meta is not None else {}, "victims").items():
        named = _lower(_object(entry, f"victims of {node}"))
        pods = named.get("pods")
        uids = []
        for victim in pods if isinstance(pods, list) else []:
            lower = _lower(_object(victim, f"victims of {node}"))
            metadata = lower.get("metadata")
            uid = metadata.get("uid") if isinstance(metadata, dict) else lower.get("uid")
            uids.append(_text(uid, f"uid of a victim of {node}"))
        violations = named.get("numpdbviolations", 0)
        if isinstance(violations, bool) or not isinstance(violations, int):
            raise BadRequest(f"NumPDBViolations of {node} is not a number")
        victims[node] = Victims(tuple(uids), violations)
    return PreemptRequest(pod, victims)


def write_preempt(victims: Mapping[str, Victims]) -> bytes:
    entries = {
        node: {"Pods": [{"UID": uid} for uid in v.uids], "NumPDBViolations": v.violations}
        for node, v in victims.items()
    }
    return _bytes({"NodeNameToMetaVictims": entries})


def _body(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    return _lower(_object(given, "the body"))


def _lower(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in given.items()}


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"{what} is not an object")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{what} is not a name")
    return value


def _bytes(value: Mapping[str, Any] | Sequence[Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
