"""The kubelet gave a container what was meant for another pod: what puts annotation, record and environment in step.

Pure. What the container was given cannot be changed any more (the kubelet keeps its plugin's reply), so the promise
is: two pods that ask for the same, and hold the same amounts, exchange their cards. That takes three writes, in an
order in which no card ever looks freer than it is (whoever holds one of the two cards is always written down):

    1. the pod here: its own cards and the others    2. the other pod: what this one had    3. the pod here: the rest

Whoever starts again in between finds where it was by the record of more cards than were given (FINISH).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemini.kube import names
from gemini.placement.model import GPU
from gemini.plugin.claims import PodClaims


@dataclass(frozen=True)
class Step:
    """One write: the annotations of a pod become these."""

    pod: PodClaims
    annotations: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """Steps in order; none and a `reason`: nothing can be done."""

    steps: tuple[Step, ...] = ()
    reason: str = ""


def plan(pod: PodClaims, given: Sequence[str], others: Iterable[PodClaims]) -> Plan:
    """`given`: the uuids of the cards that the pod's container got; its record says others."""
    own = _cards(pod)
    told = f"was given {', '.join(given)}, the record says {', '.join(own)}"
    if not _simple(pod):
        return Plan(reason=f"{told}; a pod of several tenants or device types is not exchanged")
    if set(given) < set(own):  # an exchange that was begun
        partner = _partner(pod, given, others, own)
        if partner is None:
            return Plan((_step(pod, _only(pod.record, given)),))
        rest = [uuid for uuid in own if uuid not in given]
        return Plan((_step(partner, _only(pod.record, rest)), _step(pod, _only(pod.record, given))))
    partner = _partner(pod, given, others, own)
    if partner is None:
        return Plan(reason=f"{told}; no other pod here asks for the same and holds that card")
    both = {GPU: [*pod.record[GPU], *partner.record[GPU]]}
    return Plan((_step(pod, both), _step(partner, pod.record), _step(pod, partner.record)))


def _partner(pod: PodClaims, given: Sequence[str], others: Iterable[PodClaims], own: Sequence[str]) -> PodClaims | None:
    """A pod with the given cards that would be as well with this one's."""
    for other in others:
        same = other.uid != pod.uid and _simple(other) and set(_cards(other)) == set(given)
        assert pod.spec is not None
        if (
            same
            and other.spec is not None
            and (other.spec.ask.tenants, other.spec.shares) == (pod.spec.ask.tenants, pod.spec.shares)
            and _amounts(other) == _amounts(pod)[: len(given)]
        ):
            return other
    return None


def _simple(pod: PodClaims) -> bool:
    return pod.spec is not None and len(pod.spec.ask.tenants) == 1 and set(pod.record) == {GPU}


def _cards(pod: PodClaims) -> list[str]:
    return [str(entry.get("uuid")) for entry in pod.record.get(GPU, [])]


def _amounts(pod: PodClaims) -> list[Any]:
    return [entry["resources"] for entry in pod.record[GPU]]


def _only(record: Mapping[str, Any], uuids: Sequence[str]) -> dict[str, Any]:
    return {GPU: [entry for entry in record[GPU] if entry.get("uuid") in uuids]}


def _step(pod: PodClaims, record: Mapping[str, Any]) -> Step:
    annotations = {names.ALLOCATION: json.dumps(record, separators=(",", ":"))}
    known = (pod.object.get("metadata") or {}).get("annotations") or {}
    if names.ALIYUN_INDEX in known:
        minors = sorted({entry["minor"] for entry in record.get(GPU, [])})
        annotations[names.ALIYUN_INDEX] = ",".join(map(str, minors))
    return Step(pod, annotations)
