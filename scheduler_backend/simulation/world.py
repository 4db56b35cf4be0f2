"""A simulated world: one node, its tenants and their processes, and what befalls them.

The node and its messages are a part of it (daemon.py), and so is what processes do with their gates (library.py). Here
time moves, processes come and go, and things break: a process is killed, frozen or cut off, the daemon dies and
returns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.simulation.daemon import Daemon, Network, Watcher
from scheduler_backend.simulation.library import Library
from scheduler_backend.simulation.process import Gate, Process
from scheduler_backend.simulation.programs import ENDLESS, SECOND, Program


class World:
    """One node with its processes. `run` moves the clock."""

    def __init__(
        self,
        programs: Sequence[Program],
        *,
        gpus: int = 1,
        policy: Policy | None = None,
        network: Network | None = None,
        watchers: Sequence[Watcher] = (),
        seed: int = 1,
        check_every: int = 1,
    ) -> None:
        self.daemon = Daemon(gpus, policy, network, watchers, seed, check_every)
        self.library = Library(gpus, self.daemon)
        self.daemon.receive, self.daemon.world = self.library.receive, self
        self.specs: dict[str, TenantSpec] = {}
        self.seed = seed
        self._numbers = itertools.count(1)
        for program in programs:
            self.add(program)

    def run(self, seconds: float) -> None:
        """Move on by so much virtual time."""
        until_ns = self.now_ns + int(seconds * SECOND)
        self.daemon.run_until(until_ns)
        for gpu, working in enumerate(self.library.working):  # what runs now is told up to now
            for process in list(working.values()):
                lane = process.lanes[gpu]
                if not process.program.collective:
                    self.library.account(process, gpu, lane)

    def at(self, when_ns: int, call: Callable[..., object], *arguments: Any) -> None:
        """Call it then; what is due at the same time comes in the order of these calls."""
        self.daemon.at(when_ns, call, *arguments)

    # --- for those who look at it ------------------------------------------------------------------------------------
    @property
    def now_ns(self) -> int:
        """Its time."""
        return self.daemon.now_ns

    @property
    def event_ns(self) -> int:
        """When what the node hears just now was: what was carried out is told later."""
        return self.daemon.event_ns

    @property
    def node(self) -> Node:
        """Its node; another one after a restart."""
        return self.daemon.node

    @property
    def policy(self) -> Policy:
        """That of the node."""
        return self.daemon.policy

    @property
    def processes(self) -> dict[int, Process]:
        """Those that are there, by number."""
        return self.daemon.processes

    @property
    def down(self) -> bool:
        """Whether the daemon is dead."""
        return self.daemon.down

    # --- tenants and processes ---------------------------------------------------------------------------------------
    def add(self, program: Program) -> Process:
        """One more process; it starts at its program's time (not before now)."""
        number = next(self._numbers)
        process = Process(number, program, f"{self.seed}/{number}")
        self.processes[number] = process
        self.at(max(self.now_ns, program.start_ns) + self.daemon.random.randrange(3 * MS), self._start, process)
        return process

    def promise(self, spec: TenantSpec) -> None:
        """Add a tenant, or change its share."""
        known = spec.name in self.specs
        self.specs[spec.name] = spec
        if not self.down:
            self.daemon.handle(ev.TenantChanged(spec) if known else ev.TenantAdded(spec))

    def _start(self, process: Process) -> None:
        if process.name not in self.specs:
            self.promise(process.program.spec)
        process.alive = True
        self._connect(process)
        self.library.begin(process)
        if process.program.stop_ns < ENDLESS:
            self.at(process.program.stop_ns, self.kill, process)

    def _connect(self, process: Process) -> None:
        if not process.alive or self.down or process.connected:
            return
        process.connected = True
        gpus = tuple(process.lanes)
        held = tuple(
            (gpu, lane.epoch) for gpu, lane in process.lanes.items() if lane.gate in (Gate.OPEN, Gate.DRAINING)
        )
        self.daemon.handle(ev.ClientJoined(process.name, process.number, gpus, held))
        for gpu, lane in process.lanes.items():
            if lane.gate is Gate.ASKED:
                lane.gate = Gate.CLOSED
            if lane.waiting:
                self.library.want(process, gpu, lane)

    def _disconnect(self, process: Process) -> None:
        process.connection += 1
        process.connected = False

    def kill(self, process: Process) -> None:
        """SIGKILL: its work ends, the daemon hears of it a little later; a tenant goes with its last process."""
        if not process.alive:
            return
        for gpu, lane in process.lanes.items():
            self.library.account(process, gpu, lane)
            self.library.rest(process, gpu, lane)
            lane.gate = Gate.CLOSED
            lane.version += 1
        process.alive = process.frozen = False
        self._disconnect(process)
        self.at(self.now_ns + MS + self.daemon.random.randrange(2 * MS), self._buried, process)

    def _buried(self, process: Process) -> None:
        if not self.down:
            self.daemon.handle(ev.ClientDied(process.number))
        del self.processes[process.number]
        if not any(other.name == process.name for other in self.processes.values()):
            del self.specs[process.name]
            if not self.down:
                self.daemon.handle(ev.TenantRemoved(process.name))

    # --- what goes wrong ---------------------------------------------------------------------------------------------
    def cut(self, process: Process) -> None:
        """Its connection breaks: what is on its way is lost, and it says Hello again."""
        if process.alive and not self.down:
            self._disconnect(process)
            self.at(self.now_ns + self.daemon.random.randrange(50 * MS), self._connect, process)

    def freeze(self, process: Process, for_ns: int) -> None:
        """SIGSTOP: what is in flight runs to its end, and nothing else happens until SIGCONT."""
        if not process.alive or process.frozen:
            return
        process.frozen = True
        for gpu, lane in process.lanes.items():
            if lane.running_since_ns >= 0 and not process.program.collective:
                lane.version += 1
                end_ns = self.library.kernel_end(process, lane, self.now_ns + self.policy.cap_ns)
                self.at(end_ns, self._starve, process, gpu, lane.version)
        self.at(self.now_ns + for_ns, self._thaw, process)

    def _starve(self, process: Process, gpu: int, version: int) -> None:
        lane = process.lanes[gpu]
        if version == lane.version and lane.running_since_ns >= 0:
            self.library.account(process, gpu, lane)
            self.library.rest(process, gpu, lane)

    def _thaw(self, process: Process) -> None:
        if not process.alive:
            return
        process.frozen = False
        waiting, process.inbox = process.inbox, []
        for gpu, lane in process.lanes.items():
            if lane.gate is Gate.OPEN:
                agrees = self.daemon.pages.get((process.name, gpu)) == lane.epoch and self.now_ns < lane.lease_until_ns
                if not agrees:
                    self.library.close(process, gpu, lane, at_once=True)
                else:
                    self.library.work_on(process, gpu, lane)
            elif lane.gate is Gate.DRAINING:
                self.library.drain_until(process, gpu, lane, self.now_ns)
        for connection, action in waiting:
            self.library.receive(process, connection, action)
        if process.burst_done:
            self.library.begin(process)

    def crash(self, down_ns: int) -> None:
        """The daemon dies, and is back after `down_ns`; all connections are gone."""
        self.daemon.die()
        for process in self.processes.values():
            self._disconnect(process)
        self.at(self.now_ns + down_ns, self._restart)

    def _restart(self) -> None:
        self.daemon.come_back()
        policy = self.policy
        until_ns = self.now_ns + max(policy.alone_lease_ns, policy.alone_quota_ns) + policy.lease_margin_ns
        for spec in self.specs.values():
            self.daemon.handle(ev.TenantAdded(spec))
        for process in self.processes.values():
            if process.alive:
                self.daemon.handle(ev.ClientsKnown(((process.name, process.number),), until_ns))
                self.at(self.now_ns + self.daemon.random.randrange(200 * MS), self._connect, process)
