"""A simulated process under the library: it asks, works while its gate is open, closes, drains and returns.

It follows libhook/core/token.h. A contended quota closes the gate, an uncontended one is renewed at three quarters, a
lease that ends closes it in any case, and an idle token goes back. A drain that does not end while a thread of the same
process waits at another gate lets that thread in (the valve). Work that was launched runs to the end of its kernel.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum

from scheduler_backend.simulation.programs import KINDS, Program, Step


class Gate(Enum):
    """Of one process at one GPU."""

    CLOSED = "closed"
    ASKED = "asked"
    OPEN = "open"
    DRAINING = "draining"


class Lane:
    """One process at one GPU."""

    __slots__ = (
        "cap_ns",
        "contended",
        "done",
        "drained_ns",
        "epoch",
        "gate",
        "granted_ns",
        "helped",
        "idle",
        "launched",
        "lease_until_ns",
        "left_ns",
        "quota_until_ns",
        "ran_ns",
        "returned",
        "running_since_ns",
        "shared",
        "version",
        "waiting",
        "wants_ns",
        "worked_ns",
    )

    def __init__(self) -> None:
        self.gate = Gate.CLOSED
        self.epoch = 0
        self.returned = 0  # the last epoch given back: a word of it that comes later is an echo
        self.granted_ns = 0
        self.quota_until_ns = 0
        self.lease_until_ns = 0
        self.cap_ns = 0  # so much work it may have in flight
        self.contended = False
        self.shared = False  # others work beside it
        self.left_ns = 0  # of the burst
        self.ran_ns = 0  # under this grant
        self.worked_ns = 0  # ever
        self.running_since_ns = -1  # its work occupies the card since; -1: it does not
        self.drained_ns = 0  # what its work was when it closed
        self.idle = False
        self.waiting = False  # a thread waits at the gate
        self.wants_ns = 0  # since when
        self.launched = 0  # collective kernels
        self.done = 0
        self.helped = False  # its kernel was let in without a token
        self.version = 0  # of what is planned: a plan of an older version is void


class Process:
    """One process of a tenant: its program and its lanes."""

    def __init__(self, number: int, program: Program, seed: str) -> None:
        self.number = number
        self.program = program
        self.name = program.spec.name
        self.lanes = {gpu: Lane() for gpu in program.gpus or program.spec.gpus}
        self.random = random.Random(seed)
        self.steps: Iterator[Step] = KINDS[program.kind](program, self.random)
        self.gap_ns = 0
        self.burst_ns = 0
        self.alive = False
        self.frozen = False
        self.connected = False
        self.connection = 0  # counts: what was sent over an older one is lost
        self.inbox: list[tuple[int, object]] = []  # while frozen
        self.bursts = 0  # done
        self.valves = 0  # times that a drain had to let a thread in

    def begin_burst(self) -> None:
        """The next step of the program: so much work on each GPU."""
        self.burst_ns, self.gap_ns = next(self.steps)
        for lane in self.lanes.values():
            lane.left_ns = self.burst_ns

    @property
    def burst_done(self) -> bool:
        """Has all of the burst run, on all GPUs?"""
        return all(lane.left_ns <= 0 for lane in self.lanes.values())
