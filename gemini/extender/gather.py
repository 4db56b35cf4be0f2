"""The members of a group at their last step: none is bound before all have come to be.

kube-scheduler asks for a pod's binding when all else of it is done: every filter has passed it, its node's processors
and memory are taken to be its, its volumes are there. So the binding of a member is held until those of all others have
come. If one does not, in less time than kube-scheduler waits for an answer (its httpTimeout, 5 s), all are refused.
Which have come stands in the group's state (grouplease.py), for kube-scheduler asks any replica about each. That all
are there is one write by compare and set, and so is giving the group back: either all go on or none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from gemini.extender.grouplease import GroupState, GroupStore
from gemini.extender.promises import Promises
from gemini.extender.reserve import SECOND, GroupKey
from gemini.kube.answer import ApiFault, Refused
from gemini.placement.model import Placement

PATIENCE_SECONDS = 4.0
POLL_SECONDS = 0.25  # for what other replicas write

Failed = Callable[[GroupKey, GroupState, frozenset[str]], Awaitable[str]]


@dataclass
class _Waiting:
    placement: Placement
    until: float  # by the loop's clock
    future: asyncio.Future[str]


class Gathering:
    """Those of one replica. `failed` is told of a group that did not come together, with its state and the uids of
    those that are missing; it gives the group's cards back, and says why in one line."""

    def __init__(self, promises: Promises, store: GroupStore, failed: Failed, patience: float) -> None:
        self.promises, self.store, self.failed, self.patience = promises, store, failed, patience
        self.circles: dict[GroupKey, _Circle] = {}

    async def wait(self, key: GroupKey, placement: Placement) -> str:
        """Of a member, with what it is to be given. Empty: all are there. Else why the pod is not to be bound."""
        circle = self.circles.get(key)
        if circle is None:
            circle = self.circles[key] = _Circle(self, key)
        return await circle.come(placement)

    def waiting(self, key: GroupKey) -> frozenset[str]:
        """The uids of those that wait here."""
        circle = self.circles.get(key)
        return frozenset() if circle is None else frozenset(circle.waiting)

    def kick(self, key: GroupKey) -> None:
        """Something has changed about the group."""
        if (circle := self.circles.get(key)) is not None:
            circle.news.set()


class _Circle:
    """One group, for as long as members of it wait here."""

    def __init__(self, of: Gathering, key: GroupKey) -> None:
        self._of, self._key = of, key
        self.waiting: dict[str, _Waiting] = {}
        self.news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def come(self, placement: Placement) -> str:
        loop = asyncio.get_running_loop()
        one = _Waiting(placement, loop.time() + self._of.patience, loop.create_future())
        self.waiting[placement.pod] = one
        self.news.set()
        if self._task is None:
            self._task = loop.create_task(self._run())
        return await one.future

    async def _run(self) -> None:
        answer: str | None = None
        try:
            while answer is None:
                self.news.clear()
                try:
                    answer = await self._round()
                except ApiFault as error:
                    answer = str(error)
                if answer is None:
                    await self._wait()
        finally:
            self._of.circles.pop(self._key, None)
            for one in self.waiting.values():
                if not one.future.done():
                    one.future.set_result(f"group {self._key[1]} is tried again" if answer is None else answer)

    async def _wait(self) -> None:
        """For news, or until somebody's patience ends, or it is time to look what other replicas wrote."""
        ends = min(one.until for one in self.waiting.values())
        if self._of.store.namespace is not None:
            ends = min(ends, asyncio.get_running_loop().time() + POLL_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(ends):
                await self.news.wait()

    async def _round(self) -> str | None:
        """None: wait on. Else the answer to all who wait here."""
        promises, store, now = self._of.promises, self._of.store, asyncio.get_running_loop().time()
        state, wall_ns = await store.read(self._key), promises.wall_ns()
        promised = {promise.placement.pod: promise.placement for promise in state.promises}
        members, given_back = frozenset(promised), f"group {self._key[1]} was given back meanwhile"
        if state.until_ns <= wall_ns:
            return state.rest.text if state.rest is not None else given_back
        for uid in [uid for uid, one in self.waiting.items() if promised.get(uid) != one.placement]:
            if not (future := self.waiting.pop(uid).future).done():  # another replica has chosen other cards since
                future.set_result(given_back)
        if not self.waiting:
            return given_back
        if state.together:
            return ""
        here = {uid: wall_ns + round((one.until - now) * SECOND) for uid, one in self.waiting.items()}
        arrived = {uid: until_ns for uid, until_ns in state.arrived.items() if until_ns > wall_ns and uid not in here}
        gone = frozenset(uid for uid in members if promises.cluster.ended(uid))
        bound = frozenset(uid for uid in members - gone if promises.settled(uid))
        missing = members - bound - arrived.keys() - here.keys()
        try:
            if not missing:
                await store.write(self._key, replace(state, together=True, arrived={}))
                return ""
            if gone or any(one.until <= now for one in self.waiting.values()):
                return await self._of.failed(self._key, state, gone or missing)
            if here.keys() - state.arrived.keys():
                await store.write(self._key, replace(state, arrived=arrived | here))
        except Refused as error:
            if error.status not in (404, 409):
                raise
            self.news.set()  # another replica has written: look again
        return None
