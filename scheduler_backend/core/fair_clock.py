"""The virtual times of one GPU: where each tenant stands beside what it is owed, and how held time moves all of that.

A tenant's clock advances by held time / request. The virtual now advances by held time / the sum of the requests of
the tenants that are active, so a tenant whose clock is behind now is owed something. Best effort has a virtual time of
its own. On the steady time every tenant with a process is always active; it says what a tenant was owed while it idled.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_backend.core.policy import SCALE, Policy, virtual
from scheduler_backend.core.seat import BESIDE, Seat, State
from scheduler_backend.core.tenant import WHOLE_PPM
from scheduler_backend.core.tenants import Tenants


class FairClock:
    """Writes the clocks of the tenants' seats. Spans are in nanoseconds, virtual times as of policy.virtual()."""

    def __init__(self, policy: Policy, tenants: Tenants) -> None:
        self.policy = policy
        self.tenants = tenants
        self.virtual_now = 0
        self.best_effort = 0
        self.steady = 0
        self.resident_ppm = WHOLE_PPM  # the sum of the requests of those with processes; above 0

    # --- time passes ------------------------------------------------------------------------------------------------
    def advance(self, holder: Seat, held_ns: int) -> None:
        """Charge the holder for this span, above 0, and move the virtual times on."""
        holder.clock += held_ns * SCALE // holder.weight_ppm
        holder.steady += held_ns * SCALE // holder.weight_ppm
        self.steady += held_ns * SCALE // self.resident_ppm
        if holder.request_ppm:
            self._move_now(holder, held_ns)
        else:
            others = sum(1 for seat in self.tenants.waiting.values() if not seat.request_ppm)
            self.best_effort += held_ns * SCALE // (WHOLE_PPM * (1 + others))

    def advance_beside(self, sharing: Iterable[Seat], span_ns: int) -> None:
        """Nobody has the token, for all that want to run do so beside each other: the time is theirs. Who idles pays
        back meanwhile what it got ahead, as while others have turns.
        """
        beside_ppm = sum(seat.request_ppm for seat in sharing)
        self.virtual_now += span_ns * SCALE // max(1, beside_ppm + self.active_ppm())
        self.steady += span_ns * SCALE // self.resident_ppm

    def _move_now(self, holder: Seat, held_ns: int) -> None:
        """The virtual now, piece by piece: at each piece's end somebody who idles stops being ahead of it.

        Not for what the holder was owed when it came back. Else all would seem to lag, ever more: one of class latency
        would be never ahead of now, and who is new would wait until all others have had that.
        """
        paid_ns = min(held_ns, holder.owed_ns)
        holder.owed_ns -= paid_ns
        held_ns -= paid_ns
        while held_ns > 0:
            active_ppm = self.active_ppm()
            # Who idles and is ahead of now has been given more than a fluid server would have given it by now. That
            # server would still be at its last burst, so its request counts as that of an active one: else now would
            # hurry on, and who pauses after each burst would be owed the next before others had their part.
            now, idle, seats = self.virtual_now, State.IDLE, self.tenants.seats.values()
            ahead = [seat.clock for seat in seats if seat.state is idle and seat.request_ppm and seat.clock > now]
            piece_ns = held_ns
            if ahead:
                piece_ns = min(held_ns, -(-(min(ahead) - self.virtual_now) * active_ppm // SCALE))
            self.virtual_now += piece_ns * SCALE // active_ppm
            if active_ppm == holder.request_ppm and holder.clock < self.virtual_now:
                # Who has the GPU to itself is owed less with all it gets, for nobody took it; but not nothing from one
                # moment to the next, for the others may only have paused.
                holder.clock = min(self.virtual_now, holder.clock + piece_ns * SCALE // holder.weight_ppm)
            held_ns -= piece_ns

    def active_ppm(self) -> int:
        """Sum of the requests of those who hold, wait, are about to wait again, or idle ahead of now.

        Those who rest at their limit count too: most of them rest within their turn's distance and lose nothing by it.
        Where a limit does bind, the others get ahead of now, and pick() moves now on to them.
        """
        total = 0
        for seat in self.tenants.seats.values():
            rival = seat.state is not State.IDLE and seat.state not in BESIDE
            if rival or seat.clock > self.virtual_now or seat.returning:
                total += seat.request_ppm
        return total

    def jump_to(self, virtual_now: int) -> None:
        """Set the virtual now where a grant moves it on, to those that are ahead of it: no earlier than it is."""
        self.virtual_now = virtual_now

    # --- one tenant -------------------------------------------------------------------------------------------------
    def base(self, seat: Seat) -> int:
        """Return the virtual time that its clock is compared with."""
        return self.virtual_now if seat.request_ppm else self.best_effort

    def place(self, seat: Seat) -> None:
        """Let one that is new, or comes from the other virtual time, be owed nothing and owe nothing."""
        seat.clock = self.base(seat)
        seat.steady = self.steady
        seat.owed_ns = 0

    def charge(self, seat: Seat, span_ns: int) -> None:
        """Charge a tenant for a span, 0 or more, in which the virtual times stand."""
        seat.clock += virtual(span_ns, seat.weight_ppm)

    def reweigh(self, seat: Seat, request_ppm: int) -> None:
        """Give it another request: how far it is behind or ahead stays the same in held time."""
        if bool(seat.request_ppm) != bool(request_ppm):
            seat.request_ppm = request_ppm
            self.place(seat)
            return
        base, weight_ppm = self.base(seat), request_ppm or WHOLE_PPM
        seat.clock = base + (seat.clock - base) * seat.weight_ppm // weight_ppm
        seat.steady = self.steady + (seat.steady - self.steady) * seat.weight_ppm // weight_ppm
        seat.request_ppm = request_ppm

    def catch_up(self, seat: Seat) -> None:
        """Who becomes active again keeps what it is owed, up to one quota; idling earns no more.

        What it is owed: of its request of all the time that was held, whoever was active. Beside somebody who always
        has work it gets no more than its request that way, however promptly it is served after each pause.
        """
        quota = virtual(self.policy.quota_ns, seat.weight_ppm)
        if seat.request_ppm:
            seat.steady = max(seat.steady, self.steady - quota)
            seat.clock = max(seat.clock, self.virtual_now - max(0, self.steady - seat.steady))
        else:
            seat.clock = max(seat.clock, self.best_effort - quota)

    def come_back(self, seat: Seat) -> None:
        """It idled, and is active again: it catches up. What it is owed then others have had, and now has moved on by
        that: so now stands still for as long as it gets that.
        """
        self.catch_up(seat)
        seat.owed_ns = self.lag_ns(seat) if seat.request_ppm else 0

    def passes(self, holder: Seat, held_ns: int, active_ppm: int = 0) -> int:
        """Return how far now moves on while this tenant holds the token for so long, if none comes or goes meanwhile.

        `active_ppm`: as that says, of who has asked before.
        """
        return max(0, held_ns - holder.owed_ns) * SCALE // (active_ppm or self.active_ppm())

    def lag_ns(self, seat: Seat) -> int:
        """Return what turns owe it now, as held time; 0 or more."""
        return max(0, self.virtual_now - seat.clock) * seat.weight_ppm // SCALE

    def owe(self, seat: Seat, owed_ns: int) -> None:
        """Let turns owe it no more than this; what it has had before it was its stays as it is."""
        seat.clock = max(seat.clock, self.virtual_now - virtual(owed_ns, seat.weight_ppm))
        seat.owed_ns = min(seat.owed_ns, owed_ns)

    def ahead_ns(self, seat: Seat, unseen_ns: int, passing_ns: int) -> int:
        """Return what it has had before it was its, as time of the whole GPU; `unseen_ns` has not been charged yet, nor
        has the holder's `passing_ns`, with which now moves on.
        """
        passes = virtual(passing_ns, max(self.active_ppm(), seat.request_ppm)) if seat.request_ppm else 0
        return (seat.clock - self.base(seat) + virtual(unseen_ns, seat.weight_ppm) - passes) * WHOLE_PPM // SCALE
