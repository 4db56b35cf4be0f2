"""The token of one GPU: who holds it, who is next, what everyone is charged.

Everything that changes the token's state is in this file. `TokenMachine.handle(event, now_ns)` returns actions and
does nothing else: no clock, no socket, no log. What may happen to a tenant is one table (TRANSITIONS); what is not in
it is a bug of ours and raises InvalidTransition with the tenant's story. Messages that come late, twice or not at all
have their rows: a client may lose its connection between any two of them.

Theory of operation. `_advance` charges the holder for the time since the last event and moves the virtual now on;
then the event changes its tenant's state; then `_settle` lets leases run out, hands the free token on, asks for it
back where somebody is owed more, and prolongs the holder who would be picked again (no drain, no gap). A grant is the
tenant's: all of its waiting processes get it, one that asks later joins what is left, and it is over when the last
has returned, died, or lost its lease.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from scheduler_backend.core import events as ev
from scheduler_backend.core.ahead import next_order, same_order
from scheduler_backend.core.policy import SCALE, Policy, eligible, pick, virtual
from scheduler_backend.core.seat import Member, Seat, Standing, State
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec


class InvalidTransition(ev.LocalProtocolError):
    """The table has no such row: a bug. The text is the tenant's story."""


class Take(NamedTuple):
    """Move: the free token becomes the tenant's; with an epoch, as it was prepared."""

    epoch: int = 0
    quota_ns: int = 0


class Drained(NamedTuple):
    """Move: the holder's one process has drained; its Return is still on the way."""


class Prolong(NamedTuple):
    """Move: the holder would be picked again, so its quota grows."""

    quota_ns: int


class Recall(NamedTuple):
    """Move: the token is asked back early."""

    reason: int


class Lapse(NamedTuple):
    """Move: a process's lease ran out."""

    client: int


class Overrun(NamedTuple):
    """Move: a live process has not drained long after its quota."""

    client: int


class Row(NamedTuple):
    """One legal move: what runs, and the states it may lead to."""

    run: Callable[[TokenMachine, Seat, Any], None]
    to: tuple[State, ...]


class Epochs:
    """The node's count of grants. `last` is the highest number that may be out, over all incarnations."""

    __slots__ = ("last",)

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def take(self) -> int:
        """The next number."""
        self.last += 1
        return self.last


