"""Slots: the devices that the kubelet counts, hands out and remembers. The id of a slot names its card.

Pure. `gemini.io/gpu-core` has a hundred slots a card, so that the kubelet's own record of ids *is* the cards that a
container got, whatever becomes of us. In gpushare mode there is one for each MiB or GiB of memory instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemini.kube import names
from gemini.kube.device import read_device
from gemini.kube.spelling import GPUSHARE_UNITS
from gemini.placement.model import GPU, WHOLE

MIB = 2**20
MOST_BYTES = 4 << 20  # a gRPC message as the kubelet takes it; longer lists of devices never arrive
_BESIDE_ID = 24  # of a device in that message: health, NUMA node, and what frames them


class TooManySlots(ValueError):
    """The list of slots would not fit into one message; one line with the mend."""


@dataclass(frozen=True)
class Card:
    uuid: str
    minor: int
    memory: int
    health: bool = True
    numa: int | None = None
    cpus: str = ""  # the cores nearest to it, as Linux writes lists


@dataclass(frozen=True)
class Kind:
    """A resource and what one slot of it is: a percent of a card's time, or `unit` bytes of its memory."""

    resource: str
    unit: int = 0

    def count(self, card: Card) -> int:
        return card.memory // self.unit if self.unit else WHOLE


CORE = Kind(names.RESOURCE_CORE)


def gpushare(unit: str) -> Kind:
    return Kind(names.ALIYUN_GPU_MEM, GPUSHARE_UNITS[unit])


def cards_of(device: Mapping[str, Any]) -> tuple[list[Card], tuple[str, ...]]:
    """The gpus of a Device object by minor, and what is wrong with it."""
    reported = read_device(dict(device))
    nearest = {}
    for entry in (device.get("spec") or {}).get("devices") or []:
        topology = entry.get("topology") if isinstance(entry, dict) else None
        cpus = topology.get("cpus") if isinstance(topology, dict) else None
        if isinstance(cpus, str):
            nearest[entry.get("id")] = cpus
    found = [
        Card(
            one.uuid, one.minor, one.memory, one.health,
            int(one.numa) if one.numa is not None and one.numa.isdecimal() else None, nearest.get(one.uuid, ""),
        )
        for one in reported.node.devices
        if one.type == GPU and one.uuid
    ]  # fmt: skip
    return sorted(found, key=lambda card: card.minor), reported.faults


def slot_id(uuid: str, number: int) -> str:
    return f"{uuid}::{number}"


def card_of(slot: str) -> str:
    """The uuid of a slot's card."""
    return slot.partition("::")[0]


def _order(slot: str) -> tuple[str, int]:
    uuid, _, number = slot.partition("::")
    return uuid, int(number) if number.isdecimal() else 0


def check_size(kind: Kind, cards: Iterable[Card]) -> None:
    """Raises TooManySlots where the kubelet would never see the list."""
    size = sum((len(card.uuid) + 2 + len(str(kind.count(card))) + _BESIDE_ID) * kind.count(card) for card in cards)
    if size > MOST_BYTES:
        mend = "use --unit GiB" if kind.unit == MIB else "this node has too many cards for one plugin"
        raise TooManySlots(
            f"{kind.resource}: the list of slots would be {size / MIB:.1f} MiB, the kubelet takes 4 MiB; {mend}"
        )


def choose(available: Iterable[str], must: Sequence[str], size: int, wanted: Sequence[str]) -> list[str]:
    """`size` of the available slots, `must` among them: evenly from the wanted cards (uuids), and from others only
    where those lack slots, the fullest first, so that what is whole stays whole. The lowest numbers go first."""
    chosen = list(must)[:size]
    free: dict[str, list[str]] = defaultdict(list)
    for slot in sorted(set(available).difference(must), key=_order, reverse=True):
        free[card_of(slot)].append(slot)
    have: dict[str, int] = defaultdict(int)
    for slot in chosen:
        have[card_of(slot)] += 1
    for place, uuid in enumerate(wanted):
        share = size // len(wanted) + (place < size % len(wanted))
        while have[uuid] < share and free[uuid] and len(chosen) < size:
            chosen.append(free[uuid].pop())
            have[uuid] += 1
    for uuid in sorted(free, key=lambda one: (one not in wanted, len(free[one]), one)):
        while free[uuid] and len(chosen) < size:
            chosen.append(free[uuid].pop())
    return chosen
