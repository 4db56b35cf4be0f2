"""Whole days of many tenants, made from a seed: who comes and goes, what they do, and what goes wrong.

`day` fills a world. Each of the tenants has a share of its own for the day (changed now and then, in pairs, so that the
sum stays), and comes and goes by the hour: most are there around noon, few at night. `trouble` adds faults.
"""

from __future__ import annotations

import math
import random

from scheduler_backend.core.policy import MS
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec
from scheduler_backend.simulation.process import Process
from scheduler_backend.simulation.programs import ENDLESS, SECOND, Program
from scheduler_backend.simulation.world import World

HOUR = 3600 * SECOND


def shares(count: int, rng: random.Random, gpu: int = 0) -> list[TenantSpec]:
    """Promises of `count` tenants of one GPU: most have a request, some a limit, some are best effort or latency."""
    weights = [rng.choice((1, 1, 1, 2, 4, 8)) for _ in range(count)]
    part = WHOLE_PPM * 9 // 10 // sum(weights)
    specs = []
    for number, weight in enumerate(weights):
        request_ppm = 0 if rng.random() < 0.1 else part * weight
        limit_ppm = WHOLE_PPM
        if rng.random() < 0.25:
            limit_ppm = min(WHOLE_PPM, max(20_000, int(request_ppm * rng.choice((1, 1, 1.5, 3)))))
        latency = request_ppm > 0 and limit_ppm == WHOLE_PPM and rng.random() < 0.1
        specs.append(TenantSpec(f"g{gpu}t{number:02}", request_ppm, limit_ppm, 0, latency, (gpu,)))
    return specs


def program(spec: TenantSpec, start_ns: int, stop_ns: int, rng: random.Random) -> Program:
    """Something that such a tenant might run."""
    kind = rng.choice(("busy", "closed_loop", "closed_loop", "bursty", "bursty", "idle"))
    burst_ns = int(MS * math.exp(rng.uniform(math.log(0.5), math.log(200))))
    gap_ns = int(MS * math.exp(rng.uniform(math.log(0.1), math.log(2000))))
    kernel_ns = int(min(burst_ns, rng.choice((10_000, 100_000, 250_000, 2 * MS, 30 * MS))))
    return Program(spec, kind, burst_ns, gap_ns, kernel_ns, False, start_ns, stop_ns)


def day(world: World, tenants: int, seconds: float, seed: int) -> list[Program]:
    """Plan the day into the world, so many tenants on each GPU; returns all programs. The peak is at half of it."""
    rng = random.Random(seed)
    length_ns = int(seconds * SECOND)
    programs: list[Program] = []
    gpus = range(len(world.node.machines))
    for spec in [spec for gpu in gpus for spec in shares(tenants, rng, gpu)]:
        at_ns = rng.randrange(length_ns // 20 + 1)
        while at_ns < length_ns:
            presence = 0.15 + 0.85 * math.sin(math.pi * at_ns / length_ns)
            stay_ns = max(SECOND, int(rng.expovariate(1) * length_ns / 24 * 2 * presence))
            away_ns = int(rng.expovariate(1) * length_ns / 24 * 3 * (1.05 - presence))
            stop_ns = at_ns + stay_ns
            for _ in range(2 if rng.random() < 0.1 else 1):  # some are two processes
                programs.append(program(spec, at_ns, stop_ns if stop_ns < length_ns else ENDLESS, rng))
            at_ns = stop_ns + away_ns + SECOND
    for one in programs:
        world.at(max(0, one.start_ns - 4 * MS), world.add, one)
    return programs


def trouble(world: World, mean_s: float, seconds: float, seed: int) -> None:
    """Every mean_s or so something happens: a freeze, a broken connection, a share changed, the daemon's death."""
    rng = random.Random(seed)
    at_ns = 0
    while (at_ns := at_ns + int(rng.expovariate(1 / mean_s) * SECOND)) < seconds * SECOND:
        world.at(at_ns, _strike, world, random.Random(rng.random()))


def _strike(world: World, rng: random.Random) -> None:
    living: list[Process] = [process for process in world.processes.values() if process.alive]
    if not living:
        return
    victim = rng.choice(living)
    what = rng.random()
    if what < 0.3:
        world.freeze(victim, int(rng.choice((1, 10, 100, 1000)) * MS * (0.5 + rng.random())))
    elif what < 0.6:
        world.cut(victim)
    elif what < 0.7 and not world.down:
        world.crash(int(rng.choice((50, 500, 3000)) * MS * (0.5 + rng.random())))
    else:
        one, other = world.specs[victim.name], world.specs[rng.choice(living).name]
        if one.gpus != other.gpus:
            return
        moved = min(one.request_ppm // 2, other.limit_ppm - other.request_ppm)
        if one.name != other.name and moved > 0:
            world.promise(one._replace(request_ppm=one.request_ppm - moved))
            world.promise(other._replace(request_ppm=other.request_ppm + moved))
