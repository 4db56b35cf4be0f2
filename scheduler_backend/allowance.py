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

    def take(self, count: float = 1) -> None:
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


class Allowances:
    """An allowance for each of many; whoever asks for more than that waits, and nobody else does."""

    def __init__(self, rate: float, burst: float, most: int = 256) -> None:
        """`most` are remembered; then the one that has most left is forgotten, so that nobody's debt is while others'
        allowances are full."""
        self.rate, self.burst, self.most = rate, burst, most
        self._of: dict[object, Allowance] = {}

    def wait_seconds(self, key: object, now_ns: int, count: float = 1) -> float:
        """Take so much; how long until it is this one's turn."""
        found = self._of.get(key)
        if found is None:
            if len(self._of) >= self.most:
                for one in self._of.values():
                    one.whole(now_ns)
                del self._of[max(self._of, key=lambda key: self._of[key].left)]
            found = self._of[key] = Allowance(self.rate, self.burst)
        found.whole(now_ns)
        found.take(count)
        return max(0.0, -found.left) / self.rate

    def give_back(self, key: object) -> None:
        """What was taken was not used."""
        if (found := self._of.get(key)) is not None:
            found.take(-1)
