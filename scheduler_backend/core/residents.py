"""Tenants and their processes: who comes, changes and goes, and what a restarted daemon must wait for."""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.company import Company
from scheduler_backend.core.moves import Recall
from scheduler_backend.core.policy import best_effort_ppm
from scheduler_backend.core.seat import BESIDE, Seat, Standing, State
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec


class Residents(Company):
    """The events that are no message about a token."""

    def _tenant_added(self, event: ev.TenantAdded) -> None:
        seat = Seat(event.spec, self.policy, self.context.now_ns)
        self.clock.place(seat)
        self.tenants.add(seat)

    def _share_free(self) -> None:
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
        if spec.request_ppm:  # else its weight follows, with all others' (_share_free)
            self._weigh(seat, spec.request_ppm)
        self.limits.throttle(seat)
        if (
            self.grant.holder is seat
            and seat.state is State.HOLDING
            and not self.grant.contended
            and spec.limit_ppm < WHOLE_PPM
        ):
            self.move(seat, Recall(ev.LIMIT))

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
                self.move(seat, event)

    def _clients_known(self, event: ev.ClientsKnown) -> None:
        self.restart.expect([client for _, client in event.clients], event.until_ns)
