"""Tenants and their processes: who comes, changes and goes, and what a restarted daemon must wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler_backend.core import events as ev
from scheduler_backend.core.beside import Beside
from scheduler_backend.core.charges import Charges
from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.grants import Grants
from scheduler_backend.core.limits import Limits
from scheduler_backend.core.message_delay import MessageDelay
from scheduler_backend.core.moves import Recall
from scheduler_backend.core.policy import best_effort_ppm
from scheduler_backend.core.restart import RestartBarrier
from scheduler_backend.core.rows import Rows
from scheduler_backend.core.seat import BESIDE, Seat, Standing, State
from scheduler_backend.core.shared_grants import SharedGrants
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec
from scheduler_backend.core.tenants import Tenants


class Residents:
    """Of one GPU: takes the events that say who comes, changes and goes."""

    def __init__(
        self,
        context: Context,
        tenants: Tenants,
        clock: FairClock,
        grant: CurrentGrant,
        delay: MessageDelay,
        restart: RestartBarrier,
        limits: Limits,
        charges: Charges,
        grants: Grants,
        beside: Beside,
        shared: SharedGrants,
        rows: Rows,
    ) -> None:
        self.context = context
        self.policy = context.policy
        self.tenants = tenants
        self.clock = clock
        self.grant = grant
        self.delay = delay
        self.restart = restart
        self.limits = limits
        self.charges = charges
        self.grants = grants
        self.beside = beside
        self.shared = shared
        self.rows = rows

    def take(self, event: ev.Event) -> None:
        """Take one of these events; all that depends on who is there is as it should be then."""
        kind = type(event)
        _EVENTS[kind](self, event)
        if kind is ev.TenantAdded or kind is ev.TenantChanged or kind is ev.TenantRemoved:
            self.share_free()
        self.share_turns()

    def share_turns(self) -> None:
        """Set how long turns are, and how fast the steady time passes, by those that have processes."""
        self.clock.resident_ppm = self.tenants.share_turns()

    def _tenant_added(self, event: ev.TenantAdded) -> None:
        seat = Seat(event.spec, self.policy, self.context.now_ns)
        self.clock.place(seat)
        self.tenants.add(seat)

    def share_free(self) -> None:
        """Somebody came, changed or went: what best effort counts as now."""
        shares = [(0 if seat.best_effort else seat.request_ppm, seat.limit_ppm) for seat in self.tenants.seats.values()]
        part_ppm = best_effort_ppm(shares)
        for seat in self.tenants.seats.values():
            if seat.best_effort and seat.request_ppm != min(part_ppm, seat.limit_ppm):
                self._weigh(seat, min(part_ppm, seat.limit_ppm))

    def _weigh(self, seat: Seat, request_ppm: int) -> None:
        """Another weight, from now on."""
        more = request_ppm > seat.request_ppm
        self.clock.reweigh(seat, request_ppm)
        seat.wait_from(self.context.now_ns if more else seat.ready_since_ns)  # a greater promise holds from now on

    def _tenant_changed(self, event: ev.TenantChanged) -> None:
        spec: TenantSpec = event.spec
        seat = self.tenants.seats[spec.name]
        if seat.limit_ppm < WHOLE_PPM:
            seat.fill(self.context.now_ns, self.limits.bucket(seat)[0])
        seat.filled_ns = self.context.now_ns
        seat.best_effort = not spec.request_ppm
        seat.limit_ppm, seat.latency = spec.limit_ppm, spec.latency
        if spec.request_ppm:  # else its weight follows, with all others' (share_free)
            self._weigh(seat, spec.request_ppm)
        self.limits.throttle(seat)
        if (
            self.grant.holder is seat
            and seat.state is State.HOLDING
            and not self.grant.contended
            and spec.limit_ppm < WHOLE_PPM
        ):
            self.rows.move(seat, Recall(ev.LIMIT))

    def _tenant_removed(self, event: ev.TenantRemoved) -> None:
        seat = self.tenants.remove(event.name)
        self.delay.forget(event.name)
        self.beside.forget(event.name)
        for client in list(seat.members):
            self.context.do(ev.Revoke(client, self.context.gpu, seat.members[client].epoch, ev.SHUTDOWN))
            self._client_died(ev.ClientDied(client))

    def _client_joined(self, event: ev.ClientJoined) -> None:
        seat = self.tenants.seats[event.tenant]
        epoch = dict(event.held).get(self.context.gpu, 0)
        known = seat.members.get(event.client)
        seat.seen_ns = self.context.now_ns
        if known is not None and known.standing is Standing.STRAY and known.epoch == epoch:
            self.charges.charge_stray(seat, known, 0, 0)
            self.context.do(ev.Revoke(event.client, self.context.gpu, epoch, ev.LEASE))
            return
        if known is not None and not (known.standing is Standing.HOLDS and known.epoch == epoch):
            self._client_died(ev.ClientDied(event.client))  # what it held before is not held any more
            known = None
        if known is not None and seat.state in BESIDE:
            known.base_ns, known.used_ns = -1, 0
            self.shared.extend(seat, known)
            if seat.state is State.LEAVING:
                self.context.do(ev.Revoke(event.client, self.context.gpu, seat.shared_epoch, ev.PREEMPT))
            return
        if known is not None:
            self.grants.extend(known)
            if self.grant.closing_ns:
                self.context.do(ev.Revoke(event.client, self.context.gpu, self.grant.epoch, ev.PREEMPT))
            return
        member = self.tenants.join(seat, event.client)
        if epoch:
            member.epoch = epoch
            member.granted_ns = member.lease_until_ns = self.context.now_ns  # when, is not known
            seat.stray(member)
            self.context.do(ev.Revoke(event.client, self.context.gpu, epoch, ev.LEASE))
        else:
            self.restart.hear(event.client)
        for other in self.tenants.waiting.values():
            if other.throttled:
                self.limits.throttle(other)  # beside others the pace is another
        holder = self.grant.holder
        if holder is not None and holder is not seat and holder.state is State.HOLDING and not self.grant.contended:
            self.grants.shape(holder)  # a newcomer must not wait for a long queue of kernels
            self.grant.quota_until_ns = min(self.grant.quota_until_ns, self.context.now_ns + self.policy.quota_ns)
            for held in holder.with_standing(Standing.HOLDS):
                self.grants.extend(held)

    def _client_died(self, event: ev.ClientDied) -> None:
        self.restart.hear(event.client)
        seat = self.tenants.leave(event.client)
        if seat is not None:
            seat.returning = False
            member = seat.members[event.client]
            if member.standing is Standing.STRAY:
                self.charges.charge_stray(seat, member, 0, 0)
            if member.standing is not Standing.HOLDS and seat.state not in (State.IDLE, State.WAITING, State.PAUSED):
                del seat.members[event.client]
            else:
                self.rows.move(seat, event)
            if member.adrift and not seat.is_adrift:
                self.charges.end_run_on(seat)

    def _clients_known(self, event: ev.ClientsKnown) -> None:
        self.restart.expect([client for _, client in event.clients], event.until_ns)


_EVENTS: dict[type, Callable[[Residents, Any], None]] = {
    ev.TenantAdded: Residents._tenant_added,
    ev.TenantChanged: Residents._tenant_changed,
    ev.TenantRemoved: Residents._tenant_removed,
    ev.ClientJoined: Residents._client_joined,
    ev.ClientDied: Residents._client_died,
    ev.ClientsKnown: Residents._clients_known,
}
