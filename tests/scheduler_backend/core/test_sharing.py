"""Tenants that are host-bound beside others: a machine, a model of programs and of a card that slices, in virtual time.

A program of duty d works for d of the time that it has the card alone. Beside others it gets what the card's slicing
leaves: each program that would always run has an equal part, one that is host-bound no more than it could use. With
one launch in flight it may get less, and calls none of that waiting for the card.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.machine import TokenMachine
from scheduler_backend.core.moves import Epochs
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.seat import Standing, State
from scheduler_backend.core.tenant import TenantSpec

STEP_NS = MS // 2
DRAIN_NS = MS // 2
REPORT_NS = 10 * MS


class Program:
    """One process of a tenant."""

    def __init__(self, number: int, name: str, request: float, duty: float, slowed: float = 0.0) -> None:
        self.number, self.name, self.request, self.duty = number, name, request, duty
        self.slowed = slowed or duty  # its duty beside others, where it waits for each of its kernels
        self.eased = 0.0  # ... and beside others all of which have one launch in flight; 0: the same
        self.single = 0.0  # its duty with one launch in flight; 0: the same
        self.epoch = 0
        self.shared = self.ends = False
        self.cap_ns = 0
        self.quota_until_ns = self.lease_until_ns = 0
        self.closing_ns = 0
        self.granted_ns = 0
        self.total_ns = 0.0  # ever
        self.total_at_grant_ns = 0.0
        self.reported_ns = 0
        self.rests = False
        self.waited_ns = 0.0
        self.waits_seen = 1.0
        self.lies = 1.0  # what it says that it used, by what it did
        self.hostile = False  # and speaks for itself
        self.burst_ns = self.every_ns = 0  # so much work comes so often, and it gives a turn back when that is done
        self.phases: tuple[tuple[int, float], ...] = ()  # of each step: so long alone, with this duty
        self.progress_ns = 0.0  # as time alone
        self.came = 0  # bursts, ever
        self.asked = True

    def by_itself(self) -> float:
        """What it would use of the card alone, with as much in flight as it may have."""
        return min(self.duty, self.single) if self.single and self.cap_ns <= Policy().cap_lag_ns else self.duty

    def most_beside(self, others: list[Program]) -> float:
        """The same beside these."""
        eased = self.eased and all(other.cap_ns <= Policy().cap_lag_ns for other in others)
        return min(self.by_itself(), self.eased if eased else self.slowed) if others else self.by_itself()

    def enter_phase(self) -> None:
        """Its duty is that of what it does now."""
        left_ns = self.progress_ns % (sum(length for length, _ in self.phases) or 1)
        for length_ns, duty in self.phases:
            if left_ns < length_ns:
                self.duty = self.slowed = duty
                return
            left_ns -= length_ns

    def wants(self, now_ns: int) -> bool:
        if not self.every_ns:
            return not self.rests
        self.came = now_ns // self.every_ns + 1
        return self.total_ns < self.came * self.burst_ns


class World:
    """A card, its machine, its programs."""

    def __init__(self, *programs: tuple[str, float, float] | tuple[str, float, float, float], **policy: Any) -> None:
        self.machine = TokenMachine(0, Policy(**policy), Epochs())
        self.now_ns = 0
        self.wake_ns = 0
        self.programs: dict[int, Program] = {}
        self.most_at_once = 0
        self.pending: list[Program] = []  # are to say from where they count
        self.attackers: list[Callable[[], None]] = []  # what those that are hostile do in a step
        self.drains_late = ""  # who does not stop when it is asked to, and says that it drains still
        for program in programs:
            self.add(*program)

    def add(self, name: str, request: float, duty: float, slowed: float = 0.0, **more: Any) -> Program:
        number = len(self.programs) + 1
        spec = TenantSpec(
            name, round(request * 1e6), round(more.get("limit", 1.0) * 1e6), 0, more.get("latency", False)
        )
        program = self.programs[number] = Program(number, name, request, duty, slowed)
        self.do(ev.TenantAdded(spec))
        self.do(ev.ClientJoined(name, number, (0,)))
        self.do(ev.TokenAsked(number, 0))
        return program

    def do(self, event: ev.Event) -> None:
        for action in self.machine.handle(event, self.now_ns):
            program = self.programs.get(getattr(action, "client", 0))
            if isinstance(action, ev.WakeAt):
                self.wake_ns = action.at_ns
            elif isinstance(action, ev.Grant) and program is not None:
                program.epoch, program.shared, program.closing_ns = action.epoch, action.shared, 0
                program.ends, program.cap_ns = action.contended, action.cap_ns
                program.granted_ns, program.total_at_grant_ns = self.now_ns, program.total_ns
                program.quota_until_ns = self.now_ns + action.quota_ns
                program.lease_until_ns = self.now_ns + action.lease_ns
                if action.shared:
                    self.pending.append(program)
            elif isinstance(action, ev.Extend) and program is not None:
                program.quota_until_ns = self.now_ns + action.quota_ns
                program.lease_until_ns = self.now_ns + action.lease_ns
                if action.shared and not program.shared:
                    self.pending.append(program)
                program.shared, program.ends = action.shared, action.contended
                program.cap_ns = action.cap_ns
            elif isinstance(action, ev.Revoke) and program is not None and program.epoch == action.epoch:
                program.closing_ns = program.closing_ns or self.now_ns + DRAIN_NS
        self.machine.check()

    def _say(self, program: Program) -> None:
        self.do(
            ev.Used(program.number, 0, program.epoch, round(program.total_ns * program.lies), round(program.waited_ns))
        )
        program.reported_ns = self.now_ns

    def _run(self) -> None:
        """One step of the card."""
        working = [p for p in self.programs.values() if p.epoch and p.wants(self.now_ns)]
        # Who goes on without a lease is outside: no token keeps it from the card (docs/guarantees.md).
        working = [p for p in working if not p.hostile or self.now_ns < p.lease_until_ns]
        self.most_at_once = max(self.most_at_once, len(working))
        for program in working:
            program.enter_phase()
        left, share = 1.0, {}
        most = {program: program.most_beside([p for p in working if p is not program]) for program in working}
        for done, program in enumerate(sorted(working, key=lambda p: most[p])):
            share[program] = min(most[program], left / (len(working) - done))
            left -= share[program]
        for program, part in share.items():
            program.total_ns += part * STEP_NS
            program.progress_ns += part / program.duty * STEP_NS
            in_vain = (1 - part / program.by_itself()) * program.waits_seen
            program.waited_ns += STEP_NS * (1 if program.lies < 1 else in_vain)

    def go(self, milliseconds: float) -> dict[str, float]:
        """Each program's part of the card."""
        before = {p.name: p.total_ns for p in self.programs.values()}
        until_ns = self.now_ns + round(milliseconds * MS)
        while self.now_ns < until_ns:
            self.pending.clear()
            self._run()
            self.now_ns += STEP_NS
            if self.wake_ns and self.wake_ns <= self.now_ns:
                self.do(ev.Tick())
            for program in list(self.programs.values()):
                self._come_and_go(program)
                if not program.epoch or program.hostile:
                    continue
                if program.shared and program.reported_ns < self.now_ns - REPORT_NS and not program.rests:
                    self._say(program)
                if program.closing_ns and program.shared and program.name == self.drains_late:
                    self._drain_late(program)
                over = program.closing_ns and self.now_ns >= program.closing_ns
                if over or (program.ends and self.now_ns >= program.quota_until_ns):
                    self._back(program)
                elif not program.ends and self.now_ns >= program.granted_ns + 100 * MS:
                    program.granted_ns = self.now_ns
                    self.do(ev.TokenRenewed(program.number, 0, program.epoch))
            for program in self.pending:
                if program.epoch and not program.hostile:
                    self._say(program)
            for attacker in self.attackers:
                attacker()
        return {p.name: (p.total_ns - before.get(p.name, 0.0)) / (milliseconds * MS) for p in self.programs.values()}

    def _come_and_go(self, program: Program) -> None:
        """Of one whose work comes in bursts: it asks for a turn, and gives it back."""
        if not program.every_ns or program.shared:
            return
        wants = program.wants(self.now_ns)
        if program.epoch and not wants:
            program.asked = False
            self._back(program, wants=False)
        elif wants and not program.epoch and not program.asked:
            program.asked = True
            self.do(ev.TokenAsked(program.number, 0))

    def _drain_late(self, program: Program) -> None:
        member = self.machine.seats[program.name].members[program.number]
        if member.standing is Standing.HOLDS:
            program.closing_ns = self.now_ns + DRAIN_NS
            self.do(ev.TokenRenewed(program.number, 0, program.epoch, draining=True, foreseen=True))

    def _back(self, program: Program, wants: bool = True) -> None:
        epoch, program.epoch = program.epoch, 0
        used_ns = round((program.total_ns - program.total_at_grant_ns) * program.lies)
        held_ns = self.now_ns - program.granted_ns
        self.do(
            ev.TokenReturned(
                program.number, 0, epoch, wants and not program.rests, busy_ns=used_ns, launches=1, held_ns=held_ns
            )
        )

    def until(self, states: dict[str, State]) -> None:
        """Go on until these tenants stand so, a second at most."""
        until_ns = self.now_ns + 1000 * MS
        while {name: self.state(name) for name in states} != states:
            assert self.now_ns < until_ns, {name: self.state(name) for name in states}
            self.go(0.5)

    def state(self, name: str) -> State:
        return self.machine.seats[name].state


