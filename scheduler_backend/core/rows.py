"""What may happen to a tenant: one table from (state, message or move) to what runs and where it may lead.

What is not in TRANSITIONS is a bug of ours and raises InvalidTransition with the tenant's story. Messages that come
late, twice or not at all have their rows: a client may lose its connection between any two of them. The first line of
each row's docstring is its line in docs/protocol.md.
"""

from __future__ import annotations

from typing import Any

from scheduler_backend.core import events as ev
from scheduler_backend.core.beside import Beside
from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.grants import Grants
from scheduler_backend.core.limits import Limits
from scheduler_backend.core.message_delay import MessageDelay
from scheduler_backend.core.moves import (
    Admit,
    Close,
    Compete,
    Drained,
    InvalidTransition,
    Lapse,
    Overrun,
    Pause,
    Prolong,
    Recall,
    Row,
    Take,
)
from scheduler_backend.core.promises import Promises
from scheduler_backend.core.returns import Returns
from scheduler_backend.core.seat import Seat, Standing, State
from scheduler_backend.core.shared_grants import SharedGrants
from scheduler_backend.core.tenant import WHOLE_PPM
from scheduler_backend.core.tenants import Tenants


class Rows:
    """Of one GPU: the rows, and the one way to take them."""

    def __init__(
        self,
        context: Context,
        tenants: Tenants,
        clock: FairClock,
        grant: CurrentGrant,
        delay: MessageDelay,
        limits: Limits,
        grants: Grants,
        beside: Beside,
        promises: Promises,
        shared: SharedGrants,
        returns: Returns,
    ) -> None:
        self.context = context
        self.policy = context.policy
        self.tenants = tenants
        self.clock = clock
        self.grant = grant
        self.delay = delay
        self.limits = limits
        self.grants = grants
        self.beside = beside
        self.promises = promises
        self.shared = shared
        self.returns = returns

    def move(self, seat: Seat, event: Any) -> None:
        """Take the row of this event, or of this move of our own."""
        row = TRANSITIONS.get((seat.state, type(event)))
        seat.story.append((self.context.now_ns, seat.state, event))
        if row is None:
            raise InvalidTransition(f"{seat.name}: {type(event).__name__} while {seat.state.value}: {seat.tell()}")
        row.run(self, seat, event)
        if seat.state not in row.to:
            raise InvalidTransition(f"{seat.name}: {event} led to {seat.state.value}: {seat.tell()}")

    # --- messages ---------------------------------------------------------------------------------------------------
    def _ask_first(self, seat: Seat, event: ev.TokenAsked) -> None:
        """a process wants to launch"""
        if seat.alone_epoch > 0:
            seat.duty.rest(self.context.now_ns - seat.rested_ns)
        self.grants.want(seat, seat.members[event.client])
        seat.woken = True
        self.clock.come_back(seat)

    def _ask_too(self, seat: Seat, event: ev.TokenAsked) -> None:
        """another process wants to launch, or the message came twice"""
        seat.members[event.client].standing = Standing.WAITS

    def _ask_join(self, seat: Seat, event: ev.TokenAsked) -> None:
        """a process joins what is left of the grant; one that holds already is told again"""
        member = seat.members[event.client]
        if self.grants.join(seat, member):
            return
        if member.standing is Standing.HOLDS:
            member.asks_again = True
        else:
            member.standing = Standing.WAITS

    def _ask_later(self, seat: Seat, event: ev.TokenAsked) -> None:
        """too late for this grant: the process waits for the next"""
        member = seat.members[event.client]
        if member.standing is Standing.HOLDS:
            member.asks_again = True
        else:
            member.standing = Standing.WAITS

    def _renew(self, seat: Seat, event: ev.TokenRenewed) -> None:
        """the holder lives: its lease is prolonged, alone and without a limit its quota too; if it drains, as below"""
        member = seat.members[event.client]
        if member.standing is not Standing.HOLDS or member.epoch != event.epoch:
            self._renew_stale(seat, event)
            return
        self.grant.silent = 0
        if not event.draining and seat.limit_ppm >= WHOLE_PPM and not self.grants.shape(seat):
            self.grant.quota_until_ns = self.context.now_ns + self.policy.alone_quota_ns
        self.grants.extend(member, draining=event.draining)
        if event.draining:
            self._admit(seat, event)

    def _renew_closing(self, seat: Seat, event: ev.TokenRenewed) -> None:
        """it drains still: only its lease is prolonged; where that was not foreseen siblings that wait are let in"""
        member = seat.members[event.client]
        if member.standing is Standing.HOLDS and member.epoch == event.epoch:
            self.grants.extend(member, draining=True)
            self._admit(seat, event)
        else:
            self._renew_stale(seat, event)

    def _admit(self, seat: Seat, event: ev.TokenRenewed) -> None:
        """The valve between processes: what does not drain may wait for work that a sibling could not launch yet.

        Not where it drains as was foreseen: processes with long kernels would let each other in, one after the other,
        for as long as an overrun may last.
        """
        if event.foreseen:
            return
        for member in seat.with_standing(Standing.WAITS):
            self.grants.give(member, self.grant.holding(), joined=True, admitted=True)

    def _renew_stale(self, seat: Seat, event: ev.TokenRenewed) -> None:
        """what it thinks it holds is gone: say so again"""
        self.context.do(ev.Revoke(event.client, self.context.gpu, event.epoch, ev.LEASE))

    def _return(self, seat: Seat, event: ev.TokenReturned) -> None:
        """a process has drained; the last one ends the grant"""
        self.returns.take(seat, event)

    def _return_late(self, seat: Seat, event: ev.TokenReturned) -> None:
        """the grant was over already: charge what it reports; its wish counts"""
        self.returns.take_late(seat, event)

    def _left(self, seat: Seat, event: ev.ClientDied) -> None:
        """a process that held nothing died"""
        del seat.members[event.client]
        if seat.state in (State.WAITING, State.PAUSED) and not seat.with_standing(Standing.WAITS):
            self.grants.rest(seat)

    def _left_holder(self, seat: Seat, event: ev.ClientDied) -> None:
        """a process of the holder died: nothing of it runs any more"""
        del seat.members[event.client]
        self.grant.untold = True
        self.grants.after_hold(seat)

    # --- beside others ----------------------------------------------------------------------------------------------
    def _admit_shared(self, seat: Seat, event: Admit) -> None:
        """it is host-bound and runs beside others"""
        self.shared.admit(seat)

    def _close_shared(self, seat: Seat, event: Close) -> None:
        """others come first: it drains"""
        self.shared.close(seat, event.reason)

    def _pause(self, seat: Seat, event: Pause) -> None:
        """it would run beside others, but one of them lags, or it rests at its limit"""
        self.shared.pause(seat)

    def _compete(self, seat: Seat, event: Compete) -> None:
        """all have turns again"""
        self.shared.compete(seat)

    def _ask_shared(self, seat: Seat, event: ev.TokenAsked) -> None:
        """another process joins, or one that holds is told again"""
        self.shared.give(seat, seat.members[event.client], joined=True)

    def _renew_shared(self, seat: Seat, event: ev.TokenRenewed) -> None:
        """it lives: its lease is prolonged"""
        member = seat.members[event.client]
        if member.standing is not Standing.HOLDS or member.epoch != event.epoch:
            self._renew_stale(seat, event)
            return
        self.shared.extend(seat, member)
        if seat.state is State.LEAVING and event.draining and not event.foreseen:
            self.shared.admit_waiting(seat)

    def _used(self, seat: Seat, event: ev.Used) -> None:
        """it says what it used"""
        self.promises.hear(seat, event)

    def _used_held(self, seat: Seat, event: ev.Used) -> None:
        """it says what it used beside others"""
        self.promises.hear_held(seat, event)

    def _used_else(self, seat: Seat, event: ev.Used) -> None:
        """its grant is over"""

    def _left_shared(self, seat: Seat, event: ev.ClientDied) -> None:
        """one of its processes died"""
        del seat.members[event.client]
        self.shared.after_hold(seat)

    def _return_shared(self, seat: Seat, event: ev.TokenReturned) -> None:
        """a process has drained; the last one ends the grant"""
        self.returns.take_shared(seat, event)

    def _lapse_shared(self, seat: Seat, event: Lapse) -> None:
        """a lease ran out: the process is dead, frozen or cut off"""
        self.shared.stray(seat, event.client, 0)
        self.context.do(ev.LeaseLost(seat.name, event.client, self.context.gpu, seat.shared_epoch))
        self.shared.after_hold(seat)

    def _overrun_shared(self, seat: Seat, event: Overrun) -> None:
        """it lives and does not drain: it is charged on, and others go on without it"""
        self.shared.stray(seat, event.client, self.context.now_ns)
        self.context.do(ev.Overran(seat.name, event.client, self.context.gpu, seat.shared_epoch))
        self.shared.after_hold(seat)

    # --- moves of our own -------------------------------------------------------------------------------------------
    def _take(self, seat: Seat, event: Take) -> None:
        """it is next"""
        now_ns = self.context.now_ns
        if seat.limit_ppm < WHOLE_PPM:
            seat.fill(now_ns, self.limits.bucket(seat)[0])
        del self.tenants.waiting[seat.name]
        epoch = event.epoch or self.context.epochs.take()
        seat.alone_epoch = 0 if self.beside.sharing else epoch
        seat.counted_ns = 0
        contended = self.grants.shape(seat)
        quota_ns = event.quota_ns or self.limits.quota_from(seat, contended, now_ns)
        self.grant.begin(seat, epoch, quota_ns, self.delay.uncharged_ns(seat.name, quota_ns, seat.held_ns, contended))
        if contended and self.tenants.is_full():
            self.limits.hold_back()
        seat.woken = False
        seat.state = State.HOLDING
        self.context.do(ev.Page(seat.name, self.context.gpu, self.grant.epoch))
        waits = seat.with_standing(Standing.WAITS)
        for member in waits:
            self.grants.give(member, waits, joined=False)
        self.context.do(
            ev.Handed(
                seat.name,
                self.context.gpu,
                self.grant.epoch,
                now_ns - seat.waiting_since_ns,
                now_ns - self.grant.free_since_ns,
            )
        )

    def _drained(self, seat: Seat, event: Drained) -> None:
        """it said so on the short way, and the token went on by the order that was prepared"""
        self.returns.expect(seat)

    def _prolong(self, seat: Seat, event: Prolong) -> None:
        """it would be picked again: no drain, no gap"""
        self.grants.shape(seat)
        self.grant.prolong(event.quota_ns)
        for member in seat.with_standing(Standing.HOLDS):
            self.grants.extend(member)

    def _recall(self, seat: Seat, event: Recall) -> None:
        """somebody is owed more, or may not wait"""
        seat.state = State.CLOSING
        self.grant.closing_ns = self.context.now_ns
        for member in seat.with_standing(Standing.HOLDS):
            member.lease_until_ns = min(member.lease_until_ns, self.context.now_ns + self.grant.closing_lease_ns())
            self.context.do(ev.Revoke(member.client, self.context.gpu, self.grant.epoch, event.reason))

    def _lapse(self, seat: Seat, event: Lapse) -> None:
        """a lease ran out: the process is dead, frozen or cut off"""
        member = seat.members[event.client]
        asked_again = member.asks_again
        seat.stray(member)
        if asked_again:
            member.standing = Standing.WAITS
        self.context.do(ev.LeaseLost(seat.name, event.client, self.context.gpu, self.grant.epoch))
        self.context.do(ev.Revoke(event.client, self.context.gpu, self.grant.epoch, ev.LEASE))
        self.grant.untold = True
        self.grants.after_hold(seat)

    def _overrun(self, seat: Seat, event: Overrun) -> None:
        """it lives and does not drain: it is charged on, and the next is granted anyway"""
        member = seat.members[event.client]
        seat.stray(member, since_ns=self.context.now_ns)
        self.context.do(ev.Overran(seat.name, event.client, self.context.gpu, self.grant.epoch))
        self.context.do(ev.Revoke(event.client, self.context.gpu, self.grant.epoch, ev.LEASE))
        self.grant.untold = True
        self.grants.after_hold(seat)


