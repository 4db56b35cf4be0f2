"""What a tenant owes when it ends: one that is made anew again and again gains nothing, if that is paid first."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS
from scheduler_backend.core.tenant import TenantSpec
from tests.scheduler_backend.core.test_sharing import Program, World

REQUEST, EVERY_MS = 0.05, 100


class Anew:
    """A tenant x beside others, which ends each EVERY_MS and is made anew once its debt is paid."""

    def __init__(self, world: World, late_ms: int, **more: Any) -> None:
        self._world, self._late_ns, self._more = world, late_ms * MS, more
        self._number = 1000
        self._born_ns = self._paid_ns = 0
        self._had = 0.0
        self._program: Program | None = None
        world.attackers.append(self._step)

    @property
    def had_ns(self) -> float:
        return self._had + (self._program.total_ns if self._program is not None else 0.0)

    def _begin(self) -> None:
        world = self._world
        self._number += 1
        self._program = world.programs[self._number] = Program(self._number, "x", REQUEST, 1.0)
        self._program.hostile = True
        self._born_ns = world.now_ns
        world.do(ev.TenantAdded(TenantSpec("x", round(REQUEST * 1e6), **self._more)))
        world.do(ev.ClientJoined("x", self._number, (0,)))
        world.do(ev.TokenAsked(self._number, 0))

    def _step(self) -> None:
        world, program = self._world, self._program
        if program is None:
            if world.now_ns >= self._paid_ns:
                self._begin()
            return
        ends_ns = program.closing_ns or (program.quota_until_ns if program.ends else 1 << 62)
        if program.epoch and world.now_ns >= ends_ns + self._late_ns:
            epoch, program.epoch = program.epoch, 0
            held_ns = world.now_ns - program.granted_ns
            world.do(ev.TokenReturned(self._number, 0, epoch, True, busy_ns=held_ns, launches=1, held_ns=held_ns))
        if world.now_ns >= self._born_ns + EVERY_MS * MS:
            self._paid_ns = world.now_ns + world.machine.charges.debt_ns("x", world.now_ns)
            world.do(ev.TenantRemoved("x"))
            self._had, self._program = self.had_ns, None
            del world.programs[self._number]


@pytest.mark.parametrize("late_ms", [0, 20])
@pytest.mark.parametrize("more", [{}, {"latency": True}, {"limit_ppm": 100_000}], ids=["batch", "latency", "limit"])
def test_who_ends_and_comes_anew_when_it_has_paid_takes_no_promise(late_ms: int, more: dict[str, Any]) -> None:
    world = World(("a", 0.6, 1.0), ("b", 0.3, 1.0))
    anew = Anew(world, late_ms, **more)
    world.go(500)
    before_ns = anew.had_ns
    milliseconds = 6000
    parts = world.go(milliseconds)
    assert (anew.had_ns - before_ns) / (milliseconds * MS) < REQUEST / 0.95 + 0.01
    assert parts["a"] > 0.6 / 0.95 - 0.005
    assert parts["b"] > 0.3 / 0.95 - 0.005


def test_one_that_has_the_card_to_itself_owes_nothing() -> None:
    world = World(("a", 0.1, 1.0), ("b", 0.3, 1.0))
    for program in world.programs.values():
        if program.name == "b":
            program.rests = True
    world.go(3000)
    assert world.machine.charges.debt_ns("a", world.now_ns) < 50 * MS
