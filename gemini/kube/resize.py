"""Another share for a pod that runs: the Resize object, what of it is booked, and what its node enforces.

Pure. A Resize has the name and namespace of its pod, and the pod as its owner, so that it goes with it. Three parties
write it, each its own part: whoever may edit it the wish (`spec`), the extender what it stands by (`status.booked`, for
the generation in `status.answered`), the pod's node what it holds the pod to (`status.enforced`). The node follows what
is booked, never the wish. At any time the pod counts with the larger of booked and enforced, so nothing is promised
twice whoever ends when: more is booked before the node enforces it, less is given back after.

All of the status is said of the pod in `status.pod`; of another pod it says nothing.

`enforced` is the most that the node may be enforcing: before it gives more it writes so, after it gave less it does. It
gives just what is booked where `settled` is true. Where a part is missing, the pod's own record stands in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemini.kube import names
from gemini.kube.quantity import parse_quantity
from gemini.placement.model import GPU, GROWTH, WHOLE, Grant, Placement, Role
from gemini.units import BadValue

MOST_BYTES = 2**50
MOST_TEXT = 1_000  # characters of a reason; who may write the status may say ever so much, and everybody keeps it
_TEXTS = ("pod", "node", "refused", "waits")
_KEPT = ("namespace", "name", "uid", "resourceVersion")


@dataclass(frozen=True, slots=True)
class Amounts:
    """Of each card: percent of its time, promised and at most, and bytes."""

    request: int
    limit: int
    memory: int

    def most(self, other: Amounts) -> Amounts:
        """The larger of both, one by one."""
        return Amounts(max(self.request, other.request), max(self.limit, other.limit), max(self.memory, other.memory))

    def within(self, other: Amounts) -> bool:
        """Whether nothing of it is more."""
        return self.most(other) == other

    def written(self) -> dict[str, int]:
        return {"request": self.request, "limit": self.limit, "memory": self.memory}


@dataclass(frozen=True)
class Resize:
    """`uid`: of the pod. `generation`: of the wish. `refused`: why the wish of generation `answered` was not booked;
    `waits`: why the node does not enforce yet what is booked."""

    uid: str
    namespace: str
    name: str
    generation: int
    wanted: Amounts
    answered: int
    refused: str
    booked: Amounts | None
    enforced: Amounts | None
    settled: bool
    waits: str
    node: str  # whose the pod is, as the extender says; empty: it has said nothing yet
    object: Mapping[str, Any]  # what tells it from others: who makes one may write ever so much into the rest
    stranger: bool = False  # its status is of another pod, and says nothing

    @property
    def pod(self) -> str:
        """All that tells its pod from others: of what somebody writes into another namespace it is no part."""
        return full_name(self.namespace, self.name, self.uid)

    @property
    def key(self) -> str:
        """Of what is promised for this wish, in the book and the node's lease."""
        return f"{GROWTH}{self.pod}/{self.generation}"

    @property
    def waiting(self) -> bool:
        """Whether the extender has not answered the wish yet."""
        return self.answered != self.generation

    @property
    def version(self) -> str:
        return str(_mapping(self.object.get("metadata")).get("resourceVersion", ""))

    @property
    def own(self) -> str:
        """The uid of the object itself."""
        return str(_mapping(self.object.get("metadata")).get("uid", ""))


def read_resize(given: Mapping[str, Any]) -> Resize | None:
    """None where it is no Resize of a pod."""
    metadata, status = _mapping(given.get("metadata")), _mapping(given.get("status"))
    name, generation = metadata.get("name"), metadata.get("generation", 0)
    wanted, owners = _amounts(given.get("spec")), metadata.get("ownerReferences")
    uids = [
        one.get("uid")
        for one in (owners if isinstance(owners, list) else [])
        if isinstance(one, dict) and one.get("kind") == "Pod" and one.get("name") == name
    ]
    if wanted is None or len(uids) != 1 or not uids[0] or not isinstance(generation, int):
        return None
    stranger = bool(status) and status.get("pod") != uids[0]
    if stranger:
        status = {}
    answered = status.get("answered", 0)
    return Resize(
        uid=str(uids[0]),
        namespace=str(metadata.get("namespace", "")),
        name=str(name),
        generation=generation,
        wanted=wanted,
        answered=answered if isinstance(answered, int) else 0,
        refused=str(status.get("refused") or "")[:MOST_TEXT],
        booked=_amounts(status.get("booked")),
        enforced=_amounts(status.get("enforced")),
        settled=status.get("settled") is True,
        waits=str(status.get("waits") or "")[:MOST_TEXT],
        node=str(status.get("node") or "")[:MOST_TEXT],
        object={"metadata": {key: metadata[key] for key in _KEPT if key in metadata}},
        stranger=stranger,
    )


def slim_resize(given: Mapping[str, Any]) -> dict[str, Any]:
    """A Resize from which the same is read: what else is in it, whoever may make one makes as large as he likes."""
    metadata, status = _mapping(given.get("metadata")), _mapping(given.get("status"))
    owners = metadata.get("ownerReferences")
    named = [
        {key: one.get(key) for key in ("kind", "name", "uid")}
        for one in (owners if isinstance(owners, list) else [])
        if isinstance(one, dict) and one.get("kind") == "Pod" and one.get("name") == metadata.get("name")
    ]
    kept = {key: metadata[key] for key in (*_KEPT, "generation") if key in metadata}
    amounts = {part: _some(given.get("status"), part) for part in ("booked", "enforced") if part in status}
    said = {key: status[key] for key in ("answered", "settled") if key in status}
    said |= {key: str(status[key] or "")[:MOST_TEXT] for key in _TEXTS if key in status}
    return {
        "metadata": {**kept, "ownerReferences": named[:2]}, "spec": _some(given, "spec"), "status": {**said, **amounts},
    }  # fmt: skip


