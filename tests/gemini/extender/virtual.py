"""An event loop whose time passes at once where nobody has anything to do, and a kube-scheduler for it."""

from __future__ import annotations

import asyncio
import copy
import random
import selectors
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

from gemini.extender.kinds import NODE, POD
from gemini.extender.needs import BILLION, needs_of
from tests.gemini.extender.world import Object, Replica, World

FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 10.0  # kube-scheduler's own, in seconds
HTTP_TIMEOUT = 5.0  # as the chart sets it
IDLE = 0.25
FLUSHED = 300.0  # a pod is tried again after so long whatever happens


class _Selector:
    """A selector that waits for nothing but tells how long it was asked to."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = self._real.select(0)
        if not found and timeout is None:
            raise AssertionError("everybody waits for ever")
        if not found and timeout:
            self.skipped += timeout
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time is how long was waited in it; real work takes none."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._virtual.skipped


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


class Timed(Replica):
    """A replica that lives in the loop's time. `offset`: how much its clock is ahead of another's, in nanoseconds."""

    now_ns = property(  # type: ignore[assignment]
        lambda self: 1_000 + round(asyncio.get_running_loop().time() * 10**9), lambda self, value: None
    )


class Scheduler:
    """As kube-scheduler does: one pod after another is filtered by what it knows itself, then by the extender; a node's
    processors are the pod's until its binding has failed; bindings are aside. Any replica is asked."""

    def __init__(self, world: World, replicas: list[Timed], seed: int) -> None:
        self.world, self.replicas, self.random = world, replicas, random.Random(seed)
        self.assumed: dict[str, str] = {}  # uid -> node
        self.after: dict[str, float] = {}  # uid -> when it is tried next
        self.tries: dict[str, int] = defaultdict(int)
        self.parked: set[str] = set()
        self.news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = 0
        self._asked: dict[str, dict[str, int]] = {}

    def pods(self) -> list[Object]:
        return [stored for (kind, _), stored in self.world.objects.items() if kind == POD]

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self.world.woken != self._woken:
                self._woken = self.world.woken
                self.parked.clear()
            now = loop.time()
            waiting = [
                pod for pod in self.pods()
                if not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates")
                and pod["metadata"]["uid"] not in self.assumed
            ]  # fmt: skip
            for pod in waiting:
                if self.after.get(pod["metadata"]["uid"], 0) + FLUSHED < now:
                    self.parked.discard(pod["metadata"]["uid"])
            ready = [
                pod for pod in waiting
                if pod["metadata"]["uid"] not in self.parked and self.after.get(pod["metadata"]["uid"], 0) <= now
            ]  # fmt: skip
            if ready:
                await self._one(self.random.choice(ready))
            await asyncio.sleep(0.001 if ready else IDLE)

    async def _one(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        nodes = [name for name in self._nodes() if self._may(pod, name)]
        passed: list[str] = []
        if nodes:
            try:
                async with asyncio.timeout(HTTP_TIMEOUT):
                    passed = list((await self._any().filter(copy.deepcopy(pod), *nodes)).passed)
            except TimeoutError:
                passed = []
        else:
            said = {"type": "PodScheduled", "status": "False", "message": "0 nodes are available: Insufficient cpu."}
            current = self.world.objects.get((POD, uid))
            if current is not None and current["status"].get("conditions") != [said]:
                self.world.put(POD, {**current, "status": {"phase": "Pending", "conditions": [said]}})
        if not passed:
            self._back(uid, parked=True)
            return
        node = self.random.choice(passed)
        self.assumed[uid] = node
        task = asyncio.get_running_loop().create_task(self._bind(pod, node))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bind(self, pod: Object, node: str) -> None:
        uid = pod["metadata"]["uid"]
        await asyncio.sleep(self.random.choice([0.0, 0.005, 0.3]))  # its volumes
        try:
            async with asyncio.timeout(HTTP_TIMEOUT):
                error = await self._any().bind(pod, node)
        except TimeoutError:
            error = "timeout"
        stored = self.world.objects.get((POD, uid))
        self.assumed.pop(uid, None)
        if error and stored is not None and not stored["spec"].get("nodeName"):
            self._back(uid, parked=False)

    def _back(self, uid: str, parked: bool) -> None:
        wait = min(FIRST_BACKOFF * 2 ** self.tries[uid], LONGEST_BACKOFF)
        self.tries[uid] += 1
        self.after[uid] = asyncio.get_running_loop().time() + wait
        if parked:
            self.parked.add(uid)

    def _any(self) -> Timed:
        return self.random.choice(self.replicas)

    def _nodes(self) -> list[str]:
        return [key for kind, key in self.world.objects if kind == NODE]

    def _may(self, pod: Object, name: str) -> bool:
        node = self.world.objects[NODE, name]
        spec = pod["spec"]
        labels = node["metadata"].get("labels", {})
        if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
            return False
        if (node.get("spec") or {}).get("taints") and not spec.get("tolerations"):
            return False
        used = [one for one in self.pods() if name in (one["spec"].get("nodeName"), self._where(one))]
        free = {key: int(value) for key, value in node["status"]["allocatable"].items() if value.isdecimal()}
        for one in (*used, pod):
            for key, amount in self._requests(one).items():
                if key in free:
                    free[key] -= amount
        return all(left >= 0 for left in free.values())

    def _where(self, pod: Object) -> str | None:
        return self.assumed.get(pod["metadata"]["uid"])

    def _requests(self, pod: Object) -> dict[str, int]:
        uid = pod["metadata"]["uid"]
        if uid not in self._asked:
            self._asked[uid] = {key: amount // BILLION for key, amount in needs_of(pod).items()}
        return self._asked[uid]
