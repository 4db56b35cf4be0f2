"""Who watches a simulated world: shares by what really ran, and how long anybody had to wait."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from itertools import accumulate

from scheduler_backend.core import events as ev
from scheduler_backend.core.machine import TokenMachine
from scheduler_backend.core.policy import HANDOVER_NS, MS
from scheduler_backend.core.seat import Seat, State
from scheduler_backend.core.tenant import WHOLE_PPM
from scheduler_backend.simulation.library import VALVE_NS
from scheduler_backend.simulation.process import Process
from scheduler_backend.simulation.programs import SECOND, Program
from scheduler_backend.simulation.world import World

UNHEARD_NS = 500 * MS  # a wish that the daemon has not heard for so long is lost


class Timeline:
    """GPU time of each tenant on each GPU, in bins: what really ran, not what the daemon says."""

    def __init__(self, bin_ns: int = SECOND) -> None:
        self.bin_ns = bin_ns
        self.bins: dict[tuple[str, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))

    def on_actions(self, world: World, event: ev.Event, actions: list[ev.Action]) -> None:
        """Nothing of what the daemon says counts here."""

    def on_work(self, world: World, process: Process, gpu: int, start_ns: int, end_ns: int) -> None:
        bins = self.bins[process.name, gpu]
        while start_ns < end_ns:
            index = start_ns // self.bin_ns
            until_ns = min(end_ns, (index + 1) * self.bin_ns)
            bins[index] += until_ns - start_ns
            start_ns = until_ns

    def share(self, name: str, start_s: float, end_s: float, gpu: int = 0) -> float:
        """Part of the time in which it ran; the edges are rounded down to bins."""
        first, last = self._bin(start_s), self._bin(end_s)
        bins = self.bins[name, gpu]
        return sum(bins.get(index, 0) for index in range(first, last)) / ((last - first) * self.bin_ns)

    def sliding(self, name: str, start_s: float, end_s: float, window_s: float = 1.0, gpu: int = 0) -> list[float]:
        """Its shares over all windows of that length which lie between the two, one from each bin on."""
        first, last, length = self._bin(start_s), self._bin(end_s), self._bin(window_s)
        bins = self.bins[name, gpu]
        sums = [0, *accumulate(bins.get(index, 0) for index in range(first, last))]
        return [(sums[at + length] - sums[at]) / (length * self.bin_ns) for at in range(last - first - length + 1)]

    def errors_pp(self, owed: Mapping[str, float], start_s: float, end_s: float, window_s: float = 1.0) -> list[float]:
        """By how many points each share misses what is owed, over sliding windows of one GPU; all tenants', sorted.

        Where tenants together got less than they are owed together, each is owed its part of what they got.
        """
        shares = {name: self.sliding(name, start_s, end_s, window_s) for name in owed}
        total = sum(owed.values())
        parts = [min(1.0, sum(window) / total) for window in zip(*shares.values(), strict=True)]
        return sorted(
            100 * abs(share - owed[name] * part)
            for name, windows in shares.items()
            for share, part in zip(windows, parts, strict=True)
        )

    def _bin(self, time_s: float) -> int:
        return round(time_s * SECOND) // self.bin_ns


class GrantWaits:
    """How long each wish waited: from a thread's wait at the gate to the Grant's arrival, of all Grants that worked."""

    def __init__(self) -> None:
        self.waits_ns: dict[str, list[int]] = defaultdict(list)  # of each tenant
        self._epochs: dict[tuple[int, int], int] = {}  # the last that was counted of each process on each GPU

    def on_actions(self, world: World, event: ev.Event, actions: list[ev.Action]) -> None:
        """What the daemon says has not arrived."""

    def on_work(self, world: World, process: Process, gpu: int, start_ns: int, end_ns: int) -> None:
        """Counts the wait before the first work under each Grant."""
        lane = process.lanes[gpu]
        if self._epochs.get((process.number, gpu)) != lane.epoch:
            self._epochs[process.number, gpu] = lane.epoch
            self.waits_ns[process.name].append(lane.granted_ns - lane.wants_ns)


class Waits:
    """No tenant of one GPU with a request waits, with headroom, longer than its last held time / request + the others'
    quotas + one kernel. Counts each wait and keeps the one that came nearest to (or furthest past) its bound.

    A wait counts when it ends, and at the end of a run (`end`): who never gets the token is late, too.

    Each other one counts once: with its quota and the messages of its hand-over, or with its kernel where that is
    longer, for a kernel that runs can not be taken off the card. No order of turns could keep to quotas alone: where
    three come at once with kernels of 100 ms, the last waits for 200, with quotas of 10 ms and nothing held before.
    What kernels shorter than a quota run past its end is counted once, not for each: that is the one kernel. Kernels
    count of processes that were there during the wait, of those too that left in it. A gang counts with a quota more,
    for which tokens may be kept for it while it assembles, and with the time after which a kernel of its own is helped.
    `past_quotas` counts the waits that were longer than with the others' quotas alone: there are none where neither
    gangs are about nor several with kernels longer than a quota come at once.
    """

    def __init__(self, handover_ns: int = HANDOVER_NS) -> None:
        self.handover_ns = handover_ns
        self.waits = 0
        self.past_quotas = 0
        self.worst: tuple[float, str] = (0.0, "")  # wait / bound, and the case
        self.late: list[str] = []
        self._here: dict[str, dict[int, Program]] = defaultdict(dict)  # tenant -> its processes
        self._gone: deque[tuple[int, Program]] = deque()  # when a process went, and which

    def on_work(self, world: World, process: Process, gpu: int, start_ns: int, end_ns: int) -> None:
        """Work is not waiting."""

    def on_actions(self, world: World, event: ev.Event, actions: list[ev.Action]) -> None:
        """Looks at each hand-over."""
        if type(event) is ev.ClientJoined:
            self._here[event.tenant][event.client] = world.processes[event.client].program
        elif type(event) is ev.ClientDied:
            program = world.processes[event.client].program
            self._here[program.spec.name].pop(event.client, None)
            self._gone.append((world.event_ns, program))
        for action in actions:
            if type(action) is ev.Handed:
                machine = world.node.machines[action.gpu]
                seat = machine.seats[action.tenant]
                self._judge(world, machine, seat, seat.ready_since_ns, world.event_ns, f"epoch {action.epoch}")

    def end(self, world: World) -> None:
        """The run is over: who waits now has waited so long, and who waits unknown to the daemon is late."""
        if world.down:
            return
        for machine in world.node.machines:
            for seat in machine.waiting.values():
                if not world.daemon.untold(seat.name, machine.gpu):
                    self._judge(world, machine, seat, seat.ready_since_ns, world.now_ns, "waits still")
        for process in world.processes.values():
            if not process.alive or process.frozen or not process.connected:
                continue
            for gpu, lane in process.lanes.items():
                wait_ns = world.now_ns - lane.wants_ns
                idle = world.node.machines[gpu].seats[process.name].state is State.IDLE
                if lane.waiting and idle and wait_ns > UNHEARD_NS:
                    self.late.append(
                        f"{process.name} waits at GPU {gpu} for {wait_ns / MS:.3f} ms, and is not waited for"
                    )

    def _judge(self, world: World, machine: TokenMachine, seat: Seat, since_ns: int, now_ns: int, how: str) -> None:
        wait_ns = now_ns - since_ns
        if not seat.request_ppm or len(world.specs[seat.name].gpus) > 1 or wait_ns < 0:
            return
        quota_ns = world.policy.quota_ns
        while self._gone and self._gone[0][0] < now_ns - 100 * SECOND:
            self._gone.popleft()
        kernels = {
            other.name: max((program.kernel_ns for program in self._here[other.name].values()), default=0)
            for other in machine.seats.values()
            if other.members
        }
        for at_ns, program in reversed(self._gone):
            if at_ns < since_ns:
                break
            if machine.gpu in program.spec.gpus:
                kernels[program.spec.name] = max(program.kernel_ns, kernels.get(program.spec.name, 0))
        one_kernel_ns = max(kernels.values())
        kernels.pop(seat.name, None)
        others_ns = len(kernels) * (quota_ns + self.handover_ns)
        quotas_ns = seat.held_ns * WHOLE_PPM // seat.request_ppm + others_ns + one_kernel_ns
        bound_ns = quotas_ns + sum(max(0, kernel_ns - quota_ns) for kernel_ns in kernels.values())
        bound_ns += sum(quota_ns + VALVE_NS for name in kernels if name in world.node.gangs.gangs)
        self.waits += 1
        self.past_quotas += wait_ns > quotas_ns
        if wait_ns > bound_ns or wait_ns / bound_ns > self.worst[0]:
            case = (
                f"{seat.name} (request {seat.request_ppm} ppm, held {seat.held_ns / MS:.3f} ms) waited "
                f"{wait_ns / MS:.3f} of {bound_ns / MS:.3f} ms at {now_ns / SECOND:.6f} s, {how}"
            )
            self.worst = max(self.worst, (wait_ns / bound_ns, case))
            if wait_ns > bound_ns:
                self.late.append(case)


class Gaps:
    """For how long each process, on each of its GPUs, did no work: between two pieces of it, and before the first."""

    def __init__(self) -> None:
        self.longest: dict[tuple[str, int, int], int] = {}  # of those that went on: who stands still is in pauses()
        self._last: dict[tuple[str, int, int], int] = {}

    def on_actions(self, world: World, event: ev.Event, actions: list[ev.Action]) -> None:
        """What the daemon says is no work."""

    def on_work(self, world: World, process: Process, gpu: int, start_ns: int, end_ns: int) -> None:
        """Measures the pause before it."""
        key = (process.name, process.number, gpu)
        self.longest[key] = max(self.longest.get(key, 0), start_ns - self._last.get(key, process.program.start_ns))
        self._last[key] = end_ns

    def pauses(self, world: World) -> dict[tuple[str, int, int], int]:
        """The longest of each, up to now: with that of who is there and has not gone on since, or never worked."""
        pauses = dict(self.longest)
        for process in world.processes.values():
            for gpu in process.lanes:
                key = (process.name, process.number, gpu)
                since_ns = self._last.get(key, process.program.start_ns)
                pauses[key] = max(pauses.get(key, 0), world.now_ns - since_ns)
        return pauses

    def worst_ns(self, world: World) -> int:
        """Of all processes that ever worked or should have, up to now."""
        return max(self.pauses(world).values(), default=0)
