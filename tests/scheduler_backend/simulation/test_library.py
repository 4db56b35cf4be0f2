"""What a process makes of what it is told, without a world: its test says it."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS
from scheduler_backend.simulation.daemon import Daemon
from scheduler_backend.simulation.library import Library
from scheduler_backend.simulation.process import Gate, Process
from scheduler_backend.simulation.programs import Program, spec


class Work:
    """Sees how long each process worked."""

    def __init__(self) -> None:
        self.worked_ns: dict[int, int] = {}

    def on_actions(self, world: Any, event: ev.Event, actions: list[ev.Action]) -> None: ...

    def on_work(self, world: Any, process: Process, gpu: int, start_ns: int, end_ns: int) -> None:
        self.worked_ns[process.number] = self.worked_ns.get(process.number, 0) + end_ns - start_ns


def made(*programs: Program) -> tuple[Library, list[Process], Work]:
    """The library of these processes, each of which wants its first burst."""
    work = Work()
    daemon = Daemon(1, None, None, (work,), 1, 1)
    library = Library(1, daemon)
    processes = [Process(number, program, str(number)) for number, program in enumerate(programs, start=1)]
    for process in processes:
        process.alive = process.connected = True
        daemon.processes[process.number] = process
        daemon.handle(ev.TenantAdded(process.program.spec))
        daemon.handle(ev.ClientJoined(process.name, process.number, (0,)))
        library.begin(process)
    return library, processes, work


def granted(library: Library, process: Process, quota_ms: int = 10, contended: bool = True, cap_ns: int = MS) -> None:
    """The page shows its epoch, and its message is here; the daemon hears nothing of it."""
    library.daemon.down = True
    library.daemon.pages[process.name, 0] = 7
    library.receive(process, 0, ev.Grant(process.number, 0, 7, quota_ms * MS, 200 * MS, cap_ns, contended, False))


def test_one_that_wants_to_work_asks_once_and_waits_at_its_gate() -> None:
    library, (a,), work = made(Program(spec("a", 0.5), "closed_loop", 5 * MS, 5 * MS))
    library.want(a, 0, a.lanes[0])
    assert (a.lanes[0].gate, a.lanes[0].waiting, work.worked_ns) == (Gate.ASKED, True, {})
    library.daemon.receive = lambda *_: None
    library.daemon.run_until(MS)
    assert library.daemon.node.machines[0].holder is not None


def test_it_works_while_its_gate_is_open_and_gives_back_at_the_end_of_its_quota() -> None:
    library, (a,), work = made(Program(spec("a", 0.5)))
    granted(library, a, 4)
    assert library.working == [{1: a}]
    library.daemon.run_until(5 * MS)
    assert (a.lanes[0].gate, a.lanes[0].returned, library.working) == (Gate.ASKED, 7, [{}])
    assert work.worked_ns == {1: 4 * MS}


def test_a_grant_that_came_too_late_is_given_back_at_once() -> None:
    library, (a,), work = made(Program(spec("a", 0.5)))
    library.daemon.down = True
    library.daemon.pages["a", 0] = 8
    library.receive(a, 0, ev.Grant(1, 0, 7, 4 * MS, 200 * MS, MS, True, False))
    library.daemon.run_until(MS)
    assert (a.lanes[0].returned, work.worked_ns) == (7, {})


@pytest.mark.parametrize(("cap_ns", "worked_ns"), [(0, 1_200_000), (MS, 1_800_000), (2 * MS, 3 * MS)])
def test_one_that_is_asked_for_the_token_works_on_for_what_its_grant_lets_it_have_in_flight(
    cap_ns: int, worked_ns: int
) -> None:
    library, (a,), work = made(Program(spec("a", 0.5), kernel_ns=300_000))
    granted(library, a, cap_ns=cap_ns)
    library.daemon.run_until(MS)
    library.receive(a, 0, ev.Revoke(1, 0, 7, ev.PREEMPT))
    library.daemon.run_until(4 * MS)
    assert work.worked_ns == {1: worked_ns}


def test_the_first_kernel_under_a_grant_runs_when_the_process_is_warm() -> None:
    library, (a,), work = made(Program(spec("a", 0.5), warm_ns=600_000))
    granted(library, a, 4)
    library.daemon.run_until(5 * MS)
    assert work.worked_ns == {1: 3_400_000}


def test_one_that_is_asked_for_the_token_before_it_is_warm_gives_it_back_without_work() -> None:
    library, (a,), work = made(Program(spec("a", 0.5), warm_ns=600_000))
    granted(library, a)
    library.receive(a, 0, ev.Revoke(1, 0, 7, ev.PREEMPT))
    library.daemon.run_until(MS)
    assert (a.lanes[0].returned, work.worked_ns) == (7, {})


def test_one_that_lies_says_that_it_held_the_token_for_as_long_as_its_program_says() -> None:
    library, (a,), _ = made(Program(spec("a", 0.5), says_held_ns=1))
    said: list[Any] = []
    library.daemon.give_back = lambda _process, event: said.append(event)  # type: ignore[assignment, method-assign]
    granted(library, a, 4)
    library.daemon.run_until(5 * MS)
    assert [(event.busy_ns, event.held_ns) for event in said] == [(4 * MS, 1)]


def test_what_a_frozen_process_is_told_waits() -> None:
    library, (a,), _ = made(Program(spec("a", 0.5)))
    a.frozen = True
    granted(library, a)
    assert (a.lanes[0].gate, len(a.inbox)) == (Gate.ASKED, 1)
