"""Quotas of namespaces on the memory of cards, whatever the spelling in which a pod asks for it.

A ResourceQuota counts what stands in the resources of a pod's containers, so bytes are passed by a ratio, and both by
gpushare's resource. Where a namespace's quota names `gemini.io/gpu-memory`, a ratio is therefore turned into the bytes
that it makes on the cards the pod may be given, and refused where these differ. Pure, but for what Known is told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gemini.kube import names
from gemini.kube.device import read_device
from gemini.kube.pod import PodSpec, parse_pod
from gemini.kube.spelling import InvalidPod
from gemini.placement.explain import format_bytes
from gemini.placement.model import GPU, WHOLE, Device, Want
from gemini.placement.scan import same_model

QUOTA, DEVICE = "ResourceQuota", "Device"
KINDS = (QUOTA, DEVICE)
_REQUESTS = "requests."
_CARD = (names.RESOURCE_CORE, names.RESOURCE_MEMORY, names.RESOURCE_RATIO)


class Known:
    """What has been watched of quotas and cards (gemini.kube.follow)."""

    def __init__(self) -> None:
        self._quotas: dict[tuple[str, str], frozenset[str]] = {}
        self._cards: dict[str, tuple[Device, ...]] = {}
        self._kinds: Counter[tuple[str, int]] = Counter()  # (model, bytes) -> how many cards
        self._by_uuid: defaultdict[str, Counter[tuple[str, int]]] = defaultdict(Counter)

    def replace(self, kind: str, objects: Iterable[Mapping[str, Any]], version: int = 0) -> None:
        if kind == QUOTA:
            self._quotas.clear()
        else:
            self._cards, self._kinds, self._by_uuid = {}, Counter(), defaultdict(Counter)
        for one in objects:
            self.apply(kind, "ADDED", one)

    def apply(self, kind: str, event: str, given: Mapping[str, Any]) -> None:
        metadata = given.get("metadata") or {}
        name, there = str(metadata.get("name")), event != "DELETED"
        if kind == DEVICE:
            self._count(self._cards.pop(name, ()), -1)
            if there:
                cards = tuple(d for d in read_device(dict(given)).node.devices if d.type == GPU)
                self._cards[name] = cards
                self._count(cards, 1)
            return
        hard = (given.get("spec") or {}).get("hard") or {}
        counted = (key.removeprefix(_REQUESTS) for key in hard if key.startswith(_REQUESTS))
        self._quotas[str(metadata.get("namespace")), name] = frozenset(counted) if there else frozenset()

    def counted(self, namespace: str) -> frozenset[str]:
        """The resources that quotas of the namespace count."""
        return frozenset(key for (of, _), keys in self._quotas.items() if of == namespace for key in keys)

    def _count(self, cards: Iterable[Device], many: int) -> None:
        for card in cards:
            kind = same_model(card.model), card.memory
            for counter in (self._kinds, self._by_uuid[card.uuid]):
                counter[kind] += many
                if not counter[kind]:
                    del counter[kind]
            if not self._by_uuid[card.uuid]:
                del self._by_uuid[card.uuid]

    def sizes(self, want: Want) -> list[int]:
        """Of the cards that would do."""
        models = {same_model(model) for model in want.models}
        left = self._kinds - self._named(want.excluded)
        if want.uuids:
            left = self._named(want.uuids - want.excluded)
        return sorted({memory for model, memory in left if not models or model in models})

    def _named(self, uuids: Iterable[str]) -> Counter[tuple[str, int]]:
        found: Counter[tuple[str, int]] = Counter()
        for uuid in uuids:
            found.update(self._by_uuid.get(uuid, ()))
        return found


@dataclass
class Resolved:
    """The pod with bytes in place of ratios; what has to be written for it. `turned`: for the user."""

    spec: PodSpec
    annotations: dict[str, str] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    labels: dict[str, str] = field(default_factory=dict)
    turned: list[str] = field(default_factory=list)

    def check(
        self, pod: Mapping[str, Any], annotations: Mapping[str, str], types: Collection[str], aside: Collection[str]
    ) -> None:
        """That the pod, with these annotations, says just that: one key may speak for several containers. `aside`:
        those without a share. Raises InvalidPod."""
        metadata = pod.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), **self.labels}
        told = {**pod, "metadata": {**metadata, "annotations": dict(annotations), "labels": labels}}
        now = parse_pod(told, types, aside=aside)
        if [t.wants for t in now.ask.tenants] != [t.wants for t in self.spec.ask.tenants]:
            mend = f"write {names.GPU_MEMORY} for each container that has a share"
            raise InvalidPod(names.GPU_MEMORY, f"has to be counted in bytes by the namespace's quota; {mend}")


def resolve(spec: PodSpec, said: Collection[str], namespace: str, known: Known | None) -> Resolved:
    """`said`: the keys of the pod's annotations. Raises InvalidPod."""
    result = Resolved(spec)
    counted = known.counted(namespace) if known is not None else frozenset()
    if known is None or counted.isdisjoint(_CARD):
        return result
    tenants = []
    for tenant, share in zip(spec.ask.tenants, spec.shares, strict=True):
        wants = []
        for want in tenant.wants:
            if want.type == GPU and share.spelling == names.ALIYUN and names.ALIYUN_GPU_MEM not in counted:
                key = next(key for key in _CARD if key in counted)
                problem = f"is not counted by the namespace's quota on {key}; ask by {names.DOMAIN}/"
                raise InvalidPod(names.ALIYUN_GPU_MEM, problem)
            if want.type == GPU and share.spelling != names.ALIYUN:
                fresh = _counted(want, counted, known)
                if fresh is not want:
                    _write(result, tenant.containers, fresh, share.spelling, said)
                want = fresh
            wants.append(want)
        tenants.append(replace(tenant, wants=tuple(wants)))
    result.spec = replace(spec, ask=replace(spec.ask, tenants=tuple(tenants)))
    return result


