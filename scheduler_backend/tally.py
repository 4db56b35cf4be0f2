"""What the daemon counts for people, per tenant and GPU: written by the server, read by /state and /metrics."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from scheduler_backend.core import events as ev
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.core.window import Window

log = logging.getLogger("gemini.server")

RECENT = 2048  # samples that a percentile is taken over
BUSY = 0.5  # who wants the card for less of the time misses nothing of it: one short burst may wait for a quota's end
SETTLED = 64  # ... put in order anew when one in so many is new: sorting them takes a quarter of a millisecond


class Series:
    """Recent samples, in nanoseconds, with count and sum of all time."""

    __slots__ = ("_ordered", "_ordered_at", "count", "recent", "sum_ns")

    def __init__(self) -> None:
        self.recent: deque[int] = deque(maxlen=RECENT)
        self.count = 0
        self.sum_ns = 0
        self._ordered: list[int] = []
        self._ordered_at = 0  # the count then

    def add(self, value_ns: int) -> None:
        """Take a sample."""
        self.recent.append(value_ns)
        self.count += 1
        self.sum_ns += value_ns

    def ms(self, part: float) -> float | None:
        """The nearest-rank percentile of the recent samples in milliseconds, but for the newest of many: fewer than one
        in SETTLED. None where there are none."""
        if (self.count - self._ordered_at) * SETTLED >= len(self.recent):
            self._ordered, self._ordered_at = sorted(self.recent), self.count
        ordered = self._ordered
        return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))] / 1e6, 4) if ordered else None


class Work(NamedTuple):
    """What a library counted: launches, and the time that their kernels took."""

    launches: int = 0
    busy_ns: int = 0

    def plus(self, other: Work, times: int = 1) -> Work:
        return Work(self.launches + times * other.launches, self.busy_ns + times * other.busy_ns)


class SeatTally:
    """One tenant on one GPU.

    Its clients say their work twice: in Returns, by which it is charged, and of all their lives about once a second
    (Stats), which is all that comes of one that is alone and returns nothing. Both count the same, so the larger is the
    later word.
    """

    __slots__ = (
        "_said", "_said_by", "charged", "grants", "leases_lost", "overran", "overuse", "revokes", "wait", "waited",
    )  # fmt: skip

    def __init__(self, window_ns: int) -> None:
        self.grants = 0
        self.revokes = 0
        self.leases_lost = 0
        self.overran = 0
        self.charged = Work()  # by Returns
        self._said_by: dict[int, Work] = {}  # client -> its last Stats
        self._said = Work()  # the sum of what all have said, those that are gone too
        self.wait = Series()
        self.waited = Window(window_ns)  # when it waited of late
        self.overuse = Series()

    def say(self, client: int, work: Work, *, again: bool) -> None:
        """A client's Stats; `again`: it worked under an earlier daemon, whose counts ended with it."""
        before = self._said_by.get(client, work if again else Work())
        self._said = self._said.plus(work).plus(before, -1)
        self._said_by[client] = work

    def forget(self, client: int) -> None:
        """A client is gone; what it said stays."""
        self._said_by.pop(client, None)

    @property
    def told(self) -> int:
        """Of how many clients the last word is kept."""
        return len(self._said_by)

    @property
    def work(self) -> Work:
        """Of all time."""
        return Work(max(self.charged.launches, self._said.launches), max(self.charged.busy_ns, self._said.busy_ns))


class Counters:
    """What clients report of themselves (Stats), summed over a tenant; for metrics only."""

    FIELDS = (
        "gate_waits",
        "gate_wait_ns",
        "valve_admissions",
        "ungated_lookups",
        "copies_h2d_bytes",
        "copies_d2h_bytes",
    )

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], tuple[int, ...]] = {}  # (client, device) -> cumulative
        self._gone = [0] * len(self.FIELDS)

    def update(self, client: int, device: int, values: tuple[int, ...]) -> None:
        """The latest cumulative figures of one process and device."""
        self._last[client, device] = values

    def forget(self, client: int) -> None:
        """A process is gone; what it counted stays."""
        for key in [key for key in self._last if key[0] == client]:
            self._gone = [old + new for old, new in zip(self._gone, self._last.pop(key), strict=True)]

    def total(self) -> dict[str, int]:
        """By field, of all time."""
        sums = [sum(column) for column in zip(self._gone, *self._last.values(), strict=True)]
        return dict(zip(self.FIELDS, sums, strict=True))


