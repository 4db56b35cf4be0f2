"""Which nodes kube-scheduler would give the members of groups, as far as it has asked. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from gemini.extender.podview import PodView
from gemini.extender.reserve import SECOND, GroupKey

FEW = 99  # nodes: of 100 that would do or more kube-scheduler asks about a part alone
ASKED_NS = 60 * SECOND  # for so long a member is taken to be able to go where it could
REMEMBERED = 1_000  # pods of a namespace
CHANGED = 10_000  # groups


class Asked:
    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._told: dict[str, OrderedDict[str, tuple[frozenset[str], int]]] = {}  # by namespace and uid; until when
        self._last: frozenset[str] = frozenset()
        self._changed: OrderedDict[GroupKey, int] = OrderedDict()  # groups of which a member got another node
        self._changes = 0

    def note(self, pod: PodView, asked: Sequence[str]) -> None:
        if len(asked) > FEW:
            return
        if len(self._last) != len(asked) or not self._last.issuperset(asked):
            self._last = frozenset(asked)  # one for all that are asked about alike
        here = self._told.setdefault(pod.namespace, OrderedDict())
        if pod.group is not None and pod.uid in here and not self._last <= here[pod.uid][0]:
            self._changes += 1
            self._changed[pod.group] = self._changes
            if len(self._changed) > CHANGED:
                self._changed.popitem(last=False)
        here[pod.uid] = (self._last, self._clock_ns() + ASKED_NS)
        here.move_to_end(pod.uid)
        if len(here) > REMEMBERED:
            here.popitem(last=False)

    def among(self, chosen: Sequence[PodView], asked: Sequence[str]) -> list[frozenset[str]]:
        """For each of the members. Who was not asked about is taken to be able to go where this one may."""
        now_ns, here = self._clock_ns(), frozenset(asked)
        nobody: OrderedDict[str, tuple[frozenset[str], int]] = OrderedDict()
        told = (self._told.get(one.namespace, nobody).get(one.uid, (here, 0)) for one in chosen)
        return [nodes if until_ns > now_ns else here for nodes, until_ns in told]

    def turn(self, group: GroupKey) -> int:
        """Another number whenever a member may go where it could not before."""
        return self._changed.get(group, 0)

    def sweep(self) -> None:
        """To be called about once a second: forgets what was said too long ago to count, and a while later."""
        now_ns = self._clock_ns() - ASKED_NS
        for namespace, here in list(self._told.items()):
            while here and next(iter(here.values()))[1] <= now_ns:
                here.popitem(last=False)
            if not here:
                del self._told[namespace]
