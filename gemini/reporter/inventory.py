"""The cards of this machine, by NVML: what they are, where they sit, how they are linked, and their Xid events.

I/O, and no judgement: whether a card is fit for use is health.py's. Blocks while the driver answers, so an event loop
calls it from a thread. A question that a card or driver does not support is answered by None or nothing; only where
NVML as a whole cannot be used, CannotLook is raised.

Cards in MIG mode are left out: their parts are handed out by others. Where Linux knows a card's PCI device, place and
switch are /sys's, so that they mean the same as those of RDMA adapters; else NVML's own topology tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemini.placement.model import Link
from gemini.reporter import sysfs
from gemini.reporter.sysfs import Place

NVLINK = "NVLINK"
# NVML's topology levels in nvidia-smi's words; on one board (0) is as near as on one switch.
LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
ONE_SWITCH = 10
MOST_CPUS = 4096
MOST_NODES = 64
MOST_NVLINKS = 36


class CannotLook(RuntimeError):
    """There is no NVML, or it does not answer; one line."""


@dataclass(frozen=True)
class Card:
    """`index` is NVML's, `minor` that of /dev/nvidiaN."""

    index: int
    minor: int
    uuid: str
    model: str
    memory: int
    address: str  # of its PCI device, 0000:3b:00.0
    place: Place


@dataclass(frozen=True)
class Inventory:
    cards: tuple[Card, ...]
    links: tuple[Link, ...]  # by minor
    adapters: tuple[sysfs.Adapter, ...]
    mig: tuple[str, ...] = ()  # uuids of cards that are in MIG mode, and so left out


def look(root: Path = sysfs.SYS) -> Inventory:
    """All there is, now. Raises CannotLook."""
    with _nvml() as nvml:
        handles: list[Any] = []
        cards: list[Card] = []
        mig: list[str] = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            if _ask(nvml, "nvmlDeviceGetMigMode", handle, default=[0])[0] == 1:
                mig.append(_text(nvml.nvmlDeviceGetUUID(handle)))
                continue
            handles.append(handle)
            cards.append(_card(nvml, handle, index, root))
        cards = _placed(nvml, handles, cards)
        return Inventory(tuple(cards), tuple(_links(nvml, handles, cards)), tuple(sysfs.adapters(root)), tuple(mig))


def answers(uuids: list[str]) -> dict[str, bool]:
    """Whether each of the cards answers a question that the card itself, not the driver's memory, must answer."""
    found = dict.fromkeys(uuids, False)
    try:
        with _nvml() as nvml:
            for uuid in uuids:
                handle = _ask(nvml, "nvmlDeviceGetHandleByUUID", uuid)
                found[uuid] = handle is not None and _ask(nvml, "nvmlDeviceGetMemoryInfo", handle) is not None
    except CannotLook:
        pass
    return found


def watch_xids(uuids: list[str], tell: Callable[[str | None, int], None], ended: Callable[[], bool]) -> None:
    """Waits for Xid events of the cards until `ended`; tell(uuid, xid), uuid None where the event is of no one card.
    Returns at once where no card has such events. Raises CannotLook when the driver goes away."""
    with _nvml() as nvml:
        events = nvml.nvmlEventSetCreate()
        try:
            watched = 0
            for uuid in uuids:
                handle = _ask(nvml, "nvmlDeviceGetHandleByUUID", uuid)
                if handle is None:
                    continue
                try:
                    nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
                except nvml.NVMLError:
                    continue  # a card too old for events
                watched += 1
            while watched and not ended():
                try:
                    event = nvml.nvmlEventSetWait_v2(events, WAIT_MS)
                except nvml.NVMLError as error:
                    if error.value == nvml.NVML_ERROR_TIMEOUT:
                        continue
                    raise CannotLook(f"NVML: {error}") from None
                device = _ask(nvml, "nvmlDeviceGetUUID", event.device)
                tell(None if device is None else _text(device), int(event.eventData))
        finally:
            _ask(nvml, "nvmlEventSetFree", events)


