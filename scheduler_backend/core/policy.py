"""Who is next, and what everyone is owed. Data and pure functions; the machine asks, and keeps the clocks.

Fair virtual time (WF2Q+, Bennett and Zhang 1996; EEVDF, Stoica et al. 1996). A tenant's clock advances by held time /
request, the virtual now by held time / sum of the requests of those active. Who is not after now is owed something;
among the owed the next is the one whose quota would finish earliest. Virtual times are integers: SCALE units are one
nanosecond of a tenant whose request is one millionth, so a division errs by less than a millionth of a nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec

SCALE = WHOLE_PPM << 20
MS = 1_000_000
BEST_EFFORT_PPM = 50_000  # what a tenant of request 0 counts as, where so much is promised to nobody
LEAST_BEST_EFFORT_PPM = 10_000  # with less for each of them, they run when nobody else can
HANDOVER_NS = 300_000  # what the messages of a hand-over take, where one is planned for


class Policy(NamedTuple):
    """Every constant of the policy, in nanoseconds. The trace's header records them; a replay may change one."""

    ordering: str = "eevdf"
    preemption: bool = True  # false: grants run to their end, as the seed's do
    window_ns: int = 1000 * MS  # only reports
    quota_ns: int = 10 * MS  # the most when contended: 1 % of the window
    least_quota_ns: int = 2 * MS
    alone_quota_ns: int = 50 * MS
    lease_margin_ns: int = 30 * MS  # contended lease = quota + this: `ahead` of them go by before the daemon must look
    alone_lease_ns: int = 250 * MS
    overrun_ns: int = 1000 * MS
    ahead: int = 4  # hand-overs in a row that may be decided before the first of them
    preempt_after_ns: int = 1 * MS  # a holder keeps what it woke up for this long
    extend_lead_ns: int = 2 * MS  # who would be picked again is prolonged this long before its quota ends
    extend_silent: int = 4  # so often in a row without a sign of life from the holder
    alike_ns: int = 500_000  # whose quotas end within so much held time of each other come in turn
    join_least_ns: int = 500_000  # a sibling joins a grant that has this much left
    valve_ns: int = 2 * MS  # what one that waits is let in for while a sibling's drain may wait for it
    cap_ns: int = 1 * MS  # most work in flight, contended
    cap_short_ns: int = 300_000  # while one with bursts below short_burst_ns is registered
    cap_prompt_ns: int = 200_000  # while a latency tenant is: what was launched ahead is all that it waits for
    cap_lag_ns: int = 10_000  # one launch at a time, while one that leaves the card idle anyway lags beside others
    cap_latency_ns: int = 3 * MS  # a latency tenant's own: whoever waits for it waits for its burst
    cap_alone_ns: int = 20 * MS
    short_burst_ns: int = 8 * MS  # those fit into a quota, with the quarter that is added
    company_ns: int = 10_000 * MS  # who asked or came within this time may come again
    alone_after_ns: int = (
        500 * MS
    )  # once all others have rested for so long grants do not end: who comes asks for its turn
    latency_ahead_ns: int = 50 * MS  # how far a latency tenant may get ahead of what it is owed
    resume_early_ns: int = (
        400_000  # who has rested at its limit but for this may be next: drains end before their quota
    )
    alone_stall_ns: int = 12 * MS  # a limited tenant alone runs and pauses in steps of about this
    hop_most_ns: int = 500_000  # of the messages' time that is not charged
    hop_alone_most_ns: int = 1 * MS  # the same of a limited tenant alone: nobody else waits, the daemon sleeps deeper
    shared: bool = True  # host-bound tenants run beside others (company.py)
    shared_limits: bool = True  # those with a limit, too; off where no card says what a process uses
    measure_every_ns: int = 1000 * MS  # a duty is measured anew, or up to a fourth as often (duty.py)
    shared_lag_ns: int = 8 * MS  # who lags by more runs alone; words of use come each 10 ms
    shared_lease_ns: int = 250 * MS
    cap_shared_ns: int = 4 * MS  # more than the card's own slice: who waits for that must not run dry in it
    recall_ns: int = 200 * MS  # a refusal of memory waits so long for unused credit of siblings, who may lack a CPU


class Waiting(Protocol):
    """What pick() looks at: a tenant that waits and has headroom."""

    clock: int
    request_ppm: int
    latency: bool
    arrived: int  # serial number of its arrival
    due_ns: int  # when it has waited as long as its request allows

    @property
    def finish(self) -> int: ...  # virtual time at which its next quota would end


