"""How long the holder keeps the token: asked back early, prolonged before its quota ends, or taken from a dead one.

Each method says when to look again, so that the machine can ask for one Tick.
"""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.ahead import Foresight
from scheduler_backend.core.beside import Beside
from scheduler_backend.core.context import Context, earliest
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.limits import Limits
from scheduler_backend.core.moves import Lapse, Overrun, Prolong, Recall
from scheduler_backend.core.policy import ORDERINGS, SCALE, eligible, virtual
from scheduler_backend.core.reservation import GangReservation
from scheduler_backend.core.rows import Rows
from scheduler_backend.core.seat import Seat, Standing, State
from scheduler_backend.core.tenant import WHOLE_PPM
from scheduler_backend.core.tenants import Tenants


class Tenure:
    """Of one GPU: recall, prolongation, leases."""

    def __init__(
        self,
        context: Context,
        tenants: Tenants,
        clock: FairClock,
        grant: CurrentGrant,
        limits: Limits,
        reservation: GangReservation,
        beside: Beside,
        foresight: Foresight,
        rows: Rows,
    ) -> None:
        self.context = context
        self.policy = context.policy
        self.tenants = tenants
        self.clock = clock
        self.grant = grant
        self.limits = limits
        self.reservation = reservation
        self.beside = beside
        self.foresight = foresight
        self.rows = rows

    # --- leases -----------------------------------------------------------------------------------------------------
    def lapse_leases(self) -> None:
        """Take the token from processes whose lease ran out or that overran, and all from those beside others."""
        holder, now_ns = self.grant.holder, self.context.now_ns
        for seat in list(self.beside.sharing.values()):
            overrun_ns = seat.shared_closing_ns + self.policy.overrun_ns
            for member in seat.with_standing(Standing.HOLDS):
                if member.lease_until_ns <= now_ns:
                    self.rows.move(seat, Lapse(member.client))
                elif seat.state is State.LEAVING and now_ns >= overrun_ns:
                    self.rows.move(seat, Overrun(member.client))
        if holder is None:
            return
        for member in holder.with_standing(Standing.HOLDS):
            if member.lease_until_ns <= now_ns:
                self.rows.move(holder, Lapse(member.client))
        if self.grant.holder is holder and now_ns >= self.grant.overrun_at_ns():
            for member in holder.with_standing(Standing.HOLDS):
                self.rows.move(holder, Overrun(member.client))

    def deadline(self, holder: Seat) -> int:
        """Return when the first lease of its grant runs out, or it overruns."""
        leases = (member.lease_until_ns for member in holder.members.values() if member.standing is Standing.HOLDS)
        return min(self.grant.overrun_at_ns(), *leases)

    def deadline_shared(self) -> int:
        """The same of those that run beside others; 0: there are none."""
        at_ns = 0
        for seat in self.beside.sharing.values():
            if seat.state is State.LEAVING:
                at_ns = earliest(at_ns, seat.shared_closing_ns + self.policy.overrun_ns)
            for member in seat.with_standing(Standing.HOLDS):
                at_ns = earliest(at_ns, member.lease_until_ns)
        return at_ns

    # --- asked back -------------------------------------------------------------------------------------------------
    def preempt(self) -> int:
        """Ask the token back where one that waits should have it; else returns when to look again (0: no need)."""
        holder = self.grant.holder
        assert holder is not None
        now_ns = self.context.now_ns
        if not self.policy.preemption or (self.grant.contended and now_ns >= self.grant.quota_until_ns):
            return 0
        again_ns = 0
        for seat in self.tenants.waiting.values():
            if seat.throttled:
                continue
            reason = 0
            if seat.gang:  # it is decided with all its GPUs in view
                reason = ev.NEWCOMER if not self.grant.contended and seat.woken else 0
            elif holder.gang and self.grant.contended and now_ns < holder.preempted_ns + self.policy.quota_ns:
                again_ns = earliest(again_ns, holder.preempted_ns + self.policy.quota_ns)  # not twice within a quota
            elif not seat.request_ppm:
                reason = ev.NEWCOMER if not holder.request_ppm and not self.grant.contended else 0
            elif not holder.request_ppm:
                reason = ev.PREEMPT if seat.woken else 0
            elif not self.grant.contended and seat.woken:
                reason = ev.NEWCOMER
            elif seat.latency and not holder.latency:
                owed = eligible(seat, self.clock.virtual_now, self.policy.latency_ahead_ns)
                reason = ev.PREEMPT if owed else 0
            elif seat.woken and ORDERINGS[self.policy.ordering].wakes_preempt:
                at_ns = self._wake_up_ns(seat, holder)
                if at_ns and at_ns <= now_ns:
                    reason = ev.PREEMPT
                else:
                    again_ns = earliest(again_ns, at_ns)
            if reason:
                if reason == ev.PREEMPT:
                    holder.preempted_ns = now_ns
                    seat.jumped = seat.latency
                self.rows.move(holder, Recall(reason))
                return 0
        return again_ns

    def _wake_up_ns(self, seat: Seat, holder: Seat) -> int:
        """Wake-up preemption: when a tenant that came back owed takes over; 0: not at all.

        From a holder past now, which has had what it was owed, or from one that is less far behind by four fifths of a
        quota of the other's: both may be owed something, for who pauses keeps up to a quota of it.
        """
        left_ns = self.grant.quota_until_ns - self.context.now_ns
        if seat.clock > self.clock.virtual_now or seat.finish >= holder.clock + virtual(left_ns, holder.request_ppm):
            return 0
        clearly = virtual(self.policy.quota_ns * 4 // 5, seat.request_ppm)
        fairer_ns = max(0, (seat.clock + clearly - holder.clock) * holder.request_ppm // SCALE)
        past_ns = 0
        behind = self.clock.virtual_now - holder.clock
        if behind > 0:
            active_ppm = self.clock.active_ppm()
            if active_ppm <= holder.request_ppm:
                return 0
            past_ns = behind * holder.request_ppm * active_ppm // (SCALE * (active_ppm - holder.request_ppm)) + 1
        at_ns = max(self.context.now_ns + min(past_ns, fairer_ns), self.grant.granted_ns + self.policy.preempt_after_ns)
        return at_ns if at_ns < self.grant.quota_until_ns else 0

    # --- prolonged --------------------------------------------------------------------------------------------------
    def look_ahead(self, holder: Seat) -> int:
        """Shortly before the quota ends: prolong the holder if it would be picked again. Returns when to look."""
        policy = self.policy
        look_ns = self.grant.quota_until_ns - self.grant.lead_ns
        if (
            self.grant.settled_until_ns == self.grant.quota_until_ns
            or look_ns - self.grant.granted_ns < policy.extend_lead_ns
        ):
            return 0
        if self.context.now_ns < look_ns:
            if self._surely_next(holder):
                self.grant.settled_until_ns = self.grant.quota_until_ns
                return 0
            return look_ns
        self.grant.settled_until_ns = self.grant.quota_until_ns
        left_ns = self.grant.quota_until_ns - self.context.now_ns
        if (
            left_ns <= 0
            or self.grant.silent >= policy.extend_silent
            or self.reservation.gang
            or (holder.gang and self.grant.contended)
        ):
            return 0
        quota_ns = holder.quota_ns if self.grant.contended or self.grant.is_limited() else policy.alone_quota_ns
        if self.grant.is_limited():
            credit_ns = holder.credit_ns - left_ns * (WHOLE_PPM - holder.limit_ppm) // WHOLE_PPM
            quota_ns = min(quota_ns, credit_ns)
            if quota_ns < policy.quota_ns // 2:
                return 0
        rivals = [
            seat
            for seat in self.tenants.waiting.values()
            if not seat.throttled or seat.resume_ns <= self.grant.quota_until_ns
        ]
        again, jump = self.foresight.pick_at(holder, [*rivals, holder], self.grant.quota_until_ns)
        if again is not holder:
            return 0
        self.clock.jump_to(self.clock.virtual_now + jump)
        self.rows.move(holder, Prolong(self.limits.until_resumed(holder, quota_ns, self.grant.quota_until_ns)))
        return self.grant.quota_until_ns - self.grant.lead_ns

    def _surely_next(self, holder: Seat) -> bool:
        """Will somebody who waits now be picked before the holder when the quota ends, whoever else comes?"""
        if not ORDERINGS[self.policy.ordering].plans_ahead:
            return False
        left_ns = self.grant.quota_until_ns - self.context.now_ns
        if not holder.request_ppm:
            return any(seat.request_ppm and not seat.throttled for seat in self.tenants.waiting.values())
        virtual_end = self.clock.virtual_now + self.clock.passes(holder, left_ns)
        finish = holder.finish + virtual(left_ns, holder.request_ppm)
        for seat in self.tenants.waiting.values():
            owed = seat.request_ppm and not seat.throttled and seat.clock <= virtual_end
            if owed and seat.finish < finish and (seat.latency or not holder.latency):
                return True
        return False
