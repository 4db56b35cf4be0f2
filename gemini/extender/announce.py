"""Events on pods that say why they wait, few enough for any cluster: one Event for a pod, brought up to date.

A pod that waits is asked about again and again. Its Event is written when the reason changes, at most once in
CHANGED_NS, else once in SAME_NS to say that it still holds. Namespaces have their turns, and all events together a
pace: thousands of pods of one that wait take neither the API server's time nor other tenants' news. When more is
waiting than is written, the oldest news of the namespace that has most are dropped, for they will come again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from gemini.extender.podview import PodView
from gemini.kube.answer import ApiFault

CHANGED_NS = 5 * 10**9
SAME_NS = 60 * 10**9
QUEUE = 1_000
PACE_SECONDS = 0.02  # between two events
REMEMBERED = 10_000
log = logging.getLogger("gemini.extender")


_News = tuple[dict[str, Any], str, str, int]  # pod, reason, message, count


class Sink(Protocol):
    async def event(
        self, pod: dict[str, Any], name: str, reason: str, message: str, count: int, stamp: str
    ) -> None: ...


@dataclass
class _Said:
    message: str
    at_ns: int
    count: int


class Announcer:
    def __init__(self, sink: Sink, clock_ns: Callable[[], int], pace_seconds: float = PACE_SECONDS) -> None:
        self._sink, self._clock_ns, self._pace_seconds = sink, clock_ns, pace_seconds
        self._said: OrderedDict[str, _Said] = OrderedDict()
        self._queues: OrderedDict[str, OrderedDict[str, _News]] = OrderedDict()  # by namespace and uid
        self._waiting = 0
        self._news = asyncio.Event()

    def waits(self, pod: PodView, reason: str, message: str) -> None:
        if not pod.uid or not pod.namespace:
            return
        now_ns, said = self._clock_ns(), self._said.get(pod.uid)
        if said is not None and now_ns - said.at_ns < (SAME_NS if said.message == message else CHANGED_NS):
            return
        count = said.count + 1 if said is not None else 1
        self._said[pod.uid] = _Said(message, now_ns, count)
        self._said.move_to_end(pod.uid)
        if len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        queue = self._queues.setdefault(pod.namespace, OrderedDict())
        self._waiting += pod.uid not in queue
        queue[pod.uid] = (pod.object, reason, message, count)
        if self._waiting > QUEUE:
            self._take(max(self._queues, key=lambda namespace: len(self._queues[namespace])))
        self._news.set()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._queues:
                uid, (pod, reason, message, count) = self._next()
                name = f"{pod['metadata']['name'][:200]}.{hashlib.sha256(uid.encode()).hexdigest()[:16]}"
                stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                try:
                    await self._sink.event(pod, name, reason, message, count, stamp)
                except ApiFault as error:
                    log.info("event pod=%s error=%s", name, error)
                await asyncio.sleep(self._pace_seconds)

    def _next(self) -> tuple[str, _News]:
        namespace = next(iter(self._queues))
        self._queues.move_to_end(namespace)
        return self._take(namespace)

    def _take(self, namespace: str) -> tuple[str, _News]:
        queue = self._queues[namespace]
        if len(queue) == 1:
            del self._queues[namespace]
        self._waiting -= 1
        return queue.popitem(last=False)
