"""Who watches a simulated world: shares by what really ran, and how long anybody had to wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import HANDOVER_NS, MS
from scheduler_backend.core.tenant import WHOLE_PPM
from scheduler_backend.simulation.library import VALVE_NS
from scheduler_backend.simulation.process import Process
from scheduler_backend.simulation.programs import SECOND, Program
from scheduler_backend.simulation.world import World


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
        """Part of the time in which it ran; the edges are rounded to bins."""
        first, last = int(start_s * SECOND) // self.bin_ns, int(end_s * SECOND) // self.bin_ns
        bins = self.bins[name, gpu]
        return sum(bins.get(index, 0) for index in range(first, last)) / ((last - first) * self.bin_ns)


class Waits:
    """No tenant of one GPU with a request waits, with headroom, longer than its last held time / request + the others'
    quotas + one kernel. Counts each wait and keeps the one that came nearest to (or furthest past) its bound.

    A quota counts as long as a kernel where the other's kernels are longer, and with the messages of its hand-over;
    that of a gang with the time for which tokens are kept for it and a kernel of its own that had to be helped.
    Who left during the wait counts too.
    """

    def __init__(self, programs: Sequence[Program], handover_ns: int = HANDOVER_NS) -> None:
        self.kernels: dict[str, int] = {}
        for program in programs:
            self.know(program)
        self.handover_ns = handover_ns
        self.waits = 0
        self.worst: tuple[float, str] = (0.0, "")  # wait / bound, and the case
        self.late: list[str] = []
        self._gone: list[tuple[int, str]] = []  # when a tenant was removed, and which

    def know(self, program: Program) -> None:
        """One more program whose kernels count."""
        self.kernels[program.spec.name] = max(program.kernel_ns, self.kernels.get(program.spec.name, 0))

    def on_work(self, world: World, process: Process, gpu: int, start_ns: int, end_ns: int) -> None:
        """Work is not waiting."""

    def on_actions(self, world: World, event: ev.Event, actions: list[ev.Action]) -> None:
        """Looks at each hand-over."""
        if type(event) is ev.TenantRemoved:
            self._gone.append((world.event_ns, event.name))
        for action in actions:
            if type(action) is ev.Handed:
                self._handed(world, action)

    def _handed(self, world: World, action: ev.Handed) -> None:
        machine = world.node.machines[action.gpu]
        seat = machine.seats[action.tenant]
        if not seat.request_ppm or len(world.specs[action.tenant].gpus) > 1:
            return
        since_ns = seat.ready_since_ns
        while self._gone and self._gone[0][0] < world.event_ns - 100 * SECOND:
            del self._gone[0]
        others = {other.name for other in machine.seats.values() if other.members}
        others |= {name for at_ns, name in self._gone if at_ns >= since_ns}
        others.discard(seat.name)
        others_ns = sum(max(world.policy.quota_ns, self.kernels[name]) + self.handover_ns for name in others)
        others_ns += sum(world.policy.quota_ns + VALVE_NS for name in others if name in world.node.gangs.gangs)
        kernel_ns = max(self.kernels[name] for name in (*others, seat.name))
        bound_ns = seat.held_ns * WHOLE_PPM // seat.request_ppm + others_ns + kernel_ns
        wait_ns = world.event_ns - since_ns
        self.waits += 1
        if wait_ns > bound_ns or wait_ns / bound_ns > self.worst[0]:
            case = (
                f"{seat.name} (request {seat.request_ppm} ppm, held {seat.held_ns / MS:.3f} ms) waited "
                f"{wait_ns / MS:.3f} of {bound_ns / MS:.3f} ms at {world.event_ns / SECOND:.6f} s, epoch {action.epoch}"
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