def test_two_that_are_host_bound_run_beside_each_other():
    world = World(("a", 0.5, 0.45), ("b", 0.5, 0.45))
    world.go(200)
    parts = world.go(4000)
    assert min(parts.values()) > 0.96 * 0.45
    assert world.most_at_once == 2


def test_without_the_option_they_take_turns():
    world = World(("a", 0.5, 0.45), ("b", 0.5, 0.45), shared=False)
    parts = world.go(2000)
    assert world.most_at_once == 1
    assert sum(parts.values()) < 0.5


def test_always_busy_ones_take_turns():
    world = World(("a", 0.7, 1.0), ("b", 0.3, 1.0))
    world.go(200)
    parts = world.go(3000)
    assert world.most_at_once == 1
    assert parts["a"] == pytest.approx(0.7, abs=0.01)


def test_beside_a_busy_one_nobody_gets_less_than_its_turns_would_give_it():
    world = World(("host", 0.5, 0.5, 0.27), ("busy", 0.5, 1.0))
    world.go(500)
    parts = world.go(5000)
    assert parts["host"] > 0.25
    assert parts["busy"] > 0.65


@pytest.mark.parametrize(("every_ms", "burst_ms"), [(20, 2), (30, 0.5), (40, 0.5), (60, 1)])
def test_one_with_little_to_do_leaves_a_busy_one_the_rest(every_ms: int, burst_ms: float):
    """It was owed half of the time in which it had nothing to do, and had the card alone for it, up to 0.18 of all."""
    world = World(("server", 0.5, 0.75), ("busy", 0.5, 1.0))
    server = world.programs[1]
    server.burst_ns, server.every_ns = round(burst_ms * MS), every_ms * MS
    world.go(4000)
    assert "server" in world.machine.beside.host_bound
    parts = world.go(8000)
    assert parts["server"] == pytest.approx(burst_ms / every_ms, rel=0.01)
    assert sum(parts.values()) > 0.993


