"""A daemon's trace as programs: what each process asked of the cards, so that the simulator can ask it again.

A burst is what a process ran from its wish until it gave the token back and wanted no more, over however many grants;
the gap is what follows until it wishes again. Within one grant, when nobody else wants the card, a process has many
bursts: they are told apart by its own estimates of both, which come with each Return. What is not in a trace: which
kernels span several cards (a process that ran on several is taken for one whose kernels do), and the length of each
kernel (their mean is taken).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.seat import Standing
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.problem import Problem
from scheduler_backend.simulation.programs import ENDLESS, SECOND, Program, Step
from scheduler_backend.simulation.world import World
from scheduler_backend.trace import node_of, read_joined

LEAST_NS = 1000  # no burst and no kernel is shorter


class Recorded(NamedTuple):
    """What a trace tells; times count from its start."""

    gpus: int
    policy: Policy  # of the daemon that recorded
    seconds: float  # up to its last event
    programs: list[Program]  # one for each process that ever wanted to launch
    changes: list[tuple[int, TenantSpec]]  # promises that changed, and when, in nanoseconds
    busy_ns: dict[tuple[str, int], int]  # GPU time of each tenant on each GPU, as its processes told it

    def share(self, name: str, gpu: int = 0) -> float:
        """Part of the recorded time for which the tenant's work ran."""
        return self.busy_ns.get((name, gpu), 0) / (self.seconds * SECOND)

    def fill(self, world: World) -> None:
        """Plan all of it into a world with so many GPUs."""
        for program in self.programs:
            world.at(program.start_ns, world.add, program)
        for at_ns, spec in self.changes:
            world.at(at_ns, _change, world, spec)


def _change(world: World, spec: TenantSpec) -> None:
    if spec.name in world.specs:  # else its processes are gone, and the next ones bring the promise of their time
        world.promise(spec)


