"""After a restart: whose word the machine awaits before it grants anything, and until when."""

from __future__ import annotations

from collections.abc import Iterable


class RestartBarrier:
    """The clients of before a restart that may hold the token still, for all we know."""

    def __init__(self) -> None:
        self.unheard: set[int] = set()
        self.until_ns = 0  # of the last of them; it stands when they were heard

    def expect(self, clients: Iterable[int], until_ns: int) -> None:
        """Await these clients too, until then at most; an earlier end than the one known changes nothing."""
        self.unheard.update(clients)
        self.until_ns = max(self.until_ns, until_ns)

    def hear(self, client: int) -> None:
        """Await this client no longer, for it spoke or died; one that was never awaited is fine."""
        self.unheard.discard(client)

    def is_up(self, now_ns: int) -> bool:
        """Return whether nothing may be granted now; when the time is over nobody is awaited any more."""
        if self.unheard and now_ns >= self.until_ns:
            self.unheard.clear()
        return bool(self.unheard)
