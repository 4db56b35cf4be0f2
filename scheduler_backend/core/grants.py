"""The parts that moves are made of: a grant's shape and lease, what its clients are told, and where a tenant waits.

Nothing here decides who is next or when a grant ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler_backend.core import events as ev
from scheduler_backend.core.limits import Limits
from scheduler_backend.core.quota import is_brief, of_several
from scheduler_backend.core.seat import Member, Seat, Standing
from scheduler_backend.core.tenant import WHOLE_PPM

JOINS_MOST: Final = 8  # of one contended grant; each costs two messages, and a tenant has 1000 a second


class Grants(Limits):
    """Grants and the places of tenants."""

    # --- the grant --------------------------------------------------------------------------------------------------
    def shape_of(self, seat: Seat) -> tuple[bool, int]:
        """How its grants look now: whether they end, and how much work may be in flight."""
        policy = self.policy
        others, company_cap_ns = self.tenants.company(seat, self.now_ns)
        contended = others > 0 or seat.together
        if company_cap_ns:
            return contended, company_cap_ns
        if contended:
            return contended, policy.cap_latency_ns if seat.latency else policy.cap_ns
        return False, policy.cap_alone_ns

    def _shape(self, seat: Seat) -> bool:
        self.contended, self.cap_ns = self.shape_of(seat)
        return self.contended

    def _lease_ns(self) -> int:
        left_ns = max(0, self.quota_until_ns - self.now_ns)
        if self.contended:
            return left_ns + self.policy.lease_margin_ns
        return max(self.policy.alone_lease_ns, left_ns + self.policy.lease_margin_ns)

    def _closing_lease_ns(self) -> int:
        """What a revoked holder has to drain or to say that it drains still: its cap was let in, and the margin."""
        return self.policy.lease_margin_ns + self.cap_ns

    def _grant(self, member: Member, among: Sequence[Member], *, joined: bool, admitted: bool = False) -> None:
        """Tell one process, `among` those that hold now; `admitted`: the quota is over, or was, and it is let in for a
        sibling that does not drain.
        """
        lease_ns = self._lease_ns()
        if member.standing is not Standing.HOLDS:
            member.again = member.epoch == self.epoch
        member.standing = Standing.HOLDS
        member.epoch = self.epoch
        member.granted_ns = self.now_ns
        member.base_ns, member.used_ns = -1, 0
        member.used_at_ns, member.metered_ns = self.now_ns, self.tenants.by_client[member.client].metered_ns
        member.lease_until_ns = self.now_ns + lease_ns
        member.asks_again = False
        ends = self.contended or admitted or self._limited()
        left_ns, cap_ns = self.policy.valve_ns, self.cap_ns
        if not admitted:
            left_ns, cap_ns = self._part_of(member, self.quota_until_ns - self.now_ns, ends, among)
        shared = bool(self.sharing)
        self._actions.append(
            ev.Grant(member.client, self.gpu, self.epoch, left_ns, lease_ns, cap_ns, ends, joined, shared)
        )

    def _part_of(self, member: Member, left_ns: int, ends: bool, among: Sequence[Member]) -> tuple[int, int]:
        """What one process among those that hold is told of the quota that is left, and its cap."""
        if not ends:
            return left_ns, self.cap_ns
        others = [other for other in among if other is not member]
        brief = sum(is_brief(other.bursts.burst_ns, self.cap_ns) for other in others)
        return of_several(left_ns, self.cap_ns, len(others) + 1, brief)

    def _join(self, seat: Seat, member: Member) -> bool:
        """Give one more process what is left of the quota once the others' work in flight is done; whether it is
        worth it. Who comes and goes all the time would be most of what the daemon hears: where the grant ends soon
        anyway, only so many joins are. Each process has an equal part of them: one that always has work must not find
        them used up by others with short bursts when its own quota is over before the tenant's is.
        """
        joins = self._joins.get(member.client, 0)
        if self.contended and joins >= max(1, JOINS_MOST // len(seat.members)):
            return False
        holds = [other for other in seat.with_standing(Standing.HOLDS) if other is not member]
        flight_ns = sum(map(self._flight_ns, holds))
        if self.quota_until_ns - self.now_ns - flight_ns < self.policy.join_least_ns:
            return False
        self._joins[member.client] = joins + 1
        self._grant(member, holds, joined=True)
        return True

    def _extend(self, member: Member, *, draining: bool = False) -> None:
        closing = draining or self.closing_ns > 0
        lease_ns = self._closing_lease_ns() if closing else self._lease_ns()
        ends = self.contended or self._limited()
        left_ns = 0 if closing else max(0, self.quota_until_ns - self.now_ns)
        left_ns, cap_ns = self._part_of(member, left_ns, ends, self._holding())
        member.lease_until_ns = self.now_ns + lease_ns
        shared = bool(self.sharing)
        self._actions.append(ev.Extend(member.client, self.gpu, self.epoch, left_ns, lease_ns, cap_ns, ends, shared))

    def _limited(self) -> bool:
        return self.holder is not None and self.holder.limit_ppm < WHOLE_PPM

    # --- where a tenant stands --------------------------------------------------------------------------------------
    def _want(self, seat: Seat, member: Member) -> None:
        """The tenant joins the waiting."""
        seat.returning = False
        member.standing = Standing.WAITS
        self._wait(seat)

    def _wait(self, seat: Seat) -> None:
        self.tenants.wait(seat, self.now_ns)
        self._throttle(seat)

    def _rest(self, seat: Seat) -> None:
        self.tenants.rest(seat, self.now_ns)
        self.paused.pop(seat.name, None)

    def _after_hold(self, seat: Seat) -> None:
        """A process of the holder stopped holding; if it was the last, the grant is over."""
        if seat.with_standing(Standing.HOLDS):
            return
        held_ns = seat.held_ns = max(0, self.now_ns - self.charge_from_ns)
        if seat.jumped:
            self._charge_jump(seat)
        self._charge_use(seat, 0 if self._untold else self._busy_ns)
        overuse_ns = max(0, self.now_ns - self.quota_until_ns - self.hop_ns)
        self._actions.append(ev.Page(seat.name, self.gpu, 0))
        self._actions.append(
            ev.Charged(seat.name, self.gpu, self.epoch, held_ns, overuse_ns, self._busy_ns, self._launches)
        )
        self.holder = None
        self.free_since_ns = self.now_ns
        if seat.with_standing(Standing.WAITS):
            self._wait(seat)
        else:
            self._rest(seat)
            self._throttle(seat)

    def barred(self) -> bool:
        """May nothing be granted, for those of before a restart have not been heard?"""
        return self.restart.is_up(self.now_ns)
