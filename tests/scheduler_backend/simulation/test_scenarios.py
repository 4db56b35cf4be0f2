"""Days of many tenants with trouble: every invariant after every event, and the bound on waits where nothing breaks."""

from __future__ import annotations

import random

import pytest

from scheduler_backend.core.policy import MS
from scheduler_backend.core.tenant import WHOLE_PPM, validate
from scheduler_backend.simulation import scenarios
from scheduler_backend.simulation.daemon import Network
from scheduler_backend.simulation.watch import Timeline, Waits
from scheduler_backend.simulation.world import World


def test_the_shares_of_a_day_can_be_promised() -> None:
    for seed in range(20):
        specs = scenarios.shares(64, random.Random(seed))
        assert sum(spec.request_ppm for spec in specs) <= WHOLE_PPM
        for spec in specs:
            validate(spec, 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_short_day_of_many_tenants_keeps_every_wait_within_its_bound(seed: int) -> None:
    waits, timeline = Waits(), Timeline()
    world = World([], watchers=[waits, timeline], network=Network(stall=0.001, stall_ns=300_000), seed=seed)
    scenarios.day(world, 16, 15, seed)
    world.run(15)
    waits.end(world)
    assert waits.waits > 500
    assert not waits.late, waits.late[0]
    assert not waits.past_quotas
    assert len(timeline.bins) > 8


def test_processes_with_long_kernels_do_not_let_each_other_in_while_one_drains() -> None:
    """A day of eight cards in which two of a tenant, at 30 ms a kernel, made one grant of 4.5 ms into 132."""
    waits = Waits()
    world = World([], gpus=8, watchers=[waits], network=Network(stall=0.0005, stall_ns=300_000), seed=103)
    scenarios.day(world, 8, 2.16, 103)
    world.run(2.16)
    waits.end(world)
    assert waits.waits > 2000
    assert not waits.late, waits.late[0]


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_with_freezes_deaths_and_restarts_all_invariants_hold_and_all_who_live_go_on(seed: int) -> None:
    timeline = Timeline(100 * MS)
    world = World([], watchers=[timeline], network=Network(stall=0.01), seed=seed)
    scenarios.day(world, 8, 15, seed)
    scenarios.trouble(world, 0.3, 11, seed)
    world.run(15)
    waiting = [process for process in world.processes.values() if process.alive and process.lanes[0].left_ns > 0]
    for process in waiting:
        if world.specs[process.name].request_ppm:
            first = min(process.lanes[0].wants_ns, world.now_ns)
            assert world.now_ns - first < 2_000 * MS, f"{process.name} waits since {first}"