_R = Rows
_IDLE, _WAITING, _HOLDING, _CLOSING = State.IDLE, State.WAITING, State.HOLDING, State.CLOSING
_SHARED, _LEAVING, _PAUSED = State.SHARED, State.LEAVING, State.PAUSED
_AFTER = (State.IDLE, State.WAITING)
TRANSITIONS: dict[tuple[State, type], Row] = {
    (_IDLE, ev.Used): Row(_R._used_else, (_IDLE,)),
    (_WAITING, ev.Used): Row(_R._used_else, (_WAITING,)),
    (_HOLDING, ev.Used): Row(_R._used_held, (_HOLDING,)),
    (_CLOSING, ev.Used): Row(_R._used_held, (_CLOSING,)),
    (_PAUSED, ev.Used): Row(_R._used_else, (_PAUSED,)),
    (_SHARED, ev.Used): Row(_R._used, (_SHARED,)),
    (_LEAVING, ev.Used): Row(_R._used, (_LEAVING,)),
    (_WAITING, Admit): Row(_R._admit_shared, (_SHARED,)),
    (_PAUSED, Admit): Row(_R._admit_shared, (_SHARED,)),
    (_WAITING, Pause): Row(_R._pause, (_PAUSED,)),
    (_PAUSED, Compete): Row(_R._compete, (_WAITING,)),
    (_SHARED, Close): Row(_R._close_shared, (_LEAVING,)),
    (_SHARED, ev.TokenAsked): Row(_R._ask_shared, (_SHARED,)),
    (_SHARED, ev.TokenRenewed): Row(_R._renew_shared, (_SHARED,)),
    (_SHARED, ev.TokenReturned): Row(_R._return_shared, (_SHARED, *_AFTER)),
    (_SHARED, ev.ClientDied): Row(_R._left_shared, (_SHARED, *_AFTER)),
    (_SHARED, Lapse): Row(_R._lapse_shared, (_SHARED, *_AFTER)),
    (_LEAVING, ev.TokenAsked): Row(_R._ask_later, (_LEAVING,)),
    (_LEAVING, ev.TokenRenewed): Row(_R._renew_shared, (_LEAVING,)),
    (_LEAVING, ev.TokenReturned): Row(_R._return_shared, (_LEAVING, *_AFTER)),
    (_LEAVING, ev.ClientDied): Row(_R._left_shared, (_LEAVING, *_AFTER)),
    (_LEAVING, Lapse): Row(_R._lapse_shared, (_LEAVING, *_AFTER)),
    (_LEAVING, Overrun): Row(_R._overrun_shared, (_LEAVING, *_AFTER)),
    (_PAUSED, ev.TokenAsked): Row(_R._ask_too, (_PAUSED,)),
    (_PAUSED, ev.TokenRenewed): Row(_R._renew_stale, (_PAUSED,)),
    (_PAUSED, ev.TokenReturned): Row(_R._return_late, (_PAUSED,)),
    (_PAUSED, ev.ClientDied): Row(_R._left, (_PAUSED, _IDLE)),
    (_IDLE, ev.TokenAsked): Row(_R._ask_first, (_WAITING,)),
    (_IDLE, ev.TokenRenewed): Row(_R._renew_stale, (_IDLE,)),
    (_IDLE, ev.TokenReturned): Row(_R._return_late, _AFTER),
    (_IDLE, ev.ClientDied): Row(_R._left, (_IDLE,)),
    (_WAITING, ev.TokenAsked): Row(_R._ask_too, (_WAITING,)),
    (_WAITING, ev.TokenRenewed): Row(_R._renew_stale, (_WAITING,)),
    (_WAITING, ev.TokenReturned): Row(_R._return_late, (_WAITING,)),
    (_WAITING, ev.ClientDied): Row(_R._left, _AFTER),
    (_WAITING, Take): Row(_R._take, (_HOLDING,)),
    (_HOLDING, Drained): Row(_R._drained, _AFTER),
    (_CLOSING, Drained): Row(_R._drained, _AFTER),
    (_HOLDING, ev.TokenAsked): Row(_R._ask_join, (_HOLDING,)),
    (_HOLDING, ev.TokenRenewed): Row(_R._renew, (_HOLDING,)),
    (_HOLDING, ev.TokenReturned): Row(_R._return, (_HOLDING, *_AFTER)),
    (_HOLDING, ev.ClientDied): Row(_R._left_holder, (_HOLDING, *_AFTER)),
    (_HOLDING, Prolong): Row(_R._prolong, (_HOLDING,)),
    (_HOLDING, Recall): Row(_R._recall, (_CLOSING,)),
    (_HOLDING, Lapse): Row(_R._lapse, (_HOLDING, *_AFTER)),
    (_HOLDING, Overrun): Row(_R._overrun, (_HOLDING, *_AFTER)),
    (_CLOSING, ev.TokenAsked): Row(_R._ask_later, (_CLOSING,)),
    (_CLOSING, ev.TokenRenewed): Row(_R._renew_closing, (_CLOSING,)),
    (_CLOSING, ev.TokenReturned): Row(_R._return, (_CLOSING, *_AFTER)),
    (_CLOSING, ev.ClientDied): Row(_R._left_holder, (_CLOSING, *_AFTER)),
    (_CLOSING, Lapse): Row(_R._lapse, (_CLOSING, *_AFTER)),
    (_CLOSING, Overrun): Row(_R._overrun, (_CLOSING, *_AFTER)),
}