@dataclass
class _Lane:
    """One process at one GPU: the burst under way, and the steps before it."""

    steps: list[Step] = field(default_factory=list)
    work_ns: int = 0  # of the burst under way
    wants: bool = False
    began_ns: int = 0  # the burst
    first_ns: int = -1  # when it first wished for anything
    quiet_ns: int = -1  # no burst since; -1: one is under way, or none ever was
    busy_ns: int = 0  # of all bursts
    launches: int = 0

    def ask(self, now_ns: int) -> None:
        if self.wants:
            return
        if self.first_ns < 0:
            self.first_ns = now_ns
        if self.quiet_ns >= 0 and self.work_ns > 0:
            self.steps.append((max(LEAST_NS, self.work_ns), max(0, now_ns - self.quiet_ns)))
            self.work_ns = 0
        self.wants, self.began_ns, self.quiet_ns = True, now_ns, -1

    def give_back(self, now_ns: int, said: ev.TokenReturned) -> None:
        self.busy_ns += said.busy_ns
        self.launches += said.launches
        rest_ns = max(0, said.held_ns - said.busy_ns)
        count = 1
        if said.burst_ns and said.gap_ns and 2 * rest_ns >= said.gap_ns:  # estimates: of many only
            count = max(1, min(round(said.busy_ns / said.burst_ns), 2 * rest_ns // said.gap_ns))
        gaps = count if said.idle else count - 1  # the last one goes on after the Return
        for _ in range(count - 1):
            self.steps.append((max(LEAST_NS, self.work_ns + said.busy_ns // count), rest_ns // gaps))
            self.work_ns = 0
        self.work_ns += said.busy_ns // count
        self.wants = said.want_more
        if not said.want_more:
            self.quiet_ns = now_ns - (rest_ns // gaps if said.idle else 0)

    def end(self, now_ns: int) -> tuple[Step, ...]:
        """All steps, when the record ends or the process does.

        A burst under way that has taken longer than any before counts as one without end: an always-busy process has
        no other. A shorter one, and a gap without end, are left out where there are others.
        """
        steps = list(self.steps)
        longest_ns = max((work_ns + gap_ns for work_ns, gap_ns in steps), default=0)
        if self.wants and now_ns - self.began_ns > longest_ns:
            steps.append((ENDLESS, 0))
        elif not self.wants and self.work_ns and now_ns - self.quiet_ns > longest_ns:
            steps.append((max(LEAST_NS, self.work_ns), now_ns - self.quiet_ns))
        return tuple(steps)


class _Client(NamedTuple):
    number: int
    spec: TenantSpec  # when it came
    lanes: dict[int, _Lane]


class _Reader:
    """Goes through a trace and keeps what each process did."""

    def __init__(self, node: Node) -> None:
        """It begins with the node as it was: empty, but for a later part of a long trace."""
        self.began_ns = node.machines[0].now_ns
        self.now_ns = 0  # since then
        self.specs: dict[str, TenantSpec] = dict(node.tenants)
        self.clients: dict[int, _Client] = {}
        self.ended: list[tuple[_Client, int]] = []
        self.changes: list[tuple[int, TenantSpec]] = []
        for number, (tenant, _) in node.clients.items():
            self.join(tenant, number)
        for machine in node.machines:
            for seat in machine.seats.values():
                for member in (*seat.with_standing(Standing.WAITS), *seat.with_standing(Standing.HOLDS)):
                    self.clients[member.client].lanes[machine.gpu].ask(0)

    def take(self, now_ns: int, event: ev.Event) -> None:
        self.now_ns = max(self.now_ns, now_ns - self.began_ns)
        if isinstance(event, ev.TokenAsked | ev.TokenReturned):
            client = self.clients.get(event.client)
            if client is None:
                return
            lane = client.lanes[event.gpu]
            if isinstance(event, ev.TokenAsked):
                lane.ask(self.now_ns)
            else:
                lane.give_back(self.now_ns, event)
        elif isinstance(event, ev.TenantAdded):
            self.specs[event.spec.name] = event.spec
        elif isinstance(event, ev.TenantChanged):
            self.specs[event.spec.name] = event.spec
            self.changes.append((self.now_ns, event.spec))
        elif isinstance(event, ev.ClientJoined):
            self.join(event.tenant, event.client)
        elif isinstance(event, ev.ClientDied):
            self.die(event.client)
        elif isinstance(event, ev.TenantRemoved):
            for number in [client.number for client in self.clients.values() if client.spec.name == event.name]:
                self.die(number)

    def join(self, tenant: str, number: int) -> None:
        if tenant in self.specs:
            client = _Client(number, self.specs[tenant], defaultdict(_Lane))
            self.clients.setdefault(number, client)  # a Hello said again changes nothing

    def die(self, number: int) -> None:
        client = self.clients.pop(number, None)
        if client is not None:
            self.ended.append((client, self.now_ns))


def recorded(path: Path) -> Recorded:
    """What a trace tells, with the part before it where that lies beside it and nothing was lost between.

    Raises Problem for what is no trace, or one that does not tell where it begins, or in which nobody works.
    """
    head, entries = read_joined(path)
    node = node_of(path, head)
    reader = _Reader(node)
    for entry in entries:
        if not any(name == "RemoteProtocolError" for name, _ in entry.actions):
            reader.take(entry.now_ns, entry.event)
    busy_ns: dict[tuple[str, int], int] = defaultdict(int)
    programs = []
    for client, stop_ns in [*reader.ended, *((client, ENDLESS) for client in reader.clients.values())]:
        for gpu, lane in client.lanes.items():
            busy_ns[client.spec.name, gpu] += lane.busy_ns
        program = _program(client, stop_ns, reader.now_ns)
        if program is not None:
            programs.append(program)
    if not programs:
        raise Problem(f"{path}: no process of this trace ever ran anything")
    programs.sort(key=lambda program: program.start_ns)
    gpus, seconds = len(node.machines), reader.now_ns / SECOND
    return Recorded(gpus, node.policy, seconds, programs, reader.changes, dict(busy_ns))


def _program(client: _Client, stop_ns: int, now_ns: int) -> Program | None:
    """What one process did, by the card on which it did the most; None where it did nothing."""
    gpus = tuple(sorted(gpu for gpu, lane in client.lanes.items() if lane.first_ns >= 0))
    if not gpus:
        return None
    lane = max((client.lanes[gpu] for gpu in gpus), key=lambda lane: lane.busy_ns)
    steps = lane.end(min(stop_ns, now_ns))
    if not steps:
        return None
    return Program(
        client.spec,
        "recorded",
        kernel_ns=max(LEAST_NS, lane.busy_ns // max(1, lane.launches)),
        collective=len(gpus) > 1,
        start_ns=lane.first_ns,
        stop_ns=stop_ns,
        steps=steps,
        gpus=gpus,
    )
