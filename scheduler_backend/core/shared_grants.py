"""Grants beside others: what their processes are told, and how a tenant comes to run beside others and stops.

Nothing here decides who does so (company.py), nor what each got of its promise (promises.py).
"""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.beside import Beside
from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.grants import Grants
from scheduler_backend.core.policy import virtual
from scheduler_backend.core.promises import Promises
from scheduler_backend.core.seat import Member, Seat, Standing, State
from scheduler_backend.core.tenants import Tenants

COMPANY_CAME = -1  # in the place of Seat.alone_epoch: it was alone when its grant began


class SharedGrants:
    """Of one GPU. A tenant's grant is for all of its processes, and over when the last of them has stopped."""

    def __init__(
        self,
        context: Context,
        tenants: Tenants,
        clock: FairClock,
        grant: CurrentGrant,
        grants: Grants,
        beside: Beside,
        promises: Promises,
    ) -> None:
        self.context = context
        self.policy = context.policy
        self.tenants = tenants
        self.clock = clock
        self.grant = grant
        self.grants = grants
        self.beside = beside
        self.promises = promises

    # --- what processes are told ------------------------------------------------------------------------------------
    def _cap_ns(self, seat: Seat) -> int:
        """More than the card's own slice, or who waits for that runs dry in it; but one of class latency that comes
        back waits for what is in flight, and who has the card to itself until then need not wait for slices. One that
        is to run beside others meets as much in flight before each of its kernels: the first is no exception.
        """
        if self.beside.goes_slow(seat):
            return self.policy.cap_lag_ns
        latency = self.tenants.latency(self.context.now_ns)
        if not latency:
            return self.policy.cap_shared_ns
        beside = len(self.beside.sharing) > 1 or all(seat.duty.leaves_room(self.context.now_ns) for seat in latency)
        return self.policy.cap_ns if beside else self.policy.cap_prompt_ns

    def give(self, seat: Seat, member: Member, *, joined: bool, admitted: bool = False) -> None:
        """Tell a process that it may run; `admitted`: the grant is to be over, and it is let in for a sibling that does
        not drain.
        """
        policy = self.policy
        lease_ns = policy.lease_margin_ns + policy.cap_shared_ns if admitted else policy.shared_lease_ns
        member.standing = Standing.HOLDS
        member.epoch = seat.shared_epoch
        member.again = member.asks_again = False
        member.granted_ns = self.context.now_ns
        member.lease_until_ns = self.context.now_ns + lease_ns
        member.base_ns, member.used_ns, member.alone, member.alone_ppm = -1, 0, False, -1
        member.used_at_ns, member.metered_ns, member.gentle_ns = self.context.now_ns, seat.metered_ns, seat.gentle_ns
        quota_ns = policy.valve_ns if admitted else lease_ns
        cap_ns, epoch = self._cap_ns(seat), seat.shared_epoch
        self.context.do(
            ev.Grant(member.client, self.context.gpu, epoch, quota_ns, lease_ns, cap_ns, admitted, joined, True)
        )

    def extend(self, seat: Seat, member: Member) -> None:
        """Tell a process that holds of its lease."""
        policy = self.policy
        lease_ns = policy.shared_lease_ns
        if seat.state is State.LEAVING:
            lease_ns = policy.lease_margin_ns + policy.cap_shared_ns
        member.lease_until_ns = self.context.now_ns + lease_ns
        self._tell(seat, member)

    def _tell(self, seat: Seat, member: Member) -> None:
        lease_ns, cap_ns = member.lease_until_ns - self.context.now_ns, self._cap_ns(seat)
        self.context.do(
            ev.Extend(member.client, self.context.gpu, seat.shared_epoch, lease_ns, lease_ns, cap_ns, False, True)
        )

    def admit_waiting(self, seat: Seat) -> None:
        """Let those of its processes in that wait, for one that drains may need what they could not launch yet."""
        for waits in seat.with_standing(Standing.WAITS):
            self.give(seat, waits, joined=True, admitted=True)

    # --- its course -------------------------------------------------------------------------------------------------
    def admit(self, seat: Seat) -> None:
        """The tenant, which waits or pauses, runs beside others from now on."""
        if seat.state is State.WAITING:
            self._leave_turns(seat)
        self.tenants.waiting.pop(seat.name, None)
        seat.spent = False
        self.beside.enter(seat)
        if self.grant.holder is not None:
            self._tell_of_company(self.grant.holder)
        seat.shared_epoch = self.context.epochs.take()
        seat.shared_since_ns = seat.reported_ns = seat.window_from_ns = self.context.now_ns
        seat.used_ns = seat.spent_ns = seat.shared_busy_ns = seat.shared_launches = 0
        seat.shared_closing_ns = 0
        seat.woken = seat.quiet = False
        seat.state = State.SHARED
        self.context.do(ev.Page(seat.name, self.context.gpu, seat.shared_epoch))
        for member in seat.with_standing(Standing.WAITS):
            self.give(seat, member, joined=False)
        if len(self.beside.sharing) == 2 and self.tenants.latency(
            self.context.now_ns
        ):  # the other's cap was that of one alone
            for other in self.beside.sharing.values():
                if other is not seat and other.state is State.SHARED:
                    for member in other.with_standing(Standing.HOLDS):
                        self.extend(other, member)
        wait_ns = self.context.now_ns - seat.waiting_since_ns
        self.context.do(ev.Handed(seat.name, self.context.gpu, seat.shared_epoch, wait_ns, wait_ns))

    def tell_all(self) -> None:
        """Tell all that run how much they may have in flight from now on. That is no sign of life of theirs: those
        beside others have what is left of their leases, and a holder hears of it while its quota lasts. Else one that
        is frozen would keep its place for as long as others lag and catch up.
        """
        holder, now_ns = self.grant.holder, self.context.now_ns
        if holder is not None and holder.state is State.HOLDING and now_ns < self.grant.quota_until_ns:
            self.grants.shape(holder)
            for member in holder.with_standing(Standing.HOLDS):
                self.grants.extend(member)
        for seat in self.beside.sharing.values():
            if seat.state is State.SHARED:
                for member in seat.with_standing(Standing.HOLDS):
                    if now_ns < member.lease_until_ns:
                        self._tell(seat, member)

    def _tell_of_company(self, holder: Seat) -> None:
        """Others begin to run beside the holder: it is to say what it uses from here on, and to take no span for the
        length of a kernel.
        """
        was_alone = holder.alone_epoch > 0
        if was_alone:
            holder.alone_epoch = COMPANY_CAME
        for member in holder.with_standing(Standing.HOLDS):
            if was_alone:
                member.base_ns, member.used_ns = -1, 0
            if holder.state is State.HOLDING and (was_alone or len(self.beside.sharing) == 1):
                self.grants.extend(member)

    def close(self, seat: Seat, reason: int) -> None:
        """Ask it to stop: it drains."""
        seat.state = State.LEAVING
        seat.shared_closing_ns = self.context.now_ns
        seat.spent = reason == ev.LIMIT
        for member in seat.with_standing(Standing.HOLDS):
            lease_ns = self.policy.lease_margin_ns + self.policy.cap_shared_ns
            member.lease_until_ns = min(member.lease_until_ns, self.context.now_ns + lease_ns)
            self.context.do(ev.Revoke(member.client, self.context.gpu, seat.shared_epoch, reason))

    def pause(self, seat: Seat) -> None:
        """It waits to run beside others, and has no turns meanwhile."""
        self._leave_turns(seat)
        del self.tenants.waiting[seat.name]
        self.beside.paused[seat.name] = seat
        seat.state = State.PAUSED

    def compete(self, seat: Seat) -> None:
        """It paused, and has turns again."""
        del self.beside.paused[seat.name]
        self._come_to_turns(seat)
        self.grants.wait(seat)

    def take_back(self, seat: Seat, member: Member, event: ev.TokenReturned) -> None:
        """One of its processes has drained; it may want more."""
        self.promises.hear_last(seat, member, event)
        seat.shared_busy_ns += event.busy_ns
        seat.shared_launches += event.launches
        wants = event.want_more or member.asks_again
        member.standing = Standing.WAITS if wants else Standing.QUIET
        member.asks_again = False
        if wants and seat.state is State.SHARED:
            self.give(seat, member, joined=True)
        self.after_hold(seat)

    def stray(self, seat: Seat, client: int, since_ns: int) -> None:
        """The GPU moves on from this process; `since_ns`: it overran, and is charged on, 0: its lease ran out."""
        member = seat.members[client]
        asked_again = member.asks_again
        seat.stray(member, since_ns=since_ns)
        if asked_again and not since_ns:
            member.standing = Standing.WAITS
        self.context.do(ev.Revoke(client, self.context.gpu, seat.shared_epoch, ev.LEASE))

    def after_hold(self, seat: Seat) -> None:
        """A process stopped; if it was the last, the grant is over, and the tenant stands where all others do."""
        if seat.with_standing(Standing.HOLDS):
            return
        seat.spend(self.context.now_ns)
        self.context.do(ev.Page(seat.name, self.context.gpu, 0))
        self.context.do(
            ev.Charged(
                seat.name,
                self.context.gpu,
                seat.shared_epoch,
                seat.used_ns,
                0,
                seat.shared_busy_ns,
                seat.shared_launches,
            )
        )
        self.beside.leave(seat)
        if not self.beside.sharing and self.grant.holder is None:
            self.grant.free_since_ns = self.context.now_ns
        self._come_to_turns(seat)
        seat.steady = max(seat.steady, self.clock.steady)
        if seat.shared_closing_ns:
            self._charge_late(seat, self.context.now_ns - seat.shared_closing_ns - self.policy.cap_shared_ns)
        if seat.with_standing(Standing.WAITS):
            self.grants.wait(seat)
        else:
            self.grants.rest(seat)

    def _charge_late(self, seat: Seat, late_ns: int) -> None:
        """It drained for longer than its work in flight takes: others waited, and had the promise of it. It pays back
        as in turns; after a long one only turns do that, until its duty is low again.
        """
        if late_ns <= 0:
            return
        seat.held_ns = max(seat.held_ns, late_ns)  # it waits as after such a turn
        others_ns = late_ns - late_ns * min(seat.request_ppm, self.clock.resident_ppm) // self.clock.resident_ppm
        self.clock.charge(seat, others_ns)
        seat.steady += virtual(others_ns, seat.weight_ppm)
        if late_ns > self.policy.lease_margin_ns:
            seat.duty.forget()
            self.promises.sort(seat)

    def _leave_turns(self, seat: Seat) -> None:
        """Turns go on without it, but for what they owe it: the virtual now is not its own meanwhile."""
        seat.lagged_ns = self.clock.lag_ns(seat)

    def _come_to_turns(self, seat: Seat) -> None:
        """They owe it what they did, or what it lags now, up to a quota. Else whoever takes the card from all for a
        while, as an overrun does, and has them run beside each other for a moment takes that from one for good.
        """
        owed_ns = max(seat.lagged_ns, min(max(0, -seat.ahead_ns), self.policy.quota_ns))
        self.clock.owe(seat, owed_ns)
