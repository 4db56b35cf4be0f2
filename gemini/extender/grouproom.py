"""Where the pods of a group find room together, for as long as that is sought: what did not do before is left aside.

For a small group it takes milliseconds. For a large one it is sought in slices (slices.py), in a copy of the book:
others are answered from the book itself meanwhile, and may take what is found. Then it is sought anew, the last time at
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gemini.extender.podview import PodView
from gemini.extender.promises import Promises
from gemini.extender.reserve import GROUP_NS, SECOND, GroupKey
from gemini.extender.room import Rooms
from gemini.extender.slices import in_slices
from gemini.placement.allocate import Allocator
from gemini.placement.domain import Members, place_within
from gemini.placement.group import Budget
from gemini.placement.model import Placement

AVOID_NS = 300 * SECOND  # a node where a group did not come together is left to others for so long, if there are any
AT_ONCE = 32  # members for whom room is sought while all others wait


class GroupRoom:
    """That of one replica. `paused_ns`: how long others had the time during the last search."""

    def __init__(self, promises: Promises) -> None:
        self._promises, self.cluster = promises, promises.cluster
        self.paused_ns = 0
        self._avoid: dict[tuple[GroupKey, str], int] = {}  # nodes where a group did not come together, until when
        self._endless: dict[GroupKey, tuple[int, int]] = {}  # groups, by their turn, not searched for until when
        self._searching = asyncio.Lock()  # one search in slices at a time

    def avoid(self, key: GroupKey, nodes: Sequence[str]) -> None:
        """The group did not come together on these."""
        self._avoid |= {(key, node): self._promises.clock_ns() + AVOID_NS for node in nodes}

    def is_endless(self, key: GroupKey) -> bool:
        """Whether a search for these pods came to no end a short while ago."""
        until_ns, turn = self._endless.get(key, (0, 0))
        return until_ns > self._promises.clock_ns() and turn == self.cluster.groups.turn(key)  # of the same pods

    def sweep(self) -> bool:
        """To be called about once a second: whether a group may be searched for again that came to no end."""
        clock_ns = self._promises.clock_ns()
        self._avoid = {of: until_ns for of, until_ns in self._avoid.items() if until_ns > clock_ns}
        over = [key for key, (until_ns, _) in self._endless.items() if until_ns <= clock_ns]
        for key in over:
            del self._endless[key]
        return bool(over)

    async def seek(
        self, key: GroupKey, chosen: list[PodView], running: list[Placement], among: Sequence[frozenset[str]],
        at_once: bool,
    ) -> list[Placement] | None:  # fmt: skip
        """What the members `chosen` may be given, each on its nodes of `among`. `at_once`: while all others wait."""
        if at_once or len(chosen) <= AT_ONCE:
            with self._promises.fence.around(*chosen):
                return self._place(self.cluster.allocator, chosen, running, among, Budget())
        began_ns = self._promises.clock_ns()
        async with self._searching:
            with self._promises.fence.around(*chosen):
                apart = Allocator(self.cluster.book.copy(), self.cluster.allocator.policies)
            found, ran_ns = await in_slices(
                lambda pause: self._place(apart, chosen, running, among, Budget(pause=pause))
            )
        self.paused_ns = max(0, self._promises.clock_ns() - began_ns - ran_ns)  # nobody else comes before it is read
        return found

    def _place(
        self, allocator: Allocator, chosen: list[PodView], running: list[Placement], among: Sequence[frozenset[str]],
        budget: Budget,
    ) -> list[Placement] | None:  # fmt: skip
        """A node where the group did not come together is taken where no other will do, and one that seems to lack what
        the members need besides cards likewise: kube-scheduler then says which of them lacks what. A search that came
        to no end, and to nothing, is not begun again for a while: everybody waits for it."""
        key, now = chosen[0].group, self._promises.clock_ns()
        assert key is not None
        if self.is_endless(key):
            return None
        asks = tuple(p.spec.ask for p in chosen if p.spec is not None)
        bad = {node for (of, node), until_ns in self._avoid.items() if of == key and until_ns > now}
        better, rooms = [nodes - bad for nodes in among], Rooms(self.cluster, chosen)
        tries: list[tuple[Sequence[frozenset[str]], Rooms | None]] = [(better, rooms), (better, None)]
        if bad:
            tries += [(among, rooms), (among, None)]
        for nodes, room in tries:
            members = Members(asks, tuple(nodes), tuple(running))
            found = place_within(allocator, members, self.cluster.domain_of, room, budget)
            if found is not None:
                return found
            if budget.left <= 0:
                self._endless[key] = (now + GROUP_NS, self.cluster.groups.turn(key))
                break
        return None
