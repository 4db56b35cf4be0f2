"""How long a grant is: the tenant's own bursts, smoothed, within bounds; its part of the GPU, where it has no bursts.

EWMA of the burst with rate 0.5 (Gemini, scheduler.cpp get_quota). A quota is an upper bound, for a tenant that has
nothing to run gives back early. So a quarter is added, or a burst that came out a little longer than the last ones
would be cut in two and pay for a second hand-over.

Who is always busy has turns. Held time comes in turns, so over any window a tenant's share errs by about one of its
turns over the window, and by more where the turns of several fall together. Equal turns for unequal parts do: whoever
owns little comes seldom, at distances that differ by a whole turn of somebody else. So a turn is nine tenths of the
quota, which leaves room for overuse, and in proportion for less than an equal part, down to half of that. Three or more
of which some own more than others have whole turns of eight tenths, unless a limit binds, which cuts grants anyway. A
model of 47 mixes of 2 to 32 tenants gives the 99th percentile of the error over 1 s in the worst mix. It is 1.35
percentage points with turns of one whole quota for all, 0.92 with turns half as much shorter as now. In five unequal
mixes of three and four over half a second at most 1.5 with nine tenths, 1.3 with eight, and 142 hand-overs a second
instead of 126; of two, or under a limit that binds, no better.
"""

from __future__ import annotations

from collections.abc import Sequence

MARGIN_DIVISOR = 4  # the quarter
BRIEF_DIVISOR = 8  # the eighth of a cap up to which bursts are brief


class Bursts:
    """The smoothed burst and gap of one process on one GPU. 0 is unknown."""

    __slots__ = ("burst_ns", "gap_ns")

    def __init__(self) -> None:
        self.burst_ns = 0
        self.gap_ns = 0

    def observe(self, burst_ns: int, gap_ns: int) -> None:
        """Take one estimate from the wire; 0 leaves what is known."""
        if burst_ns > 0:
            self.burst_ns = (self.burst_ns + burst_ns) // 2 if self.burst_ns else burst_ns
        if gap_ns > 0:
            self.gap_ns = (self.gap_ns + gap_ns) // 2 if self.gap_ns else gap_ns


def contended_quota(burst_ns: int, least_ns: int, most_ns: int, turn_ns: int) -> int:
    """The quota of a tenant with such bursts while others may come; who has none that fit has turns."""
    if not 0 < burst_ns <= most_ns:
        return max(least_ns, turn_ns)
    return max(least_ns, min(most_ns, burst_ns + burst_ns // MARGIN_DIVISOR))


def is_brief(burst_ns: int, cap_ns: int) -> bool:
    """Has a process with such bursts only a small part of its cap in flight? 0 is unknown: it may have all of it."""
    return 0 < burst_ns + burst_ns // MARGIN_DIVISOR <= cap_ns // BRIEF_DIVISOR


def of_several(quota_ns: int, cap_ns: int, count: int, brief: int = 0) -> tuple[int, int]:
    """Quota and cap of one of `count` processes that hold a grant together, so that their work ends with its quota.

    Each of them closes when what it has in flight itself fills the rest of its own quota, and the card then has the
    work of all of them: as many caps as there are processes, of which all but one would come after the grant's end. So
    they are told of that much less, and where the caps of many would fill half of the quota, the caps are smaller.
    Of the others, `brief` have bursts so short that they are an eighth of a cap at most.
    """
    if count < 2 or quota_ns <= 0:
        return quota_ns, cap_ns
    brief_ns = cap_ns // BRIEF_DIVISOR
    cap_ns = max(1, min(cap_ns, quota_ns // (2 * count)))
    flight_ns = (count - 1 - brief) * cap_ns + brief * min(cap_ns, brief_ns)
    return max(0, quota_ns - flight_ns), cap_ns


def whole_turn(quota_ns: int, requests_ppm: Sequence[int], bound: bool) -> int:
    """The turn of who owns an equal part or more, among tenants with these requests; bound: does a limit bind?"""
    uneven = len(requests_ppm) > 2 and min(requests_ppm) < max(requests_ppm) and not bound
    return quota_ns * (8 if uneven else 9) // 10


def turn(whole_ns: int, request_ppm: int, sum_ppm: int, count: int) -> int:
    """The turn of a tenant with this request among `count` whose requests have that sum; request 0 has a whole one."""
    if not request_ppm:
        return whole_ns
    return whole_ns * max(sum_ppm, 2 * min(sum_ppm, count * request_ppm)) // (2 * sum_ppm)
