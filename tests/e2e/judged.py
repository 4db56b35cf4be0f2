"""Judgements of a resize by the card's own record alone: when a share moved, and how far a tenant was above its limit.

Pure. A fluid server gives each tenant its share at any moment. A card that is handed out in turns follows it but for
a turn: a tenant has had up to one more or less than from that server. So from one moment to another its time differs
from that server's by two turns at most. That is the resolution of what is told here.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from libhook.observer import Segment

SECOND = 10**9
MS = 10**6
TURN_NS = 10 * MS + MS // 2  # the quota, and the kernel that runs at its end
SWING_NS = 2 * TURN_NS
HELD_NS = 100 * MS  # for so long the new share is to hold from when it is said to have moved


def busy(segments: Iterable[Segment], pid: int, begin: int, end: int) -> int:
    """Nanoseconds of the card that it had in between."""
    return sum(max(0, min(one.end_ns, end) - max(one.start_ns, begin)) for one in segments if one.pid == pid)


def resolution_s(old: float, new: float) -> float:
    """A share that moves so much later than it is said to cannot pass for one in time: it strays by two turns."""
    return SWING_NS / abs(new - old) / SECOND


def moved_s(segments: Sequence[Segment], pid: int, other: int, since: int, new: float) -> float:
    """The first moment, in seconds from `since`, from which on the record can be that of a server of the new share.

    For HELD_NS from then, what the tenant got of both tenants' time never strays from its part by more than two turns.
    The clock for that is their time, so what keeps the card from both says nothing. Infinite where there is no such
    moment before the record ends.
    """
    both = sorted((one for one in segments if one.pid in (pid, other) and one.end_ns > since), key=lambda s: s.start_ns)
    times, strays = [since], [0.0]  # by how much it has strayed at each end of a segment, from `since` on
    for one in both:
        begin, end = max(one.start_ns, since, times[-1]), max(one.end_ns, times[-1])
        times += [begin, end]
        strays += [strays[-1], strays[-1] + (end - begin) * ((one.pid == pid) - new)]

    def at(moment: int) -> float:
        i = bisect.bisect_right(times, moment)
        if i == len(times):
            return strays[-1]
        begin, end = times[i - 1], times[i]
        return strays[i - 1] + (strays[i] - strays[i - 1]) * (moment - begin) / max(1, end - begin)

    for moment in range(since, times[-1] - HELD_NS, MS):
        here = at(moment)
        seen = strays[bisect.bisect_left(times, moment) : bisect.bisect_right(times, moment + HELD_NS)]
        if all(abs(one - here) <= SWING_NS for one in (*seen, at(moment + HELD_NS))):
            return (moment - since) / SECOND
    return float("inf")


class Limit:
    """What of the card a tenant might have, moment by moment: the largest limit that was valid."""

    def __init__(self, since: int, limit: float) -> None:
        self.since = since
        self._changes = [(since, limit)]

    def becomes(self, limit: float, wished: int, in_force: int) -> None:
        """More is valid from the wish on, less from when the node enforces it."""
        self._changes.append((wished if limit > self._changes[-1][1] else in_force, limit))

    def moments(self) -> list[int]:
        return [at for at, _ in self._changes]

    def at(self, moment: int) -> float:
        """From that moment on."""
        return self._changes[bisect.bisect_right(self.moments(), moment) - 1][1]


@dataclass(frozen=True)
class Window:
    begin: int
    end: int
    beyond_ns: int


def worst_window(
    segments: Iterable[Segment], pid: int, limit: Limit, until: int, kills: Collection[int] = (), allowed_ns: int = 0
) -> Window:
    """Of all windows of the record that in which a tenant's time was furthest above its limit's part.

    `allowed_ns`: what it may have had besides in a window with any of the second that follows a moment of `kills`.
    """
    ends = [(one.start_ns, 1) for one in segments if one.pid == pid]
    ends += [(one.end_ns, -1) for one in segments if one.pid == pid]
    ends += [(at, 0) for at in (*limit.moments(), *kills, *(kill + SECOND for kill in kills), until)]
    at = since = limit.since
    beyond, works = 0.0, 0
    worst = Window(since, since, 0)
    for moment, change in sorted(ends):
        if limit.since < moment <= until:
            beyond += (moment - at) * ((works > 0) - limit.at(at))
            at = moment
            if beyond > worst.beyond_ns:
                worst = Window(since, moment, round(beyond))
            if change == 0 and moment in kills:
                beyond -= allowed_ns
            least = -allowed_ns if any(kill <= moment < kill + SECOND for kill in kills) else 0
            if beyond <= least:
                beyond, since = float(least), moment
        works += change
    return worst
