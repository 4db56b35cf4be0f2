"""ResourceClaims with devices of ours, and what of the book is theirs. Pure.

A claim holds what was allocated to it from the moment that the extender has promised it. A card's name leads to its
minor by way of the node's Device, which may come later, or become another, with fewer cards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from gemini.extender.foreign import discard
from gemini.extender.reserve import Reservations
from gemini.kube.claim import Claim, grants_there
from gemini.kube.device import Reported
from gemini.placement.book import Book
from gemini.placement.model import Placement


class Allocated:
    """Of one cluster (state.py), whose Device objects `devices` are, by node."""

    def __init__(self, book: Book, reservations: Reservations, devices: Mapping[str, Reported]) -> None:
        self._book = book
        self._reservations = reservations
        self._devices = devices
        self.claims: dict[str, Claim] = {}  # by uid
        self.unanswered: set[str] = set()  # uids of claims that wait for our word
        self._on: dict[str, set[str]] = defaultdict(set)  # node -> uids

    def put(self, uid: str, claim: Claim | None) -> tuple[str | None, int]:
        """A claim is so now, or has no devices of ours any more (None). The key of the allocation that is over with it,
        and how often something was given back."""
        over, released = None, 0
        known = self.claims.pop(uid, None)
        self.unanswered.discard(uid)
        if known is not None:
            discard(self._on, known.node, uid)
            if claim is None or claim.key != known.key:
                over = known.key
                self._reservations.settle(known.key)
                released += self._book.release(known.key)
        if claim is None:
            return over, released
        self.claims[uid] = claim
        self._on[claim.node].add(uid)
        if claim.waits:
            self.unanswered.add(uid)
        else:
            self._reservations.settle(claim.key)
        return over, released + self._enter(claim)

    def look_again(self, node: str) -> int:
        """The node has another Device. How often something was given back."""
        return sum(self._enter(self.claims[uid]) for uid in self._on.get(node, ()))

    def _enter(self, claim: Claim) -> int:
        """Bring its holding in the book up to date."""
        if claim.key in self._reservations:
            return 0
        released = 0
        reported = self._devices.get(claim.node)
        grants = grants_there(claim, reported.node) if claim.promised and reported is not None else None
        held = self._book.holdings.get(claim.key)
        if held is not None and held.placement.grants != grants:
            released += self._book.release(claim.key)
            held = None
        if held is None and grants:
            self._book.place(Placement(claim.key, claim.node, grants), strict=False)
        return released
