"""The timer fires once, at the time last set, finer than a millisecond."""

import asyncio
import time

import uvloop

from scheduler_backend.timer import Timer


def test_it_fires_at_the_time_last_set_and_not_when_disarmed():
    async def run() -> list[int]:
        fired: list[int] = []
        done = asyncio.Event()

        def on_time() -> None:
            fired.append(time.monotonic_ns())
            done.set()

        timer = Timer(asyncio.get_running_loop(), on_time)
        due_ns = time.monotonic_ns() + 5_300_000
        timer.set(due_ns - 4_000_000)
        timer.set(due_ns)
        await asyncio.wait_for(done.wait(), 60)
        timer.set(time.monotonic_ns() + 1_000_000)
        timer.set(0)
        await asyncio.sleep(0.01)
        timer.close()
        return [at_ns - due_ns for at_ns in fired]

    (late_ns,) = uvloop.run(run())
    assert late_ns >= 0


def test_a_time_that_has_passed_fires_at_once():
    async def run() -> None:
        done = asyncio.Event()
        timer = Timer(asyncio.get_running_loop(), done.set)
        timer.set(1)
        await asyncio.wait_for(done.wait(), 60)
        timer.close()

    uvloop.run(run())