def test_who_lags_beside_others_runs_without_company_until_it_has_caught_up():
    world = World(("waits", 0.5, 0.33, 0.05), ("busy", 0.5, 1.0))
    world.go(500)
    parts = world.go(5000)
    assert parts["waits"] > 0.97 * 0.33 / 2
    assert parts["busy"] > 0.5


def test_one_that_has_one_launch_in_flight_for_another_keeps_its_promise():
    """It says that it does not wait for the card, which got it 0.021 of 0.033: its time was counted, not its work."""
    world = World(("small", 0.11, 0.3, 0.09), ("large", 0.89, 0.4, 0.12))
    small, large = world.programs.values()
    small.single, small.eased, large.single, large.eased = 0.09, 0.13, 0.12, 0.29
    world.go(4000)
    parts = world.go(6000)
    assert parts["small"] > 0.93 * 0.11 * 0.3, parts
    assert parts["large"] > 0.97 * 0.89 * 0.4, parts


def test_who_says_as_much_as_keeps_the_others_slow_takes_no_promise_of_theirs():
    """It said what kept it 9.5 ms behind, favoured for good: a busy one with half of its speed had 0.525 of 0.9."""
    world = World(("busy", 0.9, 1.0), ("liar", 0.1, 0.3, 0.02))
    busy, liar = world.programs.values()
    busy.single, liar.eased = 0.5, 0.3
    world.go(1500)
    said_ns, say = round(liar.total_ns), world._say

    def lie(program: Program) -> None:
        nonlocal said_ns
        if program is not liar:
            say(program)
            return
        seat = world.machine.seats["liar"]
        missing_ns = -9.5 * MS - seat.ahead_ns
        said_ns += 0 if program in world.pending else max(1, round(missing_ns * seat.duty.ppm / 1e6))
        world.do(ev.Used(program.number, 0, program.epoch, said_ns, world.now_ns))
        program.reported_ns = world.now_ns

    world._say = lie  # type: ignore[method-assign]
    world.go(500)
    assert world.go(6000)["busy"] > 0.88


def test_a_busy_one_keeps_a_large_promise_beside_a_small_one():
    world = World(("busy", 0.9, 1.0), ("host", 0.1, 0.5, 0.27))
    world.go(500)
    parts = world.go(5000)
    assert parts["busy"] > 0.87  # rounds of measuring take one or two points
    assert parts["host"] > 0.97 * 0.05


def test_those_that_are_busy_share_exactly_beside_one_that_is_not():
    world = World(("a", 0.5, 1.0), ("b", 0.25, 1.0), ("host", 0.25, 0.4, 0.2))
    world.go(1000)
    parts = world.go(6000)
    assert parts["a"] / (parts["a"] + parts["b"]) == pytest.approx(2 / 3, abs=0.015)
    assert parts["a"] > 0.49
    assert parts["b"] > 0.245
    assert parts["host"] > 0.097


def test_a_newcomer_is_measured_in_turns_first():
    world = World(("a", 0.4, 0.45), ("b", 0.3, 0.45))
    world.until({"a": State.SHARED, "b": State.SHARED})
    world.add("c", 0.3, 0.3)
    assert world.state("a") is not State.SHARED
    world.until({name: State.SHARED for name in "abc"})


