"""Tenants that are host-bound run beside others: what such a grant is made of, and what each got of its promise.

A token that its holder keeps while its host works leaves the card idle. So a tenant whose duty is low (duty.py) gets a
grant that excludes nobody. It is no rival for the token, its gate stays open, and the card's own time slicing runs its
work beside the holder's, or beside that of others like it. It is charged what it uses, by its library's belief, which
was learned in turns: no kernel's length shows beside others. A limit is a part of the card: its bucket loses what is
used, and a tenant whose bucket is empty pauses.

The promise. Turns give a tenant its part of the held time, and so its part of the speed that it has alone. Beside
others it gets at least that: `ahead_ns` grows by what it used, as the time that it would have had to hold the card
alone for it, and shrinks by its part of the time. Those that are not host-bound have one figure together, for among
themselves they have turns; while others run beside them their holder says what it used, too. Each has one of its own
besides, or a holder that said too much would take the others' promise. Who lags runs without
company until it does not (company.py), and then the time itself is what it got: so nobody gains by saying that it
used less. Time in which one used nothing and waited for nothing was its own: who has little to do is owed no more.
Who rests and is ahead counts as one that wants to run until its part of the time has caught up, as in turns. Else all
are owed more than passes, and who is promised most would have that.
What nobody is promised is whoever's the card's own slicing gives it to.

All of this goes on in the turns that they have now and then, and what one lags, turns owe it. Else whoever makes the
others go from the one to the other and back, again and again, would take what they are owed in either.
"""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.beside import Beside
from scheduler_backend.core.charges import Charges
from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.duty import Free
from scheduler_backend.core.limits import Limits
from scheduler_backend.core.policy import MS
from scheduler_backend.core.seat import BESIDE, Member, Seat, Standing, State
from scheduler_backend.core.tenant import WHOLE_PPM
from scheduler_backend.core.tenants import Tenants

QUIET_NS = 25 * MS  # without a word of use for so long its program rests, and is owed nothing meanwhile
ALONE_LEAST_NS = 5 * MS  # between two words that say what it uses alone; they come each 10 ms
WORDS_NS = 1000 * MS  # of what a tenant got, within which words are taken together
STALL_NS = 50 * MS  # of a time without events, no more is counted: the daemon itself stood still


