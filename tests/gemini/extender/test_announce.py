"""Events: few, and the newest news win."""

from __future__ import annotations

import asyncio
from typing import Any

from gemini.extender.announce import CHANGED_NS, QUEUE, SAME_NS, Announcer
from gemini.extender.state import Cluster
from gemini.kube.client import Refused
from tests.gemini.extender.world import World, pod_object


def test_same_reason_is_said_once_a_minute_and_a_new_one_soon() -> None:
    world, now = World(), [SAME_NS]
    announcer, pod = Announcer(world, lambda: now[0]), Cluster().view(pod_object("p", gpu_request="0.5"))

    async def run() -> None:
        task = asyncio.create_task(announcer.run())
        for step, message in ((0, "a"), (CHANGED_NS, "a"), (0, "b"), (0, "c"), (SAME_NS, "b")):
            now[0] += step
            announcer.waits(pod, "Why", message)
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(run())
    assert [(count, message) for _, count, message in world.said] == [(1, "a"), (2, "b"), (3, "b")]


def test_queue_is_bounded_and_a_refused_event_ends_nothing() -> None:
    class Deaf(World):
        calls = 0

        async def event(self, *args: Any) -> None:
            self.calls += 1
            raise Refused(403, "no events for you")

    deaf = Deaf()
    announcer, cluster = Announcer(deaf, lambda: SAME_NS), Cluster()

    async def run() -> None:
        for i in range(QUEUE + 50):
            announcer.waits(cluster.view(pod_object(f"p{i}", gpu_request="0.5")), "Why", "a")
        task = asyncio.create_task(announcer.run())
        while deaf.calls < QUEUE:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(run())
    assert deaf.calls == QUEUE
