"""What the daemon counts for people, per tenant and GPU: written by the server, read by /state and /metrics."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from scheduler_backend.core.window import Window

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
