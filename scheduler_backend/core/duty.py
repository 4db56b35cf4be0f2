"""How much of the time in which a tenant has a GPU alone its work runs there: is it host-bound?

A program whose host works between its launches leaves the card idle while it holds the token. Its duty is busy time /
held time over the turns that it had with nobody beside it, in blocks long enough to say something. It is host-bound
after a few blocks in a row with a low duty: a turn in which its thread was kept from running looks like one, too.

From then on it runs beside others, and turns say nothing: they cost its host time, and would show it slower than it is.
Its duty is what it uses while it has the card alone, as a mean of many moments, for each is only a part of a step. It
is at least what it uses of the time in which it does not wait for the card, by its own word: of its waits some are not
seen, and none is that was not. It stays host-bound until its duty is high.
"""

from __future__ import annotations

from scheduler_backend.core.tenant import WHOLE_PPM

BLOCK_NS = 25_000_000  # held time that makes a block; about three turns
BLOCK_AGAIN_NS = 8_000_000  # ... of one that is host-bound
BLOCK_TURNS = 16  # ... or so many shorter turns
LOW_PPM, HIGH_PPM = 820_000, 900_000  # host-bound below, not above
ROOM_PPM = 500_000  # who uses no more of the card leaves the greater part of it to others
CROWD_NS = 30_000_000  # of work, by the time that it takes alone, before it says whether company slows it down
APART_NS = 10_000_000_000  # after which one that it slowed down may try anew
FULL_PPM = 970_000  # ... where it is known by many steps
BLOCKS = 3  # in a row
ALIKE_PPM = 50_000  # measures that differ by no more agree
MOMENTS_LEAST = 8  # alone, before they say that it is not host-bound
BUSY_ROUNDS, ROUND_NS = 3, 200_000_000  # or so many rounds of moments, each so long; its own word counts as one
MOMENTS = 32  # alone, after which all of them count half as much
AGREED_MOST = 2  # each that agrees doubles the time to the next, so often
DOUBT_PPM = 50_000  # of the time, and a quarter more than it said: the card's own figures are means of coarse samples
DOUBT_NS = 1_000_000_000  # by so much more than that it may say too little; what it says too much is taken off slowly
NEVER_NS = -(1 << 62)
SHORT_GAP_NS = 500_000  # about what two hand-overs take: who comes back sooner had better been left alone
LEAST_PPM = 50_000  # what a duty is taken for at least, where it divides
FREE_LEAST_NS = 100_000_000  # of time in which a process did not wait, before it says something
FREE_MOST_NS = 1_000_000_000  # after which all of it counts half as much
FREE_PENDING_NS = 50_000_000  # a kernel may run for so long without a word of use


class Free:
    """Of one process: what it used of the time in which it did not wait for the card, of late."""

    __slots__ = ("free_ns", "pending_ns", "used_ns")

    def __init__(self) -> None:
        self.used_ns = self.free_ns = 0  # each word counts half as much once so much more has passed
        self.pending_ns = 0  # without a word of use: a kernel may run for longer

    def observe(self, used_ns: int, free_ns: int) -> None:
        """Take a word; `free_ns` is below 0 where it says that it waited before the last one. Time in which it used
        nothing, but for a moment, is not that of a step.
        """
        if used_ns <= 0:
            self.pending_ns = min(self.pending_ns + free_ns, FREE_PENDING_NS)
            return
        self.used_ns += used_ns
        self.free_ns += self.pending_ns + free_ns
        self.pending_ns = 0
        if self.free_ns > FREE_MOST_NS:
            self.used_ns //= 2
            self.free_ns //= 2

    @property
    def ppm(self) -> int:
        """Its part of that time; -1: too little is known."""
        return self.used_ns * WHOLE_PPM // self.free_ns if self.free_ns >= FREE_LEAST_NS else -1


