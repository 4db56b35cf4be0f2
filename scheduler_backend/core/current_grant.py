"""The grant of one GPU's token: who holds it, since when and until when, and what its processes said of it.

A grant is a tenant's. It is over when the last of its processes has returned, died or lost its lease; what the last one
was stands until the next begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_backend.core.context import Context
from scheduler_backend.core.quota import BRIEF_DIVISOR, is_brief, of_several
from scheduler_backend.core.seat import Member, Seat, Standing
from scheduler_backend.core.tenant import WHOLE_PPM


class CurrentGrant:
    """Of one GPU. Nothing here decides who is next or when a grant ends."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.policy = context.policy
        self.holder: Seat | None = None
        self.epoch = 0  # of the last grant
        self.granted_ns = 0
        self.hop_ns = 0  # what its messages take, there and back
        self.charge_from_ns = 0  # when the grant had come there (Accounts.measure_delay)
        self.quota_until_ns = 0
        self.closing_ns = 0  # when it was asked back
        self.contended = False  # the grant is one of those that end
        self.cap_ns = 0
        self.settled_until_ns = 0  # the quota whose prolongation has been decided
        self.silent = 0  # prolongations since the last sign of life
        self.free_since_ns = context.now_ns
        self.joins: dict[int, int] = {}  # client -> how often it came back to this grant
        self.busy_ns = 0  # what the clients of this grant reported
        self.untold = False  # ... and one of them did not
        self.launches = 0

    # --- its course -------------------------------------------------------------------------------------------------
    def begin(self, seat: Seat, epoch: int, quota_ns: int, hop_ns: int) -> None:
        """The tenant holds the token from now on, for this quota, of which the messages take `hop_ns`."""
        now_ns = self.context.now_ns
        self.holder, self.epoch = seat, epoch
        self.granted_ns = now_ns
        self.quota_until_ns = now_ns + quota_ns
        self.hop_ns = hop_ns
        self.charge_from_ns = now_ns + hop_ns
        self.closing_ns = self.settled_until_ns = self.silent = 0
        self.busy_ns = self.launches = 0
        self.untold = False
        self.joins.clear()

    def end(self) -> None:
        """The token is free from now on."""
        self.holder = None
        self.free_since_ns = self.context.now_ns

    def prolong(self, quota_ns: int) -> None:
        """Its quota grows by so much, without a word of its processes."""
        self.quota_until_ns += quota_ns
        self.silent += 1

    def report(self, busy_ns: int, launches: int) -> None:
        """One of its processes has drained, and says so much of its grant."""
        self.busy_ns += busy_ns
        self.launches += launches

    def pass_unseen(self, span_ns: int) -> None:
        """So much of its time is charged to nobody, beyond its messages'."""
        self.charge_from_ns += span_ns
        self.hop_ns += span_ns

    # --- what follows from it ---------------------------------------------------------------------------------------
    @property
    def reported_ns(self) -> int:
        """What its processes say that they used; 0: not all of them did."""
        return 0 if self.untold else self.busy_ns

    @property
    def charged_ns(self) -> int:
        """How much of the time since it began is charged."""
        return max(0, self.context.now_ns - self.charge_from_ns)

    def unseen_ns(self, seat: Seat, now_ns: int) -> int:
        """Return how much more the tenant has held by now than at the last event."""
        return max(0, now_ns - max(self.context.now_ns, self.charge_from_ns)) if seat is self.holder else 0

    def is_limited(self) -> bool:
        """Return whether the holder has a limit."""
        return self.holder is not None and self.holder.limit_ppm < WHOLE_PPM

    def holding(self) -> list[Member]:
        """Return the processes that hold the grant together."""
        return self.holder.with_standing(Standing.HOLDS) if self.holder is not None else []

    def flight_ns(self, member: Member) -> int:
        """Return what a process may have in flight when its gate closes."""
        cap_ns = min(self.cap_ns, self.policy.cap_ns)
        return min(cap_ns, self.cap_ns // BRIEF_DIVISOR) if is_brief(member.bursts.burst_ns, self.cap_ns) else cap_ns

    @property
    def lead_ns(self) -> int:
        """So long before its quota ends the holder is prolonged, if at all: before its gate closes, for that closes
        when what is in flight fills the rest.
        """
        policy = self.policy
        flights = [self.flight_ns(member) for member in self.holding()]
        siblings_ns = sum(flights) - min(flights, default=0)
        return policy.extend_lead_ns + siblings_ns + (max(0, self.cap_ns - policy.cap_ns) if self.contended else 0)

    def lease_ns(self) -> int:
        """Return for how long a process that says nothing keeps its part of it, from now on."""
        left_ns = max(0, self.quota_until_ns - self.context.now_ns)
        if self.contended:
            return left_ns + self.policy.lease_margin_ns
        return max(self.policy.alone_lease_ns, left_ns + self.policy.lease_margin_ns)

    def closing_lease_ns(self) -> int:
        """Return what a revoked holder has to drain or to say that it drains still: its cap and the margin."""
        return self.policy.lease_margin_ns + self.cap_ns

    def overrun_at_ns(self) -> int:
        """Return when the next is granted although this one has not drained."""
        end_ns = min(self.quota_until_ns, self.closing_ns) if self.closing_ns else self.quota_until_ns
        return end_ns + self.policy.overrun_ns

    def part_of(self, member: Member, left_ns: int, ends: bool, among: Sequence[Member]) -> tuple[int, int]:
        """Return what one process among those that hold is told of the quota that is left, and its cap."""
        if not ends:
            return left_ns, self.cap_ns
        others = [other for other in among if other is not member]
        brief = sum(is_brief(other.bursts.burst_ns, self.cap_ns) for other in others)
        return of_several(left_ns, self.cap_ns, len(others) + 1, brief)
