"""Who will have the token after the holder: decided before the holder has drained, so that nobody has to be asked then.

The order holds only while nothing happens: the shell takes it back before each event and the machine, having handled
that event, says the same order again or another. Where the machine could not be sure (several processes of the holder
must drain first) there is no order, and the Return goes through the machine as ever. Where the holder itself would be
picked again, now or at its quota's end, the order is for the case that it wants no more: its word on the short way
says so. One that rests at its limit until the quota ends may be next, but not before it has rested.
"""

from __future__ import annotations

from typing import Final

from scheduler_backend.core.beside import Beside
from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.events import Prepare
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.grants import Grants
from scheduler_backend.core.limits import Limits
from scheduler_backend.core.policy import HANDOVER_NS, ORDERINGS, moved_on, pick, virtual
from scheduler_backend.core.quota import is_brief
from scheduler_backend.core.reservation import GangReservation
from scheduler_backend.core.restart import RestartBarrier
from scheduler_backend.core.seat import Member, Seat, Standing, State
from scheduler_backend.core.tenant import WHOLE_PPM
from scheduler_backend.core.tenants import Tenants

NEVER_NS = (1 << 63) - 1
# Of a tenant's processes that wait so many are told ahead, for each that comes to wait makes the order another one: of
# hundreds, each would have all others told anew.
TOLD_AHEAD: Final = 8


def _told_ahead(members: list[Member]) -> tuple[int, ...]:
    return tuple(member.client for member in members[:TOLD_AHEAD])


def _brief(members: list[Member], cap_ns: int) -> tuple[int, ...]:
    """Which of them will not have a whole cap in flight; of one alone it does not matter."""
    if len(members) < 2:
        return ()
    return tuple(member.client for member in members if is_brief(member.bursts.burst_ns, cap_ns))


class _Turn:
    """A tenant that has held for so long, and waits again from `at_ns` on; until undo()."""

    __slots__ = ("_known", "seat")

    def __init__(self, seat: Seat, charged_ns: int, held_ns: int, at_ns: int, arrived: int) -> None:
        self.seat = seat
        self._known = seat.clock, seat.arrived, seat.held_ns, seat.ready_since_ns, seat.due_ns
        seat.clock += virtual(charged_ns, seat.weight_ppm)
        seat.arrived, seat.held_ns = arrived, held_ns
        seat.wait_from(at_ns)

    def undo(self) -> None:
        """It stands as before."""
        seat = self.seat
        seat.clock, seat.arrived, seat.held_ns, seat.ready_since_ns, seat.due_ns = self._known


def same_grant(known: Prepare, order: Prepare) -> bool:
    """May what its clients were told stand? A quota that grew a little since is not worth a message."""
    return (
        known.holder == order.holder
        and known.holder_epoch == order.holder_epoch
        and known.tenant == order.tenant
        and known.clients == order.clients
        and known.more == order.more
        and known.brief == order.brief
        and known.cap_ns == order.cap_ns
        and known.contended == order.contended
        and known.shared == order.shared
        and known.quota_ns <= order.quota_ns <= known.quota_ns * 5 // 4
    )


