"""Who runs beside others, and when all have turns instead.

Those that are host-bound are admitted at once, but for two cases. In a round of measuring, which comes now and then
and whenever somebody is there whose duty is not known, all have turns. And who lags behind its promise is favoured: a
tenant runs alone until it has caught up, those that are not host-bound run without any beside them. Where that tenant
would leave the card idle for most of that time the others go on, with one launch in flight, as long as that is enough.
"""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.beside import BUSY, FAVOUR_NS, Beside
from scheduler_backend.core.context import Context, earliest
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.duty import ROOM_PPM
from scheduler_backend.core.moves import Admit, Close, Compete, Pause, Recall
from scheduler_backend.core.policy import MS, ORDERINGS
from scheduler_backend.core.promises import Promises
from scheduler_backend.core.reservation import GangReservation
from scheduler_backend.core.restart import RestartBarrier
from scheduler_backend.core.rows import Rows
from scheduler_backend.core.seat import Seat, State
from scheduler_backend.core.shared_grants import SharedGrants
from scheduler_backend.core.tenants import Tenants

LIMITED_NS = 1000 * MS  # within which one that has a limit and is not host-bound may come again
PROCESSES_MOST = 4  # of each tenant, for each says Used 100 times a second, and a tenant has 1000 messages


class Company:
    """Of one GPU: admission beside others."""

    def __init__(
        self,
        context: Context,
        tenants: Tenants,
        grant: CurrentGrant,
        restart: RestartBarrier,
        reservation: GangReservation,
        beside: Beside,
        promises: Promises,
        shared: SharedGrants,
        rows: Rows,
    ) -> None:
        self.context = context
        self.policy = context.policy
        self.tenants = tenants
        self.grant = grant
        self.restart = restart
        self.reservation = reservation
        self.beside = beside
        self.promises = promises
        self.shared = shared
        self.rows = rows

    def share(self) -> int:
        """Admit, close and pause; returns when to look again (0: no need)."""
        slow_for = self.beside.favoured if self.beside.gently else ""
        again_ns = self._share()
        if slow_for != (self.beside.favoured if self.beside.gently else ""):
            self.shared.tell_all()
        return again_ns

    def _share(self) -> int:
        if self.beside.is_idle():
            self.beside.favour_nobody()
            self.beside.measuring = False
            return 0
        fresh_until_ns = self._fresh_until_ns() if self._is_allowed() else 0
        self.beside.measuring = fresh_until_ns <= self.context.now_ns
        if self.beside.measuring:
            if self.beside.seeing:
                self._see_another_time()
            self.beside.favour_nobody()
            for seat in list(self.beside.sharing.values()):
                if seat.state is State.SHARED:
                    self.rows.move(seat, Close(ev.NEWCOMER))
            for seat in list(self.beside.paused.values()):
                self.rows.move(seat, Compete())
            return 0
        self._favour()
        again_ns = 0
        for seat in list(self.beside.sharing.values()):
            if seat.state is not State.SHARED:
                continue
            spent_ns = self.promises.spent_at_ns(seat)
            if self._stands_back(seat) or seat.name not in self.beside.host_bound:
                self.rows.move(seat, Close(ev.PREEMPT))
            elif spent_ns and spent_ns <= self.context.now_ns:
                self.rows.move(seat, Close(ev.LIMIT))
            else:
                again_ns = earliest(again_ns, spent_ns)
        for seat in [*self.tenants.waiting.values(), *self.beside.paused.values()]:
            if seat.name not in self.beside.host_bound:
                continue
            rested_ns = self.promises.rested_at_ns(seat)
            again_ns = earliest(again_ns, rested_ns)
            if not rested_ns and not self._stands_back(seat):
                self.rows.move(seat, Admit())
                again_ns = earliest(again_ns, self.promises.spent_at_ns(seat))
            elif seat.state is State.WAITING:
                self.rows.move(seat, Pause())
        holder = self.grant.holder
        for_one = self.beside.favoured != BUSY
        if holder is not None and holder.state is State.HOLDING and for_one and self.beside.stands_back(holder.name):
            self.rows.move(holder, Recall(ev.PREEMPT))
        return earliest(
            again_ns, earliest(fresh_until_ns, self.beside.favoured_until_ns if self.beside.favoured else 0)
        )

    def _stands_back(self, seat: Seat) -> bool:
        """Return whether it makes room for the one that lags. One of class latency does so once it is as far ahead of
        its own promise as it may get in turns, and from then on until half of that is paid back; and while it rests,
        or says so. One that is promised nothing is never behind, and makes room like any other.
        """
        if not self.beside.stands_back(seat.name):
            return False
        most_ns = self.policy.latency_ahead_ns if seat.state is State.SHARED else self.policy.latency_ahead_ns // 2
        soon = seat.latency and seat.request_ppm
        return not soon or seat.ahead_ns >= most_ns or self.promises.rests(seat)

    def _is_allowed(self) -> bool:
        """Not while a tenant of class latency wants to run: it is let in before all others, and has the card alone; but
        where it leaves the card idle for most of that, and others do not slow it down, it runs beside them. Nor beside
        tenants whose other GPUs speak of the token, or that are not host-bound and have a limit, for that is of held
        time; or that have more processes than may say what they use: theirs are turns.
        """
        policy = self.policy
        if (
            not policy.shared
            or not ORDERINGS[policy.ordering].shares
            or self.reservation.gang
            or self.restart.is_up(self.context.now_ns)
        ):
            return False
        for seat in self.tenants.seats.values():
            limited = seat.is_limited and not (policy.shared_limits and seat.name in self.beside.host_bound)
            limited = limited and (seat.state is not State.IDLE or seat.seen_ns >= self.context.now_ns - LIMITED_NS)
            if seat.members and (limited or seat.gang or seat.together):
                return False
            if seat.latency and seat.state is not State.IDLE and not seat.duty.leaves_room(self.context.now_ns):
                return False
            if len(seat.members) > PROCESSES_MOST and seat.state is not State.IDLE:
                return False
        alone = sum(not self.promises.rests(seat) for seat in self._active()) < 2
        return not alone or not self._has_a_filler()

    def _has_a_filler(self) -> bool:
        """Does one want to run that is promised nothing? Who has the card to itself but for that leaves it the pauses
        between turns; of an endless grant beside others it would get nothing.
        """
        wants = (
            [*self.tenants.waiting.values(), self.grant.holder]
            if self.grant.holder is not None
            else self.tenants.waiting.values()
        )
        return any(not seat.request_ppm and seat.name not in self.beside.host_bound for seat in wants)

    def _active(self) -> list[Seat]:
        return [seat for seat in self.tenants.seats.values() if seat.state is not State.IDLE and seat.request_ppm]

    def _fresh_until_ns(self) -> int:
        """Until when all duties are known; of those that are there now."""
        active, period_ns = self._active(), self._period_ns()
        return min((seat.duty.turns_until_ns(period_ns) for seat in active), default=self.context.now_ns + period_ns)

    def _period_ns(self) -> int:
        """How often each is measured: what that costs all others is the same however many they are."""
        return max(self.policy.measure_every_ns, self.policy.measure_every_ns * len(self._active()) // 2)

    def _favour(self) -> None:
        """Whom the others make room for: who lags most, until it has caught up; else one that is to be seen alone. Each
        for so long at a time.
        """
        lags: list[tuple[int, str]] = []
        unknown: list[tuple[int, str]] = []
        period_ns = self._period_ns()
        waiting = [seat for seat in self.tenants.waiting.values() if seat.name in self.beside.host_bound]
        for seat in (*self.beside.sharing.values(), *self.beside.paused.values(), *waiting):
            if not self.promises.rests(seat) and not self.promises.rests_at_limit(seat):
                lags.append((seat.ahead_ns, seat.name))
                if self.promises.speaks(seat) and not seat.quiet:  # one that does nothing just now would show nothing
                    unknown.append((seat.duty.alone_until_ns(period_ns), seat.name))
        if self.tenants.has_busy():
            lags.append((self.promises.busy_lag_ns(), BUSY))
        due_ns, alone = min(unknown, default=(self.context.now_ns, ""))
        if self.beside.favoured:
            ahead_ns = next((ahead_ns for ahead_ns, name in lags if name == self.beside.favoured), 0)
            unseen = any(
                name == self.beside.favoured and self._is_unseen(self.tenants.seats[name]) for _, name in unknown
            )
            goes_on = unseen if self.beside.seeing else ahead_ns < 0
            in_vain = self.beside.gently and self._lags_far(ahead_ns)
            if goes_on and not in_vain and self.context.now_ns < self.beside.favoured_until_ns:
                return
            if self.beside.seeing:
                self._see_another_time()
            self.beside.favour_nobody()
        ahead_ns, name = min(lags, default=(0, ""))
        company = len(lags) > 1 or any(
            other != name for other in self.beside.sharing
        )  # also one that says that it rests
        if company and ahead_ns < -self.policy.shared_lag_ns:
            gently = not self._lags_far(ahead_ns) and self._leaves_the_card_idle(name)
            self.beside.favour(name, self.context.now_ns + FAVOUR_NS, gently=gently)
        elif len(lags) > 1 and due_ns < self.context.now_ns:
            self.beside.favour(alone, self.context.now_ns + FAVOUR_NS, seeing=True)

    def _lags_far(self, ahead_ns: int) -> bool:
        """By more than where others begin to make room; less than the least of lags that are remembered (Promises)."""
        return ahead_ns < -self.policy.shared_lag_ns * 3 // 2

    def _leaves_the_card_idle(self, name: str) -> bool:
        """Most of the time in which the others make room for it: they may as well go on beside it, slowly."""
        seat = self.tenants.seats.get(name)
        return seat is not None and seat.duty.ppm <= ROOM_PPM

    def _see_another_time(self) -> None:
        """The one that was to be seen alone may not have been: its time was over, somebody came between, or it left. It
        has no more of the others' time for that before all are due again, or who comes and goes would have all of it.
        """
        seat = self.tenants.seats.get(self.beside.favoured)
        if seat is not None and self._is_unseen(seat):
            if seat.quiet:
                seat.duty.put_off(self.context.now_ns)
            else:
                seat.duty.measured_ns = self.context.now_ns

    def _is_unseen(self, seat: Seat) -> bool:
        """Was the favoured one not seen alone since it is favoured? When it is due for that again does not matter: that
        is another time as others come and go, and who does so would have it begin anew each time.
        """
        return seat.duty.measured_ns < self.beside.favoured_until_ns - FAVOUR_NS
