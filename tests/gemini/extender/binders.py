"""Random operations by several replicas and binders at once, on an API server that loses answers and lags.

`run` is what the test and `python -m bench.replicas` share. Each binder, again and again, makes a pod (or a group of
three) and binds it through whichever replica, or deletes a pod. Or it lets a replica see some of what it missed, puts a
new one in its place, or lets time pass. After every operation the records of all bound pods are added up by the world's
own code: no card may be promised beyond what it has. In the end nothing is left reserved, and each replica's book is
that of one that was just started.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from gemini.extender.kinds import POD
from gemini.extender.reserve import BIND_NS
from tests.gemini.extender.world import GIB, Replica, World, pod_object

Object = dict[str, Any]
NODES = ("n1", "n2")
CARDS = 2
CARD_BYTES = 16 * GIB
ALIVE = 14  # pods; more would leave no room to fight for
FAULTS = 0.02  # of all calls of the API server get no answer, done or not


@dataclass
class Outcome:
    operations: int = 0
    bound: int = 0
    refused: int = 0
    groups_tried: int = 0
    restarts: int = 0
    peak_core: int = 0  # the most that was promised of a card at any time, percent
    peak_memory: int = 0  # bytes
    left_reserved: list[int] = field(default_factory=list)
    alike: bool = False  # each replica's book in the end is a fresh one's

    @property
    def sound(self) -> bool:
        within = self.peak_core <= 100 and self.peak_memory <= CARD_BYTES
        return within and not any(self.left_reserved) and self.alike


class _Crowd:
    def __init__(self, seed: int, operations: int, replicas: int, alone: bool) -> None:
        self.made = World(seed)
        self.made.nodes(*NODES, count=CARDS)
        self.made.fault_rate = FAULTS
        self.replicas = [self.replica(f"r{i}", alone) for i in range(replicas)]
        self.alone = alone
        self.chance = random.Random(seed)
        self.operations = operations
        self.alive: list[str] = []
        self.outcome = Outcome()

    def replica(self, name: str, alone: bool, listed: bool = True) -> Replica:
        return Replica(self.made, name, alone, policies=("binpack",), shortlist=1, listed=listed, patience=0.05)

    async def restart(self, number: int) -> None:
        """A new replica begins; what the old one began is brought to its end, or comes to nothing, meanwhile."""
        fresh, at = self.replica(f"new{number}", self.alone, listed=False), self.chance.randrange(len(self.replicas))
        fresh.now_ns = max(one.now_ns for one in self.replicas)
        await fresh.begin()
        old, self.replicas[at] = self.replicas[at], fresh
        self.made.queues[:] = [queue for queue in self.made.queues if queue is not old.queue]
        self.outcome.restarts += 1

    def check(self) -> None:
        for core, memory in self.made.promised().values():
            self.outcome.peak_core = max(self.outcome.peak_core, core)
            self.outcome.peak_memory = max(self.outcome.peak_memory, memory)

    async def binder(self) -> None:
        while self.outcome.operations < self.operations:
            self.outcome.operations += 1
            number, what = self.outcome.operations, self.chance.random()
            replica = self.chance.choice(self.replicas)
            if what < 0.15 and self.alive:
                self.made.delete(POD, self.alive.pop(self.chance.randrange(len(self.alive))))
            elif what < 0.4:
                replica.watch(self.chance.randrange(24))
            elif what < 0.43:
                for one in self.replicas:
                    one.now_ns += BIND_NS // 10
                await replica.service.sweep()
            elif what < 0.45:
                await self.group(number)
            elif what < 0.46:
                await self.restart(number)
            else:
                await self.single(number)
            self.check()
            while len(self.alive) > ALIVE:
                self.made.delete(POD, self.alive.pop(0))

    def create(self, name: str, **annotations: Any) -> Object:
        pod = self.made.put(POD, pod_object(name, **annotations))
        self.alive.append(f"uid-{name}")
        return pod

    async def single(self, number: int) -> None:
        pod = self.create(f"p{number}", gpu_request=self.chance.choice(["0.2", "0.3", "0.5", "1.0"]))
        for _ in range(2):
            node = self.chance.choice(NODES)
            if self.chance.random() < 0.5:
                node = next(iter((await self.chance.choice(self.replicas).filter(pod, *NODES)).passed), node)
            if await self.bind(pod, node):
                break

    async def group(self, number: int) -> None:
        said: Object = {"gpu_request": "0.4", "pod_group": f"g{number}", "pod_group_size": "3"}
        pods = [self.create(f"g{number}-{i}", **said) for i in range(3)]
        for replica in self.replicas:
            replica.watch()
        self.outcome.groups_tried += 1
        verdicts = [await self.chance.choice(self.replicas).filter(pod, *NODES) for pod in pods]
        passed = [(pod, said.passed[0]) for pod, said in zip(pods, verdicts, strict=True) if said.passed]
        await asyncio.gather(*(self.bind(pod, node) for pod, node in passed))

    async def bind(self, pod: Object, node: str) -> bool:
        done = await self.chance.choice(self.replicas).bind(pod, node) == ""
        self.outcome.bound += done
        self.outcome.refused += not done
        return done

    async def run(self, binders: int) -> None:
        await asyncio.gather(*(self.binder() for _ in range(binders)))
        self.made.fault_rate = 0
        await asyncio.sleep(0.01)
        for replica in self.replicas:
            replica.watch()
            replica.now_ns += 3 * BIND_NS
            await replica.service.sweep()
            replica.cluster.book.check()


def run(seed: int, operations: int, binders: int = 8, replicas: int = 2, alone: bool = False) -> Outcome:
    """`alone`: the replicas do not tell each other what they promise, as each may that knows of no other."""
    crowd = _Crowd(seed, operations, replicas, alone)
    asyncio.run(crowd.run(binders))
    crowd.check()
    outcome = crowd.outcome
    outcome.left_reserved = [len(replica.cluster.reservations) for replica in crowd.replicas]
    fresh = Replica(crowd.made).cluster.picture()["holdings"]
    outcome.alike = all(replica.cluster.picture()["holdings"] == fresh for replica in crowd.replicas)
    return outcome
