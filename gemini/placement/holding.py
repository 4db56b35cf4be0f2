"""What a pod holds of each device: always + max(sum of apps, largest init), core, memory and slots each.

Plain frozen values. The three parts stay apart, so that what init containers needed can be given back when they have
ended, and a release takes back exactly what was put in.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from gemini.placement.model import GROWTH, Grant, Placement, Role

Where = tuple[str, int]  # type, minor
Amounts = tuple[int, int, int]  # core, memory, slots


@dataclass(frozen=True, slots=True)
class Held:
    """(core, memory, slots) of one device held by one pod, by when it is held."""

    always: Amounts = (0, 0, 0)
    apps: Amounts = (0, 0, 0)
    init: Amounts = (0, 0, 0)

    def total(self) -> Amounts:
        parts = zip(self.always, self.apps, self.init, strict=True)
        core, memory, slots = (a + max(b, c) for a, b, c in parts)
        return core, memory, slots

    def plus(self, grant: Grant, slots: int = 1) -> Held:
        more = (grant.core, grant.memory, slots)
        if grant.role is Role.ALWAYS:
            return Held(_sum(self.always, more), self.apps, self.init)
        if grant.role is Role.APP:
            return Held(self.always, _sum(self.apps, more), self.init)
        core, memory, slots = (max(a, b) for a, b in zip(self.init, more, strict=True))
        return Held(self.always, self.apps, (core, memory, slots))


def _sum(a: Amounts, b: Amounts) -> Amounts:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@dataclass(frozen=True, slots=True)
class Holding:
    """A placed pod. `initialized`: its init containers have ended and hold nothing any more."""

    placement: Placement
    initialized: bool = False

    def amounts(self) -> dict[Where, Amounts]:
        """What is held of each device in all."""
        if len(self.placement.grants) == 1:  # as most pods: there is nothing to add up
            (grant,) = self.placement.grants
            ended = self.initialized and grant.role is Role.INIT
            return {} if ended else {(grant.type, grant.minor): (grant.core, grant.memory, self._slots)}
        return {where: held.total() for where, held in self.devices().items()}

    def devices(self) -> dict[Where, Held]:
        held: dict[Where, Held] = defaultdict(Held)
        for grant in self.placement.grants:
            if not (self.initialized and grant.role is Role.INIT):
                held[grant.type, grant.minor] = held[grant.type, grant.minor].plus(grant, self._slots)
        return dict(held)

    def holds(self, kind: str) -> bool:
        """Whether it holds anything of a device of that type."""
        grants = self.placement.grants
        return any(one.type == kind and not (self.initialized and one.role is Role.INIT) for one in grants)

    @property
    def _slots(self) -> int:
        """Of each grant: what a pod is to hold beside what it has goes to a tenant that has its slot."""
        return 0 if self.placement.pod.startswith(GROWTH) else 1
