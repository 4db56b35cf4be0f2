"""Events on pods that say why they wait, few enough for any cluster: one Event for a pod, brought up to date.

A pod that waits is asked about again and again. Its Event is written when the reason changes, at most once in
CHANGED_NS, else once in SAME_NS to say that it still holds; when more is waiting than the API server takes, the oldest
news are dropped, for they will come again.
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
from gemini.kube.client import ApiFault

CHANGED_NS = 5 * 10**9
SAME_NS = 60 * 10**9
QUEUE = 1_000
REMEMBERED = 10_000
log = logging.getLogger("gemini.extender")


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
    def __init__(self, sink: Sink, clock_ns: Callable[[], int]) -> None:
        self._sink, self._clock_ns = sink, clock_ns
        self._said: OrderedDict[str, _Said] = OrderedDict()
        self._queue: OrderedDict[str, tuple[dict[str, Any], str, str, int]] = OrderedDict()
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
        self._queue[pod.uid] = (pod.object, reason, message, count)
        if len(self._queue) > QUEUE:
            self._queue.popitem(last=False)
        self._news.set()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._queue:
                uid, (pod, reason, message, count) = self._queue.popitem(last=False)
                name = f"{pod['metadata']['name'][:200]}.{hashlib.sha256(uid.encode()).hexdigest()[:16]}"
                stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                try:
                    await self._sink.event(pod, name, reason, message, count, stamp)
                except ApiFault as error:
                    log.info("event pod=%s error=%s", name, error)
