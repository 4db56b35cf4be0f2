"""What the gangs of a node have said of one token: who was picked, for whom it is kept, who may not run now.

gang.py decides all of this with every machine in view; the machine only obeys.
"""

from __future__ import annotations

from scheduler_backend.core.seat import Seat


class GangReservation:
    """Of one token. A gang is known by its tenant's name, and "" is no gang."""

    def __init__(self) -> None:
        self.nominee: Seat | None = None  # a gang that was picked: it is decided with all its GPUs in view
        self.gang = ""  # for which the token is kept when it is free
        self.until_ns = 0  # idle until then at most; 0: until something happens
        self.passed: set[str] = set()  # gangs that may not run now

    def keep(self, gang: str, until_ns: int = 0) -> None:
        """Keep the token for this gang, until then where a time is known; "" is for no gang, as release()."""
        self.gang, self.until_ns = gang, until_ns

    def keep_until(self, until_ns: int) -> bool:
        """Keep it idle until then at most, 0: until something happens; return whether that is another time."""
        changed = self.until_ns != until_ns
        self.until_ns = until_ns
        return changed

    def release(self) -> None:
        """Keep it for no gang."""
        self.gang, self.until_ns = "", 0

    def pass_over(self) -> bool:
        """Let the next be picked instead of the nominee; return False where that is so already, or there is none."""
        if self.nominee is None or self.gang or self.nominee.name in self.passed:
            return False
        self.passed.add(self.nominee.name)
        return True

    def forget_passed(self) -> bool:
        """Let those that were passed over be picked again; return whether there were any."""
        some = bool(self.passed)
        self.passed.clear()
        return some
