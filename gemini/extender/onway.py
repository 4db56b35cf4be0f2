"""Pods between filter and bind: nodes were named for them, and no cards are held for them yet.

Kube-scheduler binds aside and filters the next pod meanwhile. That one is told of the last place of a node although a
pod before it is on its way there, and the later of the two bindings is refused. So filter waits for the bindings that
are on their way, where the pod would not fit on a node beside them. Each pod is waited for once, and not for long: its
volumes may come first, or something else may be in its way. The pods of a namespace of which one was waited for in vain
are not waited for again for a while, for the scheduler stands still meanwhile, and nobody may hold it up for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gemini.extender.podview import PodView
from gemini.extender.reserve import AWAITED_NS
from gemini.extender.state import Cluster
from gemini.placement.model import Ask

PATIENCE_SECONDS = 0.5  # kube-scheduler takes about a millisecond from filter to bind
VAIN_NS = 60 * 10**9
# Shares times nodes; of more it is not worked out whether they matter. One of several cards counts by their square, for
# it may be had in so many more ways.
LOOKED_AT = 64


@dataclass(frozen=True)
class _Sent:
    """`looks`: how much there is to look at."""

    ask: Ask
    nodes: Sequence[str]
    until_ns: int
    namespace: str
    looks: int


class OnWay:
    """Those of one replica. Used on one event loop. A pod that another replica binds has arrived when it is seen
    bound."""

    def __init__(self, cluster: Cluster, clock_ns: Callable[[], int], patience: float = PATIENCE_SECONDS) -> None:
        self._cluster, self._clock_ns, self._patience = cluster, clock_ns, patience
        self._sent: dict[str, _Sent] = {}  # by the pod's uid
        self._vain: dict[str, int] = {}  # namespace -> until when its pods are not waited for
        self._news = asyncio.Event()
        cluster.on_settled = self.arrived

    def send(self, pod: PodView, nodes: Sequence[str]) -> None:
        """The pod may be bound to any of these."""
        if self._vain.get(pod.namespace, 0) > self._clock_ns():
            return
        if pod.uid and pod.spec is not None and nodes and pod.uid not in self._cluster.reservations:
            ask, until_ns = pod.spec.ask, self._clock_ns() + AWAITED_NS
            looks = len(nodes) * sum(want.count**2 for tenant in ask.tenants for want in tenant.wants)
            self._sent[pod.uid] = _Sent(ask, nodes, until_ns, pod.namespace, looks)

    def arrived(self, uid: str) -> None:
        """Its cards are held, or it is not on its way any more."""
        if self._sent.pop(uid, None) is not None:
            self._news.set()

    def in_way_of(self, pod: PodView) -> list[str]:
        """The uids of those that the pod had better wait for."""
        self.arrived(pod.uid)  # it comes again, so it was not bound
        if not self._sent or pod.spec is None:
            return []
        now_ns = self._clock_ns()
        for uid in [uid for uid, sent in self._sent.items() if sent.until_ns <= now_ns]:
            self.arrived(uid)
        many = sum(sent.looks for sent in self._sent.values())
        if many and (pod.group is not None or many > LOOKED_AT):
            return list(self._sent)
        nodes = sorted({node for sent in self._sent.values() for node in sent.nodes})
        before = self._cluster.standings.of(pod.spec.ask).fits(nodes)
        with self._arrived_everywhere():
            after = self._cluster.standings.of(pod.spec.ask).fits(nodes)
        taken = {node for node, had, has in zip(nodes, before, after, strict=True) if had and not has}
        return [uid for uid, sent in self._sent.items() if not taken.isdisjoint(sent.nodes)]

    async def wait(self, pod: PodView) -> None:
        """Until none is in the pod's way, or the time is up; those that are left then are waited for no more."""
        ends = asyncio.get_running_loop().time() + self._patience
        while left := self.in_way_of(pod):
            self._news.clear()
            try:
                async with asyncio.timeout_at(ends):
                    await self._news.wait()
            except TimeoutError:
                self._give_up(left)

    def _give_up(self, uids: Sequence[str]) -> None:
        now_ns = self._clock_ns()
        self._vain = {namespace: until_ns for namespace, until_ns in self._vain.items() if until_ns > now_ns}
        left = (self._sent[uid].namespace for uid in uids if uid in self._sent)  # the others came just now
        self._vain |= dict.fromkeys(left, now_ns + VAIN_NS)
        for uid in [uid for uid, sent in self._sent.items() if uid in uids or sent.namespace in self._vain]:
            self.arrived(uid)

    @contextmanager
    def _arrived_everywhere(self) -> Iterator[None]:
        """The book with each pod that is on its way on every node that it may go to."""
        held: list[str] = []
        for uid, sent in self._sent.items():
            for node in sent.nodes:
                choice = self._cluster.allocator.choose(sent.ask, [node])
                if choice is not None:
                    held.append(f"on-way/{node}/{uid}")
                    self._cluster.book.place(replace(choice, pod=held[-1]))
        try:
            yield
        finally:
            for key in held:
                self._cluster.book.release(key)
