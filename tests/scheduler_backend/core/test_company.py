"""Several processes beside others, what each is counted for there, and when all have turns instead."""

from __future__ import annotations

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.company import PROCESSES_MOST
from scheduler_backend.core.policy import MS
from scheduler_backend.core.seat import Standing, State
from tests.scheduler_backend.core.test_sharing import Program, World


def with_processes(count: int, name: str, request: float, duty: float, *others: tuple[str, float, float]) -> World:
    """A tenant whose processes together have this duty, and others."""
    world = World((name, request, duty / count), *others)
    for number in range(len(world.programs) + 1, len(world.programs) + count):
        world.programs[number] = Program(number, name, request, duty / count)
        world.do(ev.ClientJoined(name, number, (0,)))
        world.do(ev.TokenAsked(number, 0))
    return world


def test_the_duty_of_several_processes_is_that_of_all_of_them_together():
    world = with_processes(4, "several", 0.5, 0.6, ("a", 0.2, 0.5), ("b", 0.2, 0.5))
    world.go(4000)
    assert world.machine.seats["several"].duty.host_bound
    assert world.machine.seats["several"].duty.ppm == pytest.approx(600_000, rel=0.05)


def test_a_busy_one_beside_many_that_are_not_gets_its_promise():
    world = World(("busy", 0.5, 1.0), *[(f"host{number}", 0.1, 0.5) for number in range(5)])
    world.go(2000)
    assert world.go(5000)["busy"] > 0.49


def test_what_is_said_to_be_used_in_turns_counts_for_no_more_than_the_turns():
    world = World(("busy", 0.35, 1.0), ("liar", 0.05, 1.0), *[(f"host{number}", 0.12, 0.5) for number in range(5)])
    world.go(4000)
    said = 0
    before_ns = world.programs[1].total_ns
    until_ns = world.now_ns + 4000 * MS
    while world.now_ns < until_ns:
        world.go(0.5)
        liar = world.programs[2]
        if liar.epoch and liar.shared:
            said += 1000 * MS
            world.do(ev.Used(liar.number, 0, liar.epoch, said))
    assert (world.programs[1].total_ns - before_ns) / (4000 * MS) > 0.28  # what its turns took is lost, an eighth


def test_who_is_promised_nothing_has_the_pauses_of_a_server_that_is_alone_but_for_it():
    world = World(("server", 1.0, 0.4), ("filler", 0.0, 1.0))
    world.go(500)
    server, filler = world.programs.values()
    before_ns = filler.total_ns
    for _ in range(100):  # works for 2 ms of 20, and gives back what it does not use
        server.rests = False
        if not server.epoch:
            world.do(ev.TokenAsked(server.number, 0))
        world.go(2)
        server.rests = True
        world.go(0.5)
        if server.epoch and not server.shared:
            world._back(server)
        world.go(17.5)
    assert (filler.total_ns - before_ns) / (2000 * MS) > 0.8


def test_who_says_nothing_beside_others_is_not_taken_to_rest():
    world = World(("old", 0.5, 0.45), ("busy", 0.5, 1.0))
    world._say = lambda program: None if program.name == "old" else World._say(world, program)  # type: ignore[method-assign]
    world.programs[1].slowed = 0.05
    world.go(1000)
    parts = world.go(4000)
    assert parts["old"] > 0.97 * 0.45 / 2
    assert parts["busy"] > 0.48


def test_who_strayed_and_wants_more_joins_what_its_tenant_has_beside_others():
    world = World(("a", 0.5, 0.45), ("b", 0.5, 0.45))
    late = world.programs[3] = Program(3, "a", 0.5, 0.1)
    world.do(ev.ClientJoined("a", 3, (0,)))
    world.do(ev.TokenAsked(3, 0))
    world.until({"a": State.SHARED, "b": State.SHARED})
    epoch, late.epoch = late.epoch, 0
    assert epoch
    until_ns = world.now_ns + 300 * MS
    while world.machine.seats["a"].members[3].standing is not Standing.STRAY:
        world.go(0.5)
        assert world.now_ns < until_ns
    world.until({"a": State.SHARED})
    world.do(ev.TokenReturned(3, 0, epoch, want_more=True))
    assert late.epoch == world.machine.seats["a"].shared_epoch


def test_beside_a_tenant_of_many_processes_all_have_turns():
    world = with_processes(PROCESSES_MOST + 1, "many", 0.5, 0.5, ("a", 0.5, 0.45))
    world.go(1000)
    assert not world.machine.beside.sharing
    world.do(ev.ClientDied(1))
    del world.programs[1]
    world.until({"a": State.SHARED, "many": State.SHARED})


def test_one_that_leaves_and_does_not_drain_has_its_siblings_let_in():
    world = with_processes(2, "two", 0.5, 0.5, ("a", 0.5, 0.45))
    world.until({"a": State.SHARED, "two": State.SHARED})
    first, second = (program for program in world.programs.values() if program.name == "two")
    epoch = first.epoch
    world.add("new", 0.0, 1.0, limit=0.5)
    assert world.state("two") is State.LEAVING
    second.epoch = 0
    world.do(ev.TokenReturned(second.number, 0, epoch, want_more=True))
    world.do(ev.TokenRenewed(first.number, 0, epoch, draining=True, foreseen=True))
    assert second.epoch == 0
    world.do(ev.TokenRenewed(first.number, 0, epoch, draining=True))
    assert second.epoch == epoch
    assert second.ends
    assert second.quota_until_ns - world.now_ns == world.machine.policy.valve_ns


def test_what_was_used_in_a_turn_that_was_handed_on_without_asking_counts_with_its_return():
    world = World(("x", 0.3, 1.0), ("y", 0.3, 1.0), ("host", 0.4, 0.5))
    machine = world.machine
    until_ns = world.now_ns + 3000 * MS
    while True:
        world.go(0.5)
        assert world.now_ns < until_ns
        holder, order = machine.holder, machine.prepared
        if holder is None or order is None or not machine.beside.sharing or world.now_ns < order.wanting_from_ns:
            continue
        program = next(program for program in world.programs.values() if program.name == holder.name)
        if (
            holder.alone_epoch == 0
            and machine.promises.busy_ahead_ns < 0
            and holder.members[program.number].base_ns >= 0
        ):
            break
    epoch, program.epoch = program.epoch, 0
    world.do(ev.Carried(0, epoch, order.epoch, followed=True))
    before_ns = machine.promises.busy_ahead_ns
    world.do(ev.TokenReturned(program.number, 0, epoch, True, busy_ns=MS, launches=1, held_ns=8 * MS))
    assert machine.promises.busy_ahead_ns == before_ns + MS
