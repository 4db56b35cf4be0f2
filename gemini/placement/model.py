"""What placement speaks of: devices on nodes, and what a pod wants of them.

Plain frozen values. Core is whole percent of a device (100 = one device), memory is bytes, both exact integers.
Nothing here knows how a pod spells its wishes, nor how a node reports its cards.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum

GPU = "gpu"
WHOLE = 100
GROWTH = "resize/"  # begins the key of what a placed pod is to hold beside what it has: it takes no slot
NODE_LEVEL = "node"  # the narrowest part of a cluster that the pods of a group may be held to


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a node; `numa` and `pcie` are None where they are unknown."""

    minor: int
    type: str = GPU
    uuid: str = ""
    model: str = ""
    memory: int = 0
    core: int = WHOLE
    health: bool = True
    numa: str | None = None
    pcie: str | None = None
    slots: int | None = None  # the most tenants at once; None: no bound
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A connection of two gpus by minor: `count` NVLinks, or (kind PIX..SYS) the way between them over PCIe."""

    a: int
    b: int
    kind: str
    count: int = 0


@dataclass(frozen=True, slots=True)
class Partitions:
    """Sets of minors that may be given to asks of whole cards; `strict`: only these."""

    strict: bool
    sets: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    partitions: Partitions | None = None


class Role(Enum):
    """When a tenant holds what it was given: for the pod's life, beside the other apps, or before them and alone."""

    ALWAYS = "always"  # sidecars, and the share of a whole pod
    APP = "app"
    INIT = "init"


@dataclass(frozen=True, slots=True)
class Want:
    """What one tenant wants of one type of device: `count` devices, each with the amounts below.

    Memory is said in bytes, as `ratio` percent of whichever card is taken, or not at all. `follows` says that the
    ratio was not asked for but goes with the share. `by_memory` is gpushare's way: core goes with memory.
    `joint` lists (type, core): from each PCIe switch of the chosen cards one device of that type as well.
    """

    type: str = GPU
    count: int = 1
    core: int = 0
    memory: int | None = None
    ratio: int | None = None
    follows: bool = False
    by_memory: bool = False
    models: frozenset[str] = frozenset()
    uuids: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    scope: str | None = None
    joint: tuple[tuple[str, int], ...] = ()

    @property
    def constraints(self) -> tuple[str, ...]:
        """The fields beside the amounts that say something: which devices will do, and which sets of them."""
        return tuple(name for name, unsaid in _CONSTRAINTS if getattr(self, name) != unsaid)

    @property
    def whole(self) -> bool:
        """Whether each device is wanted with all of its time."""
        return self.core == WHOLE

    def memory_on(self, total: int) -> int:
        """Bytes taken on a device of `total` bytes: floor(total x percent / 100) for a ratio."""
        if self.memory is not None:
            return self.memory
        return total * self.ratio // 100 if self.ratio is not None else 0

    def core_on(self, total: int) -> int:
        """Percent of core taken on a device of `total` bytes; rounded down where it goes with the memory, so that
        cards which have the memory never lack the core (the floors of parts sum to no more than the whole)."""
        if not self.by_memory:
            return self.core
        return min(WHOLE, WHOLE * self.memory_on(total) // total) if total else WHOLE


# What each device gives, by the device alone. A field that is not named here is a constraint: what looks at amounts
# only (single.py) leaves a want that says one to the scan.
AMOUNTS = frozenset({"type", "core", "memory", "ratio", "follows", "by_memory"})
_CONSTRAINTS = tuple((one.name, one.default) for one in fields(Want) if one.name not in AMOUNTS)


@dataclass(frozen=True, slots=True)
class Tenant:
    """The unit of account inside a pod: all containers that share one share, or one container with its own."""

    containers: tuple[str, ...]
    role: Role
    wants: tuple[Want, ...]
    policies: tuple[str, ...] | None = None  # None: those of the pod


@dataclass(frozen=True, slots=True)
class Ask:
    """A pod that wants devices. Tenants stand in the order in which they are placed."""

    pod: str
    tenants: tuple[Tenant, ...]
    policies: tuple[str, ...] | None = None  # None: those of the cluster
    group: str | None = None
    group_size: int = 1
    # The group within one node, or within one domain of another level (kube/group.py); and where it is better off.
    required: str = NODE_LEVEL
    preferred: str | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """One device as given to one tenant of a pod."""

    type: str
    minor: int
    core: int
    memory: int
    tenant: int = 0
    role: Role = Role.ALWAYS


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod on a node, with every device that its tenants were given."""

    pod: str
    node: str
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Why a node cannot take an ask: a reason code, a sentence, and a text for each device that cannot."""

    reason: str
    message: str
    devices: dict[str, str] = field(default_factory=dict)
