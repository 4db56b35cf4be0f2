"""What simulated processes do: bursts of GPU work with host time between them, each kind a generator of such steps.

A step is (work_ns, gap_ns): so much GPU time on each of the process's GPUs, then so long away from them. All randomness
comes from the generator's own random.Random, so a seed tells the whole run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scheduler_backend.core.policy import MS
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec

SECOND = 1000 * MS
ENDLESS = 1 << 60  # a burst that never ends
Step = tuple[int, int]


@dataclass(frozen=True)
class Program:
    """One process of a tenant. Several programs of one tenant are several processes of it."""

    spec: TenantSpec
    kind: str = "busy"
    burst_ns: int = 10 * MS
    gap_ns: int = 10 * MS
    kernel_ns: int = 100_000  # what is launched runs to its end: a drain ends with a kernel
    collective: bool = False  # each kernel runs on all of its GPUs at once, or waits on those where it is launched
    start_ns: int = 0
    stop_ns: int = ENDLESS
    steps: tuple[Step, ...] = ()  # of kind "recorded"
    gpus: tuple[int, ...] = ()  # those of the promise that this process uses; none named: all
    hop_ns: int = 0  # what each of its messages takes longer than others'
    warm_ns: int = 0  # from the receipt of a grant until its first kernel runs
    says_held_ns: int = 0  # a lie: so long it held the token, says each of its Returns; 0: the truth


def spec(
    name: str, request: float, limit: float = 1.0, *, latency: bool = False, gpus: tuple[int, ...] = (0,)
) -> TenantSpec:
    """A promise from shares between 0 and 1."""
    return TenantSpec(name, round(request * WHOLE_PPM), round(limit * WHOLE_PPM), 0, latency, gpus)


def busy(program: Program, rng: random.Random) -> Iterator[Step]:
    """Always something to run."""
    yield ENDLESS, 0


def closed_loop(program: Program, rng: random.Random) -> Iterator[Step]:
    """The same burst and the same gap for ever: training, or a server at full load."""
    while True:
        yield program.burst_ns, program.gap_ns


def bursty(program: Program, rng: random.Random) -> Iterator[Step]:
    """Bursts and gaps with exponential lengths, and now and then a pause a hundred times as long."""
    while True:
        pause = 100 if rng.random() < 0.02 else 1
        yield max(50_000, int(rng.expovariate(1 / program.burst_ns))), int(rng.expovariate(1 / program.gap_ns)) * pause


def idle(program: Program, rng: random.Random) -> Iterator[Step]:
    """It is there, and hardly ever wants anything."""
    while True:
        yield 200_000, int(rng.expovariate(1 / (60 * SECOND)))


def recorded(program: Program, rng: random.Random) -> Iterator[Step]:
    """The steps it was given, from the start again when they end."""
    while True:
        yield from program.steps


KINDS: dict[str, Callable[[Program, random.Random], Iterator[Step]]] = {
    "busy": busy,
    "closed_loop": closed_loop,
    "bursty": bursty,
    "idle": idle,
    "recorded": recorded,
}
