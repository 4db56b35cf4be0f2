"""Random attackers in virtual time: tenants of small requests that hold, lie, drain late, go and come again as chance
has it, beside honest ones. Whose promise falls short?

    python -m tests.scheduler_backend.core.attackers [--from SEED] [--count 60] [--ms 20000]

prints whom a seed's attackers took most from. A seed always plays the same. What one takes at first it pays back, so
over a few seconds a promise may fall short by what is owed to it.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from typing import NamedTuple

from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS
from tests.scheduler_backend.core.test_sharing import Program, World

REQUEST = 0.05  # of each attacker
SETTLE_MS = 500
BIG = (1 << 64) - 1
HONEST = (  # name, request, duty
    [("a", 0.6, 1.0), ("b", 0.3, 1.0)],
    [("a", 0.9, 1.0)],
    [("a", 0.5, 0.5), ("b", 0.4, 1.0)],
    [("a", 0.45, 0.6), ("b", 0.45, 0.5)],
    [("a", 0.3, 1.0), ("b", 0.3, 0.4), ("c", 0.3, 1.0)],
)


@dataclass(frozen=True)
class Habits:
    """Of one attacker. What it says of a figure is the true one times this, or BIG; others are chances of a step."""

    asks: float
    holds_ms: float
    wants_more: float
    was_idle: float
    says_busy: float
    late_ms: int  # with giving back
    says_it_drains: float
    says_it_was_foreseen: float
    burst_ns: int
    gap_ns: int
    says_used: float
    says_waited: float
    works: bool
    talks: float
    unconfirmed: float
    says_held: float
    every_ms: int  # it is there for so long, and away for so long; 0: always there

    @classmethod
    def of_chance(cls, chance: random.Random) -> Habits:
        pick = chance.choice
        asks, holds, more = pick((0.02, 0.2, 1.0)), pick((0, 0, 0.5, 1, 3, 10, 1e9)), pick((0, 0.5, 1))
        idle, busy, late = pick((0, 0.5, 1)), pick((0, 0.1, 1, 1, 3, BIG)), pick((0, 0, 0, 5, 30, 120, 400))
        drains, foreseen, burst = pick((0, 0.5, 1)), pick((0, 0.5, 1)), pick((0, 1000, 1, BIG))
        gap, used, waited = pick((0, 1000, BIG)), pick((0, 0.3, 1, 3, BIG)), pick((0, 0.5, 1, BIG))
        works, talks, unconfirmed = pick((True, True, False)), pick((0, 0.05, 0.5)), pick((0, 0, 1))
        pick((0, 0, 30, 200))  # nothing: the seeds that were found stay what they are
        held, every = pick((0, 1, 0.1, BIG)), pick((0, 0, 100, 500))
        return cls(asks, holds, more, idle, busy, late, drains, foreseen, burst, gap, used, waited, works, talks,
                   unconfirmed, held, every)  # fmt: skip


class Attacker:
    """A tenant, and what its processes do in each step."""

    def __init__(self, world: World, name: str, chance: random.Random) -> None:
        self._world, self._chance = world, chance
        latency, limit, processes = chance.random() < 0.3, chance.choice((1.0, 1.0, 0.1)), chance.choice((1, 1, 2, 5))
        self._name = name
        self._programs = [world.add(name, REQUEST, 1.0, latency=latency, limit=limit)]
        for _ in range(processes - 1):
            number = len(world.programs) + 1
            program = world.programs[number] = Program(number, name, REQUEST, 1.0)
            world.do(ev.ClientJoined(name, number, (0,)))
            self._programs.append(program)
        self._habits = Habits.of_chance(chance)
        for program in self._programs:
            program.hostile, program.rests = True, not self._habits.works
        world.attackers.append(self.step)

    def _says(self, factor: float, true: float) -> int:
        return BIG if factor == BIG else round(true * factor)

    def _may(self, likely: float) -> bool:
        return self._chance.random() < likely

    def step(self) -> None:
        habits, now_ns = self._habits, self._world.now_ns
        away = bool(habits.every_ms) and (now_ns // (habits.every_ms * MS)) % 2 == 1
        for program in self._programs:
            if self._world.machine.seats[self._name].members.get(program.number) is None:
                continue
            if not program.epoch:
                if not away and self._may(habits.asks):
                    self._world.do(ev.TokenAsked(program.number, 0, habits.burst_ns, habits.gap_ns))
                continue
            self._talk(program)
            self._hold_or_return(program, away)

    def _talk(self, program: Program) -> None:
        habits, world = self._habits, self._world
        if program.shared and self._may(0.05 + habits.talks):
            used_ns = self._says(habits.says_used, program.total_ns)
            waited_ns = self._says(habits.says_waited, world.now_ns)
            world.do(ev.Used(program.number, 0, program.epoch, used_ns, waited_ns))
        if self._may(habits.talks * 0.3):
            drains, foreseen = self._may(habits.says_it_drains), self._may(habits.says_it_was_foreseen)
            world.do(ev.TokenRenewed(program.number, 0, program.epoch, draining=drains, foreseen=foreseen))

    def _hold_or_return(self, program: Program, away: bool) -> None:
        habits, world = self._habits, self._world
        now_ns, late_ns = world.now_ns, habits.late_ms * MS
        over = (
            (program.closing_ns and now_ns >= program.closing_ns + late_ns)
            or (program.ends and now_ns >= program.quota_until_ns + late_ns)
            or now_ns >= program.granted_ns + habits.holds_ms * MS
            or away
        )
        if program.closing_ns and late_ns and now_ns < program.closing_ns + late_ns:
            foreseen = self._may(habits.says_it_was_foreseen)
            world.do(ev.TokenRenewed(program.number, 0, program.epoch, draining=True, foreseen=foreseen))
        if over and program.epoch:
            epoch, program.epoch = program.epoch, 0
            used_ns, held_ns = program.total_ns - program.total_at_grant_ns, now_ns - program.granted_ns
            wants, idle, unconfirmed = map(self._may, (habits.wants_more, habits.was_idle, habits.unconfirmed))
            busy_ns, launches = self._says(habits.says_busy, used_ns), self._chance.choice((0, 1, BIG))
            world.do(
                ev.TokenReturned(program.number, 0, epoch, wants, idle, unconfirmed, busy_ns, launches,
                                 habits.burst_ns, habits.gap_ns, self._says(habits.says_held, held_ns))
            )  # fmt: skip
        elif program.epoch and not program.ends and now_ns >= program.granted_ns + 100 * MS:
            program.granted_ns = now_ns
            world.do(ev.TokenRenewed(program.number, 0, program.epoch))


class Short(NamedTuple):
    """What an honest tenant had, and was promised, as parts of the card."""

    lost: float
    seed: int
    name: str
    due: float
    had: float


def play(seed: int, milliseconds: float, honest: tuple[tuple[str, float, float], ...] = ()) -> list[Short]:
    """What a seed's attackers take from each honest tenant over so long, the most first. `honest`: these instead."""
    chance = random.Random(seed)
    of_seed = chance.choice(HONEST)
    world = World(*(honest or of_seed))
    programs = list(world.programs.values())
    attackers = [Attacker(world, f"x{number}", chance) for number in range(chance.choice((1, 1, 2)))]
    whole = sum(program.request for program in programs) + REQUEST * len(attackers)
    world.go(SETTLE_MS)
    parts = world.go(milliseconds)
    found = []
    for program in programs:
        due = program.request / whole * program.duty
        found.append(Short(due - parts[program.name], seed, program.name, due, parts[program.name]))
    return sorted(found, reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="SEED")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--ms", type=float, default=20000)
    args = parser.parse_args()
    found = [one for seed in range(args.first, args.first + args.count) for one in play(seed, args.ms)]
    for one in sorted(found, reverse=True)[:12]:
        print(f"seed {one.seed}: {one.name} had {one.had:.3f} of {one.due:.3f}")


if __name__ == "__main__":
    main()