def test_one_that_becomes_busy_has_turns_again():
    world = World(("a", 0.5, 0.4), ("b", 0.5, 0.4))
    world.go(300)
    for program in world.programs.values():
        program.duty = program.slowed = 1.0
    world.go(3700)  # three rounds of measuring
    world.most_at_once = 0
    parts = world.go(2000)
    assert world.most_at_once == 1
    assert parts["a"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("more", [{"limit": 0.3}, {"latency": True}])
def test_beside_a_limit_or_one_of_class_latency_that_is_always_busy_all_have_turns(more):
    world = World(("a", 0.3, 0.45), ("b", 0.3, 0.45))
    world.go(300)
    world.add("c", 0.3, 1.0, **more)
    world.go(50)
    world.most_at_once = 0
    world.go(1000)
    assert world.most_at_once == 1


def _serve(
    world: World, server: Program, requests: int, every_ms: float, each_ms: float
) -> tuple[float, dict[str, float]]:
    """So many requests of the server, each of so much work: the mean time from asking to its end, and what all got."""
    took_ns, before = 0, {p.name: p.total_ns for p in world.programs.values()}
    for _ in range(requests):
        server.rests = False
        began_ns, until_ns = world.now_ns, server.total_ns + each_ms * MS
        world.do(ev.TokenAsked(server.number, 0))
        while server.total_ns < until_ns:
            world.go(0.5)
        took_ns += world.now_ns - began_ns
        server.rests = True
        world._back(server)
        world.go(every_ms)
    return took_ns / requests / MS, {p.name: p.total_ns - before[p.name] for p in world.programs.values()}


def test_while_one_of_class_latency_wants_nothing_the_others_run_beside_each_other():
    world = World(("a", 0.3, 0.45), ("b", 0.3, 0.45))
    server = world.add("server", 0.4, 1.0, latency=True)
    world.go(500)
    server.rests = True
    world.go(500)
    begin_ns = world.now_ns
    took_ms, got = _serve(world, server, 100, 8, 1)
    assert took_ms < 2.1, "it waits for a drain, and has the card alone"
    time_ns = world.now_ns - begin_ns
    assert got["a"] + got["b"] > 0.75 * 0.9 * time_ns, "of what they would get without it"
    assert world.machine.clock.virtual_now > 0


def test_one_that_is_by_itself_until_one_of_class_latency_comes_back_has_no_turns():
    """It would give each back where its host takes long, and ask anew; and little of its work is in flight."""
    world = World(("a", 0.3, 0.66))
    server = world.add("server", 0.4, 1.0, latency=True)
    world.go(500)
    server.rests = True
    world.go(500)
    a, policy = world.programs[1], world.machine.policy
    assert (a.shared, a.ends, a.cap_ns) == (True, False, policy.cap_prompt_ns)
    b = world.add("b", 0.3, 0.66)
    world.go(1000)
    assert (a.shared, a.cap_ns, b.shared, b.cap_ns) == (True, policy.cap_ns, True, policy.cap_ns)
    took_ms, _ = _serve(world, server, 100, 8, 1)
    assert took_ms < 2.1


def test_one_of_class_latency_that_leaves_the_card_idle_runs_beside_others():
    """It had the card alone for as long as its host took for a request: the others had what was left of the time."""
    world = World(("a", 0.5, 0.66))
    server = world.add("server", 0.5, 0.2, latency=True)
    world.go(1500)
    world.most_at_once = 0
    took_ms, got = _serve(world, server, 100, 20, 4)
    assert world.most_at_once == 2
    assert took_ms < 1.1 * 20, "as long as its host takes"
    assert got["a"] > 0.9 * 0.66 * 100 * 40 * MS
    server.rests = True
    world.go(100)
    a = world.programs[1]
    assert (a.shared, a.cap_ns) == (True, world.machine.policy.cap_ns), "what it meets before each of its kernels"


def test_one_of_class_latency_that_others_slow_down_has_the_card_alone():
    """It waits for each of its kernels, and each then waits for a slice of the others."""
    world = World(("a", 0.5, 0.66))
    server = world.add("server", 0.5, 0.3, 0.1, latency=True)
    world.go(1500)
    _serve(world, server, 20, 20, 6)  # it is seen
    world.most_at_once = 0
    took_ms, _ = _serve(world, server, 50, 20, 6)
    assert world.most_at_once == 1
    assert took_ms < 1.1 * 20
    world.go(11_000)
    _serve(world, server, 20, 20, 6)
    assert world.most_at_once == 2, "it may be other work by then"


def test_one_of_class_latency_that_leaves_the_card_idle_runs_beside_one_that_is_busy():
    """That one had turns between a request's kernels, and each cost both of them a hand-over."""
    world = World(("a", 0.5, 1.0))
    server = world.add("server", 0.5, 0.2, latency=True)
    world.go(1500)
    world.most_at_once = 0
    took_ms, got = _serve(world, server, 100, 20, 4)
    assert world.most_at_once == 2
    assert took_ms < 1.1 * 20, "as long as its host takes"
    assert got["a"] > 0.85 * 100 * 40 * MS


def test_one_of_class_latency_that_a_busy_one_slows_down_has_the_card_alone():
    """It waits for each of its kernels, and each then waits for a slice of that one."""
    world = World(("a", 0.5, 1.0))
    server = world.add("server", 0.5, 0.3, 0.1, latency=True)
    world.go(1500)
    _serve(world, server, 20, 20, 6)  # it is seen
    world.most_at_once = 0
    took_ms, _ = _serve(world, server, 50, 20, 6)
    assert world.most_at_once == 1
    assert took_ms < 1.2 * 20


def test_what_is_in_flight_before_one_of_class_latency_comes_is_little_where_it_is_to_have_the_card_alone():
    world = World(("a", 0.3, 0.66))
    server = world.add("server", 0.4, 0.3, latency=True)
    world.go(1500)
    server.rests = True
    world.go(500)
    a, policy = world.programs[1], world.machine.policy
    assert (a.shared, a.cap_ns) == (True, policy.cap_ns)
    server.slowed = 0.1
    _serve(world, server, 20, 20, 6)
    assert a.shared
    assert a.cap_ns == policy.cap_prompt_ns


@pytest.mark.parametrize("duty", [1.0, 0.66])
def test_one_of_class_latency_that_never_rests_takes_no_promise(duty):
    """It is ahead of its own after a moment, and then makes room like any other."""
    world = World(("a", 0.8, duty))
    world.add("server", 0.2, 0.5, latency=True)
    world.go(2000)
    got = world.go(10_000)
    assert got["a"] > 0.8 * 0.97 * duty
    assert got["server"] > 0.2 * 0.97 * 0.5


@pytest.mark.parametrize(
    "victim", [("victim", 0.7, 1.0), ("victim", 0.3, 1.0), ("victim", 0.7, 0.5, 0.25), ("victim", 0.3, 0.5)]
)
def test_one_of_class_latency_that_says_it_used_nothing_takes_no_promise(victim: Any) -> None:
    """It seemed to lag behind its own promise, and made room for nobody."""
    world = World(victim)
    world.add("liar", 1 - victim[1], 1.0, latency=True).lies = 0.0
    world.go(2000)
    assert world.go(5000)["victim"] > 0.97 * victim[1] * victim[2]


@pytest.mark.parametrize("lies", [0.0, 0.05])
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.6, 1.0), (0.6, 0.6)])
def test_one_of_class_latency_that_is_promised_nothing_takes_no_promise(a: float, b: float, lies: float) -> None:
    """It was promised something when it was first seen, until another came. By its own word it was behind from then on,
    and made room for nobody.
    """
    world = World(("a", 0.6, a))
    liar = world.add("liar", 0.0, 0.4, latency=True)
    world.go(2500)
    assert "liar" in world.machine.beside.host_bound
    liar.rests, liar.lies = True, lies
    if liar.epoch:
        world._back(liar)
    world.go(6000)
    liar.rests, liar.duty, liar.slowed = False, 1.0, 1.0
    world.do(ev.TokenAsked(liar.number, 0))
    world.go(30)
    world.add("b", 0.4, b)
    world.go(1500)
    parts = world.go(5000)
    assert parts["a"] > 0.97 * 0.6 * a
    assert parts["b"] > 0.97 * 0.4 * b