class Foresight:
    """Of one GPU. Of what the parts own nothing is changed here."""

    def __init__(
        self,
        context: Context,
        tenants: Tenants,
        clock: FairClock,
        grant: CurrentGrant,
        restart: RestartBarrier,
        reservation: GangReservation,
        limits: Limits,
        grants: Grants,
        beside: Beside,
    ) -> None:
        self.context = context
        self.policy = context.policy
        self.tenants = tenants
        self.clock = clock
        self.grant = grant
        self.restart = restart
        self.reservation = reservation
        self.limits = limits
        self.grants = grants
        self.beside = beside

    def next_order(self) -> Prepare | None:
        """The order for the next hand-over, its epoch still 0; None: there is none that is certain."""
        holder = self.grant.holder
        if (
            holder is None
            or self.restart.is_up(self.context.now_ns)
            or not (self.grant.contended or holder.state is State.CLOSING)
        ):
            return None
        if self.reservation.gang or holder.gang or self.beside.holds_up():
            return None
        holds = holder.with_standing(Standing.HOLDS)
        if len(holds) != 1 or holds[0].again:
            return None
        closing = holder.state is State.CLOSING
        end_ns = self.context.now_ns if closing else max(self.context.now_ns, self.grant.quota_until_ns)
        following = self._following(holder, end_ns)
        wanting_from_ns = 0 if closing else end_ns - self.grant.lead_ns  # earlier, it would be picked again
        if following is None:
            wanting_from_ns = NEVER_NS
            end_ns = self.context.now_ns
            ready = self.tenants.ready()
            following, _ = self.pick_at(holder, ready, end_ns)
        if following is None or following.gang:
            return None
        contended, cap_ns = self.grants.shape_of(following)
        quota_ns = self.limits.quota_from(following, contended, end_ns)
        margin_ns, policy = self.policy.lease_margin_ns, self.policy
        lease_ns = quota_ns + margin_ns if contended else max(policy.alone_lease_ns, quota_ns + margin_ns)
        waits = following.with_standing(Standing.WAITS)
        return Prepare(
            self.context.gpu,
            holds[0].client,
            holder.name,
            self.grant.epoch,
            following.name,
            _told_ahead(waits),
            0,
            quota_ns,
            lease_ns,
            cap_ns,
            contended or following.limit_ppm < WHOLE_PPM,
            following.resume_ns - self.policy.resume_early_ns if following.throttled else 0,
            wanting_from_ns,
            brief=_brief(waits, cap_ns),
            shared=bool(self.beside.sharing),
            more=max(0, len(waits) - TOLD_AHEAD),
        )

    def orders_behind(self, order: Prepare) -> list[Prepare]:
        """The hand-overs after that of this order, their epochs still 0, while nobody new comes: who always has work
        takes turns, and each of them would be decided the same when its time has come.

        Only where that is sure enough: everybody has a request, no limit binds, nobody comes before others, each turn's
        holder is one process and another one than all before it (who holds cannot be told of a grant to come).
        """
        holder, policy = self.grant.holder, self.policy
        assert holder is not None
        if order.not_before_ns or order.wanting_from_ns in (0, NEVER_NS) or not ORDERINGS[policy.ordering].plans_ahead:
            return []
        for seat in self.tenants.seats.values():
            if not seat.request_ppm or seat.limit_ppm < WHOLE_PPM or seat.latency or seat.gang:
                return []
        at_ns = max(self.context.now_ns, self.grant.quota_until_ns)
        left_ns = at_ns - min(at_ns, max(self.context.now_ns, self.grant.charge_from_ns))
        active_ppm, arrived = self.clock.active_ppm(), self.tenants.arrivals + 1
        waiting = list(self.tenants.waiting.values())
        held = [_Turn(holder, left_ns, max(0, at_ns - self.grant.charge_from_ns), at_ns, arrived)]
        virtual_now = self.clock.virtual_now + self.clock.passes(holder, left_ns, active_ppm)
        virtual_now = moved_on([*waiting, holder], virtual_now, policy)
        found: list[Prepare] = []
        while len(found) + 1 < policy.ahead and len(order.clients) == 1:
            at_ns, arrived = at_ns + order.quota_ns + HANDOVER_NS, arrived + 1
            turn = self.tenants.seats[order.tenant]
            waiting.remove(turn)
            held.append(_Turn(turn, order.quota_ns, order.quota_ns, at_ns, arrived))
            virtual_now += self.clock.passes(turn, order.quota_ns, active_ppm)
            rivals = [*waiting, *(each.seat for each in held)]
            first, virtual_now = pick(rivals, virtual_now, policy, at_ns, self.tenants.others)
            if first is None or first not in waiting:
                break
            contended, cap_ns = self.grants.shape_of(first)
            if not contended:
                break
            waits = first.with_standing(Standing.WAITS)
            order = Prepare(
                self.context.gpu,
                order.clients[0],
                order.tenant,
                0,
                first.name,
                _told_ahead(waits),
                0,
                quota_ns := self.limits.quota_from(first, contended, at_ns),
                quota_ns + policy.lease_margin_ns,
                cap_ns,
                contended,
                0,
                max(0, order.quota_ns - policy.extend_lead_ns),
                brief=_brief(waits, cap_ns),
                shared=order.shared,
                more=max(0, len(waits) - TOLD_AHEAD),
            )
            found.append(order)
        for each in reversed(held):
            each.undo()
        return found

    def _following(self, holder: Seat, end_ns: int) -> Seat | None:
        """Who would be picked at `end_ns` if the holder then waited again at once, and nobody else came."""
        rivals = [seat for seat in self.tenants.waiting.values() if not seat.throttled or seat.resume_ns <= end_ns]
        if not rivals:
            return None
        # Where its limit will bind, the holder is no rival: it would rest first.
        left_ns = end_ns - self.context.now_ns
        left_ppm = WHOLE_PPM - holder.limit_ppm
        if not left_ppm or holder.credit_ns - left_ns * left_ppm // WHOLE_PPM >= self.limits.need_ns(holder):
            rivals = [*rivals, holder]
        first, _ = self.pick_at(holder, rivals, end_ns)
        return None if first is holder else first

    def pick_at(self, holder: Seat, rivals: list[Seat], end_ns: int) -> tuple[Seat | None, int]:
        """Who is picked among `rivals` at `end_ns` if the holder (which may be one of them) has held until then and is
        back; and how far the virtual now jumps forward at that grant, beyond what it moves on until then.
        """
        left_ns = end_ns - min(end_ns, max(self.context.now_ns, self.grant.charge_from_ns))
        virtual_end = self.clock.virtual_now
        if holder.request_ppm:
            virtual_end += self.clock.passes(holder, left_ns)
        turn = _Turn(holder, left_ns, max(0, end_ns - self.grant.charge_from_ns), end_ns, self.tenants.arrivals + 1)
        first, virtual_then = pick(rivals, virtual_end, self.policy, end_ns, self.tenants.others)
        turn.undo()
        return first, virtual_then - virtual_end
