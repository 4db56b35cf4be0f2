"""Which tenants a GPU has, which of them wait for the token, and which process belongs to which."""

from __future__ import annotations

from typing import NamedTuple

from scheduler_backend.core.policy import Policy
from scheduler_backend.core.quota import turn, whole_turn
from scheduler_backend.core.seat import Member, Seat, State
from scheduler_backend.core.tenant import WHOLE_PPM


class Company(NamedTuple):
    """Of one tenant: how many others want the GPU or may come, whether its grants end because of them, and how much
    work it may have in flight.
    """

    others: int
    ends: bool
    cap_ns: int


class Tenants:
    """Of one GPU. Each seat's state says where it stands; those that are WAITING are in `waiting`, in their order."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.seats: dict[str, Seat] = {}  # by the tenant's name
        self.waiting: dict[str, Seat] = {}
        self.by_client: dict[int, Seat] = {}
        self.arrivals = 0  # among the waiting, ever

    def add(self, seat: Seat) -> None:
        """Take a tenant in; one of its name must not be there."""
        self.seats[seat.name] = seat

    def remove(self, name: str) -> Seat:
        """Take a tenant out and return it, its processes still with it. Raises KeyError."""
        return self.seats.pop(name)

    def join(self, seat: Seat, client: int) -> Member:
        """Add a process to a tenant; returns what is kept of it."""
        seat.members[client] = member = Member(client)
        self.by_client[client] = seat
        return member

    def leave(self, client: int) -> Seat | None:
        """Forget whose process this is; returns the tenant that it still stands in, None: it is of none."""
        return self.by_client.pop(client, None)

    @staticmethod
    def _paid_back_ns(seat: Seat, now_ns: int) -> int:
        return (now_ns - seat.rested_ns) * seat.request_ppm // WHOLE_PPM

    def is_ahead(self, seat: Seat, now_ns: int) -> bool:
        """Return whether one that rests is ahead of its promise beside others still."""
        return seat.ahead_ns > self._paid_back_ns(seat, now_ns)

    def wait(self, seat: Seat, now_ns: int) -> None:
        """Put it behind all that wait. What it was ahead of its promise beside others it has paid back, by its part of
        the time for which it rested.
        """
        if seat.state is State.IDLE and seat.ahead_ns > 0:
            seat.ahead_ns = max(0, seat.ahead_ns - self._paid_back_ns(seat, now_ns))
        seat.state = State.WAITING
        self.arrivals += 1
        seat.arrived = self.arrivals
        seat.waiting_since_ns = now_ns
        seat.wait_from(now_ns)
        self.waiting[seat.name] = seat

    def rest(self, seat: Seat, now_ns: int) -> None:
        """It wants nothing any more, whether it waited or not."""
        seat.state = State.IDLE
        seat.rested_ns = now_ns
        seat.woken = False
        self.waiting.pop(seat.name, None)

    def ready(self) -> list[Seat]:
        """Return those that wait and do not rest at their limit, in the order in which they came."""
        return [seat for seat in self.waiting.values() if not seat.throttled]

    @property
    def others(self) -> int:
        """How many tenants one shares this GPU with: those with processes."""
        return sum(1 for seat in self.seats.values() if seat.members) - 1

    def is_full(self) -> bool:
        """Return whether the limits of those that have processes let them fill the GPU; else it has time that no tenant
        may have.
        """
        return sum(seat.limit_ppm for seat in self.seats.values() if seat.members) >= WHOLE_PPM

    def company(self, seat: Seat, now_ns: int) -> Company:
        """Return what those who want the GPU, or may come, mean for this one.

        While all others rest the cap grows evenly, within company_ns, from the one beside them to the one of a tenant
        alone: what one that comes back may find in flight is a small part of the time for which it rested. After
        alone_after_ns of that grants do not end either, for each end leaves the GPU idle; one that comes is heard, and
        the token asked back. Where one of class latency may come both stay as they are, for those of class batch.
        """
        policy = self.policy
        since_ns = now_ns - policy.company_ns
        others, latency, short, rest_ns = 0, False, False, policy.company_ns
        for other in self.seats.values():
            idle = other.state is State.IDLE
            if other is not seat and other.members and (not idle or other.seen_ns >= since_ns):
                others += 1
                rest_ns = min(rest_ns, now_ns - max(other.seen_ns, other.rested_ns)) if idle else 0
                beside = other.latency and other.duty.leaves_room(now_ns)  # it comes beside, and waits for none
                if other.request_ppm and not beside:  # who is promised nothing is let in when these want nothing
                    latency = latency or other.latency
                    short = short or 0 < other.burst_ns < policy.short_burst_ns
        if latency and not seat.latency:
            return Company(others, True, policy.cap_prompt_ns)
        least_ns = policy.cap_short_ns if latency or short else self.cap_beside_ns(seat)
        cap_ns = least_ns + (policy.cap_alone_ns - least_ns) * max(0, rest_ns) // policy.company_ns
        return Company(others, others > 0 and rest_ns < policy.alone_after_ns, cap_ns)

    def cap_beside_ns(self, seat: Seat) -> int:
        """Return how much work it may have in flight while others hold or wait for the token."""
        return self.policy.cap_latency_ns if seat.latency else self.policy.cap_ns

    def latency(self, now_ns: int) -> list[Seat]:
        """Return those of class latency that may come back any moment."""
        since_ns = now_ns - self.policy.company_ns
        return [seat for seat in self.seats.values() if seat.latency and seat.members and seat.seen_ns >= since_ns]

    def has_busy(self) -> bool:
        """Return whether one that is promised something and is not host-bound wants to run."""
        return any(
            seat.request_ppm and seat.state is not State.IDLE and not seat.duty.host_bound
            for seat in self.seats.values()
        )

    def share_turns(self) -> int:
        """Set how long the turns of those with processes are, for one came, changed or went; returns the sum of their
        requests in ppm, WHOLE_PPM where nothing is promised.
        """
        promised = [seat for seat in self.seats.values() if seat.members and seat.request_ppm]
        requests = [seat.request_ppm for seat in promised]
        sum_ppm, count = sum(requests), len(requests)
        bound = any(seat.limit_ppm * sum_ppm <= seat.request_ppm * WHOLE_PPM for seat in promised)
        whole_ns = whole_turn(self.policy.quota_ns, requests, bound)
        for seat in self.seats.values():
            if seat.members:
                seat.turn_ns = turn(whole_ns, seat.request_ppm, sum_ppm, count)
        return sum_ppm or WHOLE_PPM