class Tallies:
    """Of all tenants and GPUs: takes what the node says for the record. `may_complain` bounds a tenant's log."""

    def __init__(self, gpu_count: int, window_ns: int, may_complain: Callable[[str], bool]) -> None:
        self.seats: dict[tuple[str, int], SeatTally] = {}  # by tenant and GPU
        self.gaps = [Series() for _ in range(gpu_count)]
        self.handle_ns = Series()  # decision to sent, of hand-overs that went through the machine
        self.mem_refusals: dict[str, int] = {}
        self._window_ns = window_ns
        self._may_complain = may_complain
        self._handover: ev.Handed | None = None  # of the event at hand
        self.performers: dict[type, Callable[[Any], None]] = {
            ev.Charged: self._charged,
            ev.LeaseLost: self._lease_lost,
            ev.Overran: self._overran,
        }

    def add(self, spec: TenantSpec) -> None:
        """A tenant comes: count from 0 on each of its GPUs."""
        for gpu in spec.gpus:
            self.seats[spec.name, gpu] = SeatTally(self._window_ns)

    def remove(self, tenant: str) -> None:
        """A tenant goes, and what was counted of it."""
        for gpu in range(len(self.gaps)):
            self.seats.pop((tenant, gpu), None)
        self.mem_refusals.pop(tenant, None)

    def forget(self, tenant: str, client: int) -> None:
        """A client is gone; also on a GPU that it spoke of before a later Hello left that out."""
        for gpu in range(len(self.gaps)):
            if (tally := self.seats.get((tenant, gpu))) is not None:
                tally.forget(client)

    def revoke(self, tenant: str, gpu: int) -> None:
        """A client of this tenant was asked for the token."""
        if (tally := self.seats.get((tenant, gpu))) is not None:
            tally.revokes += 1

    def refuse_memory(self, tenant: str) -> None:
        """An allocation of this tenant was refused."""
        self.mem_refusals[tenant] = self.mem_refusals.get(tenant, 0) + 1

    def hand(self, action: ev.Handed, now_ns: int) -> None:
        """A tenant got the token now."""
        tally = self.seats[action.tenant, action.gpu]
        tally.grants += 1
        tally.wait.add(action.wait_ns)
        tally.waited.add(now_ns - action.wait_ns, now_ns)
        if action.wait_ns > action.gap_ns:  # it waited already when the token became free: a hand-over
            self._handover = action

    def end_event(self, took_ns: int, *, carried: bool) -> None:
        """An event was handled in so much time. `carried`: what it tells of was done before that."""
        if self._handover is not None and not carried:
            self.handle_ns.add(took_ns)
            self.gaps[self._handover.gpu].add(self._handover.gap_ns + took_ns)
        self._handover = None

    def _charged(self, action: ev.Charged) -> None:
        tally = self.seats.get((action.tenant, action.gpu))
        if tally is not None:
            if action.held_ns:  # else what was learned only after it had been charged
                tally.overuse.add(action.overuse_ns)
            tally.charged = tally.charged.plus(Work(action.launches, action.busy_ns))

    def _lease_lost(self, action: ev.LeaseLost) -> None:
        if self._may_complain(action.tenant):
            log.warning("lease-lost tenant=%s client=%d gpu=%d epoch=%d", *action)
        if (tally := self.seats.get((action.tenant, action.gpu))) is not None:
            tally.leases_lost += 1

    def _overran(self, action: ev.Overran) -> None:
        if self._may_complain(action.tenant):
            log.warning("overran tenant=%s client=%d gpu=%d epoch=%d", *action)
        if (tally := self.seats.get((action.tenant, action.gpu))) is not None:
            tally.overran += 1
