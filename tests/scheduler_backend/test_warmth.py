"""The rehearsal runs while a hand-over is due, and concerns nobody."""

import asyncio
import time

import uvloop
import zmq

from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.warmth import Warmth


def test_it_rehearses_around_the_time_and_stops():
    async def run() -> tuple[int, bool]:
        context = zmq.Context()
        warmth = Warmth(asyncio.get_running_loop(), context, Policy())
        before = warmth._node.epochs.last
        rehearsed = 0
        for _ in range(50):  # a machine that stalls may miss one
            warmth.expect(time.monotonic_ns() + 2 * MS)
            await asyncio.sleep(0.02)
            if rehearsed := warmth._node.epochs.last - before:
                break
        await asyncio.sleep(0.02)
        turning = warmth._turning
        warmth.expect(0)
        warmth.close()
        context.term()
        return rehearsed, turning

    rehearsed, turning = uvloop.run(run())
    assert rehearsed >= 1
    assert not turning
