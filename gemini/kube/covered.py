"""How far the part of a pod that nobody can change covers what its annotations say that it holds.

Pure. Who may edit a pod may edit its annotations, and where no admission policy keeps them from it the record is what
they like. The resources of its containers are fixed from its creation. So a record counts as it stands only where it
adds up to those. One that does not, or is missing or in pieces, tells nothing. The pod then counts with all that its
resources ask for on every card of its node: a card may look fuller than it is, never freer. A pod whose resources ask
for nothing holds nothing.

Which cards the record names is not covered by anything: of those only the kubelet knows, on the node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemini.kube import names, quantity
from gemini.kube.spelling import GPUSHARE_UNITS, MEBI, S2_DOMAINS
from gemini.placement.model import GPU, WHOLE, Device, Grant, Role
from gemini.units import BadValue

# A ratio was worked out when the pod was bound, and a newer driver may say another size of the same card.
SLACK_PERCENT = 10
MOST_BYTES = 2**50  # of a card that is not known
_CORE, _RATIO = ("gpu", "gpu-core"), ("gpu", "gpu-memory-ratio", "gpu-mem-ratio")
_MEMORY = ("gpu-memory", "gpu-mem")


@dataclass(frozen=True, slots=True)
class Asked:
    """Sums over a pod's containers, init containers too. `spare`: slots that are asked so that the kubelet calls the
    device plugin, and may be more than was promised; `follows`: percent of memory that go with time where a container
    says nothing of memory; `by_memory`: gpushare's, in bytes, whose time goes with it."""

    core: int = 0
    memory: int = 0
    ratio: int = 0
    spare: int = 0
    follows: int = 0
    by_memory: int = 0

    @property
    def cards(self) -> bool:
        """Whether anything of a card is asked."""
        return bool(self.core or self.by_memory)

    def everywhere(self, devices: Sequence[Device]) -> tuple[Grant, ...]:
        """All of it on each card: what is held where nobody knows of which."""
        core = WHOLE if self.by_memory else min(WHOLE, self.core)
        return tuple(
            Grant(GPU, one.minor, core, min(one.memory, self._most(one.memory)), role=Role.ALWAYS)
            for one in devices
            if one.type == GPU and self.cards
        )

    def covers(self, grants: Sequence[Grant], sizes: Mapping[int, int], times: int = 1) -> bool:
        """Whether the grants of cards add up to so many times this. `sizes`: bytes by minor, of the cards that are
        there; of others a ratio cannot be checked."""
        if any(one.core > WHOLE or one.memory > 2 * sizes.get(one.minor, MOST_BYTES) for one in grants):
            return False  # nobody was promised that, whatever is asked; the book's numbers have an end
        core, memory = sum(one.core for one in grants), sum(one.memory for one in grants)
        if self.by_memory and not self.core:
            exact = memory == times * self.by_memory
            return exact and all(one.core <= _core_of(one, sizes.get(one.minor, 0)) for one in grants)
        if not times * self.core - self.spare * len(grants) <= core <= times * self.core:
            return False
        if not self.ratio and not self.follows:
            return memory == times * (self.memory + self.by_memory)
        known = [sizes[one.minor] for one in grants if one.minor in sizes]
        if len(known) < len(grants):
            return True
        fixed = self.memory + self.by_memory
        least = fixed + self.ratio * min(known, default=0) // WHOLE
        most = fixed + (self.ratio + self.follows) * max(known, default=0) // WHOLE
        return least * (WHOLE - SLACK_PERCENT) <= memory * WHOLE // times <= most * (WHOLE + SLACK_PERCENT)

    def _most(self, size: int) -> int:
        return self.memory + self.by_memory + (self.ratio + self.follows) * size // WHOLE


def asked_by(pod: Mapping[str, Any], offered: Collection[str] | None = None) -> Asked:
    """What the resources of the pod's containers ask for, in whichever domain. What is no amount counts as none: the
    API server has let no such thing in. `offered`: the resources that its node has; None: not known. Others than ours
    that the node has not ask for nothing: who names the node in the pod may write them, and the kubelet leaves them
    out."""
    spec = _mapping(pod.get("spec"))
    unit = GPUSHARE_UNITS.get(_mapping(_mapping(pod.get("metadata")).get("annotations")).get(names.GPUSHARE_UNIT, MEBI))
    total = Asked()
    for key in ("initContainers", "containers"):
        listed = spec.get(key)
        for container in listed if isinstance(listed, list) else ():
            resources = _mapping(_mapping(container).get("resources"))
            amounts = {**_mapping(resources.get("requests")), **_mapping(resources.get("limits"))}
            if offered is not None:
                amounts = {key: amount for key, amount in amounts.items() if key in offered or _ours(key)}
            if any("/" in name for name in amounts):
                total = _plus(total, amounts, unit or 1)
    return total


def _plus(total: Asked, amounts: Mapping[str, Any], unit: int) -> Asked:
    core, ratio, memory = (_sum(amounts, kinds) for kinds in (_CORE, _RATIO, _MEMORY))
    return Asked(
        total.core + core,
        total.memory + memory,
        total.ratio + ratio,
        total.spare + bool(core),
        total.follows + (core if not memory and not ratio else 0),
        total.by_memory + _whole(amounts.get(names.ALIYUN_GPU_MEM)) * unit,
    )


def _sum(amounts: Mapping[str, Any], kinds: Sequence[str]) -> int:
    return sum(_whole(amounts.get(f"{domain}/{kind}")) for domain in S2_DOMAINS for kind in kinds)


def _whole(value: object) -> int:
    try:
        return 0 if value is None else max(0, quantity.parse_whole(value))
    except BadValue:
        return 0


def _ours(key: str) -> bool:
    return key.startswith(f"{names.DOMAIN}/")


def _core_of(grant: Grant, size: int) -> int:
    return min(WHOLE, WHOLE * grant.memory // size) if size else WHOLE


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