S = TypeVar("S", bound=Waiting)


def virtual(ns: int, weight_ppm: int) -> int:
    """`ns` of held time as virtual time of somebody with this weight (above 0)."""
    return ns * SCALE // weight_ppm


class Ordering(NamedTuple):
    """Who is next, and what else goes with that. The least key is next. Each field has to be said: there is no default,
    and nothing outside of this table asks for an ordering by its name.

    owed_only: those whose clock is after now come only where nobody is owed.
    bounded: nobody waits without bound (see _comes_too_late).
    wakes_preempt: a tenant that wakes up with something owed takes the token from a holder that has had its part.
    plans_ahead: who is next is decided while the holder still runs, and hand-overs behind it in a row.
    shares: host-bound tenants run beside others (company.py), which virtual time keeps to their promises.
    """

    key: Callable[[Waiting], tuple[int, ...]]
    owed_only: bool
    bounded: bool
    wakes_preempt: bool
    plans_ahead: bool
    shares: bool


def by_virtual_finish(seat: Waiting) -> tuple[int, ...]:
    """Latency tenants first, then whose quota would finish earliest."""
    return (not seat.latency, seat.finish, seat.arrived)


def by_virtual_start(seat: Waiting) -> tuple[int, ...]:
    """The seed's words taken literally: the furthest behind first."""
    return (seat.clock, seat.arrived)


def by_due(seat: Waiting) -> tuple[int, ...]:
    """Who fell due first."""
    return (seat.due_ns, seat.arrived)


def by_arrival(seat: Waiting) -> tuple[int, ...]:
    """First come, first served."""
    return (seat.arrived,)


ORDERINGS: dict[str, Ordering] = {
    "eevdf": Ordering(
        by_virtual_finish, owed_only=True, bounded=True, wakes_preempt=True, plans_ahead=True, shares=True
    ),
    "finish": Ordering(  # plain weighted fair queueing
        by_virtual_finish, owed_only=False, bounded=False, wakes_preempt=False, plans_ahead=False, shares=False
    ),
    "behind": Ordering(
        by_virtual_start, owed_only=False, bounded=False, wakes_preempt=False, plans_ahead=False, shares=False
    ),
    "fifo": Ordering(by_arrival, owed_only=False, bounded=False, wakes_preempt=False, plans_ahead=False, shares=False),
}


def eligible(seat: Waiting, virtual_now: int, latency_ahead_ns: int) -> bool:
    """Is it owed something? A latency tenant may be ahead by so much; best effort (request 0) is owed nothing."""
    if seat.request_ppm == 0:
        return False
    if seat.latency:
        return seat.clock <= virtual_now + virtual(latency_ahead_ns, seat.request_ppm)
    return seat.clock <= virtual_now


def pick(waiting: Iterable[S], virtual_now: int, policy: Policy, now_ns: int, others: int) -> tuple[S | None, int]:
    """The next holder among those who wait and have headroom, and the virtual now at its grant.

    Where nobody is owed, now moves on to the first clock there is (WF2Q+: the token is never idle while somebody
    waits). Best effort comes when nobody with a request waits, the least served first.

    Fair virtual time alone lets a tenant of a small request wait for nearly two of its periods (served early in one,
    late in the next), and one that comes new for a whole one. So where somebody's wait would pass its bound, who has
    been due the longest comes first, the latency class included. `others` are those it shares the GPU with.
    """
    seats = list(waiting)
    promised = [seat for seat in seats if seat.request_ppm]
    if not promised:
        return min(seats, key=by_virtual_start, default=None), virtual_now
    ordering = ORDERINGS[policy.ordering]
    rivals = promised
    if ordering.owed_only:
        rivals = [seat for seat in promised if eligible(seat, virtual_now, policy.latency_ahead_ns)]
        if not rivals:
            virtual_now = max(virtual_now, min(seat.clock for seat in promised))
            rivals = [seat for seat in promised if seat.clock <= virtual_now]
    first = min(rivals, key=ordering.key)
    if ordering.owed_only and len(rivals) > 1:
        first = _first_come(rivals, first, policy)
    if ordering.bounded and _comes_too_late(promised, first, policy, now_ns, others):
        first = min(promised, key=by_due)
    return first, virtual_now


