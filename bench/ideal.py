"""What an ideal scheduler gives to programs whose hosts take time: a model in virtual time, without daemon or wake-ups.

A program launches a kernel, works on its host, launches the next, and so on; it may wait for the card after every so
many launches, and pause. Launches queue on the card while the host goes on, up to the depth of a queue. The card runs
one kernel at a time and pays for each switch between processes.

Two schedulers:
    native  the card's own time slicing: slices in turn, ended in the middle of a kernel, at the cost of `preempted_us`
    ideal   weighted fair virtual time over the kernels that are queued. Whoever runs keeps the card until its queue is
            empty or it has run for a stretch; then the program furthest behind goes on. It knows everything at once.

The stretch trades switches for waits, so there is one best stretch for each mix: that of the highest proportional
fairness, sum of request x log(share / share alone) (Kelly 1997). `ideal` takes it among STRETCHES_US.

The costs are the simulated card's (docs/simulator.md): 25 us for a switch from a process with nothing queued, 50 us for
one that preempts, slices of 1,024 us. What a real card pays is to be probed. Not in the model: processors that
programs share (hostbound.py takes their hosts as they are then), wake-ups other than `wake_us` after a synchronisation,
and whatever an arbiter itself costs.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

STRETCHES_US = (60.0, 125.0, 250.0, 500.0, 1000.0, 2000.0)
CREDIT_US = 10_000.0  # one quota: what a program that was away keeps of what it is owed
ROUNDING_US = 1e-3  # of sums of microseconds
DEPTH = 1024  # launches at which a queue blocks the host


class Program(NamedTuple):
    """Times in microseconds. After `sync_every` launches it waits for the card (0: never); after each `pause_every_us`
    of its life it pauses for `pause_us` (0: never). With `period_us` it is a server: that often a request comes, of
    `sync_every` launches. `request` is its weight.
    """

    kernel_us: float
    host_us: float
    sync_every: int
    request: float = 0.5
    pause_every_us: float = 0.0
    pause_us: float = 0.0
    period_us: float = 0.0


class Card(NamedTuple):
    """What the card takes, in microseconds."""

    dry_us: float = 25.0
    preempted_us: float = 50.0
    slice_us: float = 1024.0
    wake_us: float = 10.0  # a host that waits for the card wakes up


@dataclass
class _State:
    """A program as it stands."""

    program: Program
    number: int
    queued: int = 0
    left_us: float = 0.0  # of the kernel at the head
    launched: int = 0  # since the last synchronisation
    blocked: bool = False  # its host waits for room in the queue
    syncing: bool = False
    paused_at_us: float = 0.0
    arrival_us: float = 0.0
    clock: float = 0.0
    used_us: float = 0.0


class _Run:
    """One run of one scheduler."""

    def __init__(self, programs: Sequence[Program], card: Card, stretch_us: float | None) -> None:
        self.card = card
        self.stretch_us = card.slice_us if stretch_us is None else stretch_us
        self.native = stretch_us is None
        self.states = [_State(program, number) for number, program in enumerate(programs)]
        self.now_us = 0.0
        self.on: _State | None = None
        self.since_us = 0.0
        self.running = False
        self.events: list[tuple[float, int, Callable[[_State], None], _State]] = []
        self.serial = itertools.count()

    def go(self, seconds: float) -> list[float]:
        for state in self.states:
            self.at(state.program.host_us * (1 + 0.1 * state.number), self.launch, state)
        end_us = seconds * 1e6
        while self.events and self.events[0][0] < end_us:
            self.now_us, _, act, state = heapq.heappop(self.events)
            act(state)
        return [state.used_us / end_us for state in self.states]

    def at(self, moment_us: float, act: Callable[[_State], None], state: _State) -> None:
        heapq.heappush(self.events, (moment_us, next(self.serial), act, state))

    # --- the host ---------------------------------------------------------------------------------------------------
    def launch(self, state: _State) -> None:
        program = state.program
        if state.queued >= DEPTH:
            state.blocked = True
            return
        if state.queued == 0:
            state.left_us = program.kernel_us
            self.wake(state)
        state.queued += 1
        state.launched += 1
        if program.sync_every and state.launched == program.sync_every:
            state.launched, state.syncing = 0, True
        else:
            self.work(state)
        self.dispatch()

    def work(self, state: _State, wake_us: float = 0.0) -> None:
        """Host work before the next launch, and a pause where one is due."""
        program, pause_us = state.program, 0.0
        if program.pause_every_us and self.now_us - state.paused_at_us >= program.pause_every_us:
            pause_us = program.pause_us
            state.paused_at_us = self.now_us + pause_us
        if program.period_us and not state.launched:  # steady arrivals: a queue of requests is not the model's matter
            state.arrival_us += program.period_us
            pause_us = max(pause_us, state.arrival_us - self.now_us - wake_us)
        self.at(self.now_us + wake_us + pause_us + program.host_us, self.launch, state)

    def wake(self, state: _State) -> None:
        """A program with work again keeps what it is owed, up to one quota."""
        busy = [other.clock for other in self.states if other.queued and other is not state]
        if busy:
            state.clock = max(state.clock, min(busy) - CREDIT_US / state.program.request)

    # --- the card ---------------------------------------------------------------------------------------------------
    def dispatch(self) -> None:
        if self.running:
            return
        ready = [state for state in self.states if state.queued]
        if not ready:
            return
        chosen = self.choose(ready)
        cost_us = 0.0
        if chosen is not self.on:
            if self.on is not None:
                cost_us = self.card.preempted_us if self.on.queued and self.native else self.card.dry_us
            self.on, self.since_us = chosen, self.now_us + cost_us
        piece_us = chosen.left_us
        if self.native and len(ready) > 1:
            piece_us = min(piece_us, max(0.0, self.since_us + self.card.slice_us - self.now_us - cost_us))
        self.running = True
        self.at(self.now_us + cost_us + piece_us, lambda state: self.finish(state, piece_us), chosen)

    def choose(self, ready: list[_State]) -> _State:
        keeps = self.on is not None and self.on.queued and self.now_us - self.since_us < self.stretch_us - ROUNDING_US
        if self.on is not None and self.on in ready and (keeps or len(ready) == 1):
            return self.on
        if self.native:
            first = -1 if self.on is None else self.on.number
            return min(ready, key=lambda state: (state.number - first - 1) % len(self.states))
        return min(ready, key=lambda state: state.clock)

    def finish(self, state: _State, piece_us: float) -> None:
        self.running = False
        state.used_us += piece_us
        state.clock += piece_us / state.program.request
        state.left_us -= piece_us
        if state.left_us <= ROUNDING_US:
            state.queued -= 1
            state.left_us = state.program.kernel_us
            if state.blocked:
                state.blocked = False
                self.launch(state)
            elif state.syncing and not state.queued:
                state.syncing = False
                self.work(state, self.card.wake_us)
        self.dispatch()


def native(programs: Sequence[Program], seconds: float = 2.0, card: Card | None = None) -> list[float]:
    """GPU time / elapsed of each program under the card's own time slicing."""
    return _Run(programs, card or Card(), None).go(seconds)


def fair(programs: Sequence[Program], stretch_us: float, seconds: float = 2.0, card: Card | None = None) -> list[float]:
    """The same under fair virtual time with this stretch."""
    return _Run(programs, card or Card(), stretch_us).go(seconds)


def alone(program: Program, seconds: float = 2.0, card: Card | None = None) -> float:
    """GPU time / elapsed of a program with the card to itself."""
    return native([program], seconds, card)[0]


def ideal(programs: Sequence[Program], seconds: float = 2.0, card: Card | None = None) -> tuple[list[float], float]:
    """GPU time / elapsed of each program under the best stretch, and that stretch in microseconds."""
    solo = {program: alone(program, seconds, card) for program in set(programs)}
    solo_of = [solo[program] for program in programs]

    def fairness(shares: Sequence[float]) -> float:
        return sum(
            program.request * math.log(max(share, 1e-9) / own)
            for program, share, own in zip(programs, shares, solo_of, strict=True)
        )

    runs = [(fair(programs, stretch_us, seconds, card), stretch_us) for stretch_us in STRETCHES_US]
    return max(runs, key=lambda run: fairness(run[0]))
