"""Which pod does the kubelet mean? Its calls name device ids and nothing else.

Pure. Who could be meant: pods bound here whose next container, in the kubelet's order, asks just so many slots and has
none yet (by the kubelet's own checkpoint). Preferred allocation comes before the ids are chosen: there PodResources
tells which of them the kubelet is admitting, for a pod is listed there from the moment its admission begins. Allocate
comes with ids, and so with cards: whoever was promised those is meant. What is still open goes to the one promised
first, which is gpushare's rule. It may be wrong; then PreStartContainer sees it and repair.py mends it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from gemini.plugin.claims import Claim, PodClaims
from gemini.plugin.slots import card_of


class Candidate(NamedTuple):
    pod: PodClaims
    claim: Claim


Holder = tuple[str, str]  # (pod uid, container)


def candidates(pods: Iterable[PodClaims], held: Collection[Holder], size: int) -> list[Candidate]:
    """Pods whose next container asks `size` slots, the one promised first in front."""
    found = []
    for pod in pods:
        next_one = next((claim for claim in pod.claims if (pod.uid, claim.container) not in held), None)
        if next_one is not None and next_one.slots == size:
            found.append(Candidate(pod, next_one))
    return sorted(found, key=lambda one: (one.pod.order, one.pod.namespace, one.pod.name, one.pod.uid))


def admitting(
    among: Sequence[Candidate], listed: Collection[tuple[str, str]] | None, available: Iterable[str]
) -> Candidate | None:
    """The one that is being admitted. `listed`: (namespace, name) of the pods that the kubelet knows; None: unknown. Of
    several that may be it the first whose cards have the slots left: the others' were given away by mistake."""
    known = [one for one in among if listed is not None and (one.pod.namespace, one.pod.name) in listed]
    likely = known or list(among)
    free = Counter(map(card_of, available))
    served = [one for one in likely if room(free, one.claim.cards, one.claim.slots)]
    return (served or likely or [None])[0]  # type: ignore[list-item]


def room(free: Mapping[str, int], cards: Sequence[str], slots: int) -> bool:
    """Whether the cards have so many slots left, each its part."""
    return all(free.get(card, 0) * len(cards) >= slots for card in cards)


def meant(among: Sequence[Candidate], ids: Iterable[str], expected: Holder | None) -> Candidate | None:
    """The one that these slots are for. `expected`: who was preferred a moment ago."""
    cards = {card_of(slot) for slot in ids}
    placed = [one for one in among if set(one.claim.cards) == cards] or list(among)
    likely = [one for one in placed if (one.pod.uid, one.claim.container) == expected]
    return (likely or placed or [None])[0]  # type: ignore[list-item]
