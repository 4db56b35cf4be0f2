"""A tenant's place at one GPU: its clock, its limit's bucket, its processes, and what happened to it lately.

The bucket (rate = limit, depth = one quota) counts in nanoseconds x ppm, so that refilling is exact. A grant is never
longer than what the bucket holds, so over any window a tenant holds at most limit x window + one quota + overuse; an
overuse is a debt without bound. After it ran dry the tenant rests until a good part of a quota is there again: shorter
grants would pay for more hand-overs, longer rests would lose what the full bucket can not take while others hold.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from scheduler_backend.core.duty import Duty, Free
from scheduler_backend.core.policy import Policy, virtual
from scheduler_backend.core.quota import Bursts, contended_quota, whole_turn
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec
from scheduler_backend.core.window import Window

STORY_LENGTH = 40
NEVER_NS = 1 << 62


class State(Enum):
    """Of a tenant at one GPU."""

    IDLE = "idle"  # none of its processes wants to launch
    WAITING = "waiting"  # one does
    HOLDING = "holding"  # it has the token
    CLOSING = "closing"  # it has it still, and was asked for it
    SHARED = "shared"  # it runs beside others, with or without a holder
    LEAVING = "leaving"  # it does so still, and was asked to stop
    PAUSED = "paused"  # it would, and others come first


BESIDE = (State.SHARED, State.LEAVING, State.PAUSED)  # no rivals for the token


class Standing(Enum):
    """Of one process of the tenant at this GPU."""

    QUIET = "quiet"
    WAITS = "waits"
    HOLDS = "holds"
    STRAY = "stray"  # its lease ran out or it overran: its work may still run, the token has moved on


class Member:
    """One process of the tenant."""

    __slots__ = (
        "adrift", "again", "alone", "alone_ppm", "alone_since_ns", "alone_used_ns", "asks_again", "base_ns", "bursts",
        "client", "epoch", "free", "gentle_ns", "granted_ns", "heard_ns", "idle_ns", "lease_until_ns", "metered_ns",
        "span_ns", "standing", "stray_since_ns", "stray_total_ns", "used_at_ns", "used_ns", "waited_ns",
    )  # fmt: skip

    def __init__(self, client: int) -> None:
        self.client = client
        self.standing = Standing.QUIET
        self.bursts = Bursts()
        self.heard_ns = 0  # its last word
        self.epoch = 0  # of the grant it holds or strayed with
        self.adrift = False  # it strayed once: the card is asked for what it uses from then on
        self.again = False  # it has given back this epoch before: an old word of its drain may be about
        self.granted_ns = 0
        self.span_ns = 0  # from then to its drain, until its Return tells its own view of that; 0: unknown
        self.lease_until_ns = 0
        self.asks_again = False  # it asked while its grant was closing
        self.stray_since_ns = 0  # charged up to here, for one that overran; 0 for one whose lease ran out
        self.stray_total_ns = 0  # what its tenant had held of all time by then
        self.base_ns = -1  # what it had used of all time when its shared grant began; -1: it has not said
        self.used_ns = 0  # under that grant
        self.waited_ns = 0  # of all time, as it said last
        self.idle_ns = 0  # of what its tenant got, what words said since then of which none had used anything
        self.used_at_ns = 0  # when it said so last
        self.metered_ns = 0  # ... and its tenant's metered time then,
        self.gentle_ns = 0  # ... and the time in which what that used was all that it got
        self.alone = False  # ... and whether its tenant had the card alone then
        self.alone_ppm = -1  # what it used of the time since the word before, where that was so then, too
        self.alone_since_ns = self.alone_used_ns = 0  # what it has used since it was last seen so
        self.free = Free()


class Seat:
    """What the machine keeps of one tenant; only the machine writes it."""

    def __init__(self, spec: TenantSpec, policy: Policy, now_ns: int) -> None:
        self.policy = policy
        self.name = spec.name
        self.request_ppm = spec.request_ppm  # or its weight, where it is best effort (policy.best_effort_ppm)
        self.best_effort = not spec.request_ppm
        self.limit_ppm = spec.limit_ppm
        self.latency = spec.latency
        self.gang = False  # it gets the tokens of several GPUs together (gang.py)
        self.together = False  # its grants end, for they do on another of its GPUs
        self.strayed_until_ns = 0  # up to here it was charged for processes that strayed
        self.stray_total_ns = 0  # what it had held of all time by then
        self.stray_ns = 0  # what it was charged for them, ever
        self.run_on_ns = 0  # what it used by the card's word beyond what it was charged, since one of them strayed
        self.run_on_total_ns = -1  # what it had held of all time when it was last charged for that
        self.unused_ns = 0  # what of the time it held its limit was not charged, ever
        self.preempted_ns = -NEVER_NS  # a gang that was asked back is spared for a quota
        self.state = State.IDLE
        self.members: dict[int, Member] = {}
        self.burst_ns = 0  # the longest of its processes'; 0: unknown
        self.window = Window(policy.window_ns)
        self.story: deque[tuple[int, State, object]] = deque(maxlen=STORY_LENGTH)
        self.clock = 0
        self.owed_ns = 0  # what it was owed when it came back, and has not got yet
        self.steady = 0  # the same on a virtual time for which everybody with a process is always active
        self.arrived = 0  # serial of its last arrival among the waiting
        self.woken = False  # it came back from idle and has not held since
        self.waiting_since_ns = 0
        self.ready_since_ns = 0  # since when it waits without resting at its limit; while it rests, the end of that
        self.held_ns = 0  # by its last grant
        self.jumped = False  # its grant, or the one to come, was taken from a holder for its class
        self.due_ns = NEVER_NS  # when it has waited as long as its request allows
        self.duty = Duty()
        self.returning = False  # drained by a prepared hand-over; whether it wants more is on its way
        self.rested_ns = 0  # when it wanted nothing any more
        self.alone_epoch = (
            0  # of its last grant, where nobody ran beside it; 0: somebody did, below 0: from some time on
        )
        self.shared_epoch = 0  # of its last grant beside others
        self.shared_since_ns = 0
        self.shared_closing_ns = 0  # when it was asked to stop
        self.lagged_ns = 0  # what turns owed it when it left them to run beside others: they owe it that afterwards
        self.ahead_ns = 0  # beside others: what it got before what it was promised, as time alone; below 0: it lags
        self.metered_ns = 0  # for so long it had the card alone, ever: that time is counted as it passes
        self.gentle_ns = 0  # for so long what it used was all that it got, ever (Beside.counts_use)
        self.counted_ns = 0  # of its turn, what was counted as got, either way
        self.got_free_ns = self.got_used_ns = self.got_ns = 0  # of late, by either measure; the greater is counted
        self.used_ns = 0  # under its shared grant
        self.spent = False  # ... which was closed, for its bucket was empty
        self.weighed_ns = 0  # what it had been charged of all time when the card last said what it used
        self.spent_ns = 0  # ... of which so much stands in the window
        self.reported_ns = 0  # when it last used something
        self.quiet = False  # by its last word it had used nothing since the one before
        self.window_from_ns = 0  # its window is filled up to here
        self.shared_busy_ns = self.shared_launches = 0  # what its Returns said
        self.seen_ns = now_ns  # last sign that it may want the GPU
        self.throttled = False  # its bucket ran dry and is not yet full enough
        self.resume_ns = 0  # when it will be, if throttled
        self.credit = policy.quota_ns * WHOLE_PPM  # ns x ppm; below 0 is debt
        self.filled_ns = now_ns
        self.turn_ns = whole_turn(policy.quota_ns, (), bound=False)  # while it is always busy, and others are there
        self._of_burst = self._of_turn = self._of_ppm = -1  # of which `_length` is the quota's virtual time
        self._length = 0

    @property
    def weight_ppm(self) -> int:
        """What its clock advances by; best effort counts whole, on a virtual time of its own."""
        return self.request_ppm or WHOLE_PPM

    @property
    def is_limited(self) -> bool:
        """Has it a limit below the whole?"""
        return self.limit_ppm < WHOLE_PPM

    @property
    def quota_ns(self) -> int:
        """What it would be granted while others may come, before its limit is looked at."""
        policy = self.policy
        return contended_quota(self.burst_ns, policy.least_quota_ns, policy.quota_ns, self.turn_ns)

    @property
    def finish(self) -> int:
        """Virtual time at which its next quota would end. Its length is kept: each decision asks everybody."""
        if self.burst_ns != self._of_burst or self.turn_ns != self._of_turn or self.request_ppm != self._of_ppm:
            self._of_burst, self._of_turn, self._of_ppm = self.burst_ns, self.turn_ns, self.request_ppm
            self._length = virtual(self.quota_ns, self.weight_ppm)
        return self.clock + self._length

    def observe(self, member: Member, burst_ns: int, gap_ns: int) -> None:
        """Take the estimates of one of its processes; 0 leaves what is known.

        A grant is for all of them, so its burst is the longest of those that were heard of in company_ns. A mean of all
        would be that of who speaks most, which is whoever has the shortest: beside them, one that is always busy would
        have grants of least_quota_ns.
        """
        member.bursts.observe(burst_ns, gap_ns)
        since_ns = member.heard_ns - self.policy.company_ns
        self.burst_ns = max(each.bursts.burst_ns for each in self.members.values() if each.heard_ns >= since_ns)

    def spend(self, now_ns: int) -> None:
        """What it used beside others stands in its window as time that ends now; what has no room there comes later."""
        put_ns = min(self.used_ns - self.spent_ns, now_ns - self.window_from_ns)
        if put_ns > 0:
            self.window.add(now_ns - put_ns, now_ns)
            self.spent_ns += put_ns
            self.window_from_ns = now_ns

    def wait_from(self, now_ns: int) -> None:
        """It waits and has headroom from now on; after held time / request it is due (policy.pick)."""
        self.ready_since_ns = now_ns
        self.due_ns = now_ns + self.held_ns * WHOLE_PPM // self.request_ppm if self.request_ppm else NEVER_NS

    def with_standing(self, standing: Standing) -> list[Member]:
        """Its processes of one standing, in the order in which they came."""
        return [member for member in self.members.values() if member.standing is standing]

    def stray(self, member: Member, since_ns: int = 0) -> None:
        """The token moves on from this process, whose work may still run; `since_ns`: it overran, and is charged on."""
        member.standing = Standing.STRAY
        member.stray_since_ns = since_ns
        member.stray_total_ns = self.window.total_ns
        member.asks_again = False
        member.adrift = True

    @property
    def is_adrift(self) -> bool:
        """Has the token ever moved on from one of its processes, whose work may still run?"""
        return any(member.adrift for member in self.members.values())

    def fill(self, now_ns: int, depth_ns: int) -> None:
        """Let the bucket fill up to now, and no further than its depth."""
        self.credit = min(depth_ns * WHOLE_PPM, self.credit + (now_ns - self.filled_ns) * self.limit_ppm)
        self.filled_ns = now_ns

    def drain(self, held_ns: int) -> None:
        """Take what was held out of the bucket."""
        self.credit -= held_ns * WHOLE_PPM

    @property
    def credit_ns(self) -> int:
        """What the bucket holds, as held time."""
        return self.credit // WHOLE_PPM

    def full_enough_ns(self, need_ns: int) -> int:
        """When the bucket will hold `need_ns`, given that nothing is taken."""
        missing = need_ns * WHOLE_PPM - self.credit
        return self.filled_ns + max(0, -(-missing // self.limit_ppm))

    def tell(self) -> str:
        """Its story, for an exception's text."""
        return "; ".join(f"{now_ns} {state.value} {event}" for now_ns, state, event in self.story)
