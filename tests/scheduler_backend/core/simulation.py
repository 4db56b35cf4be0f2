"""A closed-loop simulation of clients around the pure node: no process, no clock, no sleep.

Each tenant is one client that runs a program: always busy, or bursts of GPU work with host time between them. A
client behaves like the library: it works from the receipt of a Grant to the end of its quota (and `overuse` beyond,
for work that was launched), gives back at once when its burst is done, and drains when it is asked to. Every message
takes `hop`, and more where its program says so. What each client really ran is kept as a timeline, and shares are
judged by that alone.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.tenant import TenantSpec

SECOND = 1000 * MS
BUSY = 1 << 62


@dataclass
class Program:
    """Bursts of GPU work and host time between them; burst BUSY never ends."""

    spec: TenantSpec
    burst_ns: int = BUSY
    gap_ns: int = 0
    start_ns: int = 0
    stop_ns: int = BUSY
    hop_ns: int = 0  # what each of its messages takes longer than others'
    warm_ns: int = 0  # from the receipt of a grant until its first kernel runs
    lies: bool = False  # says that nearly all of its grant's time was the messages'
    # state
    left_ns: int = 0
    epoch: int = 0  # held
    granted_ns: int = 0
    started_ns: int = 0
    quota_until_ns: int = 0
    draining: bool = False
    alone: bool = False
    version: int = 0  # of the planned end of work
    wants: bool = False
    asked_ns: int = 0
    segments: list[tuple[int, int]] = field(default_factory=list)
    waits_ns: list[int] = field(default_factory=list)
    bursts_ns: list[int] = field(default_factory=list)
    began_ns: int = 0


class Simulation:
    """Runs programs against a node for `seconds` of virtual time."""

    def __init__(
        self,
        programs: list[Program],
        *,
        policy: Policy | None = None,
        hop_ns: int = 150_000,
        overuse_ns: int = 300_000,
        seed: int = 1,
        check: bool = True,
    ) -> None:
        self.node = Node(1, policy or Policy())
        self.programs = programs
        self.hop_ns, self.overuse_ns, self.check = hop_ns, overuse_ns, check
        self.random = random.Random(seed)
        self.now_ns = 0
        self.grants = 0
        self.messages = 0
        self.handles = 0
        self._queue: list[tuple[int, int, object, tuple]] = []
        self._serial = 0
        self._wake = 0
        for number, program in enumerate(programs):
            self._handle(ev.TenantAdded(program.spec))
            self._at(program.start_ns + self.random.randrange(3 * MS), self._join, number)

    def _at(self, when_ns: int, what: object, *arguments: object) -> None:
        self._serial += 1
        heapq.heappush(self._queue, (when_ns, self._serial, what, arguments))

    def run(self, seconds: float) -> None:
        until_ns = self.now_ns + int(seconds * SECOND)
        while self._queue and self._queue[0][0] <= until_ns:
            self.now_ns, _, what, arguments = heapq.heappop(self._queue)
            what(*arguments)  # type: ignore[operator]
        self.now_ns = until_ns
        for program in self.programs:  # what runs now is on the timeline up to now
            if program.epoch:
                self._account(program)

    # --- the daemon's side
    def _handle(self, event: ev.Event) -> None:
        self.handles += 1
        for action in self.node.handle(event, self.now_ns):
            if isinstance(action, ev.Grant | ev.Extend | ev.Revoke):
                self.messages += 1
                self._at(self.now_ns + self._hop_ns(action.client), self._receive, action.client, action)
                self.grants += isinstance(action, ev.Grant)
            elif isinstance(action, ev.WakeAt):
                self._wake = action.at_ns
                if action.at_ns:
                    self._at(max(action.at_ns, self.now_ns) + 20_000, self._tick, action.at_ns)
        if self.check:
            self.node.check()

    def _tick(self, at_ns: int) -> None:
        if at_ns == self._wake:
            self._handle(ev.Tick())

    def _send(self, event: ev.TokenAsked | ev.TokenRenewed | ev.TokenReturned) -> None:
        self._at(self.now_ns + self._hop_ns(event.client), self._handle, event)

    def _hop_ns(self, client: int) -> int:
        return self.hop_ns + self.programs[client].hop_ns

    # --- a client
    def _join(self, number: int) -> None:
        self._handle(ev.ClientJoined(self.programs[number].spec.name, number, (0,)))
        self._burst(number)

    def _burst(self, number: int) -> None:
        program = self.programs[number]
        if self.now_ns >= program.stop_ns:
            return
        program.left_ns = program.burst_ns
        program.wants = True
        program.asked_ns = program.began_ns = self.now_ns
        self._send(ev.TokenAsked(number, 0, *self._estimates(program)))

    @staticmethod
    def _estimates(program: Program) -> tuple[int, int]:
        return (0, 0) if program.burst_ns == BUSY else (program.burst_ns, program.gap_ns)

    def _receive(self, number: int, action: ev.Grant | ev.Extend | ev.Revoke) -> None:
        program = self.programs[number]
        if isinstance(action, ev.Revoke):
            if program.epoch == action.epoch and not program.draining:
                program.draining = True
                self._plan(number, self.now_ns + self.overuse_ns)
            return
        if isinstance(action, ev.Grant):
            assert all(other.epoch == 0 for other in self.programs), "two hold at once"
            program.epoch, program.started_ns, program.draining = action.epoch, self.now_ns + program.warm_ns, False
            program.granted_ns = self.now_ns
            program.waits_ns.append(self.now_ns - program.asked_ns)
        elif program.epoch != action.epoch or program.draining:
            return
        program.quota_until_ns = self.now_ns + action.quota_ns
        if not action.contended:
            self._at(self.now_ns + action.quota_ns // 2, self._renew, number, action.epoch)
        self._plan(number, program.quota_until_ns + self.overuse_ns)

    def _renew(self, number: int, epoch: int) -> None:
        program = self.programs[number]
        if program.epoch == epoch and not program.draining:
            self._send(ev.TokenRenewed(number, 0, epoch))

    def _account(self, program: Program) -> int:
        ran_ns = self.now_ns - program.started_ns
        if ran_ns > 0:
            if program.segments and program.segments[-1][1] == program.started_ns:
                program.segments[-1] = (program.segments[-1][0], self.now_ns)
            else:
                program.segments.append((program.started_ns, self.now_ns))
            program.left_ns -= ran_ns
            program.started_ns = self.now_ns
        return max(0, ran_ns)

    def _plan(self, number: int, latest_ns: int) -> None:
        program = self.programs[number]
        program.version += 1
        end_ns = min(latest_ns, program.started_ns + program.left_ns)
        self._at(max(end_ns, self.now_ns), self._stop, number, program.version)

    def _stop(self, number: int, version: int) -> None:
        program = self.programs[number]
        if version != program.version:
            return
        ran_ns = self._account(program)
        epoch, program.epoch = program.epoch, 0
        done = program.left_ns <= 0
        if self.now_ns >= program.stop_ns:
            done = True
        self._send(
            ev.TokenReturned(
                number,
                0,
                epoch,
                not done,
                done,
                False,
                ran_ns,
                1,
                *self._estimates(program),
                1 if program.lies else self.now_ns - program.granted_ns,
            )
        )
        program.asked_ns = self.now_ns
        if done:
            program.wants = False
            program.bursts_ns.append(self.now_ns - program.began_ns)
            self._at(self.now_ns + program.gap_ns, self._burst, number)

    # --- judging
    def busy_ns(self, number: int, start_ns: int, end_ns: int) -> int:
        return sum(max(0, min(end, end_ns) - max(start, start_ns)) for start, end in self.programs[number].segments)

    def shares(self, start_s: float, end_s: float) -> list[float]:
        span = (end_s - start_s) * SECOND
        return [
            self.busy_ns(number, int(start_s * SECOND), int(end_s * SECOND)) / span
            for number in range(len(self.programs))
        ]

    def errors_pp(self, entitled: list[float], start_s: float, end_s: float, window_s: float = 1.0) -> list[float]:
        """|busy_i - entitled_i x min(1, sum busy / sum entitled)| in pp over sliding windows, all tenants, sorted."""
        import numpy as np

        step = 0.01
        edges = np.arange(start_s, end_s - window_s, step)
        cumulated = []
        for program in self.programs:
            times, values = [0.0], [0.0]
            for start, end in program.segments:
                times += [start / SECOND, end / SECOND]
                values += [values[-1], values[-1] + (end - start) / SECOND]
            cumulated.append(np.interp(edges + window_s, times, values) - np.interp(edges, times, values))
        busy = np.array(cumulated) / window_s
        scale = np.minimum(1.0, busy.sum(axis=0) / sum(entitled))
        return sorted((100 * np.abs(busy - np.array(entitled)[:, None] * scale)).ravel())


def spec(name: str, request: float, limit: float = 1.0, **more: object) -> TenantSpec:
    return TenantSpec(name, round(request * 1e6), round(limit * 1e6), **more)  # type: ignore[arg-type]


def percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
