"""Gangs: a tenant with several GPUs gets the tokens of all it uses at once, or none.

A kernel that spans GPUs (a collective) runs only when it runs on all of them. A tenant that held one token and waited
for another would occupy a card and get nowhere, and two such tenants could wait for each other for ever. So a gang
never holds and waits: what it lacks it gets at once, or all that it holds is asked back.

Theory of operation. The machines decide as ever, but for one thing: where a gang is picked, the machine leaves its
token free and names the gang, and `settle` decides, with all machines in view and before anything else happens:
- all tokens of the gang are free: it takes them, with one end;
- some are not: it assembles. It has a claim on each of its GPUs, so that what becomes free there is kept for it. Others
  may run on a claimed GPU until the last of the holders should be done, if that is worth a grant. A token is kept idle
  for one quota at most; then others run, and the claim stands. Of gangs that want the same GPU the one that has been
  assembling longest has the claim, so there is no circle of claims;
- on some GPU it is ahead of what it is owed, and others wait there: the next is picked instead.
A GPU where the gang wants nothing just now is kept for it while it holds the others, and charged to its clock. One
where it never asked, or that it left unused in UNUSED grants running, is left out until it asks there: who uses one of
its GPUs is like any other. Latency tenants come first, but a gang is asked back for them once within a quota at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler_backend.core import events as ev
from scheduler_backend.core.machine import TokenMachine
from scheduler_backend.core.moves import Recall, Take
from scheduler_backend.core.policy import eligible, pick
from scheduler_backend.core.seat import Seat, State
from scheduler_backend.core.tenant import TenantSpec

UNUSED = 3
Direct = Callable[[int, Callable[[], None]], None]  # (gpu, what to do in that machine, which then settles)


class Gang:
    """One tenant with several GPUs."""

    def __init__(self, spec: TenantSpec) -> None:
        self.name = spec.name
        self.gpus = spec.gpus
        self.unused = dict.fromkeys(spec.gpus, UNUSED)  # grants in a row in which nothing ran there
        self.regarded = False  # as a gang: it uses several
        self.parts: set[int] = set()  # GPUs that were taken in the grant that runs; empty: none runs
        self.taken_ns = 0  # its begin
        self.until_ns = 0  # its end
        self.since_ns = -1  # it assembles since; -1: it does not

    @property
    def wanted(self) -> list[int]:
        """The GPUs that it gets together."""
        return [gpu for gpu in self.gpus if self.unused[gpu] < UNUSED]


class Gangs:
    """All gangs of a node. `direct` acts in one machine; what it does is among the actions of the event."""

    def __init__(self, machines: list[TokenMachine], direct: Direct) -> None:
        self.gangs: dict[str, Gang] = {}
        self._machines = machines
        self._direct = direct
        self._now_ns = 0
        self._changed: Gang | None = None

    def add(self, spec: TenantSpec) -> None:
        """A tenant was added."""
        if len(spec.gpus) > 1:
            self.gangs[spec.name] = Gang(spec)

    def remove(self, name: str) -> None:
        """A tenant was removed."""
        gang = self.gangs.pop(name, None)
        if gang is not None:
            if self._changed is gang:
                self._changed = None
            self._release(gang)

    def asked(self, name: str, gpu: int) -> None:
        """A process wants to launch there, so that GPU counts again."""
        gang = self.gangs.get(name)
        if gang is not None and gang.unused[gpu]:
            gang.unused[gpu] = 0
            self._regard(gang)

    def _regard(self, gang: Gang) -> None:
        """Is it one now? What it holds by itself is the grant that runs; orders are off that did not know of it."""
        several = len(gang.wanted) > 1
        if several is not gang.regarded:
            gang.regarded = several
            gang.parts = {gpu for gpu in gang.gpus if several and self._holds(gang, gpu)}
            gang.taken_ns = self._now_ns
            gang.until_ns = max((self._machines[gpu].grant.quota_until_ns for gpu in gang.parts), default=0)
            self._changed = gang
            for gpu in gang.gpus:
                seat = self._seat(gang, gpu)
                seat.gang, seat.together = several, False

    def settle(self, now_ns: int) -> None:
        """After each event."""
        self._now_ns = now_ns  # a machine knows only of its own last event
        if self._changed is not None:
            for gpu in self._changed.gpus:
                self._direct(gpu, _nothing)
            self._changed = None
        for machine in self._machines:
            if machine.reservation.forget_passed():  # perhaps they may run now
                self._direct(machine.context.gpu, _nothing)
        for _ in range(4 * len(self._machines) + 4):
            if not self._step():
                return

    def _step(self) -> bool:
        """One decision; False: nothing is to be done."""
        for gang in self.gangs.values():
            if gang.parts and self._run(gang):
                return True
        regarded = [gang for gang in self.gangs.values() if gang.regarded]
        order = sorted(regarded, key=lambda gang: (gang.since_ns < 0, gang.since_ns, self._arrived(gang)))
        taken: set[int] = set()  # GPUs that a gang before in the order has a claim on
        for gang in order:
            if self._may_want(gang) and taken.isdisjoint(gang.wanted):
                if self._assemble(gang):
                    return True
            else:
                self._give_up(gang)
            if gang.since_ns >= 0:
                taken.update(gang.wanted)
        if any([self._pass_over(machine) for machine in self._machines]):
            return True
        for gang in order:
            if self._stranded(gang):
                self._take(gang)
                return True
        return False

    # --- a gang that holds ------------------------------------------------------------------------------------------
    def _run(self, gang: Gang) -> bool:
        """It never holds and waits: join what is kept for it, or give all back."""
        held = [gpu for gpu in gang.gpus if self._holds(gang, gpu)]
        if not held:
            for gpu in gang.gpus:
                gang.unused[gpu] = 0 if gpu in gang.parts or self._waits(gang, gpu) else gang.unused[gpu] + 1
            gang.parts.clear()
            if gang.since_ns < 0:
                self._release(gang)
            self._regard(gang)
            return True
        seats = {gpu: self._seat(gang, gpu) for gpu in gang.gpus}
        running = [gpu for gpu in held if seats[gpu].state is State.HOLDING]
        lacking = [gpu for gpu in gang.gpus if self._waits(gang, gpu)]
        if running and (len(running) < len(held) or self._misses(gang, lacking)):
            preempted_ns = max(seat.preempted_ns for seat in seats.values())
            for gpu in gang.gpus:
                seats[gpu].preempted_ns = preempted_ns
            for gpu in running:
                self._direct(gpu, self._recaller(gpu, seats[gpu], ev.PREEMPT))
            return True
        least_ns = self._machines[held[0]].policy.join_least_ns
        over = seats[held[0]].together and gang.until_ns - self._now_ns < least_ns
        if (over or not running) and gang.since_ns < 0 and self._release(gang):
            return True
        if not running:
            return False
        for gpu in lacking:
            left_ns = gang.until_ns - self._now_ns
            self._direct(gpu, self._taker(gang, gpu, left_ns if seats[gpu].together else 0))
            return True
        return False

    def _misses(self, gang: Gang, lacking: list[int]) -> bool:
        """Does it wait at a GPU that it can not join at once?"""
        for gpu in lacking:
            machine, seat = self._machines[gpu], self._seat(gang, gpu)
            if seat.throttled or machine.grant.holder is not None or machine.is_barred():
                return True
            if seat.together and gang.until_ns - self._now_ns < machine.policy.join_least_ns:
                return True
            if machine.reservation.gang != gang.name and (machine.reservation.gang or self._rivals(gang, gpu)):
                return True
        return False

    # --- a gang that waits ------------------------------------------------------------------------------------------
    def _may_want(self, gang: Gang) -> bool:
        """Does it wait, with headroom, and is it owed something (or nobody else) on all of its GPUs?"""
        waits = [gpu for gpu in gang.gpus if self._waits(gang, gpu)]
        if not waits or any(self._seat(gang, gpu).state is State.HOLDING for gpu in gang.gpus):
            return False
        if any(self._seat(gang, gpu).throttled for gpu in gang.wanted):
            return False
        if gang.since_ns >= 0:
            return True
        if not any(self._machines[gpu].reservation.nominee is self._seat(gang, gpu) for gpu in waits):
            return False
        return all(self._fair(gang, gpu) for gpu in gang.wanted)

    def _stranded(self, gang: Gang) -> bool:
        """Is all that it wants free, and nobody else will take it? Gangs may have been passed over for each other."""
        waits = any(self._waits(gang, gpu) for gpu in gang.wanted)
        if not (gang.regarded and waits) or any(self._seat(gang, gpu).throttled for gpu in gang.wanted):
            return False
        if any(self._holds(gang, gpu) for gpu in gang.gpus):
            return False
        machines = [self._machines[gpu] for gpu in gang.wanted]
        return not any(
            machine.grant.holder is not None or machine.reservation.gang or machine.is_barred() for machine in machines
        )

    def _fair(self, gang: Gang, gpu: int) -> bool:
        """May it run there before those who wait?"""
        machine, seat = self._machines[gpu], self._seat(gang, gpu)
        if machine.reservation.nominee is seat:
            return True
        rivals = [other for other in self._rivals(gang, gpu) if other.request_ppm]
        if machine.grant.holder is not None and machine.grant.holder is not seat and machine.grant.holder.request_ppm:
            rivals.append(machine.grant.holder)
        if not seat.request_ppm:
            return not rivals
        return seat.clock <= machine.clock.virtual_now or not rivals

    def _assemble(self, gang: Gang) -> bool:
        """Take all, or claim all."""
        machines = {gpu: self._machines[gpu] for gpu in gang.wanted}
        busy = [gpu for gpu, machine in machines.items() if machine.grant.holder is not None or machine.is_barred()]
        if not busy and not any(self._urgent(gang, gpu) for gpu in machines):
            self._take(gang)
            return True
        changed = gang.since_ns < 0
        if changed:
            gang.since_ns = self._now_ns
        for machine in machines.values():
            if machine.reservation.gang != gang.name:
                machine.reservation.keep(gang.name)
        for gpu in busy:
            machine = machines[gpu]
            holder = machine.grant.holder
            if holder is not None and holder.state is State.HOLDING and not machine.grant.contended:
                self._direct(gpu, self._recaller(gpu, holder, ev.NEWCOMER))
                return True
        end_ns = max((self._end_ns(machines[gpu]) for gpu in busy), default=self._now_ns)
        for gpu, machine in machines.items():
            if gpu in busy:
                continue
            urgent = self._urgent(gang, gpu)
            if urgent is not None:
                self._direct(gpu, self._mover(machine, urgent, 0))
                return True
            if self._keep(gang, gpu, machine, end_ns):
                return True
        return changed

    def _keep(self, gang: Gang, gpu: int, machine: TokenMachine, end_ns: int) -> bool:
        """A free token waits for the others; meanwhile somebody may run, if there is time."""
        policy, now_ns = machine.policy, self._now_ns
        patience_ns = max(gang.since_ns, machine.grant.free_since_ns) + policy.quota_ns - now_ns
        room_ns = end_ns - now_ns
        if patience_ns <= 0:
            room_ns = max(room_ns, policy.quota_ns)
        ready = [seat for seat in self._rivals(gang, gpu) if not seat.gang]
        if room_ns >= policy.least_quota_ns and ready:
            first, virtual_now = pick(ready, machine.clock.virtual_now, policy, now_ns, machine.tenants.others)
            assert first is not None
            machine.clock.jump_to(virtual_now)
            quota_ns = min(room_ns, machine.limits.quota_from(first, True, now_ns))
            self._direct(gpu, self._mover(machine, first, quota_ns))
            return True
        until_ns = now_ns + patience_ns if patience_ns > 0 else 0
        if not machine.reservation.keep_until(until_ns):
            return False
        self._direct(gpu, _nothing)  # it says when to come back
        return True

    def _urgent(self, gang: Gang, gpu: int) -> Seat | None:
        """A latency tenant that waits there and comes before the gang."""
        machine, seat = self._machines[gpu], self._seat(gang, gpu)
        spared = gang.taken_ns > seat.preempted_ns > self._now_ns - machine.policy.quota_ns
        if seat.latency or spared:
            return None
        ahead_ns = machine.policy.latency_ahead_ns
        rivals = [other for other in self._rivals(gang, gpu) if other.latency and not other.gang]
        owed = (other for other in rivals if eligible(other, machine.clock.virtual_now, ahead_ns))
        return min(owed, key=lambda other: other.finish, default=None)

    def _take(self, gang: Gang) -> None:
        """All at once."""
        gpus = gang.wanted
        waits = [gpu for gpu in gpus if self._waits(gang, gpu)]
        seats = {gpu: self._seat(gang, gpu) for gpu in gpus}
        for seat in seats.values():
            seat.together = False
        together = any(self._machines[gpu].grants.shape_of(seats[gpu])[0] for gpu in gpus)
        quotas = []
        for gpu in waits:
            seats[gpu].together = together
            quotas.append(self._machines[gpu].limits.quota_from(seats[gpu], together, self._now_ns))
        limited = any(seats[gpu].is_limited for gpu in waits)
        quota_ns = min(quotas) if limited else max(quotas)
        gang.since_ns = -1
        gang.parts = set(waits)
        gang.taken_ns, gang.until_ns = self._now_ns, self._now_ns + quota_ns
        for gpu in gpus:
            seats[gpu].together = together
            reservation = self._machines[gpu].reservation
            reservation.keep(gang.name if together else "", gang.until_ns if together else 0)
        for gpu in waits:
            self._direct(gpu, self._taker(gang, gpu, quota_ns))

    def _give_up(self, gang: Gang) -> None:
        """It assembles no longer: it died, or must rest, or another was first."""
        if gang.since_ns >= 0:
            gang.since_ns = -1
            self._release(gang)

    def _release(self, gang: Gang) -> bool:
        """No claim of it is left."""
        released = False
        for machine in self._machines:
            if machine.reservation.gang == gang.name:
                self._charge(gang, machine)
                machine.reservation.release()
                released = True
                self._direct(machine.context.gpu, _nothing)
        return released

    def _charge(self, gang: Gang, machine: TokenMachine) -> None:
        """For the time that a token was kept for a gang which held others: nobody else could have it."""
        seat = machine.tenants.seats.get(gang.name)
        if gang.parts and machine.reservation.gang == gang.name and machine.grant.holder is None and seat is not None:
            kept_ns = self._now_ns - max(machine.grant.free_since_ns, gang.taken_ns)
            machine.clock.charge(seat, max(0, kept_ns))

    def _pass_over(self, machine: TokenMachine) -> bool:
        """The gang that was picked there may not run now: the next is picked."""
        if machine.grant.holder is not None or not machine.reservation.pass_over():
            return False
        self._direct(machine.context.gpu, _nothing)
        return True

    # --- looks ------------------------------------------------------------------------------------------------------
    def _seat(self, gang: Gang, gpu: int) -> Seat:
        return self._machines[gpu].tenants.seats[gang.name]

    def _holds(self, gang: Gang, gpu: int) -> bool:
        return self._machines[gpu].grant.holder is self._seat(gang, gpu)

    def _waits(self, gang: Gang, gpu: int) -> bool:
        return self._seat(gang, gpu).state is State.WAITING

    def _arrived(self, gang: Gang) -> tuple[int, str]:
        since = [self._seat(gang, gpu).waiting_since_ns for gpu in gang.gpus if self._waits(gang, gpu)]
        return min(since, default=0), gang.name

    def _rivals(self, gang: Gang, gpu: int) -> list[Seat]:
        waiting: Iterable[Seat] = self._machines[gpu].tenants.waiting.values()
        return [seat for seat in waiting if seat.name != gang.name and not seat.throttled]

    def _end_ns(self, machine: TokenMachine) -> int:
        """When its holder should be done."""
        holder = machine.grant.holder
        if holder is None or holder.state is State.CLOSING:
            return self._now_ns
        return max(self._now_ns, machine.grant.quota_until_ns)

    def _taker(self, gang: Gang, gpu: int, quota_ns: int) -> Callable[[], None]:
        machine, seat = self._machines[gpu], self._seat(gang, gpu)
        gang.parts.add(gpu)

        def take() -> None:
            self._charge(gang, machine)
            if not any(other.request_ppm for other in self._rivals(gang, gpu)):
                machine.clock.jump_to(max(machine.clock.virtual_now, seat.clock))
            machine.move(seat, Take(0, quota_ns))

        return take

    @staticmethod
    def _mover(machine: TokenMachine, seat: Seat, quota_ns: int) -> Callable[[], None]:
        return lambda: machine.move(seat, Take(0, quota_ns))

    def _recaller(self, gpu: int, holder: Seat, reason: int) -> Callable[[], None]:
        return lambda: self._machines[gpu].move(holder, Recall(reason))

    # --- proof ------------------------------------------------------------------------------------------------------
    def check(self) -> None:
        """Assert that no gang holds and waits, and that claims are those of gangs that assemble or hold."""
        for gang in self.gangs.values():
            running = [gpu for gpu in gang.gpus if self._seat(gang, gpu).state is State.HOLDING]
            waits = [gpu for gpu in gang.gpus if self._waits(gang, gpu)]
            assert not (running and waits), f"{gang.name} holds {running} and waits for {waits}"
            assert not running or gang.parts or not gang.regarded, f"{gang.name} holds {running} without a grant"
            assert not self._stranded(gang), f"{gang.name} waits for {waits}, and all that it wants is free"
            closing = [gpu for gpu in gang.gpus if self._seat(gang, gpu).state is State.CLOSING]
            assert not (running and closing), f"{gang.name} keeps {running} and gives back {closing}"
        for machine in self._machines:
            if machine.reservation.gang:
                gang = self.gangs[machine.reservation.gang]
                assert gang.parts or gang.since_ns >= 0, f"{gang.name} claims GPU {machine.context.gpu} for nothing"


def _nothing() -> None:
    """The machine only settles."""