def moved_on(waiting: Iterable[Waiting], virtual_now: int, policy: Policy) -> int:
    """The virtual now at the grant that pick() would decide, for who knows already to whom it goes."""
    if not ORDERINGS[policy.ordering].owed_only:
        return virtual_now
    first = None
    for seat in waiting:
        if seat.request_ppm:
            if eligible(seat, virtual_now, policy.latency_ahead_ns):
                return virtual_now
            first = seat.clock if first is None else min(first, seat.clock)
    return virtual_now if first is None else max(virtual_now, first)


def _first_come(rivals: Iterable[S], first: S, policy: Policy) -> S:
    """Who came first among those whose quotas would end so little after that of `first` that this should decide. What
    turns are charged differs a little from one to the next: equals would overtake each other, one have two in a row.
    """
    found, finish, latency = first, first.finish, first.latency
    for seat in rivals:
        if seat.arrived >= found.arrived or seat.latency != latency:
            continue
        if seat.finish <= finish + virtual(policy.alike_ns, max(seat.request_ppm, first.request_ppm)):
            found = seat
    return found


def _comes_too_late(promised: Sequence[S], first: S, policy: Policy, now_ns: int, others: int) -> bool:
    """Would somebody who waits pass its bound if `first` were next, and the rest came as they fell due?

    The bound: nobody with a request waits longer than its last held time / request + one quota of each of the others.
    After its last held time / request it is due. Served in the order in which they fall due, each comes after at most
    all others, once: what one takes that way is no more than its request, so it falls due again later. That order is
    needed only where no time is left for anybody else's quota; the rest is left to virtual time, which is smoother.
    """
    due = sorted(seat.due_ns for seat in promised if seat.due_ns <= now_ns and seat is not first)
    turn_ns = policy.quota_ns + HANDOVER_NS
    latest_ns = now_ns - (others - 1) * turn_ns
    return any(due_ns < latest_ns + turns * turn_ns for turns, due_ns in enumerate(due))


def best_effort_ppm(specs: Sequence[tuple[int, int]]) -> int:
    """The weight of each tenant of request 0 among these (request, limit) of one GPU, in ppm: a small request, out of
    what is promised to nobody. 0: they run when nobody else can, for too little of that is left, or the limits of the
    others leave them as much anyway."""
    count = sum(1 for request_ppm, _ in specs if not request_ppm)
    if not count:
        return 0
    free_ppm = WHOLE_PPM - sum(request_ppm for request_ppm, _ in specs)
    part_ppm = min(BEST_EFFORT_PPM, free_ppm // count)
    unlimited_ppm = WHOLE_PPM - sum(limit_ppm for request_ppm, limit_ppm in specs if request_ppm)
    return part_ppm if part_ppm >= LEAST_BEST_EFFORT_PPM and unlimited_ppm < part_ppm * count else 0


def entitled_shares(specs: Sequence[TenantSpec]) -> dict[str, int]:
    """What the policy owes each of these tenants of one GPU if all are always busy, in ppm of the GPU's time.

    Water-filling by weight (the request, or the small one of best effort) among those below their limit: as weights sum
    to at most the whole, each gets its request. Where best effort has none, what nobody with a request may take goes to
    it in equal parts, up to its limits.
    """
    shares = {spec.name: 0 for spec in specs}
    part_ppm = best_effort_ppm([(spec.request_ppm, spec.limit_ppm) for spec in specs])
    weighed = [(spec.name, spec.request_ppm or min(part_ppm, spec.limit_ppm), spec.limit_ppm) for spec in specs]
    left = _fill([each for each in weighed if each[1]], WHOLE_PPM, shares)
    _fill([(name, 1, limit) for name, weight, limit in weighed if not weight], left, shares)
    return shares


def _fill(members: list[tuple[str, int, int]], left: int, shares: dict[str, int]) -> int:
    """Share `left` by weight among (name, weight, limit); returns what remains where all limits are reached."""
    while members and left > 0:
        weights = sum(weight for _, weight, _ in members)
        bound = [member for member in members if left * member[1] >= member[2] * weights]
        if not bound:
            for name, weight, _ in members:
                shares[name] = (left * weight + weights // 2) // weights
            return 0
        for name, _, limit in bound:
            shares[name] = limit
            left -= limit
        members = [member for member in members if member not in bound]
    return left
