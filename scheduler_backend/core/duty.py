"""How much of the time in which a tenant has a GPU alone its work runs there: is it host-bound?

A program whose host works between its launches leaves the card idle while it holds the token. Its duty is busy time /
held time over the turns that it had with nobody beside it, in blocks long enough to say something. It is host-bound
after a few blocks in a row with a low duty: a turn in which its thread was kept from running looks like one, too.

From then on it runs beside others, and its duty is what it uses while it has the card alone for a moment: turns cost
its host time, and would show it slower than it is. It stays host-bound until that is high.
"""

from __future__ import annotations

from scheduler_backend.core.tenant import WHOLE_PPM

BLOCK_NS = 25_000_000  # held time that makes a block; about three turns
BLOCK_AGAIN_NS = 8_000_000  # ... of one that is host-bound
BLOCK_TURNS = 16  # ... or so many shorter turns
LOW_PPM, HIGH_PPM = 820_000, 900_000  # host-bound below, not above
BLOCKS = 3  # in a row
ALIKE_PPM = 50_000  # measures that differ by no more agree
AGREED_MOST = 2  # each that agrees doubles the time to the next, so often
DOUBT_PPM = 50_000  # of the time, and a quarter more than it said: the card's own figures are means of coarse samples
DOUBT_NS = 1_000_000_000  # by so much more than that it may say too little; what it says too much is taken off slowly
NEVER_NS = -(1 << 62)
SHORT_GAP_NS = 500_000  # about what two hand-overs take: who comes back sooner had better been left alone
LEAST_PPM = 50_000  # what a duty is taken for at least, where it divides


class Duty:
    """Of one tenant at one GPU."""

    __slots__ = (
        "agreed",
        "believed",
        "blocks",
        "busy_ns",
        "doubt_ns",
        "held_ns",
        "host_bound",
        "measured_ns",
        "ppm",
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
            self.measured_ns = NEVER_NS
            self.agreed = 0

    def observe_alone(self, alone_ppm: int, now_ns: int) -> None:
        """Take what its processes together used of the time while it had the card alone without a turn."""
        alone_ppm = min(WHOLE_PPM, alone_ppm)
        if self.measured_ns != NEVER_NS:
            self._agree(alone_ppm)
        self.ppm = alone_ppm if self.measured_ns == NEVER_NS else (self.ppm + alone_ppm) // 2
        self.measured_ns = now_ns
        if self.ppm > HIGH_PPM:
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
