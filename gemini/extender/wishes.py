"""Whose wish is answered next, or whose claim.

An answer costs some calls to the API server, and a namespace may have as many wishes as it has pods, each ever anew.
So only so many are being answered at a time, of a namespace half of these; namespaces have turns; and each has a pace.
What one namespace wishes for keeps no other waiting. So it is with claims, but for the pace: kube-scheduler has one.
Pure: the time is given.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from math import inf

AT_ONCE, OF_ONE = 16, 8  # answers under way, of all and of one namespace
A_SECOND, BURST = 20, 100  # answers of a namespace
SECOND = 10**9


@dataclass
class _Tab:
    """Of one namespace. `waiting`: pods by their full names (claims by uid), in the order in which they came."""

    since_ns: int
    left: float
    waiting: OrderedDict[str, None] = field(default_factory=OrderedDict)
    under_way: int = 0


class Wishes:
    """`paced`: whether each namespace has a pace."""

    def __init__(self, clock_ns: Callable[[], int], paced: bool = True) -> None:
        self._clock_ns, self._burst = clock_ns, BURST if paced else inf
        self._tabs: OrderedDict[str, _Tab] = OrderedDict()  # whose turn is next stands in front
        self._under_way: dict[str, str] = {}  # pod -> namespace
        self._waiting: set[str] = set()

    def add(self, namespace: str, pod: str) -> None:
        """Once for each pod; one whose wish is being answered is left alone."""
        if pod in self._waiting or pod in self._under_way:
            return
        tab = self._tabs.setdefault(namespace, _Tab(self._clock_ns(), self._burst))
        tab.waiting[pod] = None
        self._waiting.add(pod)

    def next(self, still: Container[str]) -> str | None:
        """The next one to be answered, which is under way from now on; None: nobody may be. `still`: those that wait;
        of the others nothing is to be done any more."""
        if len(self._under_way) >= AT_ONCE:
            return None
        for namespace, tab in list(self._tabs.items()):
            self._refill(tab)
            while tab.waiting and tab.left >= 1 and tab.under_way < OF_ONE:
                pod, _ = tab.waiting.popitem(last=False)
                self._waiting.discard(pod)
                if pod not in still:
                    continue
                tab.left -= 1
                tab.under_way += 1
                self._under_way[pod] = namespace
                self._tabs.move_to_end(namespace)
                return pod
        return None

    def done(self, pod: str) -> None:
        """It is under way no more."""
        namespace = self._under_way.pop(pod, None)
        if namespace is not None:
            self._tabs[namespace].under_way -= 1

    def sweep(self) -> None:
        """To be called about once a second: forgets namespaces that have their whole pace again."""
        for namespace, tab in list(self._tabs.items()):
            self._refill(tab)
            if not tab.waiting and not tab.under_way and tab.left >= self._burst:
                del self._tabs[namespace]

    def __contains__(self, pod: str) -> bool:
        """Whether it is being answered."""
        return pod in self._under_way

    def _refill(self, tab: _Tab) -> None:
        now_ns = self._clock_ns()
        tab.left = min(self._burst, tab.left + (now_ns - tab.since_ns) * A_SECOND / SECOND)
        tab.since_ns = now_ns
