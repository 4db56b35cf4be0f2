"""Random groups in a time that passes at once: at no time does one run in part for longer than the stated limit.

A kube-scheduler of these tests' own asks two replicas, which are killed now and then; calls to the API server fail now
and then. Members lack processors, tolerate no taint, name a node that is not there, or are behind a gate.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from contextlib import suppress
from typing import Any

import pytest

from gemini.extender.kinds import DEVICE, NODE, POD
from gemini.kube import names
from gemini.kube.device import write_device
from tests.gemini.extender.virtual import Scheduler, Timed, run
from tests.gemini.extender.world import Object, World, cards, node_object, pod_object

GROUPS = 10  # of a world
WORLDS = int(os.environ.get("GEMINI_GROUPS", "100")) // GROUPS  # 500 were looked at
LIMIT = 30.0  # seconds that a group may run in part (docs/cluster.md)
ENOUGH = 3_600.0  # seconds for all of a world's groups
GIVEN_UP = 60.0  # seconds after which a group that can go nowhere is deleted
CARDS, CPUS = 8, 64
ZONE = names.LEVEL_LABELS["zone"]


class Groups:
    """Those of one world: what they are, and what has become of them."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.random = world, random.Random(seed)
        self.sizes: dict[str, int] = {}
        self.possible: dict[str, bool] = {}
        self.level: dict[str, str] = {}
        self.made: dict[str, float] = {}
        self.done: set[str] = set()
        self.in_part: dict[str, float] = {}  # since when
        self.longest = 0.0

    def nodes(self) -> None:
        for i in range(4):
            name, pick = f"n{i}", self.random
            node = node_object(name)
            node["metadata"]["labels"] = {ZONE: "ab"[i // 2], "name": name}
            node["status"]["allocatable"] |= {"cpu": str(CPUS), "gemini.io/gpu-core": str(100 * CARDS)}
            if i and pick.random() < 0.3:
                node["spec"] = {"taints": [{"key": "team", "effect": "NoSchedule"}]}
            self.world.put(NODE, node)
            self.world.put(DEVICE, write_device(cards(name, CARDS)))

    def make(self, name: str) -> None:
        pick = self.random
        size, level = pick.randint(1, 16), pick.choice(["node", "zone", "zone", "cluster"])
        bad = pick.choice(["", "", "", "", "cpu", "node", "cards", "gate"])
        cpu = pick.choice(["1", "2", "8"])
        nodes = {"node": 1, "zone": 2, "cluster": 4}[level]
        # By the nodes without a taint, of which there is one at least: who tolerates taints may go to all.
        tolerant = pick.random() < 0.5
        nodes = nodes if tolerant else 1
        fits = size <= nodes * min(CARDS, CPUS // int(cpu))
        self.sizes[name], self.level[name] = size, level
        self.made[name] = asyncio.get_running_loop().time()
        # Whether it must come to run; of the others some may all the same, by luck.
        self.possible[name] = fits and bad in ("", "gate")
        for i in range(size):
            said = {"gpu_request": "1", "pod_group": name, "pod_group_size": str(size)}
            said["pod_group_required_topology"] = level
            if bad == "cards" and i == 0:
                said["gpu_count"] = str(CARDS + 1)
            pod = pod_object(f"{name}-{i}", **said)
            asked = str(CPUS + 1) if bad == "cpu" and i == 0 else cpu
            pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": asked}
            if tolerant:
                pod["spec"]["tolerations"] = [{"key": "team"}]
            if bad == "node" and i == 0:
                pod["spec"]["nodeSelector"] = {"name": "nowhere"}
            if bad == "gate" and pick.random() < 0.5:
                pod["spec"]["schedulingGates"] = [{"name": "queue"}]
            self.world.put(POD, pod)

    def pods(self, name: str) -> list[Object]:
        found = (stored for (kind, _), stored in self.world.objects.items() if kind == POD)
        return [pod for pod in found if pod["metadata"]["annotations"]["gemini.io/pod-group"] == name]

    def look(self) -> None:
        now = asyncio.get_running_loop().time()
        for name, size in self.sizes.items():
            if name in self.done:
                continue
            here = self.pods(name)
            bound = [pod["spec"]["nodeName"] for pod in here if pod["spec"].get("nodeName")]
            if 0 < len(bound) < size:
                since = self.in_part.setdefault(name, now)
                self.longest = max(self.longest, now - since)
                assert now - since <= LIMIT, (name, len(bound), size, since)
                continue
            self.in_part.pop(name, None)
            if not self.possible[name] and now - self.made[name] > GIVEN_UP and not bound:
                self.done.add(name)
                asyncio.get_running_loop().create_task(self.end(name))
            elif bound:
                self.together(name, bound)
                self.done.add(name)
                asyncio.get_running_loop().create_task(self.end(name))

    def together(self, name: str, bound: list[str]) -> None:
        node = {"node": lambda n: n, "zone": lambda n: self.zone(n), "cluster": lambda n: ""}[self.level[name]]
        assert len({node(one) for one in bound}) == 1, (name, bound)

    def zone(self, name: str) -> str:
        return str(self.world.objects[NODE, name]["metadata"]["labels"][ZONE])

    async def end(self, name: str) -> None:
        """It runs for a while."""
        await asyncio.sleep(self.random.uniform(1, 20))
        for pod in self.pods(name):
            self.world.delete(POD, pod["metadata"]["uid"])

    async def open_gates(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.5, 5))
            gated = [pod for name in self.sizes for pod in self.pods(name) if pod["spec"].get("schedulingGates")]
            for pod in gated[:4]:
                spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
                self.world.put(POD, {**pod, "spec": spec})


async def live(replica: Timed, pick: random.Random) -> None:
    async def sweep() -> None:
        while True:
            await asyncio.sleep(1)
            await replica.service.sweep()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sweep())
        while True:
            await asyncio.sleep(pick.choice([0.005, 0.05, 0.2, 0.5]))
            replica.watch()


@pytest.mark.parametrize("seed", range(WORLDS))
def test_no_group_runs_in_part_for_longer_than_is_stated(seed: int) -> None:
    world, pick = World(seed), random.Random(seed)
    groups = Groups(world, seed)
    groups.nodes()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        replicas = [Timed(world, name, patience=4.0) for name in ("one", "two")]
        scheduler = Scheduler(world, replicas, seed)
        background: list[asyncio.Task[Any]] = [loop.create_task(live(one, pick)) for one in replicas]
        lives = dict(zip(("one", "two"), background, strict=True))
        background += [loop.create_task(scheduler.run()), loop.create_task(groups.open_gates())]

        async def kill() -> None:
            """A replica goes, with all that it had in mind, and another comes in its place."""
            for turn in range(1_000):
                await asyncio.sleep(pick.uniform(20, 90))
                at = turn % 2
                name = f"{('one', 'two')[at]}"
                lives[name].cancel()
                with suppress(ValueError):
                    world.queues.remove(replicas[at].queue)
                fresh = Timed(world, f"{name}-{turn}", listed=False, patience=4.0)
                await fresh.begin()
                replicas[at] = fresh
                lives[name] = loop.create_task(live(fresh, pick))

        if seed % 2:
            background.append(loop.create_task(kill()))
            world.fault_rate = 0.01
        for i in range(GROUPS):
            groups.make(f"g{i}")
            for _ in range(pick.randint(1, 20)):
                await asyncio.sleep(0.1)
                groups.look()
        while left := groups.sizes.keys() - groups.done:
            assert loop.time() < ENOUGH, {name: (groups.sizes[name], groups.level[name]) for name in sorted(left)}
            await asyncio.sleep(0.25)
            groups.look()
        for task in (*background, *lives.values()):
            task.cancel()

    run(main)
    cards_used: dict[tuple[str, int], int] = defaultdict(int)
    for at, (core, _) in world.promised().items():
        cards_used[at] += core
    assert all(core <= 100 for core in cards_used.values()), cards_used
