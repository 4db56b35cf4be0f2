"""Simulated worlds: nobody waits without bound, nobody works in another's turn, whatever comes, goes or breaks."""

from __future__ import annotations

import numpy as np
import pytest

from gemini.shares import window_errors
from gemini.units import entitled
from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.simulation.daemon import Network
from scheduler_backend.simulation.programs import SECOND, Program, spec
from scheduler_backend.simulation.watch import Timeline, Waits
from scheduler_backend.simulation.world import World


def busy(name: str, request: float, limit: float = 1.0, **more: object) -> Program:
    return Program(spec(name, request, limit), **more)  # type: ignore[arg-type]


def loop(name: str, request: float, burst_ms: float, gap_ms: float, *, latency: bool = False) -> Program:
    return Program(spec(name, request, latency=latency), "closed_loop", int(burst_ms * MS), int(gap_ms * MS), 100_000)


MIXES = {
    "a small one beside three large ones": [busy("a", 0.02), *(busy(f"t{i}", 0.32) for i in range(3))],
    "one large and 31 small ones": [busy("a", 0.5), *(busy(f"t{i}", 0.016) for i in range(31))],
    "limits": [busy("a", 0.5, 0.6), busy("b", 0.3), busy("c", 0.2, 0.2)],
    "all kinds": [
        loop("a", 0.2, 1, 1),
        Program(spec("b", 0.2), "bursty", 20 * MS, 20 * MS),
        busy("c", 0.1, kernel_ns=100 * MS),
        busy("d", 0.01),
        busy("e", 0.0),
        busy("f", 0.1, 0.1),
        Program(spec("g", 0.05), "idle"),
        loop("h", 0.2, 50, 2),
    ],
    "latency tenants beside batch": [
        loop("a", 0.2, 6, 10, latency=True),
        Program(spec("l", 0.2, latency=True), "bursty", 6 * MS, 10 * MS),
        busy("b", 0.3),
        busy("c", 0.1),
        busy("d", 0.02),
    ],
    "a greedy latency tenant": [Program(spec("l", 0.3, latency=True)), busy("b", 0.3), busy("c", 0.05)],
}


@pytest.mark.parametrize("prepared", [True, False], ids=["prepared", "by messages"])
@pytest.mark.parametrize("mix", MIXES)
def test_nobody_with_a_request_and_headroom_waits_longer_than_its_bound(mix: str, prepared: bool) -> None:
    programs = MIXES[mix]
    waits = Waits()
    world = World(programs, network=Network(prepared=prepared), watchers=[waits])
    world.run(4)
    waits.end(world)
    assert waits.waits > 100
    assert not waits.late, waits.late[0]
    assert not waits.past_quotas


def test_without_the_bound_a_small_tenant_waits_longer_than_that() -> None:
    programs = MIXES["a small one beside three large ones"]
    waits = Waits()
    World(programs, policy=Policy(ordering="finish"), watchers=[waits]).run(4)
    assert waits.late


def test_what_really_runs_is_what_was_promised() -> None:
    programs = [busy("a", 0.5, 0.6), busy("b", 0.3), busy("c", 0.2, 0.2)]
    timeline = Timeline()
    World(programs, watchers=[timeline]).run(11)
    shares = [timeline.share(name, 1, 11) for name in "abc"]
    assert [share / sum(shares) for share in shares] == pytest.approx([0.5, 0.3, 0.2], abs=0.001)
    assert sum(shares) >= 0.985


HALF_SECONDS = {
    # a bucket that may save half a quota of a wait lets a tenant run so much past its limit later: 2.1 pp
    "limits": ([("a", 0.3, 0.4), ("b", 0.3, 1.0), ("c", 0.1, 0.1)], 1.5),
    # where who owns little has turns nearly as long as who owns much, they fall together: 2.0 pp
    "unequal": ([("a", 0.4, 1.0), ("b", 0.3, 1.0), ("c", 0.2, 1.0), ("d", 0.1, 1.0)], 1.6),
    # with whole turns of nine tenths of a quota: 1.55 pp
    "nearly equal": ([("a", 0.35, 1.0), ("b", 0.3, 1.0), ("c", 0.2, 1.0), ("d", 0.15, 1.0)], 1.3),
}


