"""Pods that are placed and bound together or not at all.

A group's cards are chosen when the last of its members asks to be filtered, for all members at once, on one node or on
several of the domain that it wishes for. They are held for 30 s, and given back together. None is bound before all have
come to be (gather.py); a group of which one did not come rests, and says which. With several replicas the group's lease
says who chose, and what: the second takes it over. A look at a group takes time, of which each namespace has a part
alone (ration.py).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from gemini.extender.asked import FEW, Asked
from gemini.extender.codec import NO_ROOM
from gemini.extender.gather import PATIENCE_SECONDS, Gathering
from gemini.extender.grouplease import FIRST_REST, LONGEST_REST, GroupState, GroupStore, Rest
from gemini.extender.grouproom import GroupRoom
from gemini.extender.groupwords import busy, disagreement, everywhere, in_turn, where
from gemini.extender.ledger import ROUNDS, Promise, Stale
from gemini.extender.podview import PodView
from gemini.extender.promises import Promises, Verdict
from gemini.extender.ration import Kept, Ration
from gemini.extender.reserve import GROUP_NS, SECOND, GroupKey
from gemini.kube.answer import ApiFault, Refused
from gemini.placement.book import Overbooked
from gemini.placement.group import kind_of
from gemini.placement.model import NODE_LEVEL, Placement
from gemini.placement.reasons import Reason

LOOKED_AT = 16  # members of which one is sought that finds no node by itself: each costs as much as a pod of no group
NAMED = 4  # members that a text names
LONGEST_SAID = 300  # characters of kube-scheduler's own words
Alone = Callable[[PodView, Sequence[str]], Verdict]  # what filter would say of the pod by itself


class Groups:
    """`patience`: seconds for which the binding of a member is held until those of the others have come."""

    def __init__(self, promises: Promises, alone: Alone, patience: float = PATIENCE_SECONDS) -> None:
        self._promises, self._alone = promises, alone
        self.cluster = promises.cluster
        self.store = GroupStore(promises.kubernetes, promises.leases)
        self._gathering = Gathering(promises, self.store, self._failed, patience)
        self._placing: WeakValueDictionary[GroupKey, asyncio.Lock] = WeakValueDictionary()
        self._ration = Ration(promises.clock_ns)
        # What members were told that ask for the same, and why their group finds no room, or is too small.
        self._refused, self._full, self._too_few = (
            Kept[Verdict](promises.clock_ns), Kept[str](promises.clock_ns), Kept[str](promises.clock_ns),
        )  # fmt: skip
        self._asked, self._room = Asked(promises.clock_ns), GroupRoom(promises)
        self._rests: dict[GroupKey, int] = {}  # groups whose members are to be woken, from when (wall clock)

    async def place(self, pod: PodView, asked: Sequence[str], effect: bool) -> Verdict | None:
        """Places the pod's group and reserves for all members; None: done. Else why not."""
        key = pod.group
        assert key is not None
        async with self._placing.setdefault(key, asyncio.Lock()):
            if effect:
                self._asked.note(pod, asked)
            for round_ in range(ROUNDS):
                at_once = round_ == ROUNDS - 1  # what others changed meanwhile may spoil each search that takes long
                try:
                    if pod.uid in self.cluster.reservations and not (effect and await self._moves(key, pod, asked)):
                        return None
                    return await (self._try if effect else self._try_out)(key, pod, asked, at_once)
                except (Stale, Overbooked):
                    self._drop(key)
                except Refused as error:
                    self._drop(key)
                    if error.status not in (404, 409):
                        return Verdict([], {}, error=str(error))
                except ApiFault as error:
                    self._drop(key)
                    return Verdict([], {}, error=str(error))
            return busy(key, asked)

    async def _try(self, key: GroupKey, pod: PodView, asked: Sequence[str], at_once: bool) -> Verdict | None:
        """As place does. What another replica has chosen is the pod's whether or not it may be looked at again here.
        Raises Stale, Overbooked, ApiFault."""
        assert pod.spec is not None
        size, now = pod.spec.ask.group_size, self._now(key)
        if (text := self._too_few.of(key, (now, size))) is not None:
            return everywhere(asked, Reason.GROUP_INCOMPLETE, text)
        known = self._known(key, pod, asked)
        may = known is None and self._ration.may(key, now)
        few = self.cluster.groups.count(key) + (pod.uid not in self.cluster.pods) < size
        state = GroupState() if may and few else await self.store.read(key)
        if not may and not self._is_chosen(pod, state):
            return known if known is not None else in_turn(key, asked)
        began_ns, now = self._promises.clock_ns(), self._now(key)
        found = await self._look(key, pod, asked, state, True, at_once)
        took_ns = self._promises.clock_ns() - began_ns - self._room.paused_ns
        if isinstance(found, Verdict):
            self._ration.refused(key, now, took_ns)
            return found
        self._ration.placed(key, took_ns)
        if found is None:
            return None
        by_node, ledger = _by_node(found), self._promises.ledger
        marks = {node: ledger.mark(node) if ledger is not None else 0 for node in by_node}
        self.cluster.reservations.put_all(found, self._promises.clock_ns() + GROUP_NS, key)
        await self._publish(key, state, by_node, marks)
        return None

    async def _try_out(self, key: GroupKey, pod: PodView, asked: Sequence[str], at_once: bool) -> Verdict | None:
        """What _try would say, without effect. Raises Stale, ApiFault."""
        found = await self._look(key, pod, asked, await self.store.read(key), False, at_once)
        if found is None or isinstance(found, Verdict):
            return found
        node = next((one.node for one in found if one.pod == pod.uid), found[0].node)
        why = (Reason.GROUP_PLACED.text, f"the group would go to {', '.join(_by_node(found))}")
        return Verdict([n for n in asked if n == node], {n: why for n in asked if n != node})

    async def _look(
        self, key: GroupKey, pod: PodView, asked: Sequence[str], state: GroupState, effect: bool, at_once: bool
    ) -> Verdict | list[Placement] | None:
        """What the group may be given, or why nothing. None: the pod has what another replica has chosen. Raises Stale
        where the group became another meanwhile."""
        assert pod.spec is not None
        self._room.paused_ns = 0
        waiting, running = self.cluster.members(key)
        if pod.uid not in {p.uid for p in waiting}:
            waiting.append(pod)
        size = pod.spec.ask.group_size
        if (differs := disagreement(pod, waiting)) is not None:
            return everywhere(asked, Reason.INVALID, differs)
        if len(waiting) + len(running) < size:
            text = self._incomplete(key, len(waiting) + len(running), size)
            self._too_few.keep(key, (self._now(key), size), text)
            return everywhere(asked, Reason.GROUP_INCOMPLETE, text)
        chosen = [pod, *(p for p in waiting if p.uid != pod.uid)][: max(1, size - len(running))]
        chosen.sort(key=lambda p: p.order)
        if (rest := self._resting(state, chosen)) is not None:
            return everywhere(asked, Reason.GROUP_RESTS, rest)
        if effect and self._agreed(key, state, chosen):
            return None if pod.uid in self.cluster.reservations else busy(key, asked)
        if effect:
            self._drop(key)  # what is held still was given back by another replica
        if any(one.uid in self.cluster.reservations for one in chosen):
            return busy(key, asked)
        among, before = self._asked.among(chosen, asked), self._marks(key)
        found = await self._room.seek(key, chosen, running, among, at_once)
        same = before == self._marks(key)
        if found is not None:
            if self.cluster.groups.turn(key) != before[1] or any(p.uid in self.cluster.book.holdings for p in chosen):
                raise Stale
            return found
        text = self._no_room(pod, chosen, running, asked)
        if same:
            self._full.keep(key, self._mark(pod, asked), text)
        return self._told_no_room(pod, asked, text)

    # ---- what was found before

    def _now(self, key: GroupKey) -> Hashable:
        """The same as long as nothing has changed that could give the group room."""
        return *self._marks(key), self._room.is_endless(key)

    def _marks(self, key: GroupKey) -> tuple[int, int, int]:
        return self.cluster.chances, self.cluster.groups.turn(key), self._asked.turn(key)

    def _mark(self, pod: PodView, asked: Sequence[str]) -> Hashable:
        """Equal for members whose group is refused alike. None: for no other one, as this one was asked about a part of
        the nodes, another each time."""
        assert pod.spec is not None
        assert pod.group is not None
        if len(asked) > FEW:
            return None
        surplus = (
            self.cluster.groups.count(pod.group) > pod.spec.ask.group_size
        )  # then each is looked at with other members
        return self._now(pod.group), frozenset(asked), surplus and pod.uid

    def _known(self, key: GroupKey, pod: PodView, asked: Sequence[str]) -> Verdict | None:
        """What the pod was told, or is to be told as its group was refused; None: it is to be looked at."""
        assert pod.spec is not None
        if (mark := self._mark(pod, asked)) is None or (text := self._full.of(key, mark)) is None:
            return None
        own = (mark, kind_of(pod.spec.ask), pod.priority)  # what is said of each node differs where they ask for others
        known = self._refused.of(key, own)
        if known is None:
            known = self._told_no_room(pod, asked, text)
            self._refused.keep(key, own, known)
        return known

    def may_go(self, chosen: Sequence[PodView], asked: Sequence[str]) -> list[frozenset[str]]:
        """The nodes for each of these members, as far as kube-scheduler has asked."""
        return self._asked.among(chosen, asked)

    @staticmethod
    def _is_chosen(pod: PodView, state: GroupState) -> bool:
        return any(promise.placement.pod == pod.uid for promise in state.promises)

    async def _moves(self, key: GroupKey, pod: PodView, asked: Sequence[str]) -> bool:
        """Whether the group is given back, for the node that was chosen is none for this pod. Where kube-scheduler asks
        about a part of the nodes alone that means nothing: there members are bound as they come."""
        held = self.cluster.reservations.of(pod.uid)
        assert held is not None
        if held.placement.node in asked or held.group is None:
            return False
        if len(asked) > FEW:
            state = await self.store.read(key)
            if state.promises and not state.together:
                await self.store.write(key, replace(state, together=True))
                self._gathering.kick(key)
            return False
        _, running = self.cluster.members(key)
        together = (self.cluster.reservations.of(placement.pod) for placement in running)
        if any(one is None or one.group is None for one in together):  # some are bound there, or being bound
            return False
        await self.give_back(key, f"group {key[1]} goes elsewhere: {held.placement.node} is none for {pod.name}")
        return True

    # ---- the last step

    async def join(self, pod: PodView) -> None:
        """Takes over what another replica has chosen for the pod's group, so that the pod may be bound here."""
        assert pod.group is not None
        self._agreed(pod.group, await self.store.read(pod.group), [pod, *self.cluster.members(pod.group)[0]])

    async def gather(self, pod: PodView, placement: Placement) -> str:
        """Waits until all members have come to be bound, with their cards promised. Empty: they have. Else why not."""
        assert pod.group is not None
        said = await self._gathering.wait(pod.group, placement)
        if said:
            self._drop(pod.group)  # another replica may have given the group back
        return said

    async def _failed(self, key: GroupKey, state: GroupState, missing: frozenset[str]) -> str:
        """Not all came: gives the group back, for a rest, and says which. Raises Refused where another replica has
        written meanwhile."""
        gone = any(self.cluster.ended(uid) for uid in missing)
        nodes = sorted({one.placement.node for one in state.promises if one.placement.pod in missing})
        before = state.rest.seconds if state.rest is not None else 0
        if gone:
            seconds, text = 0, f"group {key[1]} is given back: a member of it is gone"
        else:
            seconds = min(max(2 * before, FIRST_REST), LONGEST_REST)
            told = "; ".join(self._told(uid) for uid in sorted(missing)[:NAMED])
            text = f"group {key[1]} is given back, for one of it could not be bound to {', '.join(nodes[:NAMED])}"
            text += f" beside the others ({told}); it is tried again in {seconds} s"
        members = tuple(sorted(promise.placement.pod for promise in state.promises))
        rest = Rest(self._promises.wall_ns() + seconds * SECOND, seconds, members, text)
        await self.store.write(key, replace(state, until_ns=0, arrived={}, together=False, rest=rest))
        self._rests[key] = rest.until_ns
        self._room.avoid(key, nodes)
        self._drop(key)
        return text

    def _told(self, uid: str) -> str:
        """A member that has not come, with kube-scheduler's own words on it."""
        pod = self.cluster.pods.get(uid)
        if pod is None:
            return f"the pod of uid {uid}"
        return f"{pod.name}: {pod.scheduler_says[:LONGEST_SAID]}" if pod.scheduler_says else pod.name

    def _resting(self, state: GroupState, chosen: Sequence[PodView]) -> str | None:
        rest = state.rest
        if rest is None or rest.until_ns <= self._promises.wall_ns():
            return None
        return rest.text if set(rest.members) == {pod.uid for pod in chosen} else None

    async def sweep(self) -> None:
        """To be called about once a second: has members asked about again whose rest is over. Raises ApiFault."""
        now_ns = self._promises.wall_ns()
        for key in [key for key, until_ns in self._rests.items() if until_ns <= now_ns]:
            del self._rests[key]
            self.cluster.stir()
        over = self._room.sweep()
        if self._ration.due() or over:
            self.cluster.stir()
        for kept in (self._refused, self._full, self._too_few, self._asked):
            kept.sweep()
        await self.store.sweep(now_ns)

    def _no_room(
        self, pod: PodView, chosen: Sequence[PodView], running: Sequence[Placement], asked: Sequence[str]
    ) -> str:
        assert pod.spec is not None
        assert pod.group is not None
        text = f"no room for all {pod.spec.ask.group_size} pods of group {pod.group[1]} together{where(pod.spec.ask)}"
        if running:
            text += f" (others of it run on {', '.join(sorted({one.node for one in running})[:NAMED])})"
        if pod.spec.ask.required == NODE_LEVEL and not frozenset.intersection(*self._asked.among(chosen, asked)):
            text += ": kube-scheduler has no node that all of them may go to"
        for one in chosen[:LOOKED_AT]:
            if one.uid != pod.uid and not self._alone(one, asked).passed:
                text += f": {one.name} finds none by itself"
                break
        return text

    def _told_no_room(self, pod: PodView, asked: Sequence[str], text: str) -> Verdict:
        """`text`: why there is none for its group, where there would be for the pod by itself."""
        alone = self._alone(pod, asked)
        failed = {**dict.fromkeys(alone.passed, (Reason.GROUP_DOES_NOT_FIT.text, text)), **alone.failed}
        failed |= dict.fromkeys(alone.rest, NO_ROOM)
        return Verdict([], failed, alone.cards)

    def _incomplete(self, key: GroupKey, there: int, size: int) -> str:
        text = f"group {key[1]} has {there} of its {size} pods; none is placed before all are there"
        gated = self.cluster.gated(key)
        return text + (f" ({', '.join(gated[:NAMED])} behind a scheduling gate)" if gated else "")

    def _agreed(self, key: GroupKey, state: GroupState, chosen: Sequence[PodView]) -> bool:
        """Takes over what another replica has chosen for these pods, if it did and time is not up."""
        if self._promises.leases is None or state.until_ns <= self._promises.wall_ns():
            return False
        waits = {p.uid for p in chosen}
        theirs = [p.placement for p in state.promises if p.placement.pod in waits]
        self._drop(key, kept=theirs)
        for placement in theirs:
            if placement.pod not in self.cluster.book.holdings:
                self.cluster.reservations.take_over(placement, self._promises.clock_ns() + GROUP_NS, key)
        return bool(theirs)

    async def _publish(
        self, key: GroupKey, state: GroupState, by_node: Mapping[str, list[Placement]], marks: Mapping[str, int]
    ) -> None:
        """First the group's state, so that one replica alone chooses, then the cards, node by node: where those of one
        are refused the group is given back as a whole."""
        promises = tuple(Promise(p, self._promises.replica) for here in by_node.values() for p in here)
        until_ns = self._promises.wall_ns() + GROUP_NS
        state = await self.store.write(key, GroupState(promises, until_ns, rest=state.rest, version=state.version))
        if self._promises.ledger is None:
            return
        try:
            for node, placements in by_node.items():
                await self._promises.ledger.enter(node, placements, marks[node])
        except Exception:
            await self.store.write(key, replace(state, until_ns=0))
            raise

    def _drop(self, key: GroupKey, kept: Sequence[Placement] = ()) -> None:
        """Gives back here what is held for the group as a whole; who waits at his last step gives his own back."""
        waiting = self._gathering.waiting(key)
        for held in [held for held in self.cluster.reservations if held.group == key]:
            if held.placement.pod not in waiting and held.placement not in kept:
                self._promises.drop(held.placement)

    async def give_back(self, key: GroupKey, why: str = "") -> None:
        """Gives the group's cards back, and tells the other replicas. Raises ApiFault."""
        self._drop(key)
        state = await self.store.read(key)
        if state.until_ns and not state.together:
            rest = Rest(0, state.rest.seconds if state.rest is not None else 0, (), why) if why else state.rest
            await self.store.write(key, replace(state, until_ns=0, arrived={}, rest=rest))
        self._gathering.kick(key)


def _by_node(placements: Sequence[Placement]) -> dict[str, list[Placement]]:
    found: dict[str, list[Placement]] = defaultdict(list)
    for placement in placements:
        found[placement.node].append(placement)
    return found
