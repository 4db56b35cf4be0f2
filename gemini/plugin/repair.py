"""The kubelet gave a container what was meant for another pod: what puts annotation, record and environment in step.

Pure. What the container was given cannot be changed any more (the kubelet keeps its plugin's reply), so the promise
is: two pods that ask for the same, and hold the same amounts, exchange their cards. That takes three writes, in an
order in which no card ever looks freer than it is (whoever holds one of the two cards is always written down):

    1. the pod here: its own cards and the others, and with whom it exchanges
    2. the other pod: what this one had      3. the pod here: what it was given, and no more

Whoever is interrupted finds by the mark of step 1 how far it came. One exchange on a node is ended before another
begins, so nobody else has taken the partner meanwhile. The mark alone decides nothing about the pod that it names: that
one is written only where it would be chosen now, and else the pod here goes back to its own cards.
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
    """One write: annotations of a pod become these; None: there is none."""

    pod: PodClaims
    annotations: Mapping[str, str | None]


@dataclass(frozen=True)
class Plan:
    """Steps in order; none and a `reason`: nothing can be done."""

    steps: tuple[Step, ...] = ()
    reason: str = ""


def begun(pod: PodClaims) -> str | None:
    """The uid of the pod with which this one is in the middle of an exchange."""
    mark = _annotations(pod).get(names.EXCHANGE)
    return mark if isinstance(mark, str) and mark else None


def plan(pod: PodClaims, given: Sequence[str], free: Iterable[PodClaims]) -> Plan:
    """A new exchange. `given`: the uuids of the cards that the pod's container got; its record says others. `free`:
    pods that were not given just what their records say."""
    told = f"was given {', '.join(given)}, the record says {', '.join(_cards(pod))}"
    if not _simple(pod):
        return Plan(reason=f"{told}; a pod of several tenants or device types is not exchanged")
    partner = partner_of(pod, given, free)
    if partner is None:
        return Plan(reason=f"{told}; no other pod here asks for the same and holds that card")
    both = {GPU: [*pod.record[GPU], *partner.record[GPU]]}
    return Plan((
        _step(pod, both, partner.uid), _step(partner, pod.record), _step(pod, partner.record),
    ))  # fmt: skip


def resume(pod: PodClaims, given: Sequence[str], partner: PodClaims | None, free: Iterable[PodClaims]) -> Plan:
    """What is left of an exchange that was begun. `partner`: whom the mark names; None: gone. `free`: as plan's."""
    own, theirs = (_only(pod.record, given), _only(pod.record, [u for u in _cards(pod) if u not in given]))
    if not own[GPU]:
        return Plan(reason=f"was given {', '.join(given)}, which the record of its exchange does not name")
    if partner is None or set(_cards(partner)) != set(given):  # which has its new cards already
        return Plan((_step(pod, own),))
    if not theirs[GPU]:
        return Plan(
            reason=f"is exchanged with {partner.namespace}/{partner.name}, by its mark, but has one pod's cards"
        )
    alike = partner_of(pod, given, [one for one in free if one.uid == partner.uid], len(own[GPU])) is not None
    if not alike:
        return Plan((_step(pod, theirs),))
    return Plan((_step(partner, theirs), _step(pod, own)))


def partner_of(
    pod: PodClaims, given: Sequence[str], free: Iterable[PodClaims], count: int | None = None
) -> PodClaims | None:
    """A pod with the given cards that would be as well with this one's. `count`: so many of its entries are its own;
    None: all."""
    for other in free if pod.spec is not None and _simple(pod) else ():
        same = other.uid != pod.uid and _simple(other) and set(_cards(other)) == set(given)
        if (
            same
            and pod.spec is not None
            and other.spec is not None
            and (other.spec.ask.tenants, other.spec.shares) == (pod.spec.ask.tenants, pod.spec.shares)
            and _amounts(other) == _amounts(pod)[:count]
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


def _step(pod: PodClaims, record: Mapping[str, Any], partner: str | None = None) -> Step:
    annotations: dict[str, str | None] = {names.ALLOCATION: json.dumps(record, separators=(",", ":"))}
    if names.ALIYUN_INDEX in _annotations(pod):
        minors = sorted({entry["minor"] for entry in record.get(GPU, [])})
        annotations[names.ALIYUN_INDEX] = ",".join(map(str, minors))
    return Step(pod, {**annotations, names.EXCHANGE: partner})


def _annotations(pod: PodClaims) -> Mapping[str, Any]:
    return (pod.object.get("metadata") or {}).get("annotations") or {}
