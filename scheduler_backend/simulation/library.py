"""The processes of a simulated world: what the library and the program in each process do, on each of their GPUs.

A process asks, works while its gate is open, closes, drains and returns (process.py says by which rules). What really
ran on each card is told to the watchers, who judge (watch.py). Two tenants at work on one card at once raise here,
unless the daemon had given the one up (its lease ran out, or it overran), or lets it run beside others. Then each works
as fast as alone, for this card has no slices.
"""

from __future__ import annotations

from typing import Any

from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS
from scheduler_backend.simulation.daemon import Daemon
from scheduler_backend.simulation.process import Gate, Lane, Process
from scheduler_backend.simulation.programs import ENDLESS

IDLE_UNUSED_NS = 500_000  # an unused token goes back after this (libhook/runtime/seat.c)
IDLE_ALONE_NS = 50 * MS  # alone: idle so long when a renewal is due (token.c)
VALVE_NS = 5 * MS
USED_EVERY_NS = 10 * MS  # libhook/core/wire.h


class Library:
    """Every process, between what its program wants and what the daemon says."""

    def __init__(self, gpus: int, daemon: Daemon) -> None:
        self.daemon = daemon
        self.working: list[dict[int, Process]] = [{} for _ in range(gpus)]

    def begin(self, process: Process) -> None:
        """The next burst of its program."""
        if not process.alive or process.frozen or not process.burst_done:
            return
        process.begin_burst()
        for gpu, lane in process.lanes.items():
            if lane.gate is Gate.OPEN:
                self.work_on(process, gpu, lane)
            else:
                self.want(process, gpu, lane)

    def _estimates(self, process: Process) -> tuple[int, int]:
        return (process.burst_ns, process.gap_ns) if process.burst_ns < ENDLESS else (0, 0)

    def want(self, process: Process, gpu: int, lane: Lane) -> None:
        """Its next kernel waits at the gate; ask for the token if nobody has."""
        if not lane.waiting:
            lane.waiting, lane.wants_ns = True, self.daemon.now_ns
        if lane.gate is Gate.CLOSED and process.connected:
            lane.gate = Gate.ASKED
            self.daemon.send(process, ev.TokenAsked(process.number, gpu, *self._estimates(process)))

    # --- what the daemon says ----------------------------------------------------------------------------------------
    def receive(self, process: Process, connection: int, action: Any) -> None:
        """What the daemon says has arrived at the process, over that connection."""
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
            again = action.joined and action.epoch == lane.returned  # it asked again while a sibling holds it
            if lane.gate in (Gate.CLOSED, Gate.ASKED) and (again or action.epoch > lane.returned):
                self._open(process, action.gpu, lane, action)
        elif action.epoch != lane.epoch or lane.gate not in (Gate.OPEN, Gate.DRAINING):
            return
        elif kind is ev.Revoke:
            if lane.gate is Gate.OPEN:
                self.close(process, action.gpu, lane)
        else:
            lane.lease_until_ns = self.daemon.now_ns + action.lease_ns
            if lane.gate is Gate.OPEN:
                lane.quota_until_ns, lane.contended = self.daemon.now_ns + action.quota_ns, action.contended
                lane.cap_ns = action.cap_ns
                self._share(process, action.gpu, lane, action.shared)
                self.work_on(process, action.gpu, lane)
            self._plan_renewal(process, action.gpu, lane)

    def _open(self, process: Process, gpu: int, lane: Lane, grant: ev.Grant) -> None:
        lane.gate, lane.epoch, lane.contended = Gate.OPEN, grant.epoch, grant.contended
        lane.granted_ns, lane.ran_ns = self.daemon.now_ns, 0
        lane.quota_until_ns = self.daemon.now_ns + grant.quota_ns
        lane.lease_until_ns = self.daemon.now_ns + grant.lease_ns
        lane.cap_ns = grant.cap_ns
        lane.idle = False
        lane.waiting = False
        lane.shared = False
        if self.daemon.pages.get((process.name, gpu)) != lane.epoch:  # it came too late: the token has moved on
            self.close(process, gpu, lane, at_once=True)
            return
        self.daemon.given_up.discard((process.number, gpu))
        self._share(process, gpu, lane, grant.shared)
        self.work_on(process, gpu, lane)
        self._plan_renewal(process, gpu, lane)

    def _share(self, process: Process, gpu: int, lane: Lane, shared: bool) -> None:
        begins, lane.shared = shared and not lane.shared, shared
        if begins:
            self._tell_used(process, gpu, lane.epoch)

    def _tell_used(self, process: Process, gpu: int, epoch: int) -> None:
        lane = process.lanes[gpu]
        if lane.epoch != epoch or lane.gate is not Gate.OPEN or not lane.shared or process.frozen:
            return
        self.account(process, gpu, lane)
        if process.connected:
            self.daemon.send(process, ev.Used(process.number, gpu, epoch, lane.worked_ns))
        self.daemon.at(self.daemon.now_ns + USED_EVERY_NS, self._tell_used, process, gpu, epoch)

    # --- work --------------------------------------------------------------------------------------------------------
    def work_on(self, process: Process, gpu: int, lane: Lane) -> None:
        """The gate is open: go on with the burst, or wait a little for the next; plan what comes first."""
        lane.version += 1
        lane.waiting = False
        end_ns = min(lane.lease_until_ns, lane.quota_until_ns) if lane.contended else lane.lease_until_ns
        if process.program.collective:
            self.daemon.at(max(end_ns, self.daemon.now_ns), self._stop, process, gpu, lane.version)
            if lane.left_ns > 0:
                self._launch_soon(process)
            else:
                self._idle_soon(process, gpu, lane)
            return
        if lane.left_ns > 0:
            warm_ns = lane.granted_ns + process.program.warm_ns
            if lane.running_since_ns < 0 and self.daemon.now_ns < warm_ns:
                self.daemon.at(warm_ns, self._warm, process, gpu, lane.version)
                return
            if lane.running_since_ns < 0:
                self._occupy(process, gpu, lane)
            end_ns = min(end_ns, lane.running_since_ns + lane.left_ns)
            self.daemon.at(max(end_ns, self.daemon.now_ns), self._stop, process, gpu, lane.version)
        else:
            self._idle_soon(process, gpu, lane)

    def _warm(self, process: Process, gpu: int, version: int) -> None:
        lane = process.lanes[gpu]
        if version == lane.version and lane.gate is Gate.OPEN and not process.frozen:
            self.work_on(process, gpu, lane)

    def _idle_soon(self, process: Process, gpu: int, lane: Lane) -> None:
        if not lane.contended:
            return  # it goes back when a renewal is due, or is asked back
        gap_ns = process.gap_ns
        patience_ns = 0 if gap_ns > 200_000 else min(2 * gap_ns, MS)
        if lane.granted_ns == self.daemon.now_ns:
            patience_ns = IDLE_UNUSED_NS
        self.daemon.at(self.daemon.now_ns + patience_ns, self._idle, process, gpu, lane.version)

    def _idle(self, process: Process, gpu: int, version: int) -> None:
        lane = process.lanes[gpu]
        if version == lane.version and lane.gate is Gate.OPEN and not process.frozen:
            lane.idle = True
            self.close(process, gpu, lane, at_once=True)

    def _stop(self, process: Process, gpu: int, version: int) -> None:
        """Planned: the burst is done, or the quota or the lease is over."""
        lane = process.lanes[gpu]
        if version != lane.version or lane.gate is not Gate.OPEN or process.frozen:
            return
        self.account(process, gpu, lane)
        if lane.left_ns > 0 or process.program.collective:
            self.close(process, gpu, lane, at_once=True)
            return
        self.rest(process, gpu, lane)
        lane.version += 1
        self._idle_soon(process, gpu, lane)
        self._finish_burst(process)

    def _finish_burst(self, process: Process) -> None:
        if process.burst_done:
            process.bursts += 1
            self.daemon.at(self.daemon.now_ns + process.gap_ns, self.begin, process)

    def _occupy(self, process: Process, gpu: int, lane: Lane) -> None:
        lane.running_since_ns = self.daemon.now_ns
        working = self.working[gpu]
        for other in working.values():
            given_up = not self.daemon.given_up.isdisjoint({(other.number, gpu), (process.number, gpu)})
            beside = lane.helped or other.lanes[gpu].helped or lane.shared or other.lanes[gpu].shared
            assert other.name == process.name or given_up or beside, (
                f"{process.name} and {other.name} work on GPU {gpu} at {self.daemon.now_ns} ns"
            )
        working[process.number] = process

    def rest(self, process: Process, gpu: int, lane: Lane) -> None:
        """It works no more."""
        lane.running_since_ns = -1
        self.working[gpu].pop(process.number, None)

    def account(self, process: Process, gpu: int, lane: Lane) -> None:
        """What it has worked up to now is told."""
        start_ns = lane.running_since_ns
        if start_ns < 0 or self.daemon.now_ns <= start_ns:
            return
        if not process.program.collective:
            lane.left_ns -= self.daemon.now_ns - start_ns
        lane.running_since_ns = self.daemon.now_ns
        lane.ran_ns += self.daemon.now_ns - start_ns
        lane.worked_ns += self.daemon.now_ns - start_ns
        for watcher in self.daemon.watchers:
            watcher.on_work(self.daemon.world, process, gpu, start_ns, self.daemon.now_ns)

    # --- the way back ------------------------------------------------------------------------------------------------
    def kernel_end(self, process: Process, lane: Lane, not_before_ns: int) -> int:
        """When the kernel that runs at that time ends; the burst's end at the latest."""
        kernel_ns = process.program.kernel_ns
        burst_start_ns = lane.running_since_ns + lane.left_ns - process.burst_ns
        ran_ns = not_before_ns - burst_start_ns
        return min(burst_start_ns + -(-ran_ns // kernel_ns) * kernel_ns, lane.running_since_ns + lane.left_ns)

    def close(self, process: Process, gpu: int, lane: Lane, *, at_once: bool = False) -> None:
        """Nothing more is launched. at_once: the launches stopped in time for it; else a cap's worth is in flight."""
        lane.gate = Gate.DRAINING
        lane.version += 1
        if process.program.collective:
            if lane.launched == lane.done:
                self._drained(process, gpu, lane)
            else:
                self.daemon.at(self.daemon.now_ns + VALVE_NS, self._valve, process, gpu, lane.version)
            self._plan_renewal(process, gpu, lane)
            return
        end_ns = self.daemon.now_ns
        if lane.running_since_ns >= 0:
            end_ns = self.kernel_end(process, lane, self.daemon.now_ns)  # the one that runs
            if not at_once:  # and what was launched behind it, within the cap
                left_ns = max(0, self.daemon.now_ns + lane.cap_ns - end_ns)
                kernel_ns = process.program.kernel_ns
                end_ns = min(end_ns + left_ns // kernel_ns * kernel_ns, lane.running_since_ns + lane.left_ns)
        self.drain_until(process, gpu, lane, end_ns)

    def drain_until(self, process: Process, gpu: int, lane: Lane, end_ns: int) -> None:
        """What is in flight ends then."""
        lane.version += 1
        self.daemon.at(end_ns, self._drain_done, process, gpu, lane.version)
        self._plan_renewal(process, gpu, lane)

    def _drain_done(self, process: Process, gpu: int, version: int) -> None:
        lane = process.lanes[gpu]
        if version == lane.version and not process.frozen:
            before_ns = lane.left_ns
            self.account(process, gpu, lane)
            self.rest(process, gpu, lane)
            self._drained(process, gpu, lane)
            if lane.left_ns <= 0 < before_ns:
                self._finish_burst(process)

    def _drained(self, process: Process, gpu: int, lane: Lane) -> None:
        epoch, lane.returned = lane.epoch, lane.epoch
        more = lane.left_ns > 0
        lane.version += 1
        lane.gate = Gate.ASKED if more else Gate.CLOSED
        if more:
            lane.waiting, lane.wants_ns = True, self.daemon.now_ns
        if not process.connected:  # nobody to tell; Hello will not name it any more
            lane.gate = Gate.CLOSED
            return
        held_ns = process.program.says_held_ns or self.daemon.now_ns - lane.granted_ns
        burst_ns, gap_ns = self._estimates(process)
        launches = -(-lane.ran_ns // process.program.kernel_ns)
        said = ev.TokenReturned(
            process.number, gpu, epoch, more, lane.idle, False, lane.ran_ns, launches, burst_ns, gap_ns, held_ns
        )
        self.daemon.give_back(process, said)

    def _plan_renewal(self, process: Process, gpu: int, lane: Lane) -> None:
        lease_ns = lane.lease_until_ns - self.daemon.now_ns
        due_ns = self.daemon.now_ns + lease_ns // 2
        if lane.gate is Gate.OPEN and not lane.contended:
            due_ns = min(due_ns, self.daemon.now_ns + (lane.quota_until_ns - self.daemon.now_ns) * 3 // 4)
        elif lane.gate is Gate.OPEN:
            return  # its quota is over before its lease is half over; then it drains, and that is planned anew
        self.daemon.at(max(due_ns, self.daemon.now_ns), self._renew, process, gpu, lane.epoch, lane.lease_until_ns)

    def _renew(self, process: Process, gpu: int, epoch: int, lease_until_ns: int) -> None:
        lane = process.lanes[gpu]
        if lane.epoch != epoch or lane.gate not in (Gate.OPEN, Gate.DRAINING) or process.frozen or not process.alive:
            return
        if lane.lease_until_ns != lease_until_ns or not process.connected:
            return  # renewed since
        draining = lane.gate is Gate.DRAINING
        if not draining and not lane.contended and lane.left_ns <= 0 and process.gap_ns > IDLE_ALONE_NS:
            lane.idle = True
            self.close(process, gpu, lane, at_once=True)
            return
        foreseen = draining and not process.program.collective
        self.daemon.send(process, ev.TokenRenewed(process.number, gpu, epoch, draining, foreseen))

    # --- collectives -------------------------------------------------------------------------------------------------
    def _launch_soon(self, process: Process) -> None:
        """The threads of its GPUs launch the next kernel, none at quite the same time."""
        for gpu in process.lanes:
            self.daemon.at(
                self.daemon.now_ns + 5_000 + self.daemon.random.randrange(60_000), self._launch, process, gpu
            )

    def _launch(self, process: Process, gpu: int) -> None:
        lane = process.lanes[gpu]
        if not process.alive or process.frozen or lane.launched > lane.done or lane.left_ns <= 0:
            return
        if lane.gate is Gate.OPEN:
            self._launched(process, gpu, lane)
        else:
            self.want(process, gpu, lane)

    def _launched(self, process: Process, gpu: int, lane: Lane) -> None:
        lane.launched += 1
        lane.waiting = False
        self._occupy(process, gpu, lane)
        kernel = lane.launched
        if all(other.launched >= kernel for other in process.lanes.values()):
            self.daemon.at(self.daemon.now_ns + process.program.kernel_ns, self._collective_done, process, kernel)

    def _collective_done(self, process: Process, kernel: int) -> None:
        if not process.alive:
            return
        for gpu, lane in process.lanes.items():
            self.account(process, gpu, lane)
            self.rest(process, gpu, lane)
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
        self.daemon.at(self.daemon.now_ns + VALVE_NS, self._valve, process, gpu, version)
