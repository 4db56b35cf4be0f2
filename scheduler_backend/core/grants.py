"""The parts that moves are made of: a grant's shape and lease, what its clients are told, and where a tenant waits.

Nothing here decides who is next or when a grant ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler_backend.core import events as ev
from scheduler_backend.core.beside import Beside
from scheduler_backend.core.charges import Charges
from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.limits import Limits
from scheduler_backend.core.message_delay import MessageDelay
from scheduler_backend.core.moves import Epochs
from scheduler_backend.core.plan import HandoverPlan
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.reservation import GangReservation
from scheduler_backend.core.restart import RestartBarrier
from scheduler_backend.core.seat import Member, Seat, Standing
from scheduler_backend.core.tenants import Tenants

JOINS_MOST: Final = 8  # of one contended grant; each costs two messages, and a tenant has 1000 a second


class Grants:
    """Grants and the places of tenants."""

    def __init__(self, gpu: int, policy: Policy, epochs: Epochs, now_ns: int = 0) -> None:
        self.policy = policy
        self.context = Context(gpu, policy, epochs, now_ns)
        self.tenants = Tenants(policy)
        self.clock = FairClock(policy, self.tenants)
        self.grant = CurrentGrant(self.context)
        self.delay = MessageDelay(policy)
        self.restart = RestartBarrier()
        self.plan = HandoverPlan(gpu, epochs)
        self.reservation = GangReservation()
        self.beside = Beside()
        self.charges = Charges(self.context, self.tenants, self.clock, self.grant, self.delay)
        self.limits = Limits(self.context, self.tenants, self.clock, self.grant)
        self.busy_ahead_ns = 0  # as Seat.ahead_ns, of all that are not host-bound together (sharing.py)

    # --- the grant --------------------------------------------------------------------------------------------------
    def shape_of(self, seat: Seat) -> tuple[bool, int]:
        """How its grants look now: whether they end, and how much work may be in flight."""
        policy = self.policy
        others, company_cap_ns = self.tenants.company(seat, self.context.now_ns)
        contended = others > 0 or seat.together
        if company_cap_ns:
            return contended, company_cap_ns
        if contended:
            return contended, policy.cap_latency_ns if seat.latency else policy.cap_ns
        return False, policy.cap_alone_ns

    def _shape(self, seat: Seat) -> bool:
        self.grant.contended, self.grant.cap_ns = self.shape_of(seat)
        return self.grant.contended

    def _grant(self, member: Member, among: Sequence[Member], *, joined: bool, admitted: bool = False) -> None:
        """Tell one process, `among` those that hold now; `admitted`: the quota is over, or was, and it is let in for a
        sibling that does not drain.
        """
        lease_ns = self.grant.lease_ns()
        if member.standing is not Standing.HOLDS:
            member.again = member.epoch == self.grant.epoch
        member.standing = Standing.HOLDS
        member.epoch = self.grant.epoch
        member.granted_ns = self.context.now_ns
        member.base_ns, member.used_ns = -1, 0
        member.used_at_ns, member.metered_ns = self.context.now_ns, self.tenants.by_client[member.client].metered_ns
        member.lease_until_ns = self.context.now_ns + lease_ns
        member.asks_again = False
        ends = self.grant.contended or admitted or self.grant.is_limited()
        left_ns, cap_ns = self.policy.valve_ns, self.grant.cap_ns
        if not admitted:
            left_ns, cap_ns = self.grant.part_of(member, self.grant.quota_until_ns - self.context.now_ns, ends, among)
        shared = bool(self.beside.sharing)
        self.context.do(
            ev.Grant(member.client, self.context.gpu, self.grant.epoch, left_ns, lease_ns, cap_ns, ends, joined, shared)
        )

    def _join(self, seat: Seat, member: Member) -> bool:
        """Give one more process what is left of the quota once the others' work in flight is done; whether it is
        worth it. Who comes and goes all the time would be most of what the daemon hears: where the grant ends soon
        anyway, only so many joins are. Each process has an equal part of them: one that always has work must not find
        them used up by others with short bursts when its own quota is over before the tenant's is.
        """
        joins = self.grant.joins.get(member.client, 0)
        if self.grant.contended and joins >= max(1, JOINS_MOST // len(seat.members)):
            return False
        holds = [other for other in seat.with_standing(Standing.HOLDS) if other is not member]
        flight_ns = sum(map(self.grant.flight_ns, holds))
        if self.grant.quota_until_ns - self.context.now_ns - flight_ns < self.policy.join_least_ns:
            return False
        self.grant.joins[member.client] = joins + 1
        self._grant(member, holds, joined=True)
        return True

    def _extend(self, member: Member, *, draining: bool = False) -> None:
        closing = draining or self.grant.closing_ns > 0
        lease_ns = self.grant.closing_lease_ns() if closing else self.grant.lease_ns()
        ends = self.grant.contended or self.grant.is_limited()
        left_ns = 0 if closing else max(0, self.grant.quota_until_ns - self.context.now_ns)
        left_ns, cap_ns = self.grant.part_of(member, left_ns, ends, self.grant.holding())
        member.lease_until_ns = self.context.now_ns + lease_ns
        shared = bool(self.beside.sharing)
        self.context.do(
            ev.Extend(member.client, self.context.gpu, self.grant.epoch, left_ns, lease_ns, cap_ns, ends, shared)
        )

    # --- where a tenant stands --------------------------------------------------------------------------------------
    def _want(self, seat: Seat, member: Member) -> None:
        """The tenant joins the waiting."""
        seat.returning = False
        member.standing = Standing.WAITS
        self._wait(seat)

    def _wait(self, seat: Seat) -> None:
        self.tenants.wait(seat, self.context.now_ns)
        self.limits.throttle(seat)

    def _rest(self, seat: Seat) -> None:
        self.tenants.rest(seat, self.context.now_ns)
        self.beside.paused.pop(seat.name, None)

    def _after_hold(self, seat: Seat) -> None:
        """A process of the holder stopped holding; if it was the last, the grant is over."""
        if seat.with_standing(Standing.HOLDS):
            return
        held_ns = seat.held_ns = self.grant.charged_ns
        if seat.jumped:
            self.charges.charge_jump(seat)
        self.charges.charge_use(seat, self.grant.reported_ns)
        overuse_ns = max(0, self.context.now_ns - self.grant.quota_until_ns - self.grant.hop_ns)
        self.context.do(ev.Page(seat.name, self.context.gpu, 0))
        self.context.do(
            ev.Charged(
                seat.name,
                self.context.gpu,
                self.grant.epoch,
                held_ns,
                overuse_ns,
                self.grant.busy_ns,
                self.grant.launches,
            )
        )
        self.grant.end()
        if seat.with_standing(Standing.WAITS):
            self._wait(seat)
        else:
            self._rest(seat)
            self.limits.throttle(seat)

    def barred(self) -> bool:
        """May nothing be granted, for those of before a restart have not been heard?"""
        return self.restart.is_up(self.context.now_ns)
