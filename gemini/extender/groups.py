"""Pods that are placed together or not at all.

A group's cards are chosen when the last of its members asks to be filtered, for all members at once, held for 30 s, and
given back together. With several replicas the group's lease says who chose, and what: the second takes it over.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

from gemini.extender.codec import NO_ROOM
from gemini.extender.ledger import ENTRIES, ROUNDS, Promise, Stale, read_entries, write_entries
from gemini.extender.podview import PodView
from gemini.extender.promises import Promises, Verdict, owner_reference
from gemini.extender.reserve import GROUP_NS, GroupKey
from gemini.kube import names
from gemini.kube.client import ApiFault, Refused
from gemini.placement.book import Overbooked
from gemini.placement.group import Budget, place_group
from gemini.placement.model import Placement

GROUP_LEASE = "gemini-group-{}"
UNTIL = f"{names.DOMAIN}/promised-until"
Alone = Callable[[PodView, Sequence[str]], Verdict]  # what filter would say of the pod by itself


class Groups:
    def __init__(self, promises: Promises, alone: Alone) -> None:
        self._promises, self._alone = promises, alone
        self.cluster = promises.cluster
        self._placing = asyncio.Lock()
        self._endless: dict[GroupKey, int] = {}  # groups that are not searched for, until when
        self._version: str | None = None  # of the lease of the group that is being placed

    async def place(self, pod: PodView, asked: Sequence[str], effect: bool) -> Verdict | None:
        """Places the pod's group and reserves for all members; None: done. Else why not."""
        key = pod.group
        assert key is not None
        assert pod.spec is not None
        async with self._placing:
            if pod.uid in self.cluster.reservations:
                return None
            for _ in range(ROUNDS):
                waiting, running = self.cluster.members(key)
                if pod.uid not in {p.uid for p in waiting}:
                    waiting.append(pod)
                size = pod.spec.ask.group_size
                for other in waiting:
                    said = other.spec.ask.group_size if other.spec else size
                    if said != size:
                        text = f"{names.POD_GROUP_SIZE}: {size} differs from {said}, said by {other.name}; say the same"
                        return Verdict([], dict.fromkeys(asked, ("Invalid", text)))
                if len(waiting) + len(running) < size:
                    text = f"group {key[1]} has {len(waiting) + len(running)} of its {size} pods"
                    text += "; none is placed before all are there"
                    return Verdict([], dict.fromkeys(asked, ("GroupIncomplete", text)))
                chosen = [pod, *(p for p in waiting if p.uid != pod.uid)][: max(1, size - len(running))]
                chosen.sort(key=lambda p: p.order)
                try:
                    if effect and await self._agreed(key, chosen, running):
                        return None if pod.uid in self.cluster.reservations else self._busy(key, asked)
                    placements = self._place(chosen, running, asked)
                    mark = self._promises.ledger.mark(placements[0].node) if self._promises.ledger and placements else 0
                    if placements is None:
                        return self._no_room(pod, key, size, running, asked)
                    if not effect:
                        node = placements[0].node
                        why = ("GroupPlaced", f"the group would go to {node}")
                        return Verdict([n for n in asked if n == node], {n: why for n in asked if n != node})
                    self.cluster.reservations.put_all(placements, self._promises.clock_ns() + GROUP_NS, key)
                    await self._publish(key, chosen, placements, mark)
                    return None
                except (Stale, Overbooked):
                    self.give_back(key)
                except Refused as error:
                    self.give_back(key)
                    if error.status not in (404, 409):
                        return Verdict([], {}, error=str(error))
                except ApiFault as error:
                    self.give_back(key)
                    return Verdict([], {}, error=str(error))
            return self._busy(key, asked)

    def _place(self, chosen: list[PodView], running: list[Placement], asked: Collection[str]) -> list[Placement] | None:
        """A search that came to no end, and to nothing, is not begun again for a while: everybody waits for it."""
        key, now, budget = chosen[0].group, self._promises.clock_ns(), Budget()
        assert key is not None
        self._endless = {of: until for of, until in self._endless.items() if until > now}
        if key in self._endless:
            return None
        asks = [p.spec.ask for p in chosen if p.spec is not None]
        found = place_group(self.cluster.allocator, asks, running, frozenset(asked), budget)
        if found is None and budget.left <= 0:
            self._endless[key] = now + GROUP_NS
        return found

    def _no_room(
        self, pod: PodView, key: GroupKey, size: int, running: list[Placement], asked: Sequence[str]
    ) -> Verdict:
        alone = self._alone(pod, asked)
        text = f"no room for all {size} pods of group {key[1]} together"
        if running:
            text += f" (others of it run on {running[0].node})"
        failed = {**dict.fromkeys(alone.passed, ("GroupDoesNotFit", text)), **alone.failed}
        failed |= dict.fromkeys(alone.rest, NO_ROOM)
        return Verdict([], failed, alone.cards)

    def _busy(self, key: GroupKey, asked: Sequence[str]) -> Verdict:
        text = f"group {key[1]} is being placed by another replica; this pod is tried again"
        return Verdict([], dict.fromkeys(asked, ("GroupBusy", text)))

    async def _agreed(self, key: GroupKey, chosen: list[PodView], running: list[Placement]) -> bool:
        """Takes over what another replica has chosen for these pods, if it did and time is not up."""
        if self._promises.leases is None:
            return False
        lease = await self._promises.kubernetes.lease(self._promises.leases, _group_lease(key))
        self._version = None if lease is None else str(lease["metadata"].get("resourceVersion", ""))
        if lease is None:
            return False
        said = ((lease["metadata"] or {}).get("annotations") or {}).get(UNTIL, "0")
        if not str(said).isdecimal() or int(said) <= self._promises.wall_ns():
            return False
        waits = {p.uid for p in chosen}
        theirs = [p.placement for p in read_entries(lease) if p.placement.pod in waits]
        if not theirs:
            return False
        for placement in theirs:
            if placement.pod not in self.cluster.book.holdings:
                self.cluster.reservations.take_over(placement, self._promises.clock_ns() + GROUP_NS)
        return True

    async def _publish(self, key: GroupKey, chosen: list[PodView], placements: list[Placement], mark: int) -> None:
        """First the group's lease, so that one replica alone chooses, then the cards."""
        if self._promises.ledger is None or self._promises.leases is None:
            return
        metadata: dict[str, Any] = {
            "annotations": {
                ENTRIES: write_entries(Promise(p, self._promises.replica) for p in placements),
                UNTIL: str(self._promises.wall_ns() + GROUP_NS),
            }
        }
        if self._version is not None:
            metadata["resourceVersion"] = self._version
        owner = owner_reference("v1", "Pod", chosen[0].object)
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        await self._promises.kubernetes.put_lease(self._promises.leases, _group_lease(key), metadata)
        try:
            await self._promises.ledger.enter(placements[0].node, placements, mark)
        except Exception:
            metadata["annotations"][UNTIL] = "0"
            lease = await self._promises.kubernetes.lease(self._promises.leases, _group_lease(key))
            if lease is not None:
                metadata["resourceVersion"] = lease["metadata"].get("resourceVersion")
                await self._promises.kubernetes.put_lease(self._promises.leases, _group_lease(key), metadata)
            raise

    def give_back(self, key: GroupKey) -> None:
        mine = [held for held in self.cluster.reservations if held.group == key]
        for held in mine:
            self._promises.drop(held.placement)


def _group_lease(key: GroupKey) -> str:
    return GROUP_LEASE.format(hashlib.sha256("/".join(key).encode()).hexdigest()[:20])
