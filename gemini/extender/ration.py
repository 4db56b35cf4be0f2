"""How much of a replica's time the groups of each namespace may take.

kube-scheduler asks about each pod of a group by itself, and again whenever something changes; a look at a group of
hundreds takes long, and everybody waits for it. So what was found of a group holds until something changes that could
give it room (`Kept`). A namespace whose groups are refused then rests ten times as long as that took, as soon as it
was more than a tenth of a second (`Ration`): groups of usual size come to no rest. For a look that found room it rests
four times as long, for a group that is never bound can be placed again and again. kube-scheduler takes longer than that
to bind the pods. Who is turned away meanwhile comes first afterwards. So it is with pods that preempt, and with those
of many shares, each as a group of its own: such a look takes up to a quarter of a second, too. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gemini.extender.reserve import SECOND, GroupKey

TIMES, TIMES_PLACED = 10, 4  # what looks in vain, and others, of a namespace took, so many times: for so long it rests
FREE_NS = SECOND // 10  # of refusals, before there is a rest
LOST_NS = 20 * SECOND  # kube-scheduler asks again about a pod that it was woken for after 10 s at the latest
MOST_WAITING = 2_000  # groups of a namespace
KEPT, KEPT_NS = 32, 60 * SECOND  # answers to a namespace, and for how long one holds where nothing changes
T = TypeVar("T")


@dataclass
class _Tab:
    """Of one namespace. Its groups have their turns in rounds: who was looked at comes again when all who were turned
    away have come. `seen`: as of which state of the cluster a group was looked at last."""

    paid_ns: int = 0
    rests: bool = False
    waiting: OrderedDict[GroupKey, int] = field(default_factory=OrderedDict)  # who was turned away, and when
    again: OrderedDict[GroupKey, int] = field(default_factory=OrderedDict)  # the same of the next round
    served: set[GroupKey] = field(default_factory=set)  # who was looked at in this round
    told: bool = True  # kube-scheduler, that those who wait may come
    seen: dict[GroupKey, Hashable] = field(default_factory=dict)


class Ration:
    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._tabs: dict[str, _Tab] = {}

    def may(self, key: GroupKey, now: Hashable) -> bool:
        """Whether the group may be looked at. `now`: the state of all that its place follows from."""
        tab = self._tabs.get(key[0])
        if tab is None:
            return True
        now_ns = self._clock_ns()
        self._settle(tab, now_ns)
        if not tab.rests and (not tab.waiting or key in tab.waiting):
            tab.waiting.pop(key, None)
            return True
        round_ = tab.again if key in tab.served else tab.waiting
        if tab.seen.get(key) != now and (key in round_ or len(round_) < MOST_WAITING):
            tab.told = tab.told and key in tab.waiting
            round_[key] = now_ns
        return False

    def refused(self, key: GroupKey, now: Hashable, took_ns: int) -> None:
        """The group was looked at for so long, in vain."""
        tab = self._charge(key[0], TIMES * took_ns)
        if len(tab.seen) >= MOST_WAITING:
            tab.seen.clear()
            tab.served.clear()
        tab.seen[key] = now
        tab.served.add(key)

    def placed(self, key: GroupKey, took_ns: int) -> None:
        """The group was looked at for so long, and was given cards."""
        self._charge(key[0], TIMES_PLACED * took_ns)

    def _charge(self, namespace: str, rest_ns: int) -> _Tab:
        tab, now_ns = self._tabs.setdefault(namespace, _Tab()), self._clock_ns()
        tab.paid_ns = max(tab.paid_ns, now_ns) + rest_ns
        tab.rests = tab.rests or tab.paid_ns - now_ns > TIMES * FREE_NS
        return tab

    def due(self) -> bool:
        """To be called about once a second: whether some who were turned away may come by now."""
        now_ns, due = self._clock_ns(), False
        for namespace, tab in list(self._tabs.items()):
            self._settle(tab, now_ns)
            if tab.waiting and not tab.rests and not tab.told:
                tab.told = due = True
            if not tab.waiting and not tab.rests:
                del self._tabs[namespace]
        return due

    def _settle(self, tab: _Tab, now_ns: int) -> None:
        if tab.rests and tab.paid_ns <= now_ns:
            tab.rests = False
            tab.waiting = OrderedDict.fromkeys(tab.waiting, now_ns)  # none of them could come meanwhile
        while tab.waiting and not tab.rests:
            key, since_ns = next(iter(tab.waiting.items()))
            if now_ns - since_ns < LOST_NS:
                return
            del tab.waiting[key]
        if not tab.waiting:
            tab.waiting, tab.again = OrderedDict.fromkeys(tab.again, now_ns), OrderedDict()
            tab.served.clear()
            tab.told = tab.told and not tab.waiting


class Kept(Generic[T]):
    """What groups were answered, by all that it follows from; a few answers of each namespace."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._kept: dict[str, OrderedDict[Hashable, tuple[T, int]]] = {}

    def of(self, group: GroupKey, mark: Hashable) -> T | None:
        here = self._kept.get(group[0])
        found = here.get((group, mark)) if here is not None else None
        return found[0] if found is not None and found[1] > self._clock_ns() else None

    def keep(self, group: GroupKey, mark: Hashable, answer: T) -> None:
        """`mark`: None where it follows from more than is told."""
        if mark is None:
            return
        kept = self._kept.setdefault(group[0], OrderedDict())
        kept[group, mark] = (answer, self._clock_ns() + KEPT_NS)
        kept.move_to_end((group, mark))
        if len(kept) > KEPT:
            kept.popitem(last=False)

    def sweep(self) -> None:
        """To be called about once a second: forgets those whose time is up."""
        now_ns = self._clock_ns()
        for namespace, kept in list(self._kept.items()):
            while kept and next(iter(kept.values()))[1] <= now_ns:
                kept.popitem(last=False)
            if not kept:
                del self._kept[namespace]