def _counted(want: Want, counted: Collection[str], known: Known) -> Want:
    """The want in what the quota counts; the same where it is so."""
    if names.RESOURCE_MEMORY not in counted:
        if want.memory is not None and names.RESOURCE_RATIO in counted:
            problem = f"bytes are not counted by the namespace's quota on {names.RESOURCE_RATIO}; ask by that"
            raise InvalidPod(names.GPU_MEMORY, problem)
        return want
    if not want.ratio:
        return want
    asked = f"{want.ratio} percent of a card has to be counted in bytes by the namespace's quota"
    sizes = known.sizes(want)
    if not sizes:
        raise InvalidPod(names.GPU_MEMORY, f"{asked}, and no card is known that would do; write {names.GPU_MEMORY}")
    if len(sizes) > 1:
        differ = ", ".join(map(format_bytes, sizes))
        mend = f"write {names.GPU_MEMORY}, or {names.GPU_MODEL} for cards of one size"
        raise InvalidPod(names.GPU_MEMORY, f"{asked}, and cards of {differ} would do; {mend}")
    return replace(want, memory=sizes[0] * want.ratio // WHOLE, ratio=None, follows=False)


def _write(result: Resolved, containers: tuple[str, ...], want: Want, spelling: str, said: Collection[str]) -> None:
    """Puts the bytes where the share was said. Shares of resources become annotations anyway (review.py)."""
    result.turned.append(f"{names.GPU_MEMORY}: {want.memory}, as the namespace's quota counts bytes")
    if spelling == names.KUBESHARE:
        result.labels[names.SHARED_MEMORY] = str(want.memory)
        return
    own = len(containers) == 1 and any(f"{key}.{containers[0]}" in said for key in names.SHARE_KEYS)
    if own or any(key in said for key in names.SHARE_KEYS):
        suffix = f".{containers[0]}" if own else ""
        result.annotations[f"{names.GPU_MEMORY}{suffix}"] = str(want.memory)
        result.dropped.add(f"{names.GPU_MEMORY_RATIO}{suffix}")
