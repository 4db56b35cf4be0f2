"""The parts of one GPU's token machine without the machine: each is given those that it needs, and a test calls it."""

from __future__ import annotations

from typing import Any

from scheduler_backend.core import events as ev
from scheduler_backend.core.beside import Beside
from scheduler_backend.core.charges import Charges
from scheduler_backend.core.context import Context
from scheduler_backend.core.current_grant import CurrentGrant
from scheduler_backend.core.fair_clock import FairClock
from scheduler_backend.core.grants import Grants
from scheduler_backend.core.limits import Limits
from scheduler_backend.core.message_delay import MessageDelay
from scheduler_backend.core.moves import Epochs
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.promises import Promises
from scheduler_backend.core.reservation import GangReservation
from scheduler_backend.core.restart import RestartBarrier
from scheduler_backend.core.returns import Returns
from scheduler_backend.core.rows import Rows
from scheduler_backend.core.seat import Member, Seat, Standing, State
from scheduler_backend.core.shared_grants import SharedGrants
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec
from scheduler_backend.core.tenants import Tenants

HALF = WHOLE_PPM // 2


class Parts:
    """Up to the table of transitions; nobody decides anything."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.context = Context(0, self.policy, Epochs())
        self.tenants = Tenants(self.policy)
        self.clock = FairClock(self.policy, self.tenants)
        self.grant = CurrentGrant(self.context)
        self.delay = MessageDelay(self.policy)
        self.restart = RestartBarrier()
        self.reservation = GangReservation()
        self.beside = Beside()
        self.charges = Charges(self.context, self.tenants, self.clock, self.grant, self.delay)
        self.limits = Limits(self.context, self.tenants, self.clock, self.grant)
        self.grants = Grants(self.context, self.tenants, self.grant, self.limits, self.charges, self.beside)
        self.promises = Promises(self.context, self.tenants, self.grant, self.limits, self.charges, self.beside)
        self.shared = SharedGrants(
            self.context, self.tenants, self.clock, self.grant, self.grants, self.beside, self.promises
        )
        self.returns = Returns(
            self.context,
            self.clock,
            self.grant,
            self.restart,
            self.limits,
            self.charges,
            self.grants,
            self.promises,
            self.shared,
        )
        self.rows = Rows(
            self.context,
            self.tenants,
            self.clock,
            self.grant,
            self.delay,
            self.limits,
            self.grants,
            self.beside,
            self.promises,
            self.shared,
            self.returns,
        )

    def add(self, name: str, request_ppm: int = HALF, limit_ppm: int = WHOLE_PPM, processes: int = 1) -> Seat:
        """A tenant with so many processes; its first client has the number of its place among the tenants, from 1 on,
        its next ones 10 more each.
        """
        seat = Seat(TenantSpec(name, request_ppm, limit_ppm), self.policy, self.context.now_ns)
        self.clock.place(seat)
        self.tenants.add(seat)
        for process in range(processes):
            self.tenants.join(seat, len(self.tenants.seats) + 10 * process)
        self.clock.resident_ppm = self.tenants.share_turns()
        return seat

    def want(self, *seats: Seat) -> None:
        """All of their processes wait."""
        for seat in seats:
            for member in seat.members.values():
                self.grants.want(seat, member)

    def hold(self, seat: Seat, quota_ns: int = 10 * MS, contended: bool = True) -> Member:
        """All of its processes hold the token from now on; returns the first of them."""
        self.tenants.waiting.pop(seat.name, None)
        cap_ns = self.policy.cap_ns if contended else self.policy.cap_alone_ns
        self.grant.contended, self.grant.cap_ns = contended, cap_ns
        self.grant.begin(seat, self.context.epochs.take(), quota_ns, 0)
        seat.state, seat.alone_epoch = State.HOLDING, self.grant.epoch
        for member in seat.members.values():
            self.grants.give(member, list(seat.members.values()), joined=False)
        self.context.begin()
        return next(iter(seat.members.values()))

    def share(self, *seats: Seat) -> None:
        """They run beside each other from now on."""
        for seat in seats:
            seat.duty.host_bound, seat.duty.ppm = True, HALF
            self.beside.sort(seat)
            self.want(seat)
            self.shared.admit(seat)
        self.context.begin()

    def at(self, now_ms: float) -> None:
        """So late it is now; what passes until then is charged and metered, and all that was to be done is."""
        now_ns = round(now_ms * MS)
        self.promises.meter(now_ns)
        self.charges.advance(now_ns, self.beside.sharing)
        self.context.begin()

    def done(self, kind: type | None = None) -> list[Any]:
        """What is to be done since then, all or those of a kind."""
        return [action for action in self.context.actions if kind is None or type(action) is kind]


def returned(member: Member, *, more: bool = False, busy_ns: int = 0, held_ns: int = 0) -> ev.TokenReturned:
    """The Return of a process for the grant it has."""
    return ev.TokenReturned(member.client, 0, member.epoch, more, busy_ns=busy_ns, held_ns=held_ns)


def standings(seat: Seat) -> list[Standing]:
    """Of its processes."""
    return [member.standing for member in seat.members.values()]