class TokenMachine:
    """One GPU's token. `epochs` numbers grants; it is the node's, for epochs never repeat."""

    def __init__(self, gpu: int, policy: Policy, epochs: Epochs, now_ns: int = 0) -> None:
        self.gpu = gpu
        self.policy = policy
        self.now_ns = now_ns
        self.seats: dict[str, Seat] = {}
        self.waiting: dict[str, Seat] = {}
        self.virtual_now = 0
        self.virtual_best_effort = 0
        # the token
        self.holder: Seat | None = None
        self.epoch = 0  # of the last grant
        self.granted_ns = 0
        self.hop_ns = 0  # what its messages take, there and back
        self.charge_from_ns = 0  # when the grant was given; alone, when it was there (see _measure_hop)
        self.quota_until_ns = 0
        self.closing_ns = 0  # when it was asked back
        self.contended = False  # the grant is one of those that end
        self.cap_ns = 0
        self.settled_until_ns = 0  # the quota whose prolongation has been decided
        self.silent = 0  # prolongations since the last sign of life
        self.free_since_ns = now_ns
        self._hops: dict[str, int] = {}  # tenant -> smoothed time that its messages take
        self._busy_ns = 0  # what the clients of this grant reported
        self._launches = 0
        # after a restart
        self.unheard: set[int] = set()
        self.unheard_until_ns = 0
        self.prepared: ev.Prepare | None = None  # the hand-over that may be carried out without asking
        self.returning: dict[str, Seat] = {}  # drained by such a hand-over; whether they want more is on its way
        self._clients: dict[int, Seat] = {}
        self._epochs = epochs
        self.arrivals = 0
        self._actions: list[ev.Action] = []

    # --- the way in -------------------------------------------------------------------------------------------------
    def handle(self, event: ev.Event, now_ns: int) -> list[ev.Action]:
        """Take one event; returns what to do, in order. Raises RemoteProtocolError: the client's fault."""
        actions: list[ev.Action] = []
        self._actions = actions
        self._advance(max(now_ns, self.now_ns))
        kind = type(event)
        if kind is ev.TokenAsked or kind is ev.TokenReturned or kind is ev.TokenRenewed:
            self._message(event)
        elif kind is not ev.Tick:
            _NODE_EVENTS[kind](self, event)
        if kind is ev.Tick:
            self._lapse_leases()  # by the clock alone: a message that is being read may be followed by the very renewal
        self._settle()
        return actions

    def _message(self, event: Any) -> None:
        seat = self._clients.get(event.client)
        if seat is None:
            raise ev.RemoteProtocolError(f"client {event.client} has not said Hello for GPU {self.gpu}")
        if type(event) is not ev.TokenAsked and not 0 < event.epoch <= self._epochs.last:
            raise ev.RemoteProtocolError(f"epoch {event.epoch} was never granted on GPU {self.gpu}")
        seat.seen_ns = self.now_ns
        if type(event) is not ev.TokenRenewed:
            seat.bursts.observe(event.burst_ns, event.gap_ns)
        self._move(seat, event)

    def _move(self, seat: Seat, event: Any) -> None:
        row = TRANSITIONS.get((seat.state, type(event)))
        seat.story.append((self.now_ns, seat.state, event))
        if row is None:
            raise InvalidTransition(f"{seat.name}: {type(event).__name__} while {seat.state.value}: {seat.tell()}")
        row.run(self, seat, event)
        if seat.state not in row.to:
            raise InvalidTransition(f"{seat.name}: {event} led to {seat.state.value}: {seat.tell()}")

    # --- time and accounts ------------------------------------------------------------------------------------------
    def _advance(self, now_ns: int) -> None:
        """Charge the holder for the time since the last event; move the virtual now on, but not over gaps."""
        held_ns = now_ns - max(self.now_ns, self.charge_from_ns)
        self.now_ns = now_ns
        holder = self.holder
        if holder is None or held_ns <= 0:
            return
        holder.window.add(now_ns - held_ns, now_ns)
        if holder.limit_ppm < WHOLE_PPM:
            holder.credit += (now_ns - holder.filled_ns) * holder.limit_ppm
            holder.drain(held_ns)
            holder.filled_ns = now_ns
        holder.clock += held_ns * SCALE // holder.weight_ppm
        if holder.request_ppm:
            active_ppm = self.active_ppm()
            self.virtual_now += held_ns * SCALE // active_ppm
            if active_ppm == holder.request_ppm and holder.clock < self.virtual_now:
                holder.clock = self.virtual_now  # who has the GPU to itself is owed nothing: nobody took it
        else:
            others = sum(1 for seat in self.waiting.values() if not seat.request_ppm)
            self.virtual_best_effort += held_ns * SCALE // (WHOLE_PPM * (1 + others))

    def active_ppm(self) -> int:
        """Sum of the requests of those who hold, wait, or are about to wait again.

        Those who rest at their limit count too: most of them rest within their turn's distance and lose nothing by it.
        Where a limit does bind, the others get ahead of now, and pick() moves now on to them.
        """
        total = self.holder.request_ppm if self.holder is not None else 0
        for seat in self.waiting.values():
            total += seat.request_ppm
        for seat in self.returning.values():
            total += seat.request_ppm
        return total

    def _measure_hop(self, seat: Seat, member: Member, held_ns: int) -> None:
        """What lies between our view of a grant and the client's own (receipt to drain confirmed): two messages.

        A limited tenant alone would pay for them with its limit at each of its steps, so there they are not charged:
        the least of all tenants', and hop_most_ns at most. Beside others everyone pays alike, and they are held time.
        """
        if held_ns > 0:
            hop_ns = min(max(0, self.now_ns - member.granted_ns - held_ns), self.policy.hop_most_ns)
            known_ns = self._hops.get(seat.name)
            self._hops[seat.name] = hop_ns if known_ns is None else (3 * known_ns + hop_ns) // 4

    def _charge_stray(self, seat: Seat, member: Member, busy_ns: int) -> None:
        """Who overran is charged on while the token is elsewhere; who lost its lease, for the work it then reports."""
        if member.stray_since_ns:
            extra_ns = self.now_ns - member.stray_since_ns
            member.stray_since_ns = self.now_ns
        else:
            extra_ns = min(busy_ns, self.now_ns - member.lease_until_ns)
        seat.clock += virtual(max(0, extra_ns), seat.weight_ppm)
        seat.drain(max(0, extra_ns))

    def _catch_up(self, seat: Seat) -> None:
        """Who becomes active again keeps what it is owed, up to one quota; idling earns no more."""
        base = self.virtual_now if seat.request_ppm else self.virtual_best_effort
        seat.clock = max(seat.clock, base - virtual(self.policy.quota_ns, seat.weight_ppm))

    # --- limits -----------------------------------------------------------------------------------------------------
    def _bucket(self, seat: Seat) -> tuple[int, int]:
        """Depth of its bucket, and how much must be in it before a throttled tenant may run again.

        Beside others: who idles may save one quota; who waits one and a half, or a wait would cost it its share; and so
        much must be there that what flows in while each of the others holds once still fits. Alone there is no
        hand-over to pay for, and a smooth pace matters: steps so long that it pauses for about alone_stall_ns.
        """
        policy = self.policy
        others, _ = self._company(seat)
        if others:
            waits_ns = policy.quota_ns * 3 // 2
            need_ns = waits_ns * WHOLE_PPM // (WHOLE_PPM + others * seat.limit_ppm)
            return waits_ns if seat.state is State.WAITING else policy.quota_ns, min(need_ns, policy.quota_ns * 9 // 10)
        depth_ns = policy.quota_ns * 6 // 5
        step_ns = policy.alone_stall_ns * seat.limit_ppm // WHOLE_PPM  # what flows in during such a pause
        return depth_ns, min(depth_ns * 9 // 10, max(policy.least_quota_ns, step_ns))

    def need_ns(self, seat: Seat) -> int:
        """What must be in its bucket for it to go on."""
        return self._bucket(seat)[1]

    def _throttle(self, seat: Seat) -> None:
        """Decide anew whether the tenant must rest."""
        if seat.limit_ppm >= WHOLE_PPM:
            seat.throttled = False
            return
        depth_ns, need_ns = self._bucket(seat)
        seat.fill(self.now_ns, depth_ns)
        # Grants are made to end when somebody has rested enough, and drain a little before their end: then is enough.
        early = self.policy.resume_early_ns * seat.limit_ppm if seat.throttled else 0
        rested = seat.credit >= need_ns * WHOLE_PPM - early
        if seat.throttled and rested and seat.state is State.WAITING:
            self._catch_up(seat)
        seat.throttled = not rested
        seat.resume_ns = 0 if rested else seat.full_enough_ns(need_ns)

    def _company(self, seat: Seat) -> tuple[int, bool]:
        """How many others may come, and whether one of them should not wait behind a long queue of kernels."""
        since_ns = self.now_ns - self.policy.company_ns
        others, short = 0, False
        for other in self.seats.values():
            if other is not seat and other.members and (other.state is not State.IDLE or other.seen_ns >= since_ns):
                others += 1
                short = short or other.latency or 0 < other.bursts.burst_ns < self.policy.short_burst_ns
        return others, short

    # --- messages ---------------------------------------------------------------------------------------------------
    def _ask_first(self, seat: Seat, event: ev.TokenAsked) -> None:
        """a process wants to launch"""
        self._want(seat, seat.members[event.client])
        seat.woken = True
        self._catch_up(seat)

    def _ask_too(self, seat: Seat, event: ev.TokenAsked) -> None:
        """another process wants to launch, or the message came twice"""
        seat.members[event.client].standing = Standing.WAITS

    def _ask_join(self, seat: Seat, event: ev.TokenAsked) -> None:
        """a process joins what is left of the grant; one that holds already is told again"""
        member = seat.members[event.client]
        if self.quota_until_ns - self.now_ns >= self.policy.join_least_ns:
            self._grant(member, joined=True)
        elif member.standing is Standing.HOLDS:
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
        """the holder lives: its lease is prolonged, alone and without a limit its quota too"""
        member = seat.members[event.client]
        if member.standing is not Standing.HOLDS or member.epoch != event.epoch:
            self._renew_stale(seat, event)
            return
        self.silent = 0
        if not event.draining and seat.limit_ppm >= WHOLE_PPM and not self._shape(seat):
            self.quota_until_ns = self.now_ns + self.policy.alone_quota_ns
        self._extend(member, draining=event.draining)

    def _renew_closing(self, seat: Seat, event: ev.TokenRenewed) -> None:
        """it drains still: only its lease is prolonged"""
        member = seat.members[event.client]
        if member.standing is Standing.HOLDS and member.epoch == event.epoch:
            self._extend(member, draining=True)
        else:
            self._renew_stale(seat, event)

    def _renew_stale(self, seat: Seat, event: ev.TokenRenewed) -> None:
        """what it thinks it holds is gone: say so again, charge one that overran"""
        member = seat.members[event.client]
        if member.standing is Standing.STRAY:
            self._charge_stray(seat, member, 0)
        self._actions.append(ev.Revoke(event.client, self.gpu, event.epoch, ev.LEASE))

    def _return(self, seat: Seat, event: ev.TokenReturned) -> None:
        """a process has drained; the last one ends the grant"""
        member = seat.members[event.client]
        if member.standing is not Standing.HOLDS or member.epoch != event.epoch:
            self._return_late(seat, event)
            return
        self._busy_ns += event.busy_ns
        self._launches += event.launches
        self._measure_hop(seat, member, event.held_ns)
        member.standing = Standing.WAITS if event.want_more or member.asks_again else Standing.QUIET
        member.asks_again = False
        self._after_hold(seat)
        if (
            member.standing is Standing.WAITS
            and seat.state is State.HOLDING
            and self.quota_until_ns - self.now_ns >= self.policy.join_least_ns
        ):
            self._grant(member, joined=True)

    def _return_late(self, seat: Seat, event: ev.TokenReturned) -> None:
        """the grant was over already: charge what it reports; its wish counts"""
        member = seat.members[event.client]
        if member.standing is Standing.STRAY and member.epoch == event.epoch:
            self._charge_stray(seat, member, event.busy_ns)
            member.standing = Standing.QUIET
            self.unheard.discard(event.client)
        elif member.epoch == event.epoch and event.launches:  # what was not known when its grant was charged
            self._actions.append(ev.Charged(seat.name, self.gpu, event.epoch, 0, 0, event.busy_ns, event.launches))
        returning = self.returning.pop(seat.name, None)
        if event.want_more and member.standing in (Standing.QUIET, Standing.STRAY):
            if seat.state is State.IDLE:
                self._want(seat, member)
                if returning is None:
                    self._catch_up(seat)
            else:
                member.standing = Standing.WAITS

    def _left(self, seat: Seat, event: ev.ClientDied) -> None:
        """a process that held nothing died"""
        del seat.members[event.client]
        if seat.state is State.WAITING and not seat.with_standing(Standing.WAITS):
            self._rest(seat)

    def _left_holder(self, seat: Seat, event: ev.ClientDied) -> None:
        """a process of the holder died: nothing of it runs any more"""
        del seat.members[event.client]
        self._after_hold(seat)

    # --- moves of our own -------------------------------------------------------------------------------------------
    def _take(self, seat: Seat, event: Take) -> None:
        """it is next"""
        now_ns = self.now_ns
        if seat.limit_ppm < WHOLE_PPM:
            seat.fill(now_ns, self._bucket(seat)[0])
        del self.waiting[seat.name]
        self.holder = seat
        self.epoch = event.epoch or self._epochs.take()
        self.granted_ns = now_ns
        self.hop_ns = min(self._hops.values(), default=0)
        self._shape(seat)
        self.quota_until_ns = now_ns + (event.quota_ns or self.quota_from(seat, self.contended, now_ns))
        self.charge_from_ns = now_ns if self.contended else now_ns + self.hop_ns
        self.closing_ns = self.settled_until_ns = self.silent = 0
        self._busy_ns = self._launches = 0
        seat.woken = False
        seat.state = State.HOLDING
        self._actions.append(ev.Page(seat.name, self.gpu, self.epoch))
        for member in seat.with_standing(Standing.WAITS):
            self._grant(member, joined=False)
        self._actions.append(
            ev.Handed(seat.name, self.gpu, self.epoch, now_ns - seat.waiting_since_ns, now_ns - self.free_since_ns)
        )

    def _drained(self, seat: Seat, event: Drained) -> None:
        """it said so on the short way, and the token went on by the order that was prepared"""
        (member,) = seat.with_standing(Standing.HOLDS)
        member.standing = Standing.WAITS if member.asks_again else Standing.QUIET
        member.asks_again = False
        self._after_hold(seat)
        if seat.state is State.IDLE:
            self.returning[seat.name] = seat

    def _prolong(self, seat: Seat, event: Prolong) -> None:
        """it would be picked again: no drain, no gap"""
        self._shape(seat)
        self.quota_until_ns += event.quota_ns
        self.silent += 1
        for member in seat.with_standing(Standing.HOLDS):
            self._extend(member)

    def _recall(self, seat: Seat, event: Recall) -> None:
        """somebody is owed more, or may not wait"""
        seat.state = State.CLOSING
        self.closing_ns = self.now_ns
        for member in seat.with_standing(Standing.HOLDS):
            member.lease_until_ns = min(member.lease_until_ns, self.now_ns + self._closing_lease_ns())
            self._actions.append(ev.Revoke(member.client, self.gpu, self.epoch, event.reason))

    def _lapse(self, seat: Seat, event: Lapse) -> None:
        """a lease ran out: the process is dead, frozen or cut off"""
        member = seat.members[event.client]
        member.standing = Standing.WAITS if member.asks_again else Standing.STRAY
        member.stray_since_ns = 0
        member.asks_again = False
        self._actions.append(ev.LeaseLost(seat.name, event.client, self.gpu, self.epoch))
        self._actions.append(ev.Revoke(event.client, self.gpu, self.epoch, ev.LEASE))
        self._after_hold(seat)

    def _overrun(self, seat: Seat, event: Overrun) -> None:
        """it lives and does not drain: it is charged on, and the next is granted anyway"""
        member = seat.members[event.client]
        member.standing = Standing.STRAY
        member.stray_since_ns = self.now_ns
        member.asks_again = False
        self._actions.append(ev.Overran(seat.name, event.client, self.gpu, self.epoch))
        self._actions.append(ev.Revoke(event.client, self.gpu, self.epoch, ev.LEASE))
        self._after_hold(seat)

    # --- parts of moves ---------------------------------------------------------------------------------------------
    def _want(self, seat: Seat, member: Member) -> None:
        """The tenant joins the waiting."""
        self.returning.pop(seat.name, None)
        member.standing = Standing.WAITS
        self._wait(seat)

    def _wait(self, seat: Seat) -> None:
        seat.state = State.WAITING
        self.arrivals += 1
        seat.arrived = self.arrivals
        seat.waiting_since_ns = self.now_ns
        self.waiting[seat.name] = seat
        self._throttle(seat)

    def _rest(self, seat: Seat) -> None:
        seat.state = State.IDLE
        seat.woken = False
        self.waiting.pop(seat.name, None)

    def _after_hold(self, seat: Seat) -> None:
        """A process of the holder stopped holding; if it was the last, the grant is over."""
        if seat.with_standing(Standing.HOLDS):
            return
        held_ns = max(0, self.now_ns - self.charge_from_ns)
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

    def shape_of(self, seat: Seat) -> tuple[bool, int]:
        """How its grants look now: whether they end, and how much work may be in flight."""
        policy = self.policy
        others, short = self._company(seat)
        if short:
            return others > 0, policy.cap_short_ns
        if others or seat.limit_ppm < WHOLE_PPM:
            return others > 0, policy.cap_ns
        return False, policy.cap_alone_ns

    def _shape(self, seat: Seat) -> bool:
        self.contended, self.cap_ns = self.shape_of(seat)
        return self.contended

    def quota_from(self, seat: Seat, contended: bool, start_ns: int) -> int:
        """The quota of a grant that begins then: its bursts, what its limit allows, until who rests at one is back."""
        quota_ns = seat.quota_ns
        if seat.limit_ppm < WHOLE_PPM:
            depth_ns = self._bucket(seat)[0]
            if not contended:
                quota_ns = depth_ns
            filled = seat.credit + max(0, start_ns - seat.filled_ns) * seat.limit_ppm
            quota_ns = min(quota_ns, max(1, min(depth_ns, filled // WHOLE_PPM)))
        elif not contended:
            quota_ns = self.policy.alone_quota_ns
        return self._until_resumed(seat, quota_ns, start_ns)

    def _until_resumed(self, seat: Seat, quota_ns: int, start_ns: int) -> int:
        """No longer than until a tenant that is owed has rested enough at its limit: a wait could cost it its share."""
        for other in self.waiting.values():
            if other.throttled and other.request_ppm and (not seat.request_ppm or other.clock < self.virtual_now):
                quota_ns = min(quota_ns, max(self.policy.least_quota_ns, other.resume_ns - start_ns))
        return quota_ns

    def _lease_ns(self) -> int:
        left_ns = max(0, self.quota_until_ns - self.now_ns)
        if self.contended:
            return left_ns + self.policy.lease_margin_ns
        return max(self.policy.alone_lease_ns, left_ns + self.policy.lease_margin_ns)

    def _closing_lease_ns(self) -> int:
        """What a revoked holder has to drain or to say that it drains still: its cap was let in, and the margin."""
        return self.policy.lease_margin_ns + self.cap_ns

    def _grant(self, member: Member, *, joined: bool) -> None:
        lease_ns = self._lease_ns()
        member.standing = Standing.HOLDS
        member.epoch = self.epoch
        member.granted_ns = self.now_ns
        member.lease_until_ns = self.now_ns + lease_ns
        member.asks_again = False
        left_ns = self.quota_until_ns - self.now_ns
        self._actions.append(
            ev.Grant(
                member.client,
                self.gpu,
                self.epoch,
                left_ns,
                lease_ns,
                self.cap_ns,
                self.contended or self._limited(),
                joined,
            )
        )

    def _extend(self, member: Member, *, draining: bool = False) -> None:
        closing = draining or self.closing_ns > 0
        lease_ns = self._closing_lease_ns() if closing else self._lease_ns()
        left_ns = 0 if closing else max(0, self.quota_until_ns - self.now_ns)
        member.lease_until_ns = self.now_ns + lease_ns
        self._actions.append(
            ev.Extend(
                member.client, self.gpu, self.epoch, left_ns, lease_ns, self.cap_ns, self.contended or self._limited()
            )
        )

    def _limited(self) -> bool:
        return self.holder is not None and self.holder.limit_ppm < WHOLE_PPM

    # --- after each event -------------------------------------------------------------------------------------------
    def _settle(self) -> None:
        """The next holder, preemption, prolongation; then when to come back."""
        for seat in self.waiting.values():
            if seat.throttled and seat.resume_ns - self.policy.resume_early_ns <= self.now_ns:
                self._throttle(seat)
        wake_ns = 0
        if self.holder is None and not self.barred():
            ready = [seat for seat in self.waiting.values() if not seat.throttled]
            if ready:
                first, self.virtual_now = pick(ready, self.virtual_now, self.policy)
                assert first is not None
                self._move(first, Take())
        if self.holder is not None:
            if self.holder.state is State.HOLDING:
                wake_ns = self._preempt()
            if self.holder.state is State.HOLDING:
                wake_ns = _earliest(wake_ns, self._look_ahead(self.holder))
            wake_ns = _earliest(wake_ns, self._deadline(self.holder))
        elif self.barred():
            wake_ns = self.unheard_until_ns
        else:
            for seat in self.waiting.values():
                wake_ns = _earliest(wake_ns, seat.resume_ns)
        self._prepare()
        self._actions.append(ev.WakeAt(wake_ns))

    def _prepare(self) -> None:
        """Say who is next, if that is certain enough to be carried out without asking again."""
        order, known = next_order(self), self.prepared
        if order is None:
            if known is not None:
                self.prepared = None
                self._actions.append(ev.Unprepare(self.gpu))
        elif known is None or not same_order(known, order):
            self.prepared = order._replace(epoch=self._epochs.take())
            self._actions.append(self.prepared)

    def _carried(self, event: ev.Carried) -> None:
        """The prepared hand-over happened; all that came before it has been handled."""
        order = self.prepared
        if order is None or (order.epoch, order.holder_epoch) != (event.epoch, event.holder_epoch):
            raise ev.LocalProtocolError(f"{event} was carried out, {order} was prepared")
        assert self.holder is not None
        self.prepared = None
        for seat in self.waiting.values():
            if seat.throttled and seat.resume_ns - self.policy.resume_early_ns <= self.now_ns:
                self._throttle(seat)
        holder = self.holder
        self._move(holder, Drained())
        ready = [seat for seat in self.waiting.values() if not seat.throttled]
        if holder.name in self.returning:  # it counts as one that waits, as it does where its Return is heard first
            ready.append(holder)
        _, self.virtual_now = pick(ready, self.virtual_now, self.policy)
        self._move(self.seats[order.tenant], Take(order.epoch, order.quota_ns))

    def barred(self) -> bool:
        """May nothing be granted, for those of before a restart have not been heard?"""
        if self.unheard and self.now_ns >= self.unheard_until_ns:
            self.unheard.clear()
        return bool(self.unheard)

    def _overrun_at_ns(self) -> int:
        end_ns = min(self.quota_until_ns, self.closing_ns) if self.closing_ns else self.quota_until_ns
        return end_ns + self.policy.overrun_ns

    def _lapse_leases(self) -> None:
        holder = self.holder
        if holder is None:
            return
        now_ns = self.now_ns
        for member in holder.with_standing(Standing.HOLDS):
            if member.lease_until_ns <= now_ns:
                self._move(holder, Lapse(member.client))
        if self.holder is holder and now_ns >= self._overrun_at_ns():
            for member in holder.with_standing(Standing.HOLDS):
                self._move(holder, Overrun(member.client))

    def _deadline(self, holder: Seat) -> int:
        leases = (member.lease_until_ns for member in holder.members.values() if member.standing is Standing.HOLDS)
        return min(self._overrun_at_ns(), *leases)

    def _preempt(self) -> int:
        """Ask the token back where somebody who waits should have it; else returns when to look again (0: no need)."""
        holder = self.holder
        assert holder is not None
        now_ns = self.now_ns
        if not self.policy.preemption or (self.contended and now_ns >= self.quota_until_ns):
            return 0
        again_ns = 0
        for seat in self.waiting.values():
            if seat.throttled:
                continue
            reason = 0
            if not seat.request_ppm:
                reason = ev.NEWCOMER if not holder.request_ppm and not self.contended else 0
            elif not holder.request_ppm:
                reason = ev.PREEMPT if seat.woken else 0
            elif not self.contended and seat.woken:
                reason = ev.NEWCOMER
            elif seat.latency and not holder.latency:
                owed = eligible(seat, self.virtual_now, self.policy.latency_ahead_ns)
                reason = ev.PREEMPT if owed else 0
            elif seat.woken and self.policy.ordering == "eevdf":
                at_ns = self._wake_up_ns(seat, holder)
                if at_ns and at_ns <= now_ns:
                    reason = ev.PREEMPT
                else:
                    again_ns = _earliest(again_ns, at_ns)
            if reason:
                self._move(holder, Recall(reason))
                return 0
        return again_ns

    def _wake_up_ns(self, seat: Seat, holder: Seat) -> int:
        """Wake-up preemption: when a tenant that came back owed takes over from a holder past now; 0: not at all."""
        left_ns = self.quota_until_ns - self.now_ns
        if seat.clock > self.virtual_now or seat.finish >= holder.clock + virtual(left_ns, holder.request_ppm):
            return 0
        past_ns = self.now_ns
        behind = self.virtual_now - holder.clock
        if behind >= 0:
            active_ppm = self.active_ppm()
            if active_ppm <= holder.request_ppm:
                return 0
            past_ns += behind * holder.request_ppm * active_ppm // (SCALE * (active_ppm - holder.request_ppm)) + 1
        at_ns = max(past_ns, self.granted_ns + self.policy.preempt_after_ns)
        return at_ns if at_ns < self.quota_until_ns else 0

    def _look_ahead(self, holder: Seat) -> int:
        """Shortly before the quota ends: prolong the holder if it would be picked again. Returns when to look."""
        policy = self.policy
        look_ns = self.quota_until_ns - policy.extend_lead_ns
        if self.settled_until_ns == self.quota_until_ns or look_ns - self.granted_ns < policy.extend_lead_ns:
            return 0
        if self.now_ns < look_ns:
            if self._surely_next(holder):
                self.settled_until_ns = self.quota_until_ns
                return 0
            return look_ns
        self.settled_until_ns = self.quota_until_ns
        left_ns = self.quota_until_ns - self.now_ns
        if left_ns <= 0 or self.silent >= policy.extend_silent:
            return 0
        quota_ns = holder.quota_ns if self.contended or self._limited() else policy.alone_quota_ns
        if self._limited():
            credit_ns = holder.credit_ns - left_ns * (WHOLE_PPM - holder.limit_ppm) // WHOLE_PPM
            quota_ns = min(quota_ns, credit_ns)
            if quota_ns < policy.quota_ns // 2:
                return 0
        rivals = [seat for seat in self.waiting.values() if not seat.throttled or seat.resume_ns <= self.quota_until_ns]
        clock, arrived = holder.clock, holder.arrived
        active_ppm = self.active_ppm()
        virtual_end = self.virtual_now + (left_ns * SCALE // active_ppm if holder.request_ppm else 0)
        holder.clock += virtual(left_ns, holder.weight_ppm)
        holder.arrived = self.arrivals + 1
        again, virtual_then = pick([*rivals, holder], virtual_end, policy)
        holder.clock, holder.arrived = clock, arrived
        if again is not holder:
            return 0
        self.virtual_now += virtual_then - virtual_end
        self._move(holder, Prolong(self._until_resumed(holder, quota_ns, self.quota_until_ns)))
        return self.quota_until_ns - policy.extend_lead_ns

    def _surely_next(self, holder: Seat) -> bool:
        """Will somebody who waits now be picked before the holder when the quota ends, whoever else comes?"""
        if self.policy.ordering != "eevdf":
            return False
        left_ns = self.quota_until_ns - self.now_ns
        if not holder.request_ppm:
            return any(seat.request_ppm and not seat.throttled for seat in self.waiting.values())
        virtual_end = self.virtual_now + left_ns * SCALE // self.active_ppm()
        finish = holder.finish + virtual(left_ns, holder.request_ppm)
        for seat in self.waiting.values():
            owed = seat.request_ppm and not seat.throttled and seat.clock <= virtual_end
            if owed and seat.finish < finish and (seat.latency or not holder.latency):
                return True
        return False

    # --- tenants and clients ----------------------------------------------------------------------------------------
    def _tenant_added(self, event: ev.TenantAdded) -> None:
        seat = Seat(event.spec, self.policy, self.now_ns)
        seat.clock = self.virtual_now if seat.request_ppm else self.virtual_best_effort
        self.seats[seat.name] = seat

    def _tenant_changed(self, event: ev.TenantChanged) -> None:
        spec: TenantSpec = event.spec
        seat = self.seats[spec.name]
        if seat.limit_ppm < WHOLE_PPM:
            seat.fill(self.now_ns, self._bucket(seat)[0])
        seat.filled_ns = self.now_ns
        if bool(seat.request_ppm) == bool(spec.request_ppm):
            # how far it is behind or ahead stays the same in held time, so it changes in virtual time
            base = self.virtual_now if seat.request_ppm else self.virtual_best_effort
            seat.clock = base + (seat.clock - base) * seat.weight_ppm // (spec.request_ppm or WHOLE_PPM)
        else:
            seat.clock = self.virtual_now if spec.request_ppm else self.virtual_best_effort
        seat.request_ppm, seat.limit_ppm, seat.latency = spec.request_ppm, spec.limit_ppm, spec.latency
        self._throttle(seat)
        if self.holder is seat and seat.state is State.HOLDING and not self.contended and spec.limit_ppm < WHOLE_PPM:
            self._move(seat, Recall(ev.LIMIT))

    def _tenant_removed(self, event: ev.TenantRemoved) -> None:
        seat = self.seats.pop(event.name)
        self._hops.pop(event.name, None)
        for client in list(seat.members):
            self._actions.append(ev.Revoke(client, self.gpu, seat.members[client].epoch, ev.SHUTDOWN))
            self._client_died(ev.ClientDied(client))

    def _client_joined(self, event: ev.ClientJoined) -> None:
        seat = self.seats[event.tenant]
        epoch = dict(event.held).get(self.gpu, 0)
        known = seat.members.get(event.client)
        if known is not None and not (known.standing is Standing.HOLDS and known.epoch == epoch):
            self._client_died(ev.ClientDied(event.client))  # what it held before is not held any more
            known = None
        seat.seen_ns = self.now_ns
        if known is not None:
            self._extend(known)
            if self.closing_ns:
                self._actions.append(ev.Revoke(event.client, self.gpu, self.epoch, ev.PREEMPT))
            return
        seat.members[event.client] = member = Member(event.client)
        self._clients[event.client] = seat
        if epoch:
            member.standing, member.epoch = Standing.STRAY, epoch
            member.lease_until_ns = self.now_ns
            self._actions.append(ev.Revoke(event.client, self.gpu, epoch, ev.LEASE))
        else:
            self.unheard.discard(event.client)
        for other in self.waiting.values():
            if other.throttled:
                self._throttle(other)  # beside others the pace is another
        holder = self.holder
        if holder is not None and holder is not seat and holder.state is State.HOLDING and not self.contended:
            self._shape(holder)  # a newcomer must not wait for a long queue of kernels
            self.quota_until_ns = min(self.quota_until_ns, self.now_ns + self.policy.quota_ns)
            for held in holder.with_standing(Standing.HOLDS):
                self._extend(held)

    def _client_died(self, event: ev.ClientDied) -> None:
        self.unheard.discard(event.client)
        seat = self._clients.pop(event.client, None)
        if seat is not None:
            self.returning.pop(seat.name, None)
            holds = seat.members[event.client].standing is Standing.HOLDS
            if not holds and seat.state in (State.HOLDING, State.CLOSING):
                del seat.members[event.client]
            else:
                self._move(seat, event)

    def _clients_known(self, event: ev.ClientsKnown) -> None:
        self.unheard.update(client for _, client in event.clients)
        self.unheard_until_ns = max(self.unheard_until_ns, event.until_ns)

    # --- for the record ---------------------------------------------------------------------------------------------
    def usage_ns(self, name: str, now_ns: int) -> tuple[int, int]:
        """Held time of a tenant up to now: of all time, and within the last window."""
        seat = self.seats[name]
        running_ns = max(0, now_ns - max(self.now_ns, self.charge_from_ns)) if seat is self.holder else 0
        return seat.window.total_ns + running_ns, min(seat.window.used_ns(now_ns) + running_ns, self.policy.window_ns)

    # --- proof ------------------------------------------------------------------------------------------------------
    def check(self) -> None:
        """Assert the invariants; for tests and the debug flag."""
        holding = [seat for seat in self.seats.values() if seat.state in (State.HOLDING, State.CLOSING)]
        assert holding == ([self.holder] if self.holder else []), "the holder is the one tenant that holds"
        for seat in self.seats.values():
            holds = seat.with_standing(Standing.HOLDS)
            assert bool(holds) == (seat is self.holder), f"{seat.name}: {len(holds)} hold; {seat.tell()}"
            assert all(member.epoch == self.epoch for member in holds), f"{seat.name} holds an old epoch"
            assert (seat.name in self.waiting) == (seat.state is State.WAITING), f"{seat.name} is not where it waits"
            if seat.state is State.WAITING:
                assert seat.with_standing(Standing.WAITS), f"{seat.name} waits for nobody"
            elif seat.state is State.IDLE:
                assert not seat.with_standing(Standing.WAITS), f"{seat.name} was forgotten; {seat.tell()}"
            used_ns = seat.window.used_ns(self.now_ns)
            assert 0 <= used_ns <= self.policy.window_ns, f"{seat.name} used {used_ns} ns of its window"
            assert all(self._clients[client] is seat for client in seat.members), "a client of two tenants"
        assert sum(seat.request_ppm for seat in self.seats.values()) <= WHOLE_PPM, "more is promised than there is"
        if self.holder is None and not self.unheard:
            assert all(seat.throttled for seat in self.waiting.values()), "the token is idle and somebody may run"


def _earliest(one_ns: int, other_ns: int) -> int:
    """The earlier of two times of which 0 means never."""
    return min(one_ns, other_ns) if one_ns and other_ns else one_ns or other_ns


_M = TokenMachine
_IDLE, _WAITING, _HOLDING, _CLOSING = State.IDLE, State.WAITING, State.HOLDING, State.CLOSING
_AFTER = (State.IDLE, State.WAITING)
TRANSITIONS: dict[tuple[State, type], Row] = {
    (_IDLE, ev.TokenAsked): Row(_M._ask_first, (_WAITING,)),
    (_IDLE, ev.TokenRenewed): Row(_M._renew_stale, (_IDLE,)),
    (_IDLE, ev.TokenReturned): Row(_M._return_late, _AFTER),
    (_IDLE, ev.ClientDied): Row(_M._left, (_IDLE,)),
    (_WAITING, ev.TokenAsked): Row(_M._ask_too, (_WAITING,)),
    (_WAITING, ev.TokenRenewed): Row(_M._renew_stale, (_WAITING,)),
    (_WAITING, ev.TokenReturned): Row(_M._return_late, (_WAITING,)),
    (_WAITING, ev.ClientDied): Row(_M._left, _AFTER),
    (_WAITING, Take): Row(_M._take, (_HOLDING,)),
    (_HOLDING, Drained): Row(_M._drained, _AFTER),
    (_CLOSING, Drained): Row(_M._drained, _AFTER),
    (_HOLDING, ev.TokenAsked): Row(_M._ask_join, (_HOLDING,)),
    (_HOLDING, ev.TokenRenewed): Row(_M._renew, (_HOLDING,)),
    (_HOLDING, ev.TokenReturned): Row(_M._return, (_HOLDING, *_AFTER)),
    (_HOLDING, ev.ClientDied): Row(_M._left_holder, (_HOLDING, *_AFTER)),
    (_HOLDING, Prolong): Row(_M._prolong, (_HOLDING,)),
    (_HOLDING, Recall): Row(_M._recall, (_CLOSING,)),
    (_HOLDING, Lapse): Row(_M._lapse, (_HOLDING, *_AFTER)),
    (_HOLDING, Overrun): Row(_M._overrun, (_HOLDING, *_AFTER)),
    (_CLOSING, ev.TokenAsked): Row(_M._ask_later, (_CLOSING,)),
    (_CLOSING, ev.TokenRenewed): Row(_M._renew_closing, (_CLOSING,)),
    (_CLOSING, ev.TokenReturned): Row(_M._return, (_CLOSING, *_AFTER)),
    (_CLOSING, ev.ClientDied): Row(_M._left_holder, (_CLOSING, *_AFTER)),
    (_CLOSING, Lapse): Row(_M._lapse, (_CLOSING, *_AFTER)),
    (_CLOSING, Overrun): Row(_M._overrun, (_CLOSING, *_AFTER)),
}
_NODE_EVENTS: dict[type, Callable[[TokenMachine, Any], None]] = {
    ev.TenantAdded: _M._tenant_added,
    ev.TenantChanged: _M._tenant_changed,
    ev.TenantRemoved: _M._tenant_removed,
    ev.ClientJoined: _M._client_joined,
    ev.ClientDied: _M._client_died,
    ev.ClientsKnown: _M._clients_known,
    ev.Carried: _M._carried,
}
