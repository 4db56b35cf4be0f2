"""kube-scheduler's extender/v1 JSON: bytes to requests, answers to bytes.

Pure. The Go structs carry no JSON tags, so names are Go's own (`Pod`, `NodeNames`); as Go's decoder, reading does not
care about case. An extender with nodeCacheCapable gets and answers names, one without whole Node objects: a reply is in
the form of its request. Whatever is no such JSON is a BadRequest, one line.

A pod may come with 5,000 names, twice: here is where an extender spends its time. So nothing is done name by name that
one call can do for all of them, and orjson reads and writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from gemini.placement.reasons import UNRESOLVABLE, Reason
from gemini.placement.shape import Ints
from gemini.placement.written import Written

NO_ROOM = (Reason.NO_ROOM.text, "no cards here that would do")  # where nobody asks for more
LISTED = b'"NodeNames":['  # as Go writes it
MANY = 6 << 10  # bytes of names; from here on, about 350 names, no strings are made of them
CUT = b"the names that stood here"  # and in no body
MAX_SCORE = 10  # extender/v1 MaxExtenderPriority
LONGEST_TEXT = 1_000  # characters of a reason: it stands in the answer for each node that has it


class BadRequest(ValueError):
    """A body that is not what the verb's request looks like."""


@dataclass(frozen=True)
class FilterRequest:
    """For filter and prioritize. `nodes` holds the Node objects by name where the scheduler sent them."""

    pod: dict[str, Any]
    names: Sequence[str]
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
    given, written = _without_names(body)
    pod = _object(given.get("pod"), "Pod")
    if written is not None:
        return FilterRequest(pod, written)
    listed = given.get("nodenames")
    if listed is not None:
        if not isinstance(listed, list) or not _texts(listed):
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


def write_filter(
    request: FilterRequest, passed: Sequence[str], failed: Mapping[str, tuple[str, str]], rest: Sequence[str] = ()
) -> bytes:
    """`passed`: names of the request, in its order. `failed`: node -> (reason, text). `rest`: for NO_ROOM."""
    no_room = ": ".join(NO_ROOM)
    written = isinstance(rest, Written) and len(rest) > 0 and not failed
    texts: dict[str, Any] = {} if written else dict.fromkeys(rest, no_room)
    hopeless: dict[str, str] = {}
    for name, (reason, text) in failed.items():
        (hopeless if reason in UNRESOLVABLE else texts)[name] = f"{reason}: {cut(text)}"
    answer: dict[str, Any] = {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": texts,
        "FailedAndUnresolvableNodes": hopeless,
        "Error": "",
    }
    if isinstance(rest, Written) and written:
        answer["FailedNodes"] = orjson.Fragment(b"{%b}" % rest.each_with(b":" + orjson.dumps(no_room)))
    if isinstance(passed, Written):
        answer["NodeNames"] = orjson.Fragment(b"[%b]" % passed.text)
    elif request.nodes is None:
        answer["NodeNames"] = passed
    else:
        answer["Nodes"] = {"metadata": {}, "items": [request.nodes[name] for name in passed]}
    return orjson.dumps(answer)


def cut(text: str) -> str:
    """A reason as it may stand in an answer."""
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 3]}..."


def write_filter_error(text: str) -> bytes:
    return orjson.dumps(
        {"Nodes": None, "NodeNames": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": text}
    )


def write_scores(request: FilterRequest, ranks: Ints) -> bytes:
    """Ranks in the order of the request's names (0 is best, -1 is none) as scores: the best alone gets the most, the
    others what is left, evenly by rank, down to 0 for the worst. The best stand first. Who is not named has 0, says
    kube-scheduler (in prioritizeNodes): in a large cluster most nodes are alike, and need no 400 lines for each pod."""
    worst = int(ranks.max(initial=0))
    if worst <= 0:
        return b"[]"
    scores = np.where(ranks > 0, (MAX_SCORE - 1) * (worst - ranks) // worst, np.where(ranks == 0, MAX_SCORE, 0))
    written = request.names if isinstance(request.names, Written) else Written.of(request.names)
    if written is None:
        some = zip(request.names, scores.tolist(), strict=True)
        best = sorted(((name, score) for name, score in some if score), key=lambda one: -one[1])
        return orjson.dumps([{"Host": name, "Score": score} for name, score in best])
    parts = zip(
        range(MAX_SCORE, 0, -1), written.parted((MAX_SCORE - scores).astype(np.int8), MAX_SCORE + 1), strict=False
    )
    listed = (part.each_with(b',"Score":%d}' % score, b'{"Host":') for score, part in parts if len(part))
    return b"[%b]" % b",".join(listed)


def read_bind(body: bytes) -> BindRequest:
    given = _body(body)
    keys = ("podname", "podnamespace", "poduid", "node")
    return BindRequest(*(_text(given.get(key), key) for key in keys))


def write_bind(error: str = "") -> bytes:
    return orjson.dumps({"Error": error})


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
    return orjson.dumps({"NodeNameToMetaVictims": entries})


def _without_names(body: bytes) -> tuple[dict[str, Any], Written | None]:
    """The body, and its NodeNames where they are many and can be left as they are written."""
    at = body.find(LISTED)
    start, end = at + len(LISTED), body.find(b"]", at)
    if at >= 0 and end - start >= MANY and (written := Written.read(body[start:end])) is not None:
        left = b'%b"%b"%b' % (body[: start - 1], CUT, body[end + 1 :])
        given = _body(left) if left.count(CUT) == 1 else {}
        if given.get("nodenames") == CUT.decode():  # else it was another's key that was found
            return given, written
    return _body(body), None


def _body(body: bytes) -> dict[str, Any]:
    try:
        given = orjson.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    return _lower(_object(given, "the body"))


def _lower(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in given.items()}


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"{what} is not an object")
    return value


def _texts(listed: list[Any]) -> bool:
    try:
        "".join(listed)  # a tenth of the time of looking at each
    except TypeError:
        return False
    return True


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{what} is not a name")
    return value
