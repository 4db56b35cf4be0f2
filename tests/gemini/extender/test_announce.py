"""Events: few, and the newest news win."""

from __future__ import annotations

import asyncio
from typing import Any

from gemini.extender.announce import CHANGED_NS, QUEUE, SAME_NS, Announcer
from gemini.extender.podview import PodView
from gemini.extender.state import Cluster
from gemini.kube.answer import Refused
from tests.gemini.extender.world import World, pod_object


def test_same_reason_is_said_once_a_minute_and_a_new_one_soon() -> None:
    world, now = World(), [SAME_NS]
    announcer, pod = Announcer(world, lambda: now[0], 0), Cluster().view(pod_object("p", gpu_request="0.5"))

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
    announcer, cluster = Announcer(deaf, lambda: SAME_NS, 0), Cluster()

    async def run() -> None:
        for i in range(QUEUE + 50):
            announcer.waits(cluster.view(pod_object(f"p{i}", gpu_request="0.5")), "Why", "a")
        task = asyncio.create_task(announcer.run())
        while deaf.calls < QUEUE:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(run())
    assert deaf.calls == QUEUE


def test_of_many_namespaces_with_one_news_each_the_oldest_is_dropped() -> None:
    world, cluster = World(), Cluster()
    announcer = Announcer(world, lambda: SAME_NS, 0)

    async def run() -> None:
        for i in range(QUEUE + 1):
            pod = pod_object(f"p{i}", gpu_request="0.5")
            pod["metadata"]["namespace"] = f"n{i}"
            announcer.waits(cluster.view(pod), "Why", "a")
        task = asyncio.create_task(announcer.run())
        while len(world.said) < QUEUE:
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(run())
    assert [name for name, _, _ in world.said] == [f"p{i}" for i in range(1, QUEUE + 1)]


def test_the_news_of_a_crowd_keep_no_others_waiting_or_out() -> None:
    """Pods of one namespace that came first were told first, however many; and the oldest news of all were dropped."""
    world, cluster = World(), Cluster()
    announcer = Announcer(world, lambda: SAME_NS, 0)

    def view(name: str, namespace: str) -> PodView:
        pod = pod_object(name, gpu_request="0.5")
        pod["metadata"]["namespace"] = namespace
        return cluster.view(pod)

    async def run() -> None:
        announcer.waits(view("other", "elsewhere"), "Why", "a")
        for i in range(2 * QUEUE):
            announcer.waits(view(f"p{i}", "crowd"), "Why", "a")
        announcer.waits(view("late", "elsewhere"), "Why", "a")
        task = asyncio.create_task(announcer.run())
        while len(world.said) < QUEUE:
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(run())
    said = [name for name, _, _ in world.said]
    assert said[0] == "other"
    assert said.index("late") <= 2
    assert said[-1] == f"p{2 * QUEUE - 1}"
    assert len(said) == QUEUE