@pytest.mark.parametrize("case", HALF_SECONDS)
def test_limits_and_shares_are_kept_in_every_half_second_on_a_machine_that_stalls(case: str) -> None:
    tenants, most_pp = HALF_SECONDS[case]
    timeline = Timeline(10 * MS)
    programs = [busy(*tenant) for tenant in tenants]
    World(programs, watchers=[timeline], check_every=0, network=Network(stall=0.01, stall_ns=5 * MS)).run(22)
    took = np.array([[timeline.bins[name, 0].get(index, 0) for index in range(200, 2200)] for name, *_ in tenants])
    busy_ns = np.cumsum(took, axis=1).T
    owed = np.array(entitled([(request, limit) for _, request, limit in tenants]))
    off = window_errors(np.arange(2000) * 10 * MS, busy_ns, owed, SECOND // 2)
    assert off.max() < most_pp / 100


def test_many_equals_whose_kernels_outlast_their_turns_err_less_where_they_come_by_arrival() -> None:
    """What alike_ns is for (docs/decisions/mechanisms.md): with 8 of them, or short kernels, nothing differs."""
    found = []
    for policy in (Policy(), Policy(alike_ns=0)):
        timeline = Timeline(20 * MS)
        names = [f"t{number}" for number in range(32)]
        programs = [busy(name, 1 / 32, kernel_ns=2 * MS) for name in names]
        World(programs, policy=policy, watchers=[timeline], check_every=0).run(6)
        found.append(float(np.percentile(timeline.errors_pp(dict.fromkeys(names, 1 / 32), 1, 6), 99)))
    by_arrival, by_finish = found
    assert by_arrival < 0.9 * by_finish


def test_tenants_that_rest_at_their_limits_do_not_cut_each_others_grants_to_pieces() -> None:
    """A hand-over costs the card time, and a tenant of short grants pays for more of them than its part."""
    programs = [busy("a", 0.3, 0.4), busy("b", 0.2), busy("c", 0.1, 0.1)]
    timeline = Timeline()
    world = World(programs, watchers=[timeline], check_every=0)
    world.run(12)
    assert world.daemon.handovers < 12 * 150
    taken = {program.spec.name: timeline.share(program.spec.name, 2, 12) for program in programs}
    used = sum(taken.values())
    assert used > 0.988
    assert taken == pytest.approx({"a": 0.4 * used, "b": 0.5 * used, "c": 0.1 * used}, abs=0.001)


def test_work_never_overlaps_unless_the_daemon_gave_the_holder_up() -> None:
    world = World([busy("a", 0.5), busy("b", 0.5)])
    world.run(1)
    frozen = next(process for process in world.processes.values() if process.lanes[0].running_since_ns >= 0)
    world.freeze(frozen, 2 * SECOND)
    world.run(1.5)
    assert (frozen.number, 0) in world.daemon.given_up  # its lease ran out, the other went on
    other = next(process for process in world.processes.values() if process is not frozen)
    assert other.lanes[0].returned == 0 or other.lanes[0].epoch > frozen.lanes[0].epoch
    world.run(1)
    assert (frozen.number, 0) not in world.daemon.given_up  # it is back, by a grant


def test_a_message_of_before_is_lost_with_its_connection_and_nobody_with_it() -> None:
    timeline = Timeline(100 * MS)
    world = World([busy("a", 0.5), busy("b", 0.5)], watchers=[timeline])
    for at_ms in range(500, 2500, 37):
        world.at(at_ms * MS, lambda: world.cut(world.processes[1]))
    world.run(5)
    assert timeline.share("a", 3, 5) == pytest.approx(0.5, abs=0.02)


def test_a_daemon_that_dies_and_returns_goes_on_with_all_who_live() -> None:
    timeline = Timeline(100 * MS)
    world = World([busy("a", 0.7), busy("b", 0.3)], watchers=[timeline])
    for at_s in (1, 2, 4):
        world.at(at_s * SECOND, world.crash, 300 * MS)
    world.run(8)
    assert timeline.share("a", 6, 8) == pytest.approx(0.7, abs=0.02)
    assert timeline.share("b", 6, 8) == pytest.approx(0.3, abs=0.02)


def test_the_same_seed_is_the_same_run() -> None:
    def run() -> list[object]:
        seen: list[object] = []

        class Record:
            def on_work(self, *_: object) -> None: ...

            def on_actions(self, world: World, event: ev.Event, actions: list[ev.Action]) -> None:
                seen.append((world.now_ns, event, actions))

        World(MIXES["all kinds"], watchers=[Record()], network=Network(stall=0.01), seed=7).run(2)
        return seen

    first = run()
    assert len(first) > 100
    assert first == run()


def test_a_process_that_comes_back_joins_the_grant_that_its_sibling_still_holds() -> None:
    lost: list[ev.Action] = []

    class Leases:
        def on_work(self, *_: object) -> None: ...

        def on_actions(self, world: World, event: ev.Event, actions: list[ev.Action]) -> None:
            lost.extend(action for action in actions if isinstance(action, ev.LeaseLost))

    promise = spec("a", 0.19, 0.19)
    programs = [
        Program(promise, "closed_loop", 2_600_000, 1_780_000),
        Program(promise, "closed_loop", 11 * MS, 860_000),
    ]
    world = World(programs, watchers=[Leases()])
    world.run(3)
    assert not lost
    assert min(process.bursts for process in world.processes.values()) > 25
