"""The daemon of a simulated world, without the world."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS
from scheduler_backend.simulation.daemon import Daemon, Network
from scheduler_backend.simulation.process import Process
from scheduler_backend.simulation.programs import Program, spec

HOP_NS = 100_000


def made(*names: str) -> tuple[Daemon, list[Process], list[tuple[int, int, Any]]]:
    """A daemon with a process of each tenant, and what arrives: when, at whom, and what."""
    daemon = Daemon(1, None, Network(hop_ns=HOP_NS, hop_spread_ns=0), (), 1, 1)
    arrived: list[tuple[int, int, Any]] = []
    daemon.receive = lambda process, _connection, action: arrived.append((daemon.now_ns, process.number, action))
    processes = [Process(number, Program(spec(name, 0.4)), name) for number, name in enumerate(names, start=1)]
    for process in processes:
        process.alive = process.connected = True
        daemon.processes[process.number] = process
        daemon.handle(ev.TenantAdded(process.program.spec))
        daemon.handle(ev.ClientJoined(process.name, process.number, (0,)))
    return daemon, processes, arrived


def test_calls_come_in_the_order_of_their_times_and_then_of_their_planning() -> None:
    daemon, _, _ = made()
    seen: list[tuple[int, str]] = []
    for when_ns, what in ((5, "b"), (3, "a"), (5, "c"), (9, "late")):
        daemon.at(when_ns, lambda what: seen.append((daemon.now_ns, what)), what)
    daemon.run_until(7)
    assert (seen, daemon.now_ns) == ([(3, "a"), (5, "b"), (5, "c")], 7)


def test_a_message_and_its_answer_take_a_hop_each() -> None:
    daemon, (a,), arrived = made("a")
    daemon.send(a, ev.TokenAsked(1, 0))
    daemon.run_until(MS)
    ((at_ns, number, grant),) = arrived
    assert (at_ns, number, type(grant)) == (2 * HOP_NS, 1, ev.Grant)
    assert daemon.pages["a", 0] == grant.epoch
    assert daemon.handovers == 1


def test_the_messages_of_a_process_that_hears_later_take_longer_by_so_much() -> None:
    daemon, (a,), arrived = made("a")
    a.program = replace(a.program, hop_ns=50_000)
    daemon.send(a, ev.TokenAsked(1, 0))
    daemon.run_until(MS)
    assert [at_ns for at_ns, _, _ in arrived] == [2 * (HOP_NS + 50_000)]


def test_what_was_sent_over_a_connection_that_broke_is_lost() -> None:
    daemon, (a,), arrived = made("a")
    daemon.send(a, ev.TokenAsked(1, 0))
    a.connection += 1
    daemon.run_until(MS)
    assert (arrived, daemon.handovers) == ([], 0)


def test_a_hand_over_that_was_prepared_is_carried_out_without_a_message() -> None:
    daemon, (a, b), _ = made("a", "b")
    daemon.send(a, ev.TokenAsked(1, 0))
    daemon.run_until(MS)
    daemon.send(b, ev.TokenAsked(2, 0))
    daemon.run_until(9 * MS)
    epoch = daemon.pages["a", 0]
    daemon.give_back(a, ev.TokenReturned(1, 0, epoch, True))
    daemon.run_until(daemon.now_ns + daemon.network.carry_ns)
    assert daemon.pages["a", 0] == 0
    assert daemon.pages["b", 0] > epoch
    assert daemon.untold("b", 0)
    daemon.run_until(daemon.now_ns + daemon.network.taken_ns)
    assert not daemon.untold("b", 0)


def test_one_that_died_hears_nothing_and_comes_back_with_epochs_above_all_of_before() -> None:
    daemon, (a,), arrived = made("a")
    daemon.send(a, ev.TokenAsked(1, 0))
    daemon.run_until(MS)
    before = daemon.node.epochs.last
    daemon.die()
    daemon.send(a, ev.TokenRenewed(1, 0, before))
    daemon.run_until(2 * MS)
    assert len(arrived) == 1
    daemon.come_back()
    assert daemon.node.epochs.last > before
    assert (daemon.down, daemon.node.tenants) == (False, {})
