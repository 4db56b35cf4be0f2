"""How much of a replica's time what is looked for ahead for each namespace's preemptors may take.

What they would take of the cards is looked for while others are placed (fence.py). A namespace whose looks found
nothing rests ten times as long as they took, as soon as that was more than a tenth of a second; for those that found
something four times as long. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemini.extender.ration import FREE_NS, TIMES, TIMES_PLACED


@dataclass
class _Tab:
    paid_ns: int
    rests: bool = False


class Rests:
    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._tabs: dict[str, _Tab] = {}

    def may(self, namespace: str) -> bool:
        """Whether something may be looked for."""
        tab = self._tabs.get(namespace)
        if tab is None:
            return True
        if tab.rests and tab.paid_ns <= self._clock_ns():
            tab.rests = False
        return not tab.rests

    def took(self, namespace: str, took_ns: int, found: bool) -> None:
        """A look took so long."""
        now_ns = self._clock_ns()
        tab = self._tabs.setdefault(namespace, _Tab(now_ns))
        tab.paid_ns = max(tab.paid_ns, now_ns) + took_ns * (TIMES_PLACED if found else TIMES)
        tab.rests = tab.rests or tab.paid_ns - now_ns > TIMES * FREE_NS

    def sweep(self) -> None:
        """To be called about once a second: forgets those that rest no more."""
        now_ns = self._clock_ns()
        self._tabs = {one: tab for one, tab in self._tabs.items() if tab.paid_ns > now_ns}
