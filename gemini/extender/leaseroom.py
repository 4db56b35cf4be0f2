"""How much of a node's lease the promises of one namespace may take.

An object's annotations have 256 KiB in all, and a write that is larger is refused as a whole, for everybody who binds
on that node. A pod has a promise of up to 26 KB (a hundred shares of eight cards each), and those of a group stand
there until all of it has come. So the promises of one namespace take a part of the lease, and no more. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

MOST = 96 << 10  # bytes of a namespace on a node: some four hundred pods of a card each
ALL = 248 << 10  # of all promises there, less what else the lease says of pods
TOO_MUCH = "too many promises are under way on {} at once, of this namespace or of all; the pod is tried again"
Sized = tuple[str, int]  # namespace (empty: not known), bytes


def beyond(whole: int, kept: Iterable[Sized], wanted: Sequence[Sequence[Sized]], besides: int = 0) -> list[bool]:
    """For each of `wanted`, all of which is entered together, whether it would be too much beside what is kept and what
    was wanted before it. `whole`: bytes of what is kept; `besides`: of what else stands in the lease."""
    total, left = whole + sum(size for one in wanted for _, size in one), ALL - besides - whole
    if total <= MOST and total + MOST + besides <= ALL:
        return [False] * len(wanted)  # as nearly always
    taken: Counter[str] = Counter()
    for namespace, size in kept:
        taken[namespace] += size
    told = []
    for one in wanted:
        more: Counter[str] = Counter()
        for namespace, size in one:
            more[namespace] += size
        after = left - more.total()
        most = min(MOST, after)
        told.append(after < 0 or any(namespace and taken[namespace] + size > most for namespace, size in more.items()))
        if not told[-1]:
            taken += more
            left = after
    return told
