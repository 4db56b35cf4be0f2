"""Which tenants of one GPU run beside others instead of taking turns, and for whom the others make room just now.

company.py decides both; what each of them got of its promise stands in promises.py.
"""

from __future__ import annotations

from scheduler_backend.core.policy import MS
from scheduler_backend.core.seat import Seat

FAVOUR_NS = 50 * MS  # after which another that lags has its turn
SEEING_NS = 30 * MS  # of that, to see one alone; two of its words come within it
BUSY = "*"  # in the place of a tenant's name, which it cannot be: all that are not host-bound


class Beside:
    """Of one GPU. Those that are SHARED or LEAVING are in `sharing`, those that are PAUSED in `paused`."""

    def __init__(self) -> None:
        self.host_bound: set[str] = set()  # tenants whose duty is low
        self.sharing: dict[str, Seat] = {}  # of these, those that run beside others
        self.paused: dict[str, Seat] = {}  # ... and those that would
        self.measuring = False  # all have turns, so that duties are known
        self.favoured = ""  # who lags runs without company: a tenant, or BUSY
        self.favoured_until_ns = 0
        self.seeing = False  # ... to be seen alone; it lags behind nothing
        self.gently = False  # ... and others go on meanwhile, with one launch in flight

    def sort(self, seat: Seat) -> None:
        """Take note of its duty, which may have changed."""
        if seat.duty.host_bound:
            self.host_bound.add(seat.name)
        else:
            self.host_bound.discard(seat.name)

    def forget(self, name: str) -> None:
        """Drop the duty of a tenant that is gone, or was never known to be host-bound."""
        self.host_bound.discard(name)

    def is_idle(self) -> bool:
        """Return whether no tenant runs beside others, would, or could."""
        return not (self.host_bound or self.sharing or self.paused)

    def enter(self, seat: Seat) -> None:
        """It runs beside others from now on, whether it paused or not."""
        self.paused.pop(seat.name, None)
        self.sharing[seat.name] = seat

    def leave(self, seat: Seat) -> None:
        """It runs beside others no more."""
        del self.sharing[seat.name]

    def favour(self, name: str, until_ns: int, *, seeing: bool = False, gently: bool = False) -> None:
        """Let all others make room for this tenant, or for all that are BUSY, until then at most."""
        self.favoured, self.favoured_until_ns, self.seeing, self.gently = name, until_ns, seeing, gently

    def favour_nobody(self) -> None:
        """Let none make room for another."""
        self.favoured, self.seeing, self.gently = "", False, False

    def is_nobodys(self, now_ns: int) -> bool:
        """Return whether time passes in which one is to be seen alone. Where that takes longer than two words of its
        library do, it is the time of those that want to run, as ever.
        """
        return self.seeing and now_ns < self.favoured_until_ns - FAVOUR_NS + SEEING_NS

    def stands_back(self, name: str) -> bool:
        """Return whether it stops for another just now."""
        return not self.gently and self.favoured not in ("", name)

    def goes_slow(self, seat: Seat) -> bool:
        """Return whether it has one launch in flight, for another that would leave the card idle if it had it alone.
        One of class latency goes on as it does: it makes room later than all others, if at all (company.py).
        """
        return self.gently and self.favoured != seat.name and not (seat.latency and seat.request_ppm)

    def counts_use(self, seat: Seat) -> bool:
        """Return whether what it uses is all that it gets just now. For the one that is favoured others are slow for
        what it uses, not for its waits; and who has one launch in flight waits for its own, which it does not call
        waiting for the card.
        """
        return self.gently and (self.favoured == seat.name or self.goes_slow(seat))

    def holds_up(self) -> bool:
        """Return whether the free token may go to nobody: a tenant runs alone without it, or those that run beside
        others still drain.
        """
        alone = not self.gently and self.favoured not in ("", BUSY)
        return alone or (self.measuring and bool(self.sharing))

    def alone(self, holder: Seat | None) -> Seat | None:
        """Return who has the GPU alone, so that what it got is the time itself, whatever it says."""
        if not self.sharing:
            return holder
        if holder is not None or len(self.sharing) > 1:
            return None
        return next(iter(self.sharing.values()))
