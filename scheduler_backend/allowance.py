"""How much somebody may ask of the daemon: so many a second, and some at once. Pure; the caller has the clock."""

from __future__ import annotations


class Allowance:
    """A bucket that is filled at `rate` a second up to `burst`; it begins full."""

    __slots__ = ("_at_ns", "burst", "left", "rate")

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self.left = burst
        self._at_ns = 0

    def whole(self, now_ns: int) -> int:
        """How many may be taken now."""
        if self._at_ns:
            self.left = min(self.burst, self.left + (now_ns - self._at_ns) * self.rate / 1e9)
        self._at_ns = now_ns
        return int(self.left)

    def take(self, count: int = 1) -> None:
        """Take what whole() said is there."""
        self.left -= count

    def lacks_seconds(self) -> float:
        """How long it takes until one may be taken again."""
        return max(0.0, 1 - self.left) / self.rate

    def spend(self, now_ns: int) -> bool:
        """Take one if it is there; whether it was."""
        if self.whole(now_ns) < 1:
            return False
        self.take()
        return True