def _some(given: object, part: str) -> dict[str, Any]:
    said = _mapping(_mapping(given).get(part))
    return {key: said[key] for key in ("request", "limit", "memory") if key in said}


def full_name(namespace: str, name: str, uid: str) -> str:
    return f"{namespace}/{name}/{uid}"


def pod_of(key: str) -> str | None:
    """The pod in a key of a Resize's promise, by its full name; None: it is no such key."""
    return key.removeprefix(GROWTH).rpartition("/")[0] if key.startswith(GROWTH) else None


def uid_of(key: str) -> str | None:
    """The same by its uid."""
    pod = pod_of(key)
    return None if pod is None else pod.rpartition("/")[2]


def resizable(placement: Placement) -> bool:
    """Whether all of a pod's cards are one tenant's, for as long as it lives."""
    return bool(cards(placement)) and all(one.tenant == 0 and one.role is Role.ALWAYS for one in placement.grants)


def cards(placement: Placement) -> list[Grant]:
    return [grant for grant in placement.grants if grant.type == GPU]


def held(placement: Placement, booked: Amounts | None, enforced: Amounts | None) -> Placement:
    """What a pod of that record counts with."""
    if (booked is None and enforced is None) or not resizable(placement):
        return placement
    return replace(placement, grants=tuple(_most(grant, booked, enforced) for grant in placement.grants))


def _most(grant: Grant, booked: Amounts | None, enforced: Amounts | None) -> Grant:
    if grant.type != GPU:
        return grant
    core = [grant.core if one is None else one.request for one in (booked, enforced)]
    memory = [grant.memory if one is None else one.memory for one in (booked, enforced)]
    return replace(grant, core=max(core), memory=max(memory))


def growth(key: str, now: Placement, then: Placement) -> Placement:
    """What `then` has beyond `now`, of the same cards; without grants: nothing."""
    grants = [
        replace(after, core=max(0, after.core - before.core), memory=max(0, after.memory - before.memory))
        for before, after in zip(now.grants, then.grants, strict=True)
    ]
    return Placement(key, now.node, tuple(grant for grant in grants if grant.core or grant.memory))


def counted(pod: Mapping[str, Any], record: Placement, wanted: Amounts, quotas: Iterable[Mapping[str, Any]]) -> str:
    """Who counts what the pod's own resources name, where the wish is above those: a growth that went past them would
    be counted by nobody. Empty: nobody, or it is not above. The record adds up to the resources."""
    core = any(wanted.request > grant.core for grant in cards(record))
    memory = any(wanted.memory > grant.memory for grant in cards(record))
    if not core and not memory:
        return ""
    metadata = _mapping(pod.get("metadata"))
    for part in ("labels", "annotations"):
        for key in _mapping(metadata.get(part)):
            if key.startswith(names.KUEUE):
                return f"Kueue ({key})"
    for quota in quotas:
        for key in _mapping(_mapping(quota.get("spec")).get("hard")):
            kind = key.removeprefix("requests.").partition("/")[2]
            both = core or memory
            if (kind == "gpu-core" and core) or (kind.startswith("gpu-mem") and memory) or (kind == "gpu" and both):
                name = _mapping(quota.get("metadata")).get("name", "")
                return f"the ResourceQuota {name} ({key})"
    return ""


def bounded(record: Placement, wanted: Amounts, sizes: Mapping[int, int], ranges: Iterable[Mapping[str, Any]]) -> str:
    """Which LimitRange lets nobody ask for so much, where the wish is above what the pod's own resources name, and of
    what. `sizes`: bytes of the node's cards, by minor. Empty: none. As with a new pod, what is on all of its cards
    counts."""
    own = cards(record)
    grows = {
        "gpu-core": any(wanted.request > grant.core for grant in own),
        "gpu-mem": any(wanted.memory > grant.memory for grant in own),
    }
    percent = sum(-(-wanted.memory * WHOLE // sizes[g.minor]) if sizes.get(g.minor) else WHOLE for g in own)
    asked = {
        "gpu-core": wanted.request * len(own), "gpu-memory": wanted.memory * len(own), "gpu-memory-ratio": percent,
        "gpu": max(wanted.request * len(own), percent),
    }  # fmt: skip
    for one in ranges:
        limits = _mapping(one.get("spec")).get("limits")
        for limit in limits if isinstance(limits, list) else ():
            for key, most in _mapping(_mapping(limit).get("max")).items():
                kind = key.partition("/")[2]
                grown = any(grows.values()) if kind == "gpu" else any(kind.startswith(k) and grows[k] for k in grows)
                if kind in asked and grown and not _fits(asked[kind], most):
                    name = _mapping(one.get("metadata")).get("name", "")
                    return (
                        f"the LimitRange {name} lets nobody have more than {most} of {key}, and this is {asked[kind]}"
                    )
    return ""


def _fits(amount: int, most: object) -> bool:
    try:
        return amount <= parse_quantity(most)
    except BadValue:
        return False


def _amounts(given: object) -> Amounts | None:
    said = _mapping(given)
    request, limit, memory = (said.get(key) for key in ("request", "limit", "memory"))
    if not (_whole(request, WHOLE) and _whole(limit, WHOLE) and _whole(memory, MOST_BYTES)):
        return None
    return Amounts(int(request or 0), int(limit or 0), int(memory or 0))


def _whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
