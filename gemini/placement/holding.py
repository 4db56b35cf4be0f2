"""What a pod holds of each device: always + max(sum of apps, largest init), core, memory and slots each.

Plain frozen values. The three parts stay apart, so that what init containers needed can be given back when they have
ended, and a release takes back exactly what was put in.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from gemini.placement.model import Grant, Placement, Role

Where = tuple[str, int]  # type, minor


@dataclass(frozen=True, slots=True)
class Held:
    """(core, memory, slots) of one device held by one pod, by when it is held."""

    always: tuple[int, int, int] = (0, 0, 0)
    apps: tuple[int, int, int] = (0, 0, 0)
    init: tuple[int, int, int] = (0, 0, 0)

    def total(self) -> tuple[int, int, int]:
        parts = zip(self.always, self.apps, self.init, strict=True)
        core, memory, slots = (a + max(b, c) for a, b, c in parts)
        return core, memory, slots

    def plus(self, grant: Grant) -> Held:
        more = (grant.core, grant.memory, 1)
        if grant.role is Role.ALWAYS:
            return Held(_sum(self.always, more), self.apps, self.init)
        if grant.role is Role.APP:
            return Held(self.always, _sum(self.apps, more), self.init)
        core, memory, slots = (max(a, b) for a, b in zip(self.init, more, strict=True))
        return Held(self.always, self.apps, (core, memory, slots))


def _sum(a: tuple[int, int, int], b: tuple[int, int, int]) -> tuple[int, int, int]:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@dataclass(frozen=True, slots=True)
class Holding:
    """A placed pod. `initialized`: its init containers have ended and hold nothing any more."""

    placement: Placement
    initialized: bool = False

    def devices(self) -> dict[Where, Held]:
        held: dict[Where, Held] = defaultdict(Held)
        for grant in self.placement.grants:
            if not (self.initialized and grant.role is Role.INIT):
                held[grant.type, grant.minor] = held[grant.type, grant.minor].plus(grant)
        return dict(held)
