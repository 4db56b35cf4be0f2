"""What each tenant of one GPU is charged: how time that passes moves clocks, windows and buckets.

Nothing here decides anything. `advance` runs before each event: it charges the holder for the time since the last one
and moves the virtual now on, but not over gaps. The other charges are for what was not seen in time: messages on their
way, work that outlived a lease.
"""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.message_delay import MessageDelay, excess_ns
from scheduler_backend.core.seat import Member, Seat, Standing, State
from scheduler_backend.core.tenant import WHOLE_PPM
from scheduler_backend.core.tenants import Tenants

WEIGH_NS = 60_000_000_000  # for so long after a tenant's word counted the card is asked what each used
RUN_ON_ROOM_NS = 250_000_000  # the card's figures and what is charged are of other moments: so far they may differ
RUN_ON_DOUBT_PPM = 50_000  # of the time: the card's own figures are means of coarse samples
RUN_ON_REST_NS = 10_000_000_000  # that one whose kernels run on rests for them at once, at most
USED_DIVISOR = 2  # at least this part of what it held counts as used, whatever it says


class Charges:
    """Of one GPU. Writes the clocks, windows and buckets of the tenants' seats."""

    def __init__(
        self, context: Context, tenants: Tenants, clock: FairClock, grant: CurrentGrant, delay: MessageDelay
    ) -> None:
        self.context = context
        self.policy = context.policy
        self.tenants = tenants
        self.clock = clock
        self.grant = grant
        self.delay = delay
        self.weigh_until_ns = 0  # until then the card is to say what each used (witness.py)

    def advance(self, now_ns: int, sharing: dict[str, Seat]) -> None:
        """Charge the holder for the time since the last event; move the virtual now on, but not over gaps. Where nobody
        holds the token the time is that of `sharing`, which run beside each other.
        """
        begin_ns = max(self.context.now_ns, self.grant.charge_from_ns)
        held_ns = now_ns - begin_ns
        self.context.now_ns = now_ns
        holder = self.grant.holder
        if held_ns <= 0:
            return
        if holder is None:
            if sharing and not self.tenants.waiting:
                self.clock.advance_beside(sharing.values(), min(held_ns, self.policy.shared_lease_ns))
            return
        if held_ns > self.policy.lease_margin_ns:
            held_ns -= self._unseen(holder, begin_ns)
        holder.window.add(begin_ns, begin_ns + held_ns)
        if holder.limit_ppm < WHOLE_PPM:
            holder.credit += (now_ns - holder.filled_ns) * holder.limit_ppm
            holder.drain(held_ns)
            holder.filled_ns = now_ns
        self.clock.advance(holder, held_ns)

    def _unseen(self, holder: Seat, begin_ns: int) -> int:
        """What of the time since `begin_ns` is nobody's, for the daemon itself stood still: that after the last lease.

        Awake it would have looked when that ran out. Its client had stopped by its own clock, and the card was idle:
        charged to the one who happened to hold the token, seconds of that would be paid back over ten times as long,
        and all others would have a claim to them.
        """
        leases = [member.lease_until_ns for member in holder.members.values() if member.standing is Standing.HOLDS]
        unseen_ns = max(0, self.context.now_ns - max(begin_ns, *leases))
        self.grant.pass_unseen(unseen_ns)
        return unseen_ns

    def measure_delay(self, seat: Seat, span_ns: int, event: ev.TokenReturned) -> None:
        """What lies between our view of a grant, `span_ns`, and the client's own (receipt to drain confirmed): two
        messages.

        They are charged to nobody: of each grant what the tenant's own take, hop_most_ns at most. One of 0.7 has two
        turns in a row where one of 0.3 never has, and would pay for fewer hand-overs than its part of the time; one
        without a page would pay for its slower way. A limited tenant alone would pay for them with its limit at each
        of its steps, each time for two wake-ups of a daemon that has slept since: its own are not charged, up to
        hop_alone_most_ns. Where limits leave the card idle, a limit is a part of the card, and nobody else has what
        passes until the first kernel runs and after the last one ended: that is not charged either.
        """
        held_ns = event.held_ns
        if held_ns > 0:
            if seat.is_limited and seat.duty.believed and not self.tenants.is_full():
                held_ns = min(held_ns, event.busy_ns or held_ns)
            self.delay.observe(seat.name, span_ns, held_ns, self.grant.contended)

    def charge_use(self, seat: Seat, busy_ns: int) -> None:
        """A grant is over in which it used so much, by its word; 0: it does not say. Where limits leave the card idle
        a limit is a part of the card, for nobody else wants what passes while its messages are on their way or its
        threads lack a processor. So its bucket loses what it used, and not what it held.

        Only as long as the card bears its word out (witness.py), and half of what it held is charged in any case.
        """
        if not (busy_ns and seat.is_limited and self.policy.shared_limits and seat.duty.believed):
            return
        if self.tenants.is_full():
            return
        unused_ns = seat.held_ns - max(busy_ns, seat.held_ns // USED_DIVISOR)
        unused_ns = max(unused_ns, -self.policy.hop_alone_most_ns)  # below 0: it worked while its time passed for a hop
        seat.credit += unused_ns * WHOLE_PPM
        seat.unused_ns += unused_ns
        self.weigh()

    def weigh(self) -> None:
        """Have the card say what each tenant uses, for some time from now on."""
        self.weigh_until_ns = self.context.now_ns + WEIGH_NS

    def charge_jump(self, seat: Seat) -> None:
        """It took the token from a holder that goes on after it: two hand-overs that are nobody's but its own.

        What they take beyond the part of its grant that may pass for messages' time is charged to its clock: turns of
        a tenth of a millisecond, hundreds a second, took a fifth of the card for 0.06 of it.
        """
        seat.jumped = False
        self.clock.charge(seat, excess_ns(self.grant.hop_ns, seat.held_ns))

    def charge_stray(self, seat: Seat, member: Member, busy_ns: int, held_ns: int) -> None:
        """Who overran is charged on while the token is elsewhere; who lost its lease, for the work it then reports.

        No time is charged twice: not that in its lease, nor that of a sibling that strayed too, nor that in which its
        tenant held the token again. `held_ns` is from the grant to its drain, as it says; 0: it does not.
        """
        if not member.stray_since_ns and not busy_ns:
            return  # it says nothing yet
        begin_ns, end_ns, most_ns = member.lease_until_ns, self.context.now_ns, busy_ns
        if member.stray_since_ns:
            begin_ns, most_ns = member.stray_since_ns, self.context.now_ns - member.stray_since_ns
            member.stray_since_ns = self.context.now_ns
        elif held_ns:
            end_ns = min(end_ns, member.granted_ns + held_ns)
        begin_ns = max(begin_ns, seat.strayed_until_ns)
        held_again_ns = seat.window.total_ns - max(member.stray_total_ns, seat.stray_total_ns)
        self._charge_extra(seat, max(0, min(most_ns, end_ns - begin_ns - held_again_ns)), max(begin_ns, end_ns))

    def _charge_extra(self, seat: Seat, extra_ns: int, until_ns: int) -> None:
        seat.strayed_until_ns = until_ns
        seat.stray_total_ns = seat.window.total_ns
        seat.stray_ns += extra_ns
        self.clock.charge(seat, extra_ns)
        seat.drain(extra_ns)

    def charge_run_on(self, seat: Seat, card_ns: int, charged_ns: int, span_ns: int) -> None:
        """What a process had launched when the token moved on from it may run on when it has given back the token: a
        kernel of seconds looks like one that waits for its host. The card says what its tenant uses meanwhile, and what
        it was not charged of that it owes, but for RUN_ON_DOUBT_PPM of the time, by which the card may err.

        Its host may have to launch more before such a kernel ends. So until that is over, the tenant has a turn between
        any two charges, and owes no more at once than RUN_ON_REST_NS pay.
        """
        more_ns = card_ns - charged_ns
        more_ns -= max(0, min(more_ns, span_ns * RUN_ON_DOUBT_PPM // WHOLE_PPM))
        seat.run_on_ns = max(-RUN_ON_ROOM_NS, seat.run_on_ns + more_ns)
        if seat.run_on_ns <= RUN_ON_ROOM_NS:
            return
        pays_ns = seat.run_on_ns
        if card_ns > charged_ns or charged_ns > span_ns * 4 // 5:  # it goes on, or cannot be told from a turn
            if seat.state is State.WAITING and seat.window.total_ns == seat.run_on_total_ns:
                return
            rest_ns = max(0, RUN_ON_REST_NS - self._debt_ns(seat, self.context.now_ns, 0))
            pays_ns = min(pays_ns, rest_ns * min(seat.limit_ppm, seat.weight_ppm) // WHOLE_PPM)
        self._pay_run_on(seat, pays_ns)

    def end_run_on(self, seat: Seat) -> None:
        """Nothing of it runs on any more: its process is gone."""
        if seat.run_on_ns > 0:
            self._pay_run_on(seat, seat.run_on_ns)

    def _pay_run_on(self, seat: Seat, pays_ns: int) -> None:
        seat.run_on_ns -= pays_ns
        seat.run_on_total_ns = seat.window.total_ns
        self._charge_extra(seat, pays_ns, self.context.now_ns)

    def usage_ns(self, name: str, now_ns: int) -> tuple[int, int]:
        """Held time of a tenant up to now: of all time, and within the last window."""
        seat = self.tenants.seats[name]
        running_ns = self.grant.unseen_ns(seat, now_ns)
        return seat.window.total_ns + running_ns, min(seat.window.used_ns(now_ns) + running_ns, self.policy.window_ns)

    def debt_ns(self, name: str, now_ns: int) -> int:
        """How long from now on a tenant waits at most until it is owed something, and its bucket is full again: what it
        has had before it was its. Were all of the GPU promised to somebody else who wants it, so long; else shorter."""
        seat = self.tenants.seats[name]
        return self._debt_ns(seat, now_ns, max(0, seat.run_on_ns))

    def _debt_ns(self, seat: Seat, now_ns: int, more_ns: int) -> int:
        """The same, were it charged so much more by now."""
        holder = self.grant.holder
        passing_ns = self.grant.unseen_ns(holder, now_ns) if holder is not None and holder.request_ppm else 0
        unseen_ns = self.grant.unseen_ns(seat, now_ns)
        for member in seat.with_standing(Standing.STRAY):
            if member.stray_since_ns:
                unseen_ns = max(unseen_ns, now_ns - member.stray_since_ns)
        unseen_ns += more_ns
        ahead_ns = self.clock.ahead_ns(seat, unseen_ns, passing_ns)
        if not seat.is_limited:
            return max(0, ahead_ns)
        lacks = (self.policy.quota_ns + unseen_ns) * WHOLE_PPM - seat.credit
        return max(0, ahead_ns, lacks // seat.limit_ppm - (now_ns - seat.filled_ns))
