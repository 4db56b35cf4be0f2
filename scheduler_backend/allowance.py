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


class Commons:
    """What many have together, a bucket as above; and of that each surely its equal part, whatever the others take."""

    def __init__(self, rate: float, burst: float) -> None:
        self._all = Allowance(rate, burst)
        self._parts: dict[object, tuple[Allowance, int]] = {}  # by who it is, and how often it was joined

    def join(self, key: object) -> None:
        """Another one comes in under this key."""
        part, count = self._parts.get(key, (Allowance(self._all.rate, self._all.burst), 0))
        self._parts[key] = part, count + 1
        self._share()

    def leave(self, key: object) -> None:
        """One of this key is gone."""
        part, count = self._parts.pop(key)
        if count > 1:
            self._parts[key] = part, count - 1
        self._share()

    def _share(self) -> None:
        for part, _count in self._parts.values():
            part.rate = self._all.rate / len(self._parts)
            part.burst = self._all.burst / len(self._parts)

    def has(self, key: object, now_ns: int) -> bool:
        """May it take something?"""
        return self._all.whole(now_ns) >= 1 or self._parts[key][0].whole(now_ns) >= 1

    def take(self, key: object, count: float = 1) -> None:
        """It does."""
        part = self._parts[key][0]
        part.left = max(part.left - count, -part.rate)
        self._all.left = max(self._all.left - count, 0.0)


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

    def give_back(self, key: object, count: float = 1) -> None:
        """What was taken was not used."""
        if (found := self._of.get(key)) is not None:
            found.take(-count)