class Duty:
    """Of one tenant at one GPU."""

    __slots__ = (
        "agreed",
        "alone_ppm",
        "apart_until_ns",
        "believed",
        "blocks",
        "busy_ns",
        "busy_rounds",
        "crowd_ns",
        "doubt_ns",
        "extra_ns",
        "free_ppm",
        "held_ns",
        "host_bound",
        "measured_ns",
        "moments",
        "ppm",
        "round_ns",
        "turned_ns",
        "turns",
    )

    def __init__(self) -> None:
        self.busy_ns = 0  # of the block that is not full
        self.held_ns = 0
        self.turns = 0
        self.blocks = 0  # with a low duty, in a row
        self.agreed = 0  # measures in a row that were like the one before
        self.ppm = 0  # smoothed over blocks, rate 0.5; 0: unknown
        self.host_bound = False
        self.free_ppm = 0  # at least, by time in which it did not wait, while it is host-bound; 0: unknown
        self.alone_ppm = self.moments = 0  # the sum of what it used in so many moments alone
        self.busy_rounds = 0  # in a row, in all moments of which it was busy
        self.round_ns = NEVER_NS  # when the last of them began
        self.crowd_ns = self.extra_ns = 0  # work beside others, and what it waited for it besides
        self.apart_until_ns = NEVER_NS  # others would slow it down
        self.doubt_ns = 0  # by so much it said too little, beyond what coarse samples explain
        self.believed = True  # is what it says borne out by the card?
        self.turned_ns = NEVER_NS  # end of the last block
        self.measured_ns = NEVER_NS  # when it was seen alone beside nobody; only of one that is host-bound

    def observe(self, busy_ns: int, held_ns: int, now_ns: int) -> None:
        """Take one turn that the tenant had alone."""
        if held_ns <= 0:
            self._say_nothing(now_ns)
            return
        self.busy_ns += busy_ns  # it may be more than the turn took: work of the one before is heard of late
        self.held_ns += held_ns
        self.turns += 1
        if self.held_ns < (BLOCK_AGAIN_NS if self.host_bound else BLOCK_NS) and self.turns < BLOCK_TURNS:
            return
        block_ppm = min(WHOLE_PPM, self.busy_ns * WHOLE_PPM // self.held_ns)
        self.busy_ns = self.held_ns = self.turns = 0
        self.turned_ns = now_ns
        if self.host_bound:
            return
        self._agree(block_ppm)
        self.ppm = (self.ppm + block_ppm) // 2 if self.ppm else block_ppm
        self.blocks = min(BLOCKS, self.blocks + 1) if block_ppm < LOW_PPM and self.believed else 0
        if self.blocks == BLOCKS:
            self.host_bound = True
            self.free_ppm = self.alone_ppm = self.moments = self.busy_rounds = 0
            self.measured_ns = NEVER_NS
            self.agreed = 0

    def observe_alone(self, alone_ppm: int, now_ns: int) -> None:
        """Take what its processes together used of the time while it had the card alone without a turn."""
        alone_ppm = min(WHOLE_PPM, alone_ppm)
        if self.measured_ns != NEVER_NS:
            self._agree(alone_ppm)
        self.measured_ns = now_ns
        self.alone_ppm += alone_ppm
        self.moments += 1
        if alone_ppm <= FULL_PPM:
            self.busy_rounds = 0
        elif not self.busy_rounds or now_ns - self.round_ns >= ROUND_NS:
            self.busy_rounds, self.round_ns = self.busy_rounds + 1, now_ns
        self._weigh_moments()
        if self.moments >= MOMENTS:
            self.alone_ppm //= 2
            self.moments //= 2

    def observe_free(self, free_ppm: int) -> None:
        """Take what its processes together used of the time in which they did not wait for the card, of late. Who says
        too much has, at most, the promise of one that is always busy.
        """
        if self.host_bound:
            self.free_ppm = min(WHOLE_PPM, free_ppm)
            self._weigh_moments()

    def _weigh_moments(self) -> None:
        alone_ppm = self.alone_ppm // self.moments if self.moments else 0
        self.ppm = max(self.free_ppm, alone_ppm) or self.ppm
        most_ppm = FULL_PPM if self.free_ppm else HIGH_PPM
        busy = self.busy_rounds + (self.free_ppm > HIGH_PPM) >= BUSY_ROUNDS
        if busy or (self.moments >= MOMENTS_LEAST and alone_ppm > most_ppm):
            self.host_bound, self.blocks, self.agreed = False, 0, 0

    def put_off(self, now_ns: int) -> None:
        """It was to be seen alone and did nothing: the next try comes later, as after measures that agree."""
        self.measured_ns = now_ns
        self.agreed = min(AGREED_MOST, self.agreed + 1)

    def weigh(self, card_ns: int, charged_ns: int, span_ns: int) -> None:
        """Compare what the card says it used of a span with what it was charged for that: held, or by its own word.

        One that has said too little by DOUBT_NS has turns from then on, for as long as it is a tenant. To say too much,
        or nothing while it does nothing, takes DOUBT_PPM of the time off that at most.
        """
        if not self.believed or span_ns <= 0:
            return
        room_ns = span_ns * DOUBT_PPM // WHOLE_PPM
        self.doubt_ns = max(0, self.doubt_ns + max(card_ns - charged_ns * 5 // 4, 0) - room_ns)
        if self.doubt_ns >= DOUBT_NS:
            self.believed = self.host_bound = False
            self.blocks = 0

    def _say_nothing(self, now_ns: int) -> None:
        """A library that does not say how long it held: after as many turns as make a block it is taken for busy."""
        self.turns += 1
        if self.turns >= BLOCK_TURNS:
            self.busy_ns = self.held_ns = self.turns = self.blocks = 0
            self.turned_ns = now_ns

    def _agree(self, measured_ppm: int) -> None:
        """A measure like the one before it lets the next come later; any other starts anew."""
        alike = abs(measured_ppm - self.ppm) <= ALIKE_PPM
        self.agreed = min(AGREED_MOST, self.agreed + 1) if alike else 0

    def forget(self) -> None:
        """It is to have turns, and to be measured in them from the beginning."""
        self.host_bound, self.blocks = False, 0
        self.busy_ns = self.held_ns = self.turns = 0

    def rest(self, gap_ns: int) -> None:
        """It gave the token back for lack of work and asks again after so long: a short one is its host's time, too."""
        if gap_ns < SHORT_GAP_NS:
            self.held_ns += gap_ns

    def observe_crowd(self, used_ns: int, waited_ns: int, now_ns: int) -> None:
        """Take what it used beside others, and for how long it waited meanwhile. It may wait for each of its kernels,
        which then wait for slices of the others: it takes half as long again as alone, or more.
        """
        self.crowd_ns += self.alone_ns(used_ns)
        self.extra_ns += waited_ns - used_ns
        if self.crowd_ns >= CROWD_NS:
            if self.extra_ns > self.crowd_ns // 2:
                self.apart_until_ns = now_ns + APART_NS
            self.crowd_ns = self.extra_ns = 0

    def leaves_room(self, now_ns: int) -> bool:
        """Return whether it leaves the card idle for most of the time in which it has it alone, and others beside it
        do not slow it down.
        """
        return self.host_bound and self.ppm <= ROOM_PPM and now_ns >= self.apart_until_ns

    def turns_until_ns(self, period_ns: int) -> int:
        """Until when it needs no turns; 0: it is undecided. In turns the lengths of kernels are learned, too."""
        undecided = not self.host_bound and self.blocks > 0
        return 0 if undecided else max(0, self.turned_ns + (4 if self.host_bound else 1) * (period_ns << self.agreed))

    def alone_until_ns(self, period_ns: int) -> int:
        """Until when one that is host-bound need not have the card alone to be known."""
        return max(0, self.measured_ns + (period_ns << self.agreed))

    def alone_ns(self, used_ns: int) -> int:
        """How long the tenant would have had to hold the GPU alone for this much of work."""
        return used_ns * WHOLE_PPM // max(self.ppm, LEAST_PPM)