@pytest.mark.parametrize("latency", [True, False])
@pytest.mark.parametrize(("a", "b"), [(1.0, 0.66), (0.66, 0.66), (0.4, 0.8), (0.66, 1.0)])
def test_one_that_works_in_bursts_of_less_than_its_part_takes_no_promise(a: float, b: float, latency: bool):
    """While it rests it is ahead of what it was owed, as the others lag. They were owed more than passes, and the
    larger promise had what the small one was owed.
    """
    world = World(("a", 0.6, a), ("b", 0.1, b))
    server = world.add("server", 0.3, 1.0, latency=latency)
    server.burst_ns, server.every_ns = 10 * MS, 50 * MS
    world.go(3000)
    parts = world.go(5000)
    assert parts["server"] > 0.19
    assert parts["a"] > 0.97 * 0.6 * a
    assert parts["b"] > 0.97 * 0.1 * b


@pytest.mark.parametrize("latency", [True, False])
@pytest.mark.parametrize(("burst_ms", "every_ms"), [(5, 50), (10, 50), (14, 50), (25, 100)])
def test_beside_one_that_comes_and_goes_one_of_class_latency_takes_no_promise(burst_ms, every_ms, latency):
    """Each time that the one came back it was owed time that the others had had, and all of them seemed to lag ever
    more. So one of class latency was never ahead of what it is owed: it had 0.65 of its 0.5, a busy one 0.07 of 0.2.
    """
    world = World()
    world.add("a", 0.5, 1.0, latency=True)
    comes = world.add("comes", 0.3, 1.0, latency=latency)
    comes.burst_ns, comes.every_ns = burst_ms * MS, every_ms * MS
    world.add("b", 0.2, 1.0)
    world.go(1500)
    parts = world.go(4000)
    assert parts["a"] > 0.49
    assert parts["b"] > 0.195
    assert parts["comes"] > 0.97 * min(0.3, burst_ms / every_ms)


def test_one_that_is_new_need_not_wait_for_what_others_seem_to_lag():
    """They were owed what they had had while one of class latency came and went, and the new one was not."""
    world = World(("a", 0.4, 1.0), ("b", 0.2, 1.0))
    comes = world.add("comes", 0.1, 1.0, latency=True)
    comes.burst_ns, comes.every_ns = 2 * MS, 25 * MS
    world.go(10_000)
    world.add("new", 0.3, 1.0)
    assert world.go(1000)["new"] > 0.29


def _flap(world: World, each_ms: float, *clients: int, **more: Any) -> dict[str, float]:
    """A tenant whose processes all ask, give back as soon as they have the token, and ask again after so long, for four
    seconds: what the others got of what its turns of one step left."""
    world.do(ev.TenantAdded(TenantSpec("flaps", 50_000, **more)))
    for client in clients:
        world.do(ev.ClientJoined("flaps", client, (0,)))
    seat, parts = world.machine.seats["flaps"], {p.name: p.total_ns for p in world.programs.values()}
    began_ns, turns = world.now_ns, 0
    while world.now_ns < began_ns + 4000 * MS:
        for client in clients:
            world.do(ev.TokenAsked(client, 0, burst_ns=MS))
        turns += 1
        while seat.state is not State.IDLE:
            world.go(0.2)
            for member in seat.with_standing(Standing.HOLDS):
                world.do(ev.TokenReturned(member.client, 0, member.epoch, False, launches=1, burst_ns=MS))
        world.go(each_ms)
    left_ns = world.now_ns - began_ns - turns * STEP_NS
    return {p.name: (p.total_ns - parts[p.name]) / left_ns for p in world.programs.values()}


