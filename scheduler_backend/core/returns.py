"""What a Return does: of a process that holds the token, beside others, or whose grant was over already."""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.charges import Charges
from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.grants import Grants
from scheduler_backend.core.limits import Limits
from scheduler_backend.core.promises import Promises
from scheduler_backend.core.restart import RestartBarrier
from scheduler_backend.core.seat import Seat, Standing, State
from scheduler_backend.core.shared_grants import SharedGrants


class Returns:
    """Of one GPU: the ends of grants, as processes tell them."""

    def __init__(
        self,
        context: Context,
        clock: FairClock,
        grant: CurrentGrant,
        restart: RestartBarrier,
        limits: Limits,
        charges: Charges,
        grants: Grants,
        promises: Promises,
        shared: SharedGrants,
    ) -> None:
        self.context = context
        self.clock = clock
        self.grant = grant
        self.restart = restart
        self.limits = limits
        self.charges = charges
        self.grants = grants
        self.promises = promises
        self.shared = shared

    def take(self, seat: Seat, event: ev.TokenReturned) -> None:
        """Take it from a process of the holder; the last one ends the grant."""
        member = seat.members[event.client]
        if member.standing is not Standing.HOLDS or member.epoch != event.epoch:
            self.take_late(seat, event)
            return
        self.grant.report(event.busy_ns, event.launches)
        self.promises.measure(seat, event, self.context.now_ns - member.granted_ns)
        self.promises.use_rest(seat, member, event, self.context.now_ns - self.grant.granted_ns)
        self.charges.measure_delay(seat, self.context.now_ns - member.granted_ns, event)
        member.standing = Standing.WAITS if event.want_more or member.asks_again else Standing.QUIET
        member.asks_again = False
        self.grants.after_hold(seat)
        if member.standing is Standing.WAITS and seat.state is State.HOLDING:
            self.grants.join(seat, member)

    def take_late(self, seat: Seat, event: ev.TokenReturned) -> None:
        """Take it for a grant that was over already: charge what it reports; its wish counts."""
        member = seat.members[event.client]
        if member.standing is Standing.STRAY and member.epoch == event.epoch:
            self.charges.charge_stray(seat, member, event.busy_ns, event.held_ns)
            member.standing = Standing.QUIET
            self.restart.hear(event.client)
        elif member.epoch == event.epoch and event.launches:  # what was not known when its grant was charged
            self.context.do(ev.Charged(seat.name, self.context.gpu, event.epoch, 0, 0, event.busy_ns, event.launches))
        if member.epoch == event.epoch and member.span_ns:
            self.promises.measure(seat, event, member.span_ns)
            self.promises.use_rest(seat, member, event, member.span_ns)
            self.charges.measure_delay(seat, member.span_ns, event)
            self.charges.charge_use(seat, event.busy_ns)
            if seat.state is State.WAITING:
                self.limits.throttle(seat)
            member.span_ns = 0
        returning, seat.returning = seat.returning, False
        if event.want_more and member.standing in (Standing.QUIET, Standing.STRAY):
            if seat.state is State.IDLE:
                self.grants.want(seat, member)
                if not returning:
                    self.clock.come_back(seat)
            else:
                member.standing = Standing.WAITS

    def take_shared(self, seat: Seat, event: ev.TokenReturned) -> None:
        """Take it from a process that runs beside others; the last one ends the grant."""
        member = seat.members[event.client]
        if member.standing is Standing.HOLDS and member.epoch == event.epoch:
            self.shared.take_back(seat, member, event)
            return
        self.take_late(seat, event)
        if member.standing is Standing.WAITS and seat.state is State.SHARED:
            self.shared.give(seat, member, joined=True)

    def expect(self, seat: Seat) -> None:
        """Its only process has drained and its grant is over; the Return that says more is still to come."""
        (member,) = seat.with_standing(Standing.HOLDS)
        member.span_ns = self.context.now_ns - member.granted_ns
        member.standing = Standing.WAITS if member.asks_again else Standing.QUIET
        member.asks_again = False
        self.grants.after_hold(seat)
        if seat.state is State.IDLE:
            seat.returning = True
