"""What users owe whose tenants have ended with more of a card than was theirs by then. Pure."""

from __future__ import annotations

from scheduler_backend.problem import Problem


class Owing(Problem):
    """A user's tenants that have ended had more than was theirs by then."""

    def __init__(self, text: str, seconds: float) -> None:
        super().__init__(text)
        self.seconds = seconds


class Debts:
    """By user. Times are of one monotonic clock, in ns."""

    def __init__(self) -> None:
        self._paid_ns: dict[int, int] = {}  # user -> when what his tenants that have ended had too early is paid for

    def add(self, user: int, debt_ns: int, now_ns: int) -> None:
        """One of his tenants ends; what it owes (ns of waiting, 0 or more) is his."""
        self._paid_ns = {other: at_ns for other, at_ns in self._paid_ns.items() if at_ns > now_ns}
        self._paid_ns[user] = max(self._paid_ns.get(user, 0), now_ns + debt_ns)

    def left_ns(self, user: int, now_ns: int) -> int:
        """How long this user has to wait yet, 0 or more. What a tenant had before it was its is paid back by waiting;
        one that ended instead and came anew would never do so."""
        return max(0, self._paid_ns.get(user, 0) - now_ns)
