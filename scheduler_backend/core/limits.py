"""How long a tenant may run: its limit's bucket, who must rest, and the quota of a grant.

The bucket itself stands in seat.py; here is how deep it is and how much must be in it, which depends on the company.
"""

from __future__ import annotations

from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.policy import virtual
from scheduler_backend.core.seat import Seat, State
from scheduler_backend.core.tenant import WHOLE_PPM
from scheduler_backend.core.tenants import Tenants


class Limits:
    """Of one GPU: rests and quotas. Writes the buckets of the tenants' seats, and whether they rest."""

    def __init__(self, context: Context, tenants: Tenants, clock: FairClock, grant: CurrentGrant) -> None:
        self.context = context
        self.policy = context.policy
        self.tenants = tenants
        self.clock = clock
        self.grant = grant

    def bucket(self, seat: Seat) -> tuple[int, int]:
        """Depth of its bucket, and how much must be in it before a throttled tenant may run again.

        Beside others: who idles may save one quota; who waits a tenth more, or a wait would cost it its share, and
        what it saves beyond that it runs at once later, too far past its limit for half a second; and so much must be
        there that what flows in while each of the others holds once still fits. Alone there is no hand-over to pay
        for, and a smooth pace matters: steps so long that it pauses for about alone_stall_ns.
        """
        policy = self.policy
        others = self.tenants.company(seat, self.context.now_ns).others
        if others:
            waits_ns = policy.quota_ns * 11 // 10
            need_ns = waits_ns * WHOLE_PPM // (WHOLE_PPM + others * seat.limit_ppm)
            return waits_ns if seat.state is State.WAITING else policy.quota_ns, min(need_ns, policy.quota_ns * 9 // 10)
        depth_ns = policy.quota_ns * 6 // 5
        step_ns = policy.alone_stall_ns * seat.limit_ppm // WHOLE_PPM  # what flows in during such a pause
        return depth_ns, min(depth_ns * 9 // 10, max(policy.least_quota_ns, step_ns))

    def need_ns(self, seat: Seat) -> int:
        """What must be in its bucket for it to go on."""
        return self.bucket(seat)[1]

    def throttle(self, seat: Seat) -> None:
        """Decide anew whether the tenant must rest."""
        if seat.limit_ppm >= WHOLE_PPM:
            if seat.throttled:
                seat.wait_from(self.context.now_ns)
            seat.throttled, seat.resume_ns = False, 0
            return
        depth_ns, need_ns = self.bucket(seat)
        seat.fill(self.context.now_ns, depth_ns)
        # Grants are made to end when somebody has rested enough, and drain a little before their end: then is enough.
        early = self.policy.resume_early_ns * seat.limit_ppm if seat.throttled else 0
        rested = seat.credit >= need_ns * WHOLE_PPM - early
        if seat.throttled and rested and seat.state is State.WAITING:
            self.clock.catch_up(seat)
            seat.wait_from(self.context.now_ns)
        seat.throttled = not rested
        seat.resume_ns = 0 if rested else seat.full_enough_ns(need_ns)
        if not rested:
            seat.wait_from(seat.resume_ns)

    def hold_back(self) -> None:
        """A hand-over is nobody's time: beside others a limit is a part of the time that is held, as a share is. So
        nothing flows into the buckets meanwhile. Who paid for his own hand-overs instead paid for more than his part of
        them where his turns are short, or where turns alternate with those of one that owns more.
        """
        for seat in self.tenants.seats.values():
            if seat.limit_ppm < WHOLE_PPM:
                seat.credit -= self.grant.hop_ns * seat.limit_ppm

    def quota_from(self, seat: Seat, contended: bool, start_ns: int) -> int:
        """The quota of a grant that begins then: its bursts, what its limit allows, until who rests at one is back."""
        quota_ns = seat.quota_ns
        if seat.limit_ppm < WHOLE_PPM:
            depth_ns = self.bucket(seat)[0]
            if not contended:
                quota_ns = depth_ns
            filled = seat.credit + max(0, start_ns - seat.filled_ns) * seat.limit_ppm
            quota_ns = min(quota_ns, max(1, min(depth_ns, filled // WHOLE_PPM)))
        elif not contended:
            quota_ns = self.policy.alone_quota_ns
        return self.until_resumed(seat, quota_ns, start_ns)

    def until_resumed(self, seat: Seat, quota_ns: int, start_ns: int) -> int:
        """No longer than until a tenant has rested enough at its limit that would come then: a wait could cost it its
        share. Half a quota at least, for its bucket has room for so much of a wait: cut to the shortest quota, grants
        cut each other short in turn, and hand-overs took three times as much of the card. One that would have to wait
        on even so is not worth a drain.
        """
        ahead_ns = max(0, start_ns - self.context.now_ns) if seat is self.grant.holder else 0
        for other in self.tenants.waiting.values():
            if not other.throttled or not other.request_ppm:
                continue
            at_ns = max(self.policy.quota_ns // 2, other.resume_ns - start_ns)
            if at_ns >= quota_ns:
                continue
            finish = seat.finish + virtual(ahead_ns + at_ns, seat.weight_ppm)
            if not seat.request_ppm or (other.clock < self.clock.virtual_now and other.finish < finish):
                quota_ns = at_ns
        return quota_ns
