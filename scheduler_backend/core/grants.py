"""Grants of the token: how they look, what the holder's processes are told of them, and where a tenant goes after one.

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
from scheduler_backend.core.limits import Limits
from scheduler_backend.core.seat import Member, Seat, Standing
from scheduler_backend.core.tenants import Tenants

JOINS_MOST: Final = 8  # of one contended grant; each costs two messages, and a tenant has 1000 a second


class Grants:
    """Of one GPU: grants of the token, and the places of its tenants."""

    def __init__(
        self,
        context: Context,
        tenants: Tenants,
        grant: CurrentGrant,
        limits: Limits,
        charges: Charges,
        beside: Beside,
    ) -> None:
        self.context = context
        self.policy = context.policy
        self.tenants = tenants
        self.grant = grant
        self.limits = limits
        self.charges = charges
        self.beside = beside

    # --- the grant --------------------------------------------------------------------------------------------------
    def shape_of(self, seat: Seat) -> tuple[bool, int]:
        """How its grants look now: whether they end, and how much work may be in flight."""
        company = self.tenants.company(seat, self.context.now_ns)
        cap_ns = min(company.cap_ns, self.policy.cap_lag_ns) if self.beside.goes_slow(seat) else company.cap_ns
        if seat.together:
            return True, min(cap_ns, self.tenants.cap_beside_ns(seat))
        return company.ends, cap_ns

    def shape(self, seat: Seat) -> bool:
        """Let the current grant look as its would now; returns whether it ends."""
        self.grant.contended, self.grant.cap_ns = self.shape_of(seat)
        return self.grant.contended

    def give(self, member: Member, among: Sequence[Member], *, joined: bool, admitted: bool = False) -> None:
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
        seat = self.tenants.by_client[member.client]
        member.used_at_ns, member.metered_ns, member.gentle_ns = self.context.now_ns, seat.metered_ns, seat.gentle_ns
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

    def join(self, seat: Seat, member: Member) -> bool:
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
        self.give(member, holds, joined=True)
        return True

    def extend(self, member: Member, *, draining: bool = False) -> None:
        """Tell a process that holds of its lease, and of what is left of the quota."""
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
    def want(self, seat: Seat, member: Member) -> None:
        """The tenant joins the waiting."""
        seat.returning = False
        member.standing = Standing.WAITS
        self.wait(seat)

    def wait(self, seat: Seat) -> None:
        """It waits from now on, and rests where its bucket is empty."""
        self.tenants.wait(seat, self.context.now_ns)
        self.limits.throttle(seat)

    def rest(self, seat: Seat) -> None:
        """It wants nothing any more, whether it waited or paused."""
        self.tenants.rest(seat, self.context.now_ns)
        self.beside.paused.pop(seat.name, None)

    def after_hold(self, seat: Seat) -> None:
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
            self.wait(seat)
        else:
            self.rest(seat)
            self.limits.throttle(seat)
