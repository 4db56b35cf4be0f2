"""How long the messages of each tenant's grants take, and what of that no tenant is charged.

A grant begins when its message arrives and ends when the word of its drain was sent; the token machine sees both later.
The difference is measured for each tenant and smoothed. It rests on a client's word, so what is left uncharged is
bounded.
"""

from __future__ import annotations

from scheduler_backend.core.policy import Policy

HOP_DIVISOR = 16  # the part of what the last grant was charged that may pass for its messages' time


class MessageDelay:
    """The smoothed delay of each tenant at one GPU. All times are in nanoseconds, and none is below 0."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.smoothed_ns: dict[str, int] = {}  # by the tenant's name

    def observe(self, tenant: str, seen_ns: int, held_ns: int, contended: bool) -> None:
        """Take one grant that lasted `seen_ns` for us and `held_ns` for the client; of the delay hop_most_ns counts at
        most, or hop_alone_most_ns where the grant was not contended.
        """
        most_ns = self.policy.hop_most_ns if contended else self.policy.hop_alone_most_ns
        delay_ns = min(max(0, seen_ns - held_ns), most_ns)
        known_ns = self.smoothed_ns.get(tenant)
        self.smoothed_ns[tenant] = delay_ns if known_ns is None else (3 * known_ns + delay_ns) // 4

    def forget(self, tenant: str) -> None:
        """Drop what is known of a tenant that is gone, or was never heard of."""
        self.smoothed_ns.pop(tenant, None)

    def uncharged_ns(self, tenant: str, quota_ns: int, last_held_ns: int, contended: bool) -> int:
        """Return what of a grant of this quota is not charged; the tenant's last grant was charged `last_held_ns`.

        Contended: hop_most_ns, and a part of what the last grant was charged, or grants given back at once would cost
        nothing; but what the quickest tenant needs is granted to all. Alone: a fifth of the quota, or hop_most_ns where
        that is more, for a tenant that lies would pass its limit by as much.
        """
        own_ns, most_ns = self.smoothed_ns.get(tenant, 0), self.policy.hop_most_ns
        if not contended:
            return min(own_ns, max(most_ns, quota_ns // 5))
        least_ns = min(self.smoothed_ns.values(), default=0)
        return min(most_ns, max(least_ns, min(own_ns, last_held_ns // HOP_DIVISOR)))


def excess_ns(delay_ns: int, held_ns: int) -> int:
    """Return what two hand-overs of this delay take beyond the part of a grant that may pass for messages' time."""
    return max(0, 2 * delay_ns - held_ns // HOP_DIVISOR)