WAIT_MS = 500  # of one wait for an event: how late `ended` may be noticed


@contextmanager
def _nvml() -> Iterator[Any]:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # no library, or an NVMLError: this machine has no such cards, or no driver for them
        raise CannotLook(f"NVML: {error}") from None
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise CannotLook(f"NVML: {error}") from None
    finally:
        _ask(pynvml, "nvmlShutdown")


def _ask(nvml: Any, question: str, *about: Any, default: Any = None) -> Any:
    try:
        return getattr(nvml, question)(*about)
    except Exception:  # this card, driver or binding does not say
        return default


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _address(pci: Any) -> str:
    """NVML writes the domain with eight digits, Linux with four."""
    domain, _, rest = _text(pci.busId).lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _card(nvml: Any, handle: Any, index: int, root: Path) -> Card:
    address = _address(nvml.nvmlDeviceGetPciInfo(handle))
    place = sysfs.place_of(root, address, sysfs.NVIDIA_VENDOR)
    if place is None or place.numa is None or not place.cpus:
        cpus = _bits(_ask(nvml, "nvmlDeviceGetCpuAffinity", handle, MOST_CPUS // 64, default=()))
        nodes = _bits(_ask(nvml, "nvmlDeviceGetMemoryAffinity", handle, MOST_NODES // 64, 0, default=()))
        known = place or Place()
        numa = known.numa or (str(nodes[0]) if len(nodes) == 1 else None)
        place = Place(numa, known.pcie, known.cpus or cpus)
    return Card(
        index=index,
        minor=int(_ask(nvml, "nvmlDeviceGetMinorNumber", handle, default=index)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        model=_text(nvml.nvmlDeviceGetName(handle)),
        memory=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        address=address,
        place=place,
    )


def _bits(words: Any) -> tuple[int, ...]:
    return tuple(64 * i + bit for i, word in enumerate(words) for bit in range(64) if int(word) >> bit & 1)


def _level(nvml: Any, a: Any, b: Any) -> int | None:
    level = _ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", a, b)
    return None if level is None else int(level)


def _placed(nvml: Any, handles: list[Any], cards: list[Card]) -> list[Card]:
    """The cards with the switches of those that Linux does not know: NVML says who shares one, the first names it."""
    result: list[Card] = []
    for i, card in enumerate(cards):
        if card.place.pcie is None:
            near = [j for j in range(i) if (level := _level(nvml, handles[i], handles[j])) is not None
                    and level <= ONE_SWITCH]  # fmt: skip
            switch = result[near[0]].place.pcie if near else card.address
            card = Card(card.index, card.minor, card.uuid, card.model, card.memory, card.address,
                        Place(card.place.numa, switch, card.place.cpus))  # fmt: skip
        result.append(card)
    return result


def _links(nvml: Any, handles: list[Any], cards: list[Card]) -> Iterator[Link]:
    """For each pair the way over PCIe, and NVLinks: those that end at the other card, or, where they end at switches,
    as many as both have, for a switch joins all with all."""
    direct = [_nvlinks(nvml, handle) for handle in handles]
    by_address = {card.address: card for card in cards}
    switched = [sum(n for address, n in ends.items() if address not in by_address) for ends in direct]
    for j, b in enumerate(cards):
        for i, a in enumerate(cards[:j]):
            level = _level(nvml, handles[i], handles[j])
            low, high = sorted((a.minor, b.minor))
            if level in LEVELS:
                yield Link(low, high, LEVELS[level])
            count = direct[i].get(b.address, 0) or min(switched[i], switched[j])
            if count:
                yield Link(low, high, NVLINK, count)


def _nvlinks(nvml: Any, handle: Any) -> dict[str, int]:
    """Address at the other end -> active links to it."""
    ends: dict[str, int] = {}
    for link in range(MOST_NVLINKS):
        if _ask(nvml, "nvmlDeviceGetNvLinkState", handle, link) != 1:
            continue
        pci = _ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
        if pci is not None:
            address = _address(pci)
            ends[address] = ends.get(address, 0) + 1
    return ends
