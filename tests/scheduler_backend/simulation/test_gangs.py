"""Gangs in simulated worlds: nothing deadlocks, nobody starves, and who shares a card with a gang keeps its share."""

from __future__ import annotations

import pytest

from scheduler_backend.core.policy import MS
from scheduler_backend.simulation.programs import SECOND, Program, spec
from scheduler_backend.simulation.watch import Gaps, Timeline, Waits
from scheduler_backend.simulation.world import World


def gang(name: str, request: float, *gpus: int, **more: object) -> Program:
    more.setdefault("collective", True)
    return Program(spec(name, request, gpus=gpus), **more)  # type: ignore[arg-type]


def single(name: str, request: float, gpu: int, **more: object) -> Program:
    return Program(spec(name, request, gpus=(gpu,)), **more)  # type: ignore[arg-type]


MIXES = {
    "two gangs": [gang("a", 0.5, 0, 1), gang("b", 0.5, 0, 1)],
    "beside one on each card": [gang("g", 0.5, 0, 1), single("s", 0.5, 0), single("t", 0.5, 1)],
    "beside one on one card": [gang("g", 0.5, 0, 1), single("s", 0.5, 0)],
    "a ring": [gang("a", 0.4, 0, 1), gang("b", 0.4, 1, 2), gang("c", 0.4, 2, 0), single("s", 0.2, 0)],
    "that come and go": [
        gang("a", 0.4, 0, 1, kind="closed_loop", burst_ns=20 * MS, gap_ns=5 * MS, kernel_ns=MS),
        gang("b", 0.4, 0, 1, kind="closed_loop", burst_ns=3 * MS, gap_ns=MS),
        single("s", 0.2, 0),
        single("t", 0.2, 1, kind="bursty", burst_ns=5 * MS, gap_ns=10 * MS),
    ],
    "four cards, pairs and singles": [
        gang("a", 0.3, 0, 1, 2, 3),
        gang("b", 0.3, 0, 1),
        gang("c", 0.3, 2, 3),
        *(single(f"s{gpu}", 0.4, gpu) for gpu in range(4)),
    ],
    "one that is always there on one card": [gang("a", 0.3, 0, 1), single("s", 0.7, 1, kernel_ns=40 * MS)],
}


@pytest.mark.parametrize("mix", MIXES)
def test_nothing_deadlocks_and_nobody_starves(mix: str) -> None:
    programs = MIXES[mix]
    gaps, waits, timeline = Gaps(), Waits(), Timeline()
    gpus = 1 + max(gpu for program in programs for gpu in program.spec.gpus)
    world = World(programs, gpus=gpus, watchers=[gaps, waits, timeline])
    world.run(6)
    waits.end(world)
    everybody = {(process.name, process.number, gpu) for process in world.processes.values() for gpu in process.lanes}
    assert set(gaps.longest) == everybody, "somebody never ran"
    assert len(everybody) == sum(len(program.spec.gpus) for program in programs), "somebody never came"
    for (name, number, gpu), pause_ns in gaps.pauses(world).items():
        process = world.processes[number]
        if process.program.kind == "bursty":  # it pauses for seconds by itself; not at a gate
            pause_ns = world.now_ns - process.lanes[gpu].wants_ns if process.lanes[gpu].waiting else 0
        assert pause_ns < SECOND, f"{name} did nothing on GPU {gpu} for {pause_ns} ns"
    assert not waits.late, waits.late[0]
    for program in programs:
        if program.kind == "busy" and not program.collective:
            used = timeline.share(program.spec.name, 1, 6, program.spec.gpus[0])
            assert used >= 0.93 * program.spec.request_ppm / 1e6


def test_two_processes_of_two_gangs_with_faults_go_on() -> None:
    gaps = Gaps()
    programs = [gang("a", 0.5, 0, 1), gang("a", 0.5, 0, 1), gang("b", 0.5, 0, 1)]
    world = World(programs, gpus=2, watchers=[gaps])
    for at_s in (1, 2, 3):
        world.at(at_s * SECOND, lambda: world.cut(world.processes[3]))
        world.at(at_s * SECOND + 300 * MS, world.crash, 100 * MS)
    world.at(4 * SECOND, lambda: world.kill(world.processes[1]))
    world.run(7)
    alive = [process for process in world.processes.values() if process.alive]
    assert len(alive) == 2
    for process in alive:
        before = process.lanes[0].done
        world.run(1)
        assert process.lanes[0].done > before + 50, f"{process.name} is stuck"


def test_who_uses_one_card_of_two_leaves_the_other_to_others() -> None:
    timeline = Timeline()
    lone = Program(spec("a", 0.5, gpus=(0, 1)), "busy")
    programs = [lone, single("s", 0.5, 0), single("t", 0.5, 1)]
    world = World(programs, gpus=2, watchers=[timeline])
    world.at(10 * MS, lambda: setattr(world.processes[1].lanes[1], "left_ns", 0))
    for gpu in (0, 1):
        assert timeline.bins[("t", gpu)] == {}
    world.run(6)
    assert timeline.share("a", 2, 6, 0) == pytest.approx(0.5, abs=0.03)
    assert timeline.share("t", 2, 6, 1) >= 0.9
