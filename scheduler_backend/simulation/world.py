"""The simulated node: an event queue, the pure node machine, its carrier, and the processes around it.

Theory of operation. Everything that happens is a call in one heap, in the order of its time. Messages take a hop, in
order within a connection, and now and then a stall; a hand-over that was prepared is carried out without one. What
really ran on each card is told to the watchers, who judge (watch.py); two tenants at work on one card at once raise
here, unless the daemon had given the one up (its lease ran out, or it overran).
"""

from __future__ import annotations

import collections
import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from scheduler_backend.core import events as ev
from scheduler_backend.core.line import CarriedOut, Line, left_of, told
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.simulation.process import Gate, Lane, Process
from scheduler_backend.simulation.programs import ENDLESS, SECOND, Program

IDLE_UNUSED_NS = 500_000  # an unused token goes back after this (libhook/runtime/seat.c)
IDLE_ALONE_NS = 50 * MS  # alone: idle so long when a renewal is due (token.c)
VALVE_NS = 5 * MS


class Network(NamedTuple):
    """How long things take. Defaults: what a 2-CPU machine shows."""

    hop_ns: int = 60_000
    hop_spread_ns: int = 40_000  # mean of an exponential on top
    stall: float = 0.0  # part of the messages that meet a stall of up to stall_ns
    stall_ns: int = 20 * MS
    carry_ns: int = 40_000  # drain seen to page written
    taken_ns: int = 400_000  # ... and that told, where the Return came with the word and nothing else is to come
    behind: bool = True  # Returns come with the word of the drain
    wake_ns: int = 40_000  # page written to first launch; a timer's lateness
    prepared: bool = True  # hand-overs that were decided ahead are carried out