class Promises:
    """Of one GPU. Writes what the seats of its tenants keep of it, and duties."""

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
        self.busy_ahead_ns = 0  # as Seat.ahead_ns, of all that are not host-bound together

    def rests(self, seat: Seat) -> bool:
        """Does it run beside others and has used nothing lately? It says so, or it may not know how to."""
        if seat.name not in self.beside.sharing or self.context.now_ns - seat.reported_ns <= QUIET_NS:
            return False
        return self.speaks(seat)

    @staticmethod
    def speaks(seat: Seat) -> bool:
        """Has one of its processes said what it uses, under its grant beside others?"""
        return any(member.base_ns >= 0 for member in seat.with_standing(Standing.HOLDS))

    def meter(self, now_ns: int) -> None:
        """Each is owed its part of the time since the last event, while somebody runs beside others."""
        span_ns = min(now_ns - self.context.now_ns, STALL_NS)
        alone = self.beside.alone(self.grant.holder)
        if alone is not None and span_ns > 0:
            alone.metered_ns += now_ns - self.context.now_ns
            alone.counted_ns += now_ns - self.context.now_ns
        sharing = self.beside.sharing.values()
        unmoved = [seat for seat in sharing if seat.latency and self.beside.stands_back(seat.name)]
        for seat in unmoved:  # it makes no room: what it got is the time itself, whatever it says
            seat.metered_ns += max(0, now_ns - self.context.now_ns)
        if self.beside.gently:
            for seat in (*sharing, *([self.grant.holder] if self.grant.holder is not None else [])):
                seat.gentle_ns += max(0, now_ns - self.context.now_ns) if self.beside.counts_use(seat) else 0
        if span_ns <= 0 or self.beside.is_nobodys(self.context.now_ns):
            return  # to see one alone is nobody's time, or the others would be owed it and run alone in their turn
        if not (self.beside.sharing or self.beside.paused) and (
            self.grant.holder is None or not self.beside.host_bound
        ):
            return  # in turns what lies between two of them is nobody's
        whole_ppm = busy_ppm = 0
        bound: list[Seat] = []
        busy: list[Seat] = []
        for seat in self.tenants.seats.values():
            if not seat.request_ppm:
                continue
            if seat.state is State.IDLE:  # its part of the time is what it pays back
                whole_ppm += seat.request_ppm if self.tenants.is_ahead(seat, self.context.now_ns) else 0
                continue
            if seat.name not in self.beside.host_bound:
                busy.append(seat)
                busy_ppm += seat.request_ppm
            elif self.rests(seat) or self.rests_at_limit(seat):
                continue
            else:
                bound.append(seat)
            whole_ppm += seat.request_ppm
        most_ppm = max([busy_ppm, *(seat.request_ppm for seat in bound)])
        for seat in bound:
            got_ns = span_ns if seat is alone or seat in unmoved else 0
            part_ppm = min(seat.request_ppm * WHOLE_PPM // whole_ppm, seat.limit_ppm)
            ahead_ns = seat.ahead_ns + got_ns - span_ns * part_ppm // WHOLE_PPM
            part_ppm = seat.request_ppm * WHOLE_PPM // most_ppm
            seat.ahead_ns = self._within(ahead_ns, part_ppm=part_ppm, latency=seat.latency)
        for seat in busy:
            got_ns = (span_ns if seat is alone else 0) - span_ns * seat.request_ppm // whole_ppm
            self._put_busy(seat, got_ns, seat.request_ppm * WHOLE_PPM // most_ppm)
        if not busy:
            self.busy_ahead_ns = 0
            return
        got_ns = span_ns if alone is not None and alone.name not in self.beside.host_bound else 0
        ahead_ns = self.busy_ahead_ns + got_ns - span_ns * busy_ppm // whole_ppm
        self.busy_ahead_ns = self._within(ahead_ns, part_ppm=busy_ppm * WHOLE_PPM // most_ppm)

    def _put_busy(self, seat: Seat, got_ns: int, part_ppm: int = WHOLE_PPM) -> None:
        """Beside what all busy ones have together: what this one got of its own promise. A turn more may be kept."""
        seat.ahead_ns = self._within(seat.ahead_ns + got_ns, seat.quota_ns, part_ppm)

    def busy_lag_ns(self) -> int:
        """How far the busy ones are ahead; below 0: they lag, or one of them does by more than its turns explain."""
        lags = [
            seat.ahead_ns + seat.quota_ns
            for seat in (
                *self.tenants.waiting.values(),
                *([self.grant.holder] if self.grant.holder is not None else []),
            )
            if seat.request_ppm and seat.name not in self.beside.host_bound
        ]
        return min([self.busy_ahead_ns, *lags])

    def _within(self, ahead_ns: int, turn_ns: int = 0, part_ppm: int = WHOLE_PPM, latency: bool = False) -> int:
        """No surplus is paid back, and no lag is remembered for long; but that of a turn, where it comes in turns. One
        of class `latency` may be further ahead, and pays that back while it rests (Tenants.wait).

        `part_ppm`: its promise, of the largest. Lags of different promises that grow together reach their ends
        together, or who has the smaller one would be owed more than its part of what passed.
        """
        lag_ns = self.policy.shared_lag_ns
        least_ns = max(2 * lag_ns, 8 * lag_ns * part_ppm // WHOLE_PPM)
        most_ns = self.policy.latency_ahead_ns if latency else 2 * lag_ns
        return max(-least_ns - turn_ns, min(most_ns + turn_ns, ahead_ns))

    def _use(self, seat: Seat, used_ns: int) -> None:
        """Charge what it used beside others; no more than the card could give it since its grant began."""
        used_ns = min(used_ns, self.context.now_ns - seat.shared_since_ns - seat.used_ns)
        seat.quiet = used_ns <= 0
        if used_ns > 0:
            seat.used_ns += used_ns
            seat.reported_ns = self.context.now_ns
        if seat.is_limited:
            depth_ns = self.limits.bucket(seat)[0]
            seat.fill(max(seat.filled_ns, self.context.now_ns - QUIET_NS), depth_ns)
            seat.drain(max(0, used_ns))  # it was used while the bucket filled, so what flowed in lately had room
            seat.fill(self.context.now_ns, depth_ns)
        seat.spend(self.context.now_ns)

    def rests_at_limit(self, seat: Seat) -> bool:
        """Would it run beside others if its bucket held enough?"""
        return seat.state in (State.PAUSED, State.WAITING) and self.rested_at_ns(seat) > 0

    def rested_at_ns(self, seat: Seat) -> int:
        """When there is enough in the bucket to run beside others, for one that found it empty; 0: now."""
        if not seat.is_limited:
            return 0
        depth_ns, need_ns = self.limits.bucket(seat)
        seat.fill(self.context.now_ns, depth_ns)
        seat.spent = seat.spent or seat.credit <= 0
        at_ns = seat.full_enough_ns(need_ns)
        if seat.spent and at_ns > self.context.now_ns:
            return at_ns
        seat.spent = False
        return 0

    def spent_at_ns(self, seat: Seat) -> int:
        """When the bucket of one that runs beside others is empty, if it goes on as it does alone; 0: never."""
        above_ppm = seat.duty.ppm - seat.limit_ppm
        if not seat.is_limited or (above_ppm <= 0 and seat.credit > 0):
            return 0
        return seat.filled_ns + max(0, seat.credit) // max(1, above_ppm)

    def _get(self, seat: Seat, used_ns: int, got_ns: int) -> None:
        """What it used beside others, and got of the time: counted before what it was promised. Work is heard of when
        it is over, and time while it passes: so the greater of the two is that of many words. Of each by itself it
        would be more than either. What it got while it was ahead already does not count against the words to come: in
        a step that waits for the card, and then hardly uses it, one that got its part in both would be said to lag.
        """
        used_ns = seat.duty.alone_ns(used_ns)
        seat.got_free_ns += got_ns
        seat.got_used_ns += used_ns
        together_ns = max(seat.got_free_ns, seat.got_used_ns)
        ahead_ns = seat.ahead_ns + min(max(got_ns, used_ns), together_ns - seat.got_ns)
        ahead_ns = self._within(ahead_ns, latency=seat.latency)
        seat.got_ns += max(0, ahead_ns - seat.ahead_ns)
        seat.ahead_ns = ahead_ns
        if together_ns >= WORDS_NS:
            seat.got_free_ns = seat.got_used_ns = seat.got_ns = 0

    def _use_held(self, seat: Seat, used_ns: int, got_ns: int, held_ns: int) -> None:
        """What the holder used while others ran beside it: no more than its turn took, for it is counted as what all
        got that are not host-bound.
        """
        if seat.name not in self.beside.host_bound:
            got_ns = min(max(got_ns, used_ns), max(0, held_ns - seat.counted_ns))
            seat.counted_ns += got_ns
            self.busy_ahead_ns = self._within(self.busy_ahead_ns + got_ns)
            self._put_busy(seat, got_ns)

    def use_rest(self, seat: Seat, member: Member, event: ev.TokenReturned, held_ns: int) -> None:
        """The same of what its Return says; where that came with company, or it never said from where to count, it is
        not known what of it was before.
        """
        if seat.alone_epoch == 0 and member.base_ns >= 0:
            used_ns = max(0, event.busy_ns - member.used_ns)
            self._use_held(seat, *self._beside(seat, member, used_ns, 0), held_ns)

    def _beside(self, seat: Seat, member: Member, used_ns: int, free_ns: int) -> tuple[int, int]:
        """Of what its process used since its last word, and of the time for which it had not to wait: what fell on time
        in which its tenant had the card not alone. The rest was counted while it passed. Of several processes each has
        an equal part.
        """
        several = max(1, len(seat.with_standing(Standing.HOLDS)))
        alone_ns = min(self.context.now_ns - member.used_at_ns, seat.metered_ns - member.metered_ns)
        used_alone_ns = alone_ns * seat.duty.ppm // WHOLE_PPM if seat.name in self.beside.host_bound else alone_ns
        return max(0, used_ns - used_alone_ns // several), max(0, free_ns - alone_ns) // several

    def hear(self, seat: Seat, event: ev.Used) -> None:
        """Take what a process of one that runs beside others says that it used."""
        member = seat.members[event.client]
        since_ns, alone = member.used_at_ns, seat is self.beside.alone(self.grant.holder)
        whole = seat.metered_ns - member.metered_ns >= self.context.now_ns - since_ns  # nobody came and went in between
        used_ns, beside_ns, got_ns = self._used_since(seat, event)
        if not (alone and member.alone and whole):
            member.alone_ppm, member.alone_since_ns, member.alone_used_ns = -1, self.context.now_ns, 0
        else:
            member.alone_used_ns += used_ns
            span_ns = self.context.now_ns - member.alone_since_ns
            if span_ns >= ALONE_LEAST_NS:  # who says more often is seen by several words together
                member.alone_ppm = member.alone_used_ns * WHOLE_PPM // span_ns
                self._see_alone(seat, member.alone_used_ns)
                member.alone_since_ns, member.alone_used_ns = self.context.now_ns, 0
        member.alone = alone
        self._use(seat, used_ns)
        self._get(seat, beside_ns, got_ns)

    def _see_alone(self, seat: Seat, used_ns: int) -> None:
        """One of its processes has told of a time in which the tenant had the card alone: all of them together."""
        since_ns = self.context.now_ns - QUIET_NS
        holds = [member for member in seat.with_standing(Standing.HOLDS) if member.used_at_ns >= since_ns]
        if used_ns and all(member.alone_ppm >= 0 for member in holds):
            seat.duty.observe_alone(sum(member.alone_ppm for member in holds), self.context.now_ns)
            self.sort(seat)

    def _see_free(self, seat: Seat, member: Member, used_ns: int, free_ns: int) -> None:
        """One of its processes has told what it used, and for how long it did not wait: all of them together."""
        member.free.observe(used_ns, free_ns)
        parts = [member.free.ppm for member in seat.with_standing(Standing.HOLDS)]
        if all(part >= 0 for part in parts):
            seat.duty.observe_free(sum(parts))
            self.sort(seat)

    def hear_held(self, seat: Seat, event: ev.Used) -> None:
        """Take what a process of the holder says that it used, beside others."""
        _, used_ns, got_ns = self._used_since(seat, event)
        self._use_held(seat, used_ns, got_ns, self.context.now_ns - self.grant.granted_ns)

    def hear_last(self, seat: Seat, member: Member, event: ev.TokenReturned) -> None:
        """Take the rest of what a process used beside others, which its Return says."""
        if event.busy_ns > member.used_ns:
            self._use(seat, event.busy_ns - member.used_ns)
            self._get(seat, *self._beside(seat, member, event.busy_ns - member.used_ns, 0))

    def _used_since(self, seat: Seat, event: ev.Used) -> tuple[int, int, int]:
        """What a process used since its last word under this grant; and beside others, what of that, and for how long
        it had not to wait for the card: a mean of its tenant's processes. The first word says from where to count. Of
        time in which what it used is all that it got (Beside.counts_use) nothing counts as that.
        """
        member = seat.members[event.client]
        if member.standing is not Standing.HOLDS or event.epoch != member.epoch:
            return 0, 0, 0
        first = member.base_ns < 0
        if first:
            member.base_ns = event.busy_ns
        used_ns = max(0, event.busy_ns - member.base_ns - member.used_ns)
        free_ns = self.context.now_ns - member.used_at_ns - max(0, event.waited_ns - member.waited_ns)
        counts_ns = 0 if first or not used_ns else max(0, free_ns - (seat.gentle_ns - member.gentle_ns))
        beside = self._beside(seat, member, used_ns, counts_ns)
        if seat.name in self.beside.host_bound and not first:
            self._idle(seat, member, used_ns, free_ns)
            self._see_free(seat, member, used_ns, free_ns)
            if seat.latency and seat.metered_ns == member.metered_ns:
                seat.duty.observe_crowd(used_ns, max(0, event.waited_ns - member.waited_ns), self.context.now_ns)
        member.used_ns += used_ns
        member.waited_ns, member.used_at_ns, member.metered_ns = event.waited_ns, self.context.now_ns, seat.metered_ns
        member.gentle_ns = seat.gentle_ns
        return used_ns, *beside

    def _idle(self, seat: Seat, member: Member, used_ns: int, free_ns: int) -> None:
        """Time in which it used nothing, and waited for nothing as far as it says, is its own: it got all of that. What
        it waits for is heard of when it is over, and then the words before were wrong by what is more than `free_ns`.
        """
        before_ns = seat.ahead_ns
        if not used_ns:
            got_ns = self._beside(seat, member, 0, max(0, free_ns))[1]
            seat.ahead_ns = self._within(before_ns + got_ns, latency=seat.latency)
            member.idle_ns += max(0, seat.ahead_ns - before_ns)
            return
        seat.ahead_ns = self._within(before_ns - min(member.idle_ns, max(0, -free_ns)), latency=seat.latency)
        member.idle_ns = 0

    def measure(self, seat: Seat, event: ev.TokenReturned, span_ns: int) -> None:
        """A turn is over, which took so long as we saw it: what does it say of the tenant's duty, if nobody ran beside
        it? Its own view is believed where that is shorter, for it has not the messages' time in it.
        """
        if event.epoch != seat.alone_epoch:
            return
        held_ns = min(event.held_ns, span_ns) if event.held_ns or not event.busy_ns else span_ns
        together = sum(1 for member in seat.members.values() if member.epoch == event.epoch)
        was = seat.duty.host_bound
        seat.duty.observe(event.busy_ns, held_ns // max(1, together), self.context.now_ns)
        if seat.duty.host_bound and not was:
            for member in seat.members.values():
                member.free = Free()  # what it said long ago was of other work
        self.sort(seat)

    def weigh(self, event: ev.Weighed) -> None:
        """The card says what the tenant used of the time since it said so last: does what it was charged cover that?"""
        seat = self.tenants.seats.get(event.tenant)
        if seat is None:
            return
        for member in seat.with_standing(Standing.STRAY):
            self.charges.charge_stray(seat, member, 0, 0)
        held_ns = self.charges.usage_ns(seat.name, self.context.now_ns)[0] - seat.unused_ns
        charged_ns = held_ns + seat.stray_ns - seat.weighed_ns
        if event.span_ns and seat.is_adrift and seat.state not in BESIDE:
            self.charges.charge_run_on(seat, event.card_ns, charged_ns, event.span_ns)
            if seat.state is State.WAITING:
                self.limits.throttle(seat)
        else:
            seat.duty.weigh(event.card_ns, charged_ns, event.span_ns)
        seat.weighed_ns = held_ns + seat.stray_ns
        self.sort(seat)

    def sort(self, seat: Seat) -> None:
        """Its duty may have changed."""
        self.beside.sort(seat)
        if seat.duty.host_bound:
            self.charges.weigh()
