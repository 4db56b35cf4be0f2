"""How much of a replica's time the preemptors of each namespace may take.

A look for victims takes up to a quarter of a second, everybody waits for it, and kube-scheduler has one made each time
that it tries a pod of a higher priority in vain: of some hundred such pods of one namespace it would do nothing else.
So a namespace whose looks found nobody rests ten times as long as they took, as soon as that was more than a tenth of a
second; for those that found victims four times as long. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemini.extender.ration import FREE_NS, TIMES, TIMES_PLACED


@dataclass
class _Tab:
    paid_ns: int
    rests: bool = False
    turned_away: bool = False


class Rests:
    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._tabs: dict[str, _Tab] = {}

    def may(self, namespace: str) -> bool:
        """Whether it may have victims looked for."""
        tab = self._tabs.get(namespace)
        if tab is None:
            return True
        if tab.rests and tab.paid_ns <= self._clock_ns():
            tab.rests = False
        tab.turned_away = tab.turned_away or tab.rests
        return not tab.rests

    def took(self, namespace: str, took_ns: int, found: bool) -> None:
        """A look took so long."""
        now_ns = self._clock_ns()
        tab = self._tabs.setdefault(namespace, _Tab(now_ns))
        tab.paid_ns = max(tab.paid_ns, now_ns) + took_ns * (TIMES_PLACED if found else TIMES)
        tab.rests = tab.rests or tab.paid_ns - now_ns > TIMES * FREE_NS

    def due(self) -> bool:
        """To be called about once a second: whether some that were turned away may come by now."""
        over = [one for one, tab in self._tabs.items() if tab.paid_ns <= self._clock_ns()]
        return any([self._tabs.pop(one).turned_away for one in over])
