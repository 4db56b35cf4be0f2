"""How long a grant is: the tenant's own bursts, smoothed, within bounds.

EWMA of the burst with rate 0.5 (Gemini, scheduler.cpp get_quota). A quota is an upper bound, for a tenant that has
nothing to run gives back early; so a quarter is added, or a burst that came out a little longer than the last ones
would be cut in two and pay for a second hand-over.
"""

from __future__ import annotations

MARGIN_DIVISOR = 4  # the quarter


class Bursts:
    """The smoothed burst and gap of one tenant on one GPU. 0 is unknown."""

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


def contended_quota(burst_ns: int, least_ns: int, most_ns: int) -> int:
    """The quota of a tenant with such bursts while others may come; an unknown burst gets the most."""
    if burst_ns <= 0:
        return most_ns
    return max(least_ns, min(most_ns, burst_ns + burst_ns // MARGIN_DIVISOR))
