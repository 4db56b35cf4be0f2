"""Who watches notices: what stands still counts up to now, not only once it goes on."""

from __future__ import annotations

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS
from scheduler_backend.simulation.daemon import Network
from scheduler_backend.simulation.process import Process
from scheduler_backend.simulation.programs import SECOND, Program, spec
from scheduler_backend.simulation.watch import Gaps, GrantWaits, Timeline, Waits
from scheduler_backend.simulation.world import World


def worked(*pieces: tuple[str, int, int]) -> Timeline:
    """A timeline in bins of 10 ms: who worked, from when to when (ms)."""
    timeline = Timeline(10 * MS)
    world = World([])
    for name, start_ms, end_ms in pieces:
        timeline.on_work(world, Process(1, Program(spec(name, 0.5)), name), 0, start_ms * MS, end_ms * MS)
    return timeline


def test_shares_over_a_window_that_slides_come_from_each_bin_on() -> None:
    timeline = worked(("a", 0, 15), ("a", 25, 40))
    assert timeline.share("a", 0.01, 0.04) == pytest.approx(2 / 3)
    assert timeline.sliding("a", 0, 0.04, 0.02) == pytest.approx([0.75, 0.5, 0.75])
    assert timeline.sliding("a", 0.01, 0.04, 0.03) == pytest.approx([2 / 3])
    assert timeline.sliding("b", 0, 0.03, 0.02) == [0, 0]
    assert timeline.sliding("a", 0.29, 0.31, 0.01) == [0, 0]  # 0.29 s are just below a bin's edge as a float


def test_errors_are_points_that_shares_miss_of_what_is_owed() -> None:
    timeline = worked(("a", 0, 70), ("b", 70, 100))
    assert timeline.errors_pp({"a": 0.5, "b": 0.5}, 0, 0.1, 0.1) == pytest.approx([20, 20])
    assert timeline.errors_pp({"a": 0.7, "b": 0.3}, 0, 0.1, 0.1) == pytest.approx([0, 0])
    assert timeline.errors_pp({"a": 0.4, "b": 0.2}, 0, 0.1, 0.1) == pytest.approx([10, 30])


def test_where_tenants_got_less_than_they_are_owed_each_is_owed_its_part_of_it() -> None:
    timeline = worked(("a", 0, 40), ("b", 40, 80))
    assert timeline.errors_pp({"a": 0.5, "b": 0.5}, 0, 0.1, 0.1) == pytest.approx([0, 0])
    assert timeline.errors_pp({"a": 0.75, "b": 0.25}, 0, 0.1, 0.1) == pytest.approx([20, 20])


def test_a_wish_waits_until_its_grant_is_there() -> None:
    waits = GrantWaits()
    network = Network(hop_ns=100_000, hop_spread_ns=0)
    World([Program(spec("a", 0.5), "closed_loop", 5 * MS, 200 * MS)], network=network, watchers=[waits]).run(1)
    assert waits.waits_ns["a"] == [200_000] * 5


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


def test_who_is_never_handed_the_token_is_late_at_the_end() -> None:
    waits = Waits()
    world = World([Program(spec("a", 0.5)), Program(spec("b", 0.5))], watchers=[waits])
    world.run(1)
    world.daemon._give = lambda *_: None  # type: ignore[method-assign]  # the daemon hears nothing any more
    world.run(1)
    assert waits.waits > 100
    assert not waits.late
    waits.end(world)
    assert any("waits still" in case for case in waits.late)


def test_who_waits_without_the_daemons_knowing_is_late_at_the_end() -> None:
    waits = Waits()
    programs = [Program(spec(name, 0.5), "closed_loop", 5 * MS, 5 * MS) for name in "ab"]
    world = World(programs, watchers=[waits])
    deliver = world.daemon._deliver

    def lose(process: object, connection: int, event: ev.Event) -> None:
        if not (isinstance(event, ev.TokenAsked) and event.client == 2 and world.now_ns > SECOND):
            deliver(process, connection, event)  # type: ignore[arg-type]

    world.daemon._deliver = lose  # type: ignore[method-assign]
    world.run(3)
    waits.end(world)
    assert len(waits.late) == 1
    assert "b waits at GPU 0" in waits.late[0]


def test_a_world_at_its_end_has_nobody_late_whoever_waits_then() -> None:
    for now_ms in range(1000, 1040):
        waits = Waits()
        world = World(
            [Program(spec("a", 0.5)), Program(spec("b", 0.3)), Program(spec("c", 0.2, 0.2))], watchers=[waits]
        )
        world.run(now_ms / 1000)
        before = waits.waits
        waits.end(world)
        assert waits.waits > before
        assert not waits.late, waits.late[0]


def test_a_kernel_longer_than_a_quota_is_waited_for_and_counted() -> None:
    """Three come at once with kernels of 100 ms: whatever the order, the last waits for two of them."""
    waits = Waits()
    programs = [Program(spec(name, 0.3), kernel_ns=100 * MS) for name in "abc"]
    World(programs, watchers=[waits]).run(3)
    assert waits.past_quotas
    assert not waits.late, waits.late[0]
    short = Waits()
    World([Program(spec(name, 0.3), kernel_ns=MS) for name in "abc"], watchers=[short]).run(3)
    assert short.waits > 100
    assert not short.past_quotas
