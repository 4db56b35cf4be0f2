"""The token of one GPU: who holds it, who is next, what everyone is charged.

`TokenMachine.handle(event, now_ns)` returns actions and does nothing else: no clock, no socket, no log.

Theory of operation. `Charges.advance` charges the holder for the time since the last event and moves the virtual now
on. Then the event changes its tenant's state. Then `_settle` lets leases run out, hands the free token on, asks for it
back where somebody is owed more, and prolongs the holder who would be picked again (no drain, no gap). A grant is the
tenant's: all of its waiting processes get it, one that asks later joins what is left, and it is over when the last has
returned, died, or lost its lease.

Its parts own its data, and each is given those that it needs:
    context         which GPU, the policy, the time, what is to be done
    tenants         who is there, who waits
    fair_clock      the virtual times
    current_grant   who holds the token, and until when
    beside          who runs beside others
    message_delay   what messages take
    restart         whose word is awaited after a restart
    reservation     what gangs say of the token
    plan            the hand-overs that are told ahead
Others own little or nothing, and do one job with those:
    charges         what everyone is charged
    limits          rests and quotas
    grants          what clients are told of a grant, and where a tenant goes after it
    promises        beside others: what each got of its promise
    shared_grants   ... and what clients are told
    returns         what a Return does
    rows            the table of what may happen to a tenant
    ahead           the order for the hand-over to come
    tenure          how long the holder keeps the token
    company         who is to run beside others
    residents       tenants and processes that come and go
Each is built of parts that stand above it here, so none needs one below. Beside them stand policy.py (who is next) and
seat.py (a tenant's place).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler_backend.core import events as ev
from scheduler_backend.core.ahead import Foresight
from scheduler_backend.core.beside import BUSY, Beside
from scheduler_backend.core.charges import Charges
from scheduler_backend.core.company import Company
from scheduler_backend.core.context import Context, earliest
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.grants import Grants
from scheduler_backend.core.limits import Limits
from scheduler_backend.core.message_delay import MessageDelay
from scheduler_backend.core.moves import Drained, Epochs, Take
from scheduler_backend.core.plan import HandoverPlan
from scheduler_backend.core.policy import Policy, moved_on, pick
from scheduler_backend.core.promises import Promises
from scheduler_backend.core.reservation import GangReservation
from scheduler_backend.core.residents import Residents
from scheduler_backend.core.restart import RestartBarrier
from scheduler_backend.core.returns import Returns
from scheduler_backend.core.rows import Rows
from scheduler_backend.core.seat import Seat, Standing, State
from scheduler_backend.core.shared_grants import SharedGrants
from scheduler_backend.core.tenant import WHOLE_PPM
from scheduler_backend.core.tenants import Tenants
from scheduler_backend.core.tenure import Tenure


class TokenMachine:
    """One GPU's token. `epochs` numbers grants; it is the node's, for epochs never repeat."""

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
        self.grants = Grants(self.context, self.tenants, self.grant, self.limits, self.charges, self.beside)
        self.promises = Promises(self.context, self.tenants, self.grant, self.limits, self.charges, self.beside)
        self.shared = SharedGrants(
            self.context, self.tenants, self.clock, self.grant, self.grants, self.beside, self.promises
        )
        self.returns = Returns(
            self.context,
            self.clock,
            self.grant,
            self.restart,
            self.limits,
            self.charges,
            self.grants,
            self.promises,
            self.shared,
        )
        self.rows = Rows(
            self.context,
            self.tenants,
            self.clock,
            self.grant,
            self.delay,
            self.limits,
            self.grants,
            self.beside,
            self.promises,
            self.shared,
            self.returns,
        )
        self.foresight = Foresight(
            self.context,
            self.tenants,
            self.clock,
            self.grant,
            self.restart,
            self.reservation,
            self.limits,
            self.grants,
            self.beside,
        )
        self.tenure = Tenure(
            self.context,
            self.tenants,
            self.clock,
            self.grant,
            self.limits,
            self.reservation,
            self.beside,
            self.foresight,
            self.rows,
        )
        self.company = Company(
            self.context,
            self.tenants,
            self.grant,
            self.restart,
            self.reservation,
            self.beside,
            self.promises,
            self.shared,
            self.rows,
        )
        self.residents = Residents(
            self.context,
            self.tenants,
            self.clock,
            self.grant,
            self.delay,
            self.restart,
            self.limits,
            self.charges,
            self.grants,
            self.beside,
            self.shared,
            self.rows,
        )

    # --- the way in -------------------------------------------------------------------------------------------------
    def handle(self, event: ev.Event, now_ns: int) -> list[ev.Action]:
        """Take one event; returns what to do, in order. Raises RemoteProtocolError: the client's fault."""
        actions = self.context.begin()
        now_ns = max(now_ns, self.context.now_ns)
        self.promises.meter(now_ns)
        self.charges.advance(now_ns, self.beside.sharing)
        kind = type(event)
        if kind is ev.TokenAsked or kind is ev.TokenReturned or kind is ev.TokenRenewed or kind is ev.Used:
            self._message(event)
            if kind is ev.TokenReturned and event.followed:  # type: ignore[union-attr]
                actions.append(ev.WakeAt(self.context.now_ns))  # should nothing follow, for once
                return actions
        elif kind is ev.Carried:
            self._carried(event)  # type: ignore[arg-type]
            if event.followed:  # type: ignore[union-attr]
                actions.append(ev.WakeAt(self.context.now_ns))  # should nothing follow, for once
                return actions
        elif kind is ev.Tick:
            self.tenure.lapse_leases()  # by the clock alone: a message that is read may be followed by the very renewal
        elif kind is ev.Weighed:
            self.promises.weigh(event)  # type: ignore[arg-type]
        else:
            self.residents.take(event)
        self._settle()
        return actions

    def direct(self, do: Callable[[], None], now_ns: int) -> list[ev.Action]:
        """Do this and settle; for who has all machines in view."""
        actions = self.context.begin()
        now_ns = max(now_ns, self.context.now_ns)
        self.promises.meter(now_ns)
        self.charges.advance(now_ns, self.beside.sharing)
        do()
        self._settle()
        return actions

    def _message(self, event: Any) -> None:
        seat = self.tenants.by_client.get(event.client)
        if seat is None:
            raise ev.RemoteProtocolError(f"client {event.client} has not said Hello for GPU {self.context.gpu}")
        kind = type(event)
        if kind is not ev.TokenAsked and not 0 < event.epoch <= self.context.epochs.last:
            raise ev.RemoteProtocolError(f"epoch {event.epoch} was never granted on GPU {self.context.gpu}")
        member = seat.members[event.client]
        seat.seen_ns = member.heard_ns = self.context.now_ns
        if member.standing is Standing.STRAY and not (kind is ev.TokenReturned and event.epoch == member.epoch):
            self.charges.charge_stray(seat, member, 0, 0)  # a Return of its epoch says more
        if kind is ev.TokenAsked or kind is ev.TokenReturned:
            seat.observe(member, event.burst_ns, event.gap_ns)
        self.rows.move(seat, event)

    # --- after each event -------------------------------------------------------------------------------------------
    def _settle(self) -> None:
        """The next holder, preemption, prolongation; then when to come back."""
        for seat in self.tenants.waiting.values():
            if seat.throttled and seat.resume_ns - self.policy.resume_early_ns <= self.context.now_ns:
                self.limits.throttle(seat)
        wake_ns = self.company.share()
        self.reservation.nominee = None
        if (
            self.grant.holder is None
            and not self.reservation.gang
            and not self.is_barred()
            and not self.beside.holds_up()
        ):
            ready = [
                seat
                for seat in self.tenants.waiting.values()
                if not seat.throttled and seat.name not in self.reservation.passed
            ]
            if self.beside.sharing:  # best effort runs when nobody else can
                ready = [seat for seat in ready if seat.request_ppm]
            if ready:
                first, virtual_now = pick(
                    ready, self.clock.virtual_now, self.policy, self.context.now_ns, self.tenants.others
                )
                assert first is not None
                if first.gang:
                    self.reservation.nominee = first
                else:
                    self.clock.jump_to(virtual_now)
                    self.rows.move(first, Take())
        if self.grant.holder is not None:
            if self.grant.holder.state is State.HOLDING:
                wake_ns = earliest(wake_ns, self.tenure.preempt())
            if self.grant.holder.state is State.HOLDING:
                wake_ns = earliest(wake_ns, self.tenure.look_ahead(self.grant.holder))
            wake_ns = earliest(wake_ns, self.tenure.deadline(self.grant.holder))
        elif self.is_barred():
            wake_ns = self.restart.until_ns
        else:
            for seat in self.tenants.waiting.values():
                wake_ns = earliest(wake_ns, seat.resume_ns)
            wake_ns = earliest(wake_ns, self.reservation.until_ns)
        if self.beside.sharing:
            wake_ns = earliest(wake_ns, self.tenure.deadline_shared())
        self._prepare()
        self.context.do(ev.WakeAt(wake_ns))

    def _prepare(self) -> None:
        """Say who is next, and who after that, as far as it is certain enough to be carried out without asking."""
        order = self.plan.put(self.foresight.next_order(), self.context.actions)
        if order is not None:
            self.plan.put_behind(order, self.foresight.orders_behind(order), self.context.actions)

    def _carried(self, event: ev.Carried) -> None:
        """The prepared hand-over happened; all that came before it has been handled."""
        order = self.plan.carry_out(event, self.context.now_ns)
        assert self.grant.holder is not None
        for seat in self.tenants.waiting.values():
            if seat.throttled and seat.resume_ns - self.policy.resume_early_ns <= self.context.now_ns:
                self.limits.throttle(seat)
        holder = self.grant.holder
        self.rows.move(holder, Drained())
        ready = self.tenants.ready()
        if self.context.now_ns < order.wanting_from_ns:
            holder.returning = False  # it wants no more, or there would be no hand-over
        elif holder.returning:  # it counts as one that waits, as it does where its Return is heard first
            ready.append(holder)
        self.clock.jump_to(moved_on(ready, self.clock.virtual_now, self.policy))
        self.rows.move(self.tenants.seats[order.tenant], Take(order.epoch, order.quota_ns))

    # --- for those outside ------------------------------------------------------------------------------------------
    def move(self, seat: Seat, event: Any) -> None:
        """Take the row of this move of a tenant (moves.py); to be settled after that."""
        self.rows.move(seat, event)

    def is_barred(self) -> bool:
        """Return whether nothing may be granted, for those of before a restart have not been heard."""
        return self.restart.is_up(self.context.now_ns)

    @property
    def gpu(self) -> int:
        """Its number on the node."""
        return self.context.gpu

    @property
    def now_ns(self) -> int:
        """The time of its last event."""
        return self.context.now_ns

    @property
    def holder(self) -> Seat | None:
        """The tenant that holds the token."""
        return self.grant.holder

    @property
    def epoch(self) -> int:
        """The number of the last grant."""
        return self.grant.epoch

    @property
    def seats(self) -> dict[str, Seat]:
        """Its tenants, by name."""
        return self.tenants.seats

    @property
    def waiting(self) -> dict[str, Seat]:
        """Those that wait for the token, by name, in their order."""
        return self.tenants.waiting

    @property
    def prepared(self) -> ev.Prepare | None:
        """The hand-over that may be carried out without asking."""
        return self.plan.prepared

    @property
    def behind(self) -> list[ev.Prepare]:
        """Those that may be after it."""
        return self.plan.behind

    def parts(self) -> tuple[Any, ...]:
        """Its parts, each of which owns its data; for who keeps or restores all of it (snapshot.py)."""
        return (
            self.context,
            self.tenants,
            self.clock,
            self.grant,
            self.charges,
            self.beside,
            self.promises,
            self.delay,
            self.restart,
            self.reservation,
            self.plan,
        )

    # --- proof ------------------------------------------------------------------------------------------------------
    def check(self) -> None:
        """Assert the invariants; for tests and the debug flag."""
        holding = [seat for seat in self.tenants.seats.values() if seat.state in (State.HOLDING, State.CLOSING)]
        assert holding == ([self.grant.holder] if self.grant.holder else []), "the holder is the one tenant that holds"
        for seat in self.tenants.seats.values():
            holds = seat.with_standing(Standing.HOLDS)
            shares = seat.state in (State.SHARED, State.LEAVING)
            assert bool(holds) == (seat is self.grant.holder or shares), (
                f"{seat.name}: {len(holds)} hold; {seat.tell()}"
            )
            epoch = seat.shared_epoch if shares else self.grant.epoch
            assert all(member.epoch == epoch for member in holds), f"{seat.name} holds an old epoch"
            assert (seat.name in self.beside.sharing) == shares, f"{seat.name} is not where it runs beside others"
            assert (seat.name in self.beside.paused) == (seat.state is State.PAUSED), (
                f"{seat.name} is not where it pauses"
            )
            assert (seat.name in self.tenants.waiting) == (seat.state is State.WAITING), (
                f"{seat.name} is not where it waits"
            )
            if seat.state in (State.WAITING, State.PAUSED):
                assert seat.with_standing(Standing.WAITS), f"{seat.name} waits for nobody"
            elif seat.state is State.IDLE:
                assert not seat.with_standing(Standing.WAITS), f"{seat.name} was forgotten; {seat.tell()}"
            used_ns = seat.window.used_ns(self.context.now_ns)
            assert 0 <= used_ns <= self.policy.window_ns, f"{seat.name} used {used_ns} ns of its window"
            assert all(self.tenants.by_client[client] is seat for client in seat.members), "a client of two tenants"
        assert sum(seat.request_ppm for seat in self.tenants.seats.values()) <= WHOLE_PPM, (
            "more is promised than there is"
        )
        beside = self.beside
        there = beside.favoured in ("", BUSY) or beside.favoured in beside.sharing or beside.favoured in beside.paused
        assert there, f"others make room for {beside.favoured}, which is not there"
        if self.grant.holder is None and not self.restart.unheard:
            idle = bool(self.reservation.gang) or all(
                seat.throttled or seat.gang for seat in self.tenants.waiting.values()
            )
            idle = (
                idle
                or self.beside.holds_up()
                or (bool(self.beside.sharing) and not any(s.request_ppm for s in self.tenants.waiting.values()))
            )
            assert idle, "the token is idle and somebody may run"