@pytest.mark.parametrize(("clients", "more"), [((91,), {"latency": True}), ((91, 92, 93, 94, 95), {})])
@pytest.mark.parametrize(("request_", "duty"), [(0.285, 0.8), (0.665, 0.5), (0.665, 0.8)])
def test_who_wants_the_card_now_and_then_and_does_not_takes_no_promise(monkeypatch, request_, duty, clients, more):
    """While it wants it all have turns, else they run beside each other: what one lags is the same in both."""
    monkeypatch.setattr(sys.modules[__name__], "STEP_NS", MS // 5)
    monkeypatch.setattr(sys.modules[__name__], "DRAIN_NS", MS // 5)
    world = World(("host", request_, duty), ("busy", 0.95 - request_, 1.0))
    world.go(1500)
    parts = _flap(world, 2, *clients, **more)
    assert parts["host"] > 0.98 * request_ * duty
    assert parts["busy"] > 0.98 * (0.95 - request_)


@pytest.mark.parametrize("stays_ms", [8, 12, 30])
def test_who_goes_each_time_that_it_is_to_be_seen_alone_takes_no_promise(stays_ms):
    """Each time the others made room for it anew, for as long as it came back."""
    world = World(("a", 0.45, 0.6), ("b", 0.45, 0.5), ("x", 0.05, 0.3))
    world.go(500)
    x = world.programs[3]
    before = {program.name: program.total_ns for program in world.programs.values()}
    began_ns = world.now_ns
    while world.now_ns < began_ns + 6000 * MS:
        world.go(stays_ms)
        if x.epoch:
            x.rests = True  # it wants no more for now
            world._back(x)
            x.rests = False
        world.go(2)
        if not x.epoch:
            world.do(ev.TokenAsked(x.number, 0))
    for name, request, duty in (("a", 0.45, 0.6), ("b", 0.45, 0.5)):
        program = next(one for one in world.programs.values() if one.name == name)
        part = (program.total_ns - before[name]) / (world.now_ns - began_ns)
        assert part >= 0.98 * duty * request / 0.95, (name, part)


def test_one_that_rests_is_owed_nothing_meanwhile():
    world = World(("a", 0.5, 0.45), ("b", 0.5, 1.0))
    world.go(400)
    world.programs[1].rests = True
    world.go(90)  # no round of measuring comes in so short a time
    assert world.machine.beside.favoured != "a"


def test_what_a_liar_says_that_it_did_not_use_costs_others_no_more_than_their_promise():
    world = World(("liar", 0.3, 1.0), ("busy", 0.7, 1.0))
    world.programs[1].lies = 0.1
    world.go(500)
    parts = world.go(5000)
    assert parts["busy"] > 0.65, parts


@pytest.mark.parametrize("victim", [("victim", 0.95, 1.0), ("victim", 0.95, 0.5, 0.3)])
def test_who_says_that_it_used_nothing_does_not_pass_for_one_that_rests(victim):
    world = World(("liar", 0.05, 1.0), victim)
    world.programs[1].lies = 0.0
    world.go(500)
    parts = world.go(5000)
    assert parts["victim"] > 0.97 * 0.95 * victim[2], parts


@pytest.mark.parametrize(
    ("liar", "victim", "bound"), [(0.5, 0.25, (0.25,)), (0.3, 0.4, (0.3,)), (0.4, 0.4, (0.2,)), (0.3, 0.3, (0.2, 0.2))]
)
def test_a_busy_one_that_says_it_got_all_of_its_turns_takes_no_promise_of_another(liar, victim, bound):
    others = [(f"host-bound {number}", request, 0.8) for number, request in enumerate(bound)]
    world = World(("victim", victim, 1.0), ("liar", liar, 1.0), *others)
    world.programs[2].lies = 5.0
    world.go(3000)
    assert world.go(10000)["victim"] > 0.95 * victim


@pytest.mark.parametrize("victim", [("victim", 0.8, 1.0), ("victim", 0.8, 0.5, 0.3)])
def test_who_does_not_drain_beside_others_pays_back_what_they_waited(victim):
    """As one does whose kernels are long, or that says so to have the card to itself."""
    world = World(("late", 0.2, 0.7), victim)
    world.drains_late = "late"
    world.go(1000)
    parts = world.go(20000)
    assert parts["victim"] > 0.94 * 0.8 * victim[2], parts


def test_who_dies_beside_others_is_gone_and_they_go_on():
    world = World(("a", 0.5, 0.45), ("b", 0.5, 0.45))
    world.go(300)
    del world.programs[1]
    world.do(ev.ClientDied(1))
    assert world.state("a") is State.IDLE
    world.do(ev.TenantRemoved("a"))
    assert world.go(1000)["b"] > 0.43


def test_a_lease_that_runs_out_beside_others_strays():
    world = World(("a", 0.5, 0.45), ("b", 0.5, 0.45))
    world.go(300)
    epoch = world.machine.seats["a"].shared_epoch
    world.programs[1].epoch = 0  # frozen: it says nothing more
    world.go(400)
    assert world.machine.seats["a"].shared_epoch == epoch
    assert world.state("a") is State.IDLE


def test_used_time_stands_in_the_window_once():
    world = World(("a", 0.5, 0.45), ("b", 0.5, 0.45))
    world.go(300)
    before, _ = world.machine.charges.usage_ns("a", world.now_ns)
    parts = world.go(150)
    after, _ = world.machine.charges.usage_ns("a", world.now_ns)
    assert (after - before) / (150 * MS) == pytest.approx(parts["a"], abs=0.08)


def test_who_is_favoured_and_goes_for_good_leaves_no_mark_behind():
    world = World(("a", 0.5, 0.45), ("busy", 0.5, 1.0))
    while world.machine.beside.favoured != "a":
        world.go(0.5)
        assert world.now_ns < 5000 * MS
    del world.programs[1]
    world.do(ev.TenantRemoved("a"))
    world.go(100)
    assert world.machine.beside.favoured == ""
    assert world.go(500)["busy"] > 0.9


def seconds(world: World, name: str, count: int) -> list[float]:
    """A tenant's part of the card in each 100 ms of so many seconds, as means over a second that slides."""
    parts = [world.go(100)[name] for _ in range(10 * count)]
    return [sum(parts[at : at + 10]) / 10 for at in range(len(parts) - 9)]


def test_alone_a_limit_is_a_part_of_the_card_and_not_of_the_time_for_which_it_is_held():
    world = World()
    world.add("a", 0.3, 0.5, limit=0.3)
    world.go(500)
    means = seconds(world, "a", 6)
    assert sum(means) / len(means) > 0.98 * 0.3
    assert max(means) < 0.3 + 0.011


def test_beside_others_a_limit_holds_and_they_get_what_it_leaves():
    world = World()
    world.add("a", 0.2, 0.45, limit=0.2)
    world.add("b", 0.5, 0.45)
    world.go(500)
    before = world.programs[2].total_ns
    means = seconds(world, "a", 6)
    assert sum(means) / len(means) > 0.97 * 0.2
    assert max(means) < 0.2 + 0.011
    assert (world.programs[2].total_ns - before) / (6000 * MS) > 0.96 * 0.45


def test_who_stays_below_its_limit_by_itself_never_pauses():
    world = World()
    world.add("a", 0.5, 0.45, limit=0.5)
    world.add("b", 0.5, 0.45, limit=0.5)
    world.go(500)
    parts = world.go(5000)
    assert min(parts.values()) > 0.96 * 0.45


def test_a_limit_beside_one_that_is_always_busy():
    world = World(("busy", 0.5, 1.0))
    world.add("a", 0.2, 0.5, 0.3, limit=0.2)
    world.go(500)
    means = seconds(world, "a", 6)
    assert sum(means) / len(means) > 0.97 * 0.5 * 2 / 7  # what turns would give it
    assert max(means) < 0.2 + 0.011


def test_a_limit_that_is_lowered_holds_at_once():
    world = World(("a", 0.5, 0.45), ("b", 0.5, 0.45))
    world.go(300)
    world.do(ev.TenantChanged(TenantSpec("a", 100_000, 100_000)))
    assert world.go(1000)["a"] < 0.1 + 0.011


def weigh(world: World, count: int) -> None:
    """So many seconds, after each of which the card says what each tenant used."""
    for _ in range(count):
        parts = world.go(1000)
        for name, part in parts.items():
            world.do(ev.Weighed(name, 0, round(part * 1000) * MS, 1000 * MS))


def test_a_liar_has_turns_when_the_card_has_said_what_it_used():
    world = World(("honest", 0.5, 0.45))
    world.add("liar", 0.2, 0.9, limit=0.2)
    world.programs[2].lies = 0.1
    world.go(500)
    assert world.go(1000)["liar"] > 0.4
    weigh(world, 5)
    assert world.go(2000)["liar"] < 0.2 + 0.011
    assert not world.machine.seats["liar"].duty.believed
    assert world.machine.seats["honest"].duty.believed


def test_a_liar_with_a_process_that_strays_is_found_out_too():
    world = World(("honest", 0.5, 0.45))
    world.add("liar", 0.2, 0.9, limit=0.2)
    world.programs[2].lies = 0.1
    seat = world.machine.seats["liar"]
    world.do(ev.ClientJoined("liar", 91, (0,)))
    world.do(ev.TokenAsked(91, 0))
    world.go(1000)
    assert seat.members[91].standing is Standing.STRAY, "it said nothing, and lost its lease"
    weigh(world, 5)
    assert not seat.duty.believed
    assert world.go(2000)["liar"] < 0.2 + 0.011


def test_an_honest_one_is_believed_whatever_its_limit():
    world = World(("busy", 0.5, 1.0))
    world.add("a", 0.2, 0.5, 0.3, limit=0.2)
    world.add("b", 0.3, 0.45)
    weigh(world, 8)
    assert all(seat.duty.believed for seat in world.machine.seats.values())


def test_without_the_cards_figures_a_limit_means_turns():
    world = World(("b", 0.5, 0.45), shared_limits=False)
    world.add("a", 0.5, 0.45, limit=0.5)
    world.go(500)
    world.most_at_once = 0
    world.go(1000)
    assert world.most_at_once == 1


def test_one_that_was_found_out_costs_the_others_nothing():
    world = World(("a", 0.3, 0.45), ("b", 0.3, 0.45))
    world.add("liar", 0.2, 0.9)
    world.programs[3].lies = 0.1
    world.go(500)
    weigh(world, 5)
    assert not world.machine.seats["liar"].duty.believed
    parts = world.go(3000)
    assert min(parts["a"], parts["b"]) > 1.3 * 0.45 * 3 / 8, "no more than turns for all"


def test_who_says_that_it_used_nothing_breaks_nobodys_promise():
    world = World(("liar", 0.05, 1.0), ("victim", 0.95, 1.0))
    world.programs[1].lies = 0.0
    world.go(500)
    assert world.go(5000)["victim"] > 0.9


def test_who_gives_back_and_asks_again_all_the_time_does_not_pass_its_limit():
    world = World()
    program = world.add("a", 0.2, 0.5, limit=0.2)
    world.until({"a": State.SHARED})
    program.duty = program.slowed = 1.0
    before_ns, began_ns = program.total_ns, world.now_ns
    while world.now_ns < began_ns + 1500 * MS:
        if program.epoch:
            program.reported_ns = world.now_ns + 50 * MS  # no word of use
            world.go(3)
        if program.epoch:
            epoch, program.epoch = program.epoch, 0
            used_ns = round(program.total_ns - program.total_at_grant_ns)
            world.do(ev.TokenReturned(1, 0, epoch, False, busy_ns=used_ns, held_ns=world.now_ns - program.granted_ns))
            world.do(ev.TokenAsked(1, 0))
        world.go(0.5)
    assert (program.total_ns - before_ns) / (1500 * MS) < 0.2 + 0.02


def test_who_has_rested_at_its_limit_is_owed_its_part_again():
    world = World(("waits", 0.4, 0.33, 0.05), ("busy", 0.4, 1.0))
    world.add("c", 0.2, 0.8, limit=0.3)
    world.go(1000)
    assert world.go(6000)["c"] > 0.9 * 0.2 * 0.8


def test_an_idle_tenant_with_a_limit_keeps_nobody_from_running_beside_others():
    world = World(("a", 0.4, 0.45), ("b", 0.4, 0.45))
    world.do(ev.TenantAdded(TenantSpec("c", 100_000, 500_000)))
    world.do(ev.ClientJoined("c", 9, (0,)))
    world.go(1500)
    assert min(world.go(2000).values()) > 0.96 * 0.45


def test_a_long_silence_brings_no_more_than_a_full_bucket():
    world = World()
    program = world.add("a", 0.2, 0.15, limit=0.2)
    world.until({"a": State.SHARED})
    world.go(100)
    program.rests = True
    for _ in range(80):
        world.go(100)
        world.do(ev.TokenRenewed(1, 0, program.epoch))
    program.rests = False
    program.duty = program.slowed = 1.0
    program.reported_ns = world.now_ns + 300 * MS
    world.go(300)
    world._say(program)
    assert world.state("a") is not State.SHARED
    assert world.machine.seats["a"].credit < -250 * MS * 1_000_000


def test_two_words_close_together_do_not_say_what_it_uses_alone():
    world = World(("a", 0.5, 0.5), ("b", 0.5, 0.45))
    program = world.programs[1]
    world.until({"a": State.SHARED, "b": State.SHARED})
    del world.programs[2]
    world.do(ev.ClientDied(2))
    world.go(50)
    for _ in range(10):
        world.go(1)
        program.total_ns += 50 * MS
        world._say(program)
    assert world.machine.seats["a"].duty.host_bound
    assert world.machine.charges.weigh_until_ns > world.now_ns + 50_000 * MS


def test_a_turn_was_no_longer_than_it_was_seen_and_one_of_unknown_length_counts():
    world = World(("a", 0.3, 0.45), ("b", 0.3, 0.45))
    liar = world.add("liar", 0.05, 1.0)
    back = world._back

    def say(program: Program) -> None:
        if program is not liar:
            back(program)
            return
        epoch, program.epoch = program.epoch, 0
        low = not world.machine.beside.sharing and not world.machine.seats["liar"].duty.blocks
        held_ns = 26 * MS if low else 0
        world.do(ev.TokenReturned(3, 0, epoch, True, busy_ns=0 if low else MS, launches=1, held_ns=held_ns))

    world._back = say  # type: ignore[method-assign]
    world.go(2000)
    parts = world.go(5000)
    assert min(parts["a"], parts["b"]) > 1.3 * 0.169, "undecided for ever, it would keep them in turns"


def test_the_grant_of_one_whose_company_rests_does_not_end_until_that_asks() -> None:
    world = World(("a", 0.5, 1.0), ("b", 0.5, 1.0))
    world.go(1000)
    a, b = world.programs.values()
    b.rests = True
    world.go(Policy().alone_after_ns / MS + 100)
    epoch = a.epoch
    assert epoch
    assert not a.ends
    world.go(1000)
    assert a.epoch == epoch
    b.rests = False
    world.do(ev.TokenAsked(b.number, 0))
    assert world.go(5)["b"] >= 0.8  # when what was in flight is done
    assert a.ends or not a.epoch


@pytest.mark.parametrize(("seen", "least"), [(1.0, 0.68), (0.6, 0.64)])
def test_programs_whose_steps_have_phases_get_their_parts(seen: float, least: float) -> None:
    """As trainings do: kernels of milliseconds, then many short ones for which the host is too slow. Waits that are not
    seen are taken for time of their own.
    """
    world = World(("a", 0.7, 1.0), ("b", 0.3, 1.0))
    for program, shift_ns in zip(world.programs.values(), (0, 17 * MS), strict=True):
        program.phases = ((25 * MS, 1.0), (35 * MS, 0.6))
        program.progress_ns = shift_ns
        program.waits_seen = seen
    world.go(4000)
    parts = world.go(10000)
    duty = (25 + 35 * 0.6) / 60
    assert parts["a"] > least * duty
    assert parts["b"] > 0.28 * duty
    assert parts["a"] + parts["b"] > 0.9


@pytest.mark.parametrize("phases", [((100 * MS, 1.0), (400 * MS, 0.1)), ((500 * MS, 1.0), (500 * MS, 0.1))])
def test_a_step_that_waits_for_the_card_and_then_hardly_uses_it_leaves_another_the_rest(
    phases: tuple[tuple[int, float], ...],
) -> None:
    """What it got in the first half of a second was held against it in the second: it had the card alone, and idle."""
    world = World(("steps", 0.5, 1.0), ("busy", 0.5, 1.0))
    world.programs[1].phases = phases
    world.go(2500)
    parts = world.go(6000)
    assert sum(parts.values()) > 0.975, parts
    assert parts["busy"] > 0.6


def test_who_says_what_it_uses_so_often_that_it_is_never_seen_alone_has_no_more_time_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time it had the card alone for 50 ms, a second after the last: the other had 0.907 of its 0.947."""
    monkeypatch.setattr(sys.modules[__name__], "REPORT_NS", 2 * MS)
    world = World(("busy", 0.9, 1.0), ("speaks", 0.05, 0.5))
    world.go(4000)
    assert "speaks" in world.machine.beside.host_bound
    parts = world.go(8000)
    assert parts["busy"] > 0.94, parts
