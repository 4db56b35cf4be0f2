"""Who watches notices: what stands still counts up to now, not only once it goes on."""

from __future__ import annotations

from scheduler_backend.simulation.programs import SECOND, Program, spec
from scheduler_backend.simulation.watch import Gaps
from scheduler_backend.simulation.world import World


def test_gangs_that_stand_still_are_noticed_though_they_never_go_on() -> None:
    gaps = Gaps()
    world = World([Program(spec(name, 0.5, gpus=(0, 1)), collective=True) for name in "ab"], gpus=2, watchers=[gaps])
    world.at(2 * SECOND, world.crash, 100 * SECOND)
    world.run(5)
    assert len(gaps.longest) == 4
    assert max(gaps.longest.values()) < SECOND
    assert min(gaps.pauses(world).values()) > 2 * SECOND
    assert gaps.worst_ns(world) > 2 * SECOND


def test_who_never_works_pauses_since_its_start() -> None:
    gaps = Gaps()
    world = World([Program(spec("a", 1.0))], watchers=[gaps])
    world.at(0, world.crash, 100 * SECOND)
    world.run(3)
    assert gaps.longest == {}
    assert gaps.pauses(world) == {("a", 1, 0): 3 * SECOND}
