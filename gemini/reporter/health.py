"""Whether a card may be given out: from the Xid events that the driver raises, and from whether the card answers.

Pure; the time is an argument. An Xid that is not ignored takes its card out of service, and an event of no one card
takes all. So does a card that does not answer, or is gone. It is back in service when it has answered and raised no
further Xid for `recover_ns`; with None it stays out until the reporter starts again. One faulty program must not take a
card away for good, and a card that keeps failing must not be given out in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

SECOND = 10**9
RECOVER_NS = 300 * SECOND
# Errors of the program that runs, not of the card (NVIDIA's catalogue of Xids): a fault of its kernels (13, 31), its
# end (43, 45), its video decoding (68), a context switch that took too long (109).
IGNORED_XIDS = frozenset({13, 31, 43, 45, 68, 109})

XID, SILENT, GONE = "Xid", "Silent", "Gone"  # reasons


@dataclass(frozen=True)
class Fault:
    """Why a card is out of service. `since_ns` is when it went, `last_ns` when it was last seen failing."""

    reason: str
    message: str
    since_ns: int
    last_ns: int


class Health:
    """That of the cards of one machine, by uuid. A card that was never heard of is healthy."""

    def __init__(self, ignored: Collection[int] = IGNORED_XIDS, recover_ns: int | None = RECOVER_NS) -> None:
        self._ignored = frozenset(ignored)
        self._recover_ns = recover_ns
        self._faults: dict[str, Fault] = {}

    def fault(self, uuid: str) -> Fault | None:
        return self._faults.get(uuid)

    def xid(self, uuid: str | None, xid: int, cards: Iterable[str], now_ns: int) -> list[str]:
        """The driver raised an Xid, of one card or (None) of who knows which; the cards that it takes out of service
        or keeps there."""
        if xid in self._ignored:
            return []
        struck = list(cards) if uuid is None else [uuid]
        for one in struck:
            self._strike(one, XID, f"Xid {xid}" + ("" if uuid else ", of no one card"), now_ns)
        return struck

    def seen(self, answers: Mapping[str, bool], now_ns: int) -> list[str]:
        """Whether each card answered just now; returns those whose state changed. A card that is not named is gone."""
        before = set(self._faults)
        for uuid, answered in answers.items():
            if not answered:
                self._strike(uuid, SILENT, "the card does not answer", now_ns)
        for uuid, fault in list(self._faults.items()):
            if uuid not in answers:
                self._strike(uuid, GONE, "the card is not there any more", now_ns)
            elif answers[uuid] and self._over(fault, now_ns):
                del self._faults[uuid]
        return sorted(before ^ set(self._faults))

    def gone(self, uuid: str, now_ns: int) -> None:
        self._strike(uuid, GONE, "the card is not there any more", now_ns)

    def _over(self, fault: Fault, now_ns: int) -> bool:
        if fault.reason != XID:
            return True  # it answers again: nothing else was wrong with it
        return self._recover_ns is not None and now_ns - fault.last_ns >= self._recover_ns

    def _strike(self, uuid: str, reason: str, message: str, now_ns: int) -> None:
        known = self._faults.get(uuid)
        if known is not None and known.reason == XID and reason != XID:
            # It was an Xid that silenced it: what recovers from that is counted from now.
            self._faults[uuid] = Fault(XID, known.message, known.since_ns, now_ns)
            return
        self._faults[uuid] = Fault(reason, message, known.since_ns if known else now_ns, now_ns)