class Watcher(Protocol):
    """Sees all that happens."""

    def on_actions(self, world: World, event: ev.Event, actions: list[ev.Action]) -> None: ...
    def on_work(self, world: World, process: Process, gpu: int, start_ns: int, end_ns: int) -> None: ...


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
        self.policy, self.network = policy or Policy(), network or Network()
        self.node = Node(gpus, self.policy)
        self.watchers, self.check_every = list(watchers), check_every
        self.seed = seed
        self.random = random.Random(seed)
        self.now_ns = 0
        self.event_ns = 0  # when what the node hears was: what was carried out is told later
        self.handled = 0
        self.handovers = 0
        self.processes: dict[int, Process] = {}
        self.specs: dict[str, TenantSpec] = {}
        self.pages: dict[tuple[str, int], int] = {}
        self.orders: dict[int, Line] = collections.defaultdict(Line)
        self.working: list[dict[int, Process]] = [{} for _ in range(gpus)]
        self.given_up: set[tuple[int, int]] = set()  # (client, gpu): its work may overlap with another's
        self.down = False
        self.stopped: set[int] = set()  # GPUs whose next order was decided for a holder that wants more, and it did not
        self._carried: list[CarriedOut] = []  # and not told yet
        self._queue: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._serial = 0
        self._numbers = itertools.count(1)
        self._wake_ns = 0
        self._last: dict[tuple[int, bool], int] = {}  # (client, to it?) -> when its last message arrives
        self._performers: dict[type, Callable[[Any], None]] = {
            ev.Grant: self._tell,
            ev.Extend: self._tell,
            ev.Revoke: self._tell,
            ev.Page: self._page,
            ev.Prepare: self._prepare,
            ev.Unprepare: lambda action: self.orders[action.gpu].drop(action),
            ev.WakeAt: self._wake_at,
            ev.LeaseLost: lambda action: self.given_up.add((action.client, action.gpu)),
            ev.Overran: lambda action: self.given_up.add((action.client, action.gpu)),
            ev.Handed: self._handed,
        }
        for program in programs:
            self.add(program)

    # --- the queue --------------------------------------------------------------------------------------------------
    def at(self, when_ns: int, call: Callable[..., object], *arguments: Any) -> None:
        """Call it then; what is due at the same time comes in the order of these calls."""
        self._serial += 1
        heapq.heappush(self._queue, (when_ns, self._serial, call, arguments))

    def run(self, seconds: float) -> None:
        """Move on by so much virtual time."""
        until_ns = self.now_ns + int(seconds * SECOND)
        queue = self._queue
        while queue and queue[0][0] <= until_ns:
            self.now_ns, _, call, arguments = heapq.heappop(queue)
            call(*arguments)
        self.now_ns = until_ns
        for gpu, working in enumerate(self.working):  # what runs now is told up to now
            for process in list(working.values()):
                lane = process.lanes[gpu]
                if not process.program.collective:
                    self._account(process, gpu, lane)

    # --- tenants and processes --------------------------------------------------------------------------------------
    def add(self, program: Program) -> Process:
        """One more process; it starts at its program's time (not before now)."""
        number = next(self._numbers)
        process = Process(number, program, f"{self.seed}/{number}")
        self.processes[number] = process
        self.at(max(self.now_ns, program.start_ns) + self.random.randrange(3 * MS), self._start, process)
        return process

    def promise(self, spec: TenantSpec) -> None:
        """Add a tenant, or change its share."""
        known = spec.name in self.specs
        self.specs[spec.name] = spec
        if not self.down:
            self._handle(ev.TenantChanged(spec) if known else ev.TenantAdded(spec))

    def _start(self, process: Process) -> None:
        if process.name not in self.specs:
            self.promise(process.program.spec)
        process.alive = True
        self._connect(process)
        self._begin(process)
        if process.program.stop_ns < ENDLESS:
            self.at(process.program.stop_ns, self.kill, process)

    def kill(self, process: Process) -> None:
        """SIGKILL: its work ends, the daemon hears of it a little later; a tenant goes with its last process."""
        if not process.alive:
            return
        for gpu, lane in process.lanes.items():
            self._account(process, gpu, lane)
            self._rest(process, gpu, lane)
            lane.gate = Gate.CLOSED
            lane.version += 1
        process.alive = process.frozen = False
        self._disconnect(process)
        self.at(self.now_ns + MS + self.random.randrange(2 * MS), self._buried, process)

    def _buried(self, process: Process) -> None:
        if not self.down:
            self._handle(ev.ClientDied(process.number))
        del self.processes[process.number]
        if not any(other.name == process.name for other in self.processes.values()):
            del self.specs[process.name]
            if not self.down:
                self._handle(ev.TenantRemoved(process.name))

    # --- the daemon -------------------------------------------------------------------------------------------------
    def _handle(self, event: ev.Event) -> None:
        if self._carried and type(event) not in ev.MEMORY:
            self._tell_carried(event)
        self._give(event, self.now_ns)

    def _tell_carried(self, following: ev.Event | None = None) -> None:
        """What was carried out is told, in the order of its time, before anything else is (`following`)."""
        carried, self._carried = self._carried, []
        self.stopped.clear()
        for event, at_ns, more in told(carried, following, bool(self.node.gangs.gangs)):
            self._give(event, at_ns or self.now_ns, more)

    def _give(self, event: ev.Event, at_ns: int, more: bool = False) -> None:
        self.event_ns = at_ns
        actions = self.node.handle(event, at_ns)
        self.handled += 1
        performers = self._performers
        for action in left_of(actions, more) if type(event) is ev.Carried else actions:
            perform = performers.get(type(action))
            if perform is not None:
                perform(action)
        if self.check_every and self.handled % self.check_every == 0:
            self.node.check()
        for watcher in self.watchers:
            watcher.on_actions(self, event, actions)

    def _page(self, action: ev.Page) -> None:
        self.pages[action.tenant, action.gpu] = action.epoch

    def _prepare(self, action: ev.Prepare) -> None:
        self.orders[action.gpu].put(action)

    def _handed(self, action: ev.Handed) -> None:
        self.handovers += 1

    def _wake_at(self, action: ev.WakeAt) -> None:
        self._wake_ns = action.at_ns
        if action.at_ns:
            self.at(max(action.at_ns, self.now_ns) + self.network.wake_ns // 2, self._tick, action.at_ns)

    def _tick(self, at_ns: int) -> None:
        if at_ns == self._wake_ns and not self.down:
            self._handle(ev.Tick())

    def _hop(self, client: int, to_client: bool) -> int:
        """When a message sent now arrives: in the order of sending."""
        network = self.network
        took_ns = network.hop_ns + int(self.random.expovariate(1.0) * network.hop_spread_ns)
        if network.stall and self.random.random() < network.stall:
            took_ns += self.random.randrange(network.stall_ns)
        key = (client, to_client)
        at_ns = max(self.now_ns + took_ns, self._last.get(key, 0))
        self._last[key] = at_ns
        return at_ns

    def _tell(self, action: Any) -> None:
        process = self.processes.get(action.client)
        if process is not None:
            self.at(self._hop(action.client, True), self._receive, process, process.connection, action)

    def _send(self, process: Process, event: ev.Event) -> None:
        self.at(self._hop(process.number, False), self._deliver, process, process.connection, event)

    def _deliver(self, process: Process, connection: int, event: ev.Event) -> None:
        if connection == process.connection and process.alive and not self.down:
            self._handle(event)

    def crash(self, down_ns: int) -> None:
        """The daemon dies, and is back after `down_ns`; all connections are gone."""
        self.down = True
        self.orders.clear()
        self._carried.clear()
        self.stopped.clear()
        for process in self.processes.values():
            self._disconnect(process)
        self.at(self.now_ns + down_ns, self._restart)

    def _restart(self) -> None:
        self.node = Node(len(self.working), self.policy, self.node.epochs.last + 1_000_000, self.now_ns)
        self.down = False
        self._wake_ns = 0
        policy = self.policy
        until_ns = self.now_ns + max(policy.alone_lease_ns, policy.alone_quota_ns) + policy.lease_margin_ns
        for spec in self.specs.values():
            self._handle(ev.TenantAdded(spec))
        for process in self.processes.values():
            if process.alive:
                self._handle(ev.ClientsKnown(((process.name, process.number),), until_ns))
                self.at(self.now_ns + self.random.randrange(200 * MS), self._connect, process)

    def cut(self, process: Process) -> None:
        """Its connection breaks: what is on its way is lost, and it says Hello again."""
        if process.alive and not self.down:
            self._disconnect(process)
            self.at(self.now_ns + self.random.randrange(50 * MS), self._connect, process)

    def _disconnect(self, process: Process) -> None:
        process.connection += 1
        process.connected = False

    # --- a process --------------------------------------------------------------------------------------------------
    def freeze(self, process: Process, for_ns: int) -> None:
        """SIGSTOP: what is in flight runs to its end, and nothing else happens until SIGCONT."""
        if not process.alive or process.frozen:
            return
        process.frozen = True
        for gpu, lane in process.lanes.items():
            if lane.running_since_ns >= 0 and not process.program.collective:
                lane.version += 1
                end_ns = self._kernel_end(process, lane, self.now_ns + self.policy.cap_ns)
                self.at(end_ns, self._starve, process, gpu, lane.version)
        self.at(self.now_ns + for_ns, self._thaw, process)

    def _starve(self, process: Process, gpu: int, version: int) -> None:
        lane = process.lanes[gpu]
        if version == lane.version and lane.running_since_ns >= 0:
            self._account(process, gpu, lane)
            self._rest(process, gpu, lane)

    def _thaw(self, process: Process) -> None:
        if not process.alive:
            return
        process.frozen = False
        waiting, process.inbox = process.inbox, []
        for gpu, lane in process.lanes.items():
            if lane.gate is Gate.OPEN:
                agrees = self.pages.get((process.name, gpu)) == lane.epoch and self.now_ns < lane.lease_until_ns
                if not agrees:
                    self._close(process, gpu, lane, at_once=True)
                else:
                    self._work_on(process, gpu, lane)
            elif lane.gate is Gate.DRAINING:
                self._drain_until(process, gpu, lane, self.now_ns)
        for connection, action in waiting:
            self._receive(process, connection, action)
        if process.burst_done:
            self._begin(process)

    def _connect(self, process: Process) -> None:
        if not process.alive or self.down or process.connected:
            return
        process.connected = True
        gpus = tuple(process.lanes)
        held = tuple(
            (gpu, lane.epoch) for gpu, lane in process.lanes.items() if lane.gate in (Gate.OPEN, Gate.DRAINING)
        )
        self._handle(ev.ClientJoined(process.name, process.number, gpus, held))
        for gpu, lane in process.lanes.items():
            if lane.gate is Gate.ASKED:
                lane.gate = Gate.CLOSED
            if lane.waiting:
                self._want(process, gpu, lane)

    def _begin(self, process: Process) -> None:
        """The next burst of its program."""
        if not process.alive or process.frozen or not process.burst_done:
            return
        process.begin_burst()
        for gpu, lane in process.lanes.items():
            if lane.gate is Gate.OPEN:
                self._work_on(process, gpu, lane)
            else:
                self._want(process, gpu, lane)

    def _estimates(self, process: Process) -> tuple[int, int]:
        return (process.burst_ns, process.gap_ns) if process.burst_ns < ENDLESS else (0, 0)

    def _want(self, process: Process, gpu: int, lane: Lane) -> None:
        if not lane.waiting:
            lane.waiting, lane.wants_ns = True, self.now_ns
        if lane.gate is Gate.CLOSED and process.connected:
            lane.gate = Gate.ASKED
            self._send(process, ev.TokenAsked(process.number, gpu, *self._estimates(process)))

    # --- what the daemon says ---------------------------------------------------------------------------------------
    def _receive(self, process: Process, connection: int, action: Any) -> None:
        if connection != process.connection or not process.alive:
            return
        if process.frozen:
            process.inbox.append((connection, action))
            return
        lane = process.lanes.get(action.gpu)
        if lane is None:
            return
        kind = type(action)
        if kind is ev.Grant:
            if lane.gate in (Gate.CLOSED, Gate.ASKED) and action.epoch > lane.returned:
                self._open(process, action.gpu, lane, action)
        elif action.epoch != lane.epoch or lane.gate not in (Gate.OPEN, Gate.DRAINING):
            return
        elif kind is ev.Revoke:
            if lane.gate is Gate.OPEN:
                self._close(process, action.gpu, lane)
        else:
            lane.lease_until_ns = self.now_ns + action.lease_ns
            if lane.gate is Gate.OPEN:
                lane.quota_until_ns, lane.contended = self.now_ns + action.quota_ns, action.contended
                self._work_on(process, action.gpu, lane)
            self._plan_renewal(process, action.gpu, lane)

    def _open(self, process: Process, gpu: int, lane: Lane, grant: ev.Grant) -> None:
        lane.gate, lane.epoch, lane.contended = Gate.OPEN, grant.epoch, grant.contended
        lane.granted_ns = self.now_ns
        lane.quota_until_ns = self.now_ns + grant.quota_ns
        lane.lease_until_ns = self.now_ns + grant.lease_ns
        lane.idle = False
        lane.waiting = False
        if self.pages.get((process.name, gpu)) != lane.epoch:  # it came too late: the token has moved on
            self._close(process, gpu, lane, at_once=True)
            return
        self.given_up.discard((process.number, gpu))
        self._work_on(process, gpu, lane)
        self._plan_renewal(process, gpu, lane)

    # --- work -------------------------------------------------------------------------------------------------------
    def _work_on(self, process: Process, gpu: int, lane: Lane) -> None:
        """The gate is open: go on with the burst, or wait a little for the next; plan what comes first."""
        lane.version += 1
        lane.waiting = False
        end_ns = min(lane.lease_until_ns, lane.quota_until_ns) if lane.contended else lane.lease_until_ns
        if process.program.collective:
            self.at(max(end_ns, self.now_ns), self._stop, process, gpu, lane.version)
            if lane.left_ns > 0:
                self._launch_soon(process)
            else:
                self._idle_soon(process, gpu, lane)
            return
        if lane.left_ns > 0:
            if lane.running_since_ns < 0:
                self._occupy(process, gpu, lane)
            end_ns = min(end_ns, lane.running_since_ns + lane.left_ns)
            self.at(max(end_ns, self.now_ns), self._stop, process, gpu, lane.version)
        else:
            self._idle_soon(process, gpu, lane)

    def _idle_soon(self, process: Process, gpu: int, lane: Lane) -> None:
        if not lane.contended:
            return  # it goes back when a renewal is due, or is asked back
        gap_ns = process.gap_ns
        patience_ns = 0 if gap_ns > 200_000 else min(2 * gap_ns, MS)
        if lane.granted_ns == self.now_ns:
            patience_ns = IDLE_UNUSED_NS
        self.at(self.now_ns + patience_ns, self._idle, process, gpu, lane.version)

    def _idle(self, process: Process, gpu: int, version: int) -> None:
        lane = process.lanes[gpu]
        if version == lane.version and lane.gate is Gate.OPEN and not process.frozen:
            lane.idle = True
            self._close(process, gpu, lane, at_once=True)

    def _stop(self, process: Process, gpu: int, version: int) -> None:
        """Planned: the burst is done, or the quota or the lease is over."""
        lane = process.lanes[gpu]
        if version != lane.version or lane.gate is not Gate.OPEN or process.frozen:
            return
        self._account(process, gpu, lane)
        if lane.left_ns > 0 or process.program.collective:
            self._close(process, gpu, lane, at_once=True)
            return
        self._rest(process, gpu, lane)
        lane.version += 1
        self._idle_soon(process, gpu, lane)
        self._finish_burst(process)

    def _finish_burst(self, process: Process) -> None:
        if process.burst_done:
            process.bursts += 1
            self.at(self.now_ns + process.gap_ns, self._begin, process)

    def _occupy(self, process: Process, gpu: int, lane: Lane) -> None:
        lane.running_since_ns = self.now_ns
        working = self.working[gpu]
        for other in working.values():
            given_up = not self.given_up.isdisjoint({(other.number, gpu), (process.number, gpu)})
            valve = lane.helped or other.lanes[gpu].helped
            assert other.name == process.name or given_up or valve, (
                f"{process.name} and {other.name} work on GPU {gpu} at {self.now_ns} ns"
            )
        working[process.number] = process

    def _rest(self, process: Process, gpu: int, lane: Lane) -> None:
        lane.running_since_ns = -1
        self.working[gpu].pop(process.number, None)

    def _account(self, process: Process, gpu: int, lane: Lane) -> None:
        start_ns = lane.running_since_ns
        if start_ns < 0 or self.now_ns <= start_ns:
            return
        if not process.program.collective:
            lane.left_ns -= self.now_ns - start_ns
        lane.running_since_ns = self.now_ns
        for watcher in self.watchers:
            watcher.on_work(self, process, gpu, start_ns, self.now_ns)

    # --- the way back -----------------------------------------------------------------------------------------------
    def _kernel_end(self, process: Process, lane: Lane, not_before_ns: int) -> int:
        """When the kernel that runs at that time ends; the burst's end at the latest."""
        kernel_ns = process.program.kernel_ns
        burst_start_ns = lane.running_since_ns + lane.left_ns - process.burst_ns
        ran_ns = not_before_ns - burst_start_ns
        return min(burst_start_ns + -(-ran_ns // kernel_ns) * kernel_ns, lane.running_since_ns + lane.left_ns)

    def _close(self, process: Process, gpu: int, lane: Lane, *, at_once: bool = False) -> None:
        """Nothing more is launched. at_once: the launches stopped in time for it; else a cap's worth is in flight."""
        lane.gate = Gate.DRAINING
        lane.version += 1
        if process.program.collective:
            if lane.launched == lane.done:
                self._drained(process, gpu, lane)
            else:
                self.at(self.now_ns + VALVE_NS, self._valve, process, gpu, lane.version)
            self._plan_renewal(process, gpu, lane)
            return
        end_ns = self.now_ns
        if lane.running_since_ns >= 0:
            end_ns = self._kernel_end(process, lane, self.now_ns)  # the one that runs
            if not at_once:  # and what was launched behind it, within the cap
                left_ns = max(0, self.now_ns + self.node.machines[gpu].cap_ns - end_ns)
                kernel_ns = process.program.kernel_ns
                end_ns = min(end_ns + left_ns // kernel_ns * kernel_ns, lane.running_since_ns + lane.left_ns)
        self._drain_until(process, gpu, lane, end_ns)

    def _drain_until(self, process: Process, gpu: int, lane: Lane, end_ns: int) -> None:
        lane.version += 1
        self.at(end_ns, self._drain_done, process, gpu, lane.version)
        self._plan_renewal(process, gpu, lane)

    def _drain_done(self, process: Process, gpu: int, version: int) -> None:
        lane = process.lanes[gpu]
        if version == lane.version and not process.frozen:
            before_ns = lane.left_ns
            self._account(process, gpu, lane)
            self._rest(process, gpu, lane)
            self._drained(process, gpu, lane)
            if lane.left_ns <= 0 < before_ns:
                self._finish_burst(process)

    def _drained(self, process: Process, gpu: int, lane: Lane) -> None:
        epoch, lane.returned = lane.epoch, lane.epoch
        more = lane.left_ns > 0
        lane.version += 1
        lane.gate = Gate.ASKED if more else Gate.CLOSED
        if more:
            lane.waiting, lane.wants_ns = True, self.now_ns
        if not process.connected:  # nobody to tell; Hello will not name it any more
            lane.gate = Gate.CLOSED
            return
        held_ns = self.now_ns - lane.granted_ns
        burst_ns, gap_ns = self._estimates(process)
        said = ev.TokenReturned(
            process.number, gpu, epoch, more, lane.idle, False, held_ns, 1, burst_ns, gap_ns, held_ns
        )
        order = next(iter(self.orders[gpu].orders), None)
        if (
            self.network.prepared
            and order is not None
            and gpu not in self.stopped
            and (order.holder, order.holder_epoch) == (process.number, epoch)
            and order.not_before_ns <= self.now_ns
            and (not more or order.wanting_from_ns <= self.now_ns)
        ):
            self.at(self.now_ns + self.network.carry_ns, self._carry, order, process, process.connection, said)
        else:
            self._send(process, said)

    def _carry(self, order: ev.Prepare, holder: Process, connection: int, said: ev.TokenReturned) -> None:
        """The carrier: one page is cleared, the other shows its epoch, and who sleeps there wakes."""
        if self.down or connection != holder.connection:
            return
        line = self.orders[order.gpu]
        if order not in line.orders[:1]:
            self._send(holder, said)
            return
        line.carried(self.now_ns)
        if not said.want_more:
            self.stopped.add(order.gpu)
        self.pages[order.holder_tenant, order.gpu], self.pages[order.tenant, order.gpu] = 0, order.epoch
        for number in order.clients:
            process = self.processes.get(number)
            if process is not None:
                grant = ev.Grant(
                    number, order.gpu, order.epoch, order.quota_ns, order.lease_ns, order.cap_ns, order.contended, False
                )
                self.at(self.now_ns + self.network.wake_ns, self._receive, process, process.connection, grant)
        self._carried.append(CarriedOut(self.now_ns, order, said if self.network.behind else None))
        if not self.network.behind:
            self._send(holder, said)
        if not line.orders or order.gpu in self.stopped or not self.network.behind:
            self.at(self.now_ns + self.network.taken_ns, self._told_late)

    def _told_late(self) -> None:
        if self._carried and not self.down:
            self._tell_carried()

    def _plan_renewal(self, process: Process, gpu: int, lane: Lane) -> None:
        lease_ns = lane.lease_until_ns - self.now_ns
        due_ns = self.now_ns + lease_ns // 2
        if lane.gate is Gate.OPEN and not lane.contended:
            due_ns = min(due_ns, self.now_ns + (lane.quota_until_ns - self.now_ns) * 3 // 4)
        elif lane.gate is Gate.OPEN:
            return  # its quota is over before its lease is half over; then it drains, and that is planned anew
        self.at(max(due_ns, self.now_ns), self._renew, process, gpu, lane.epoch, lane.lease_until_ns)

    def _renew(self, process: Process, gpu: int, epoch: int, lease_until_ns: int) -> None:
        lane = process.lanes[gpu]
        if lane.epoch != epoch or lane.gate not in (Gate.OPEN, Gate.DRAINING) or process.frozen or not process.alive:
            return
        if lane.lease_until_ns != lease_until_ns or not process.connected:
            return  # renewed since
        draining = lane.gate is Gate.DRAINING
        if not draining and not lane.contended and lane.left_ns <= 0 and process.gap_ns > IDLE_ALONE_NS:
            lane.idle = True
            self._close(process, gpu, lane, at_once=True)
            return
        self._send(process, ev.TokenRenewed(process.number, gpu, epoch, draining))

    # --- collectives ------------------------------------------------------------------------------------------------
    def _launch_soon(self, process: Process) -> None:
        """The threads of its GPUs launch the next kernel, none at quite the same time."""
        for gpu in process.lanes:
            self.at(self.now_ns + 5_000 + self.random.randrange(60_000), self._launch, process, gpu)

    def _launch(self, process: Process, gpu: int) -> None:
        lane = process.lanes[gpu]
        if not process.alive or process.frozen or lane.launched > lane.done or lane.left_ns <= 0:
            return
        if lane.gate is Gate.OPEN:
            self._launched(process, gpu, lane)
        else:
            self._want(process, gpu, lane)

    def _launched(self, process: Process, gpu: int, lane: Lane) -> None:
        lane.launched += 1
        lane.waiting = False
        self._occupy(process, gpu, lane)
        kernel = lane.launched
        if all(other.launched >= kernel for other in process.lanes.values()):
            self.at(self.now_ns + process.program.kernel_ns, self._collective_done, process, kernel)

    def _collective_done(self, process: Process, kernel: int) -> None:
        if not process.alive:
            return
        for gpu, lane in process.lanes.items():
            self._account(process, gpu, lane)
            self._rest(process, gpu, lane)
            lane.done = kernel
            lane.helped = False
            lane.left_ns -= process.program.kernel_ns
            if lane.gate is Gate.DRAINING:
                self._drained(process, gpu, lane)
        if process.burst_done:
            for gpu, lane in process.lanes.items():
                if lane.gate is Gate.OPEN:
                    self._idle_soon(process, gpu, lane)
            self._finish_burst(process)
        else:
            self._launch_soon(process)

    def _valve(self, process: Process, gpu: int, version: int) -> None:
        """A drain that does not end: its kernel waits for threads that stand at other gates. They are let in."""
        lane = process.lanes[gpu]
        if version != lane.version or lane.gate is not Gate.DRAINING or lane.launched == lane.done:
            return
        for other_gpu, other in process.lanes.items():
            if other.launched < lane.launched and other.gate is not Gate.OPEN:
                process.valves += 1
                other.helped = True
                self._launched(process, other_gpu, other)
        self.at(self.now_ns + VALVE_NS, self._valve, process, gpu, version)
