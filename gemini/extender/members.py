"""Which pods are of which group, and as of when they are what they are. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from gemini.extender.podview import PodView
from gemini.extender.reserve import GroupKey


class MemberIndex:
    """The groups of a cluster; pods by uid."""

    def __init__(self) -> None:
        self._uids: dict[GroupKey, set[str]] = {}
        self._turns: dict[GroupKey, int] = defaultdict(int)
        self._last = 0

    def become(self, before: PodView | None, now: PodView | None) -> None:
        """A pod has come, has become another, or is gone (None)."""
        known, of = (None if pod is None else pod.group for pod in (before, now))
        if before is not None and known is not None and known != of:
            self._uids[known].discard(before.uid)
        if now is not None and of is not None:
            self._uids.setdefault(of, set()).add(now.uid)
        if _as_member(before) != _as_member(now):
            for group in {group for group in (known, of) if group is not None}:
                self._last += 1
                self._turns[group] = self._last
        if known is not None and not self._uids[known]:
            del self._uids[known], self._turns[known]

    def uids(self, group: GroupKey) -> set[str]:
        return self._uids.get(group, set())

    def count(self, group: GroupKey) -> int:
        """How many pods of a group there are, whatever they do."""
        return len(self._uids.get(group, ()))

    def turn(self, group: GroupKey) -> int:
        """Another number whenever a group's members have become others, or do something else; none is given twice."""
        return self._turns.get(group, 0)

    def items(self) -> Iterator[tuple[GroupKey, frozenset[str]]]:
        return ((group, frozenset(uids)) for group, uids in self._uids.items())


def _as_member(pod: PodView | None) -> Any:
    """What a group's place follows from."""
    if pod is None or pod.group is None:
        return None
    return pod.group, pod.spec, pod.waits, pod.gated, pod.node, pod.gone, pod.priority
