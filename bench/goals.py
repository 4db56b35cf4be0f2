"""The goals, each written down once: a bench measures, this table says what is enough.

The rows are numbered as the benches' JSON, `make bench` and the README name them; rows 2 and 7 need a real GPU
(`make gpu-check`). A goal is a bound on one figure; which figure, and over what it is a median, its bench says. This
module decides nothing else and measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

ROWS: dict[int, str] = {
    1: "launch path, gate open: cost of an intercepted launch",
    3: "share error, tenants always busy, quota 10 ms, by the device's own timeline",
    4: "limit: usage above it over any window",
    5: "convergence after a join, a leave or a change of shares",
    6: "hand-over gap, drain seen to the next tenant's first launch",
    8: "overuse past the quota",
    9: "work conservation, two or more busy tenants: sum of work against exclusive use",
    10: "an idle holder gives the token back",
    11: "latency tenant against alone, beside a batch tenant",
    12: "tenants per GPU",
    13: "the token of a dead or frozen holder is free again",
    14: "start-up added to a process",
    15: "extender, 5,000 nodes x 8 GPUs",
    16: "kube-scheduler with the extender, 1,000 nodes, real control plane",
    17: "tenants that come and go, against a fluid server given the same programs",
    18: "programs whose hosts take time, against native slicing and an ideal scheduler",
    19: "PyTorch programs, against native slicing and alone",
    20: "programs whose kernels' lengths nothing foretells, beside a busy tenant",
    21: "programs whose streams overlap on the card, beside a busy tenant",
}


class Goal(NamedTuple):
    """`what` is at most (or, with at_least, at least) `bound`."""

    row: int
    what: str
    bound: float
    unit: str = ""
    at_least: bool = False

    def text(self) -> str:
        """As a person reads it."""
        return f"{'>=' if self.at_least else '<='} {self.bound:g}{' ' + self.unit if self.unit else ''}"


GOALS: dict[str, Goal] = {
    "launch.p50": Goal(1, "added to a launch, p50", 10, "ns"),
    "launch.p99": Goal(1, "added to a launch, p99", 25, "ns"),
    "launch.threads.p50": Goal(1, "added to a launch, 8 threads, CPU time, p50", 10, "ns"),
    "launch.threads.p99": Goal(1, "added to a launch, 8 threads, CPU time, p99", 25, "ns"),
    "share.1s.mean": Goal(3, "error over any 1 s, mean", 0.5, "pp"),
    "share.1s.p99": Goal(3, "error over any 1 s, p99", 1.0, "pp"),
    "share.1s.p99.limits": Goal(3, "error over any 1 s, p99, limits bind", 1.5, "pp"),
    "share.10s.p99": Goal(3, "error over any 10 s, p99", 0.1, "pp"),
    "limit.1s": Goal(4, "above the limit over any 1 s, p99", 1.1, "pp"),
    "limit.100ms": Goal(4, "above the limit over any 100 ms, p99", 11, "pp"),
    "limit.had": Goal(4, "had of a limit, where limits leave the card idle", 0.985, at_least=True),
    "convergence.250ms": Goal(5, "error by 250 ms", 5, "pp"),
    "convergence.500ms": Goal(5, "error by 0.5 s", 2, "pp"),
    "convergence.1100ms": Goal(5, "error by 1.1 s", 1, "pp"),
    "handover.zeromq": Goal(6, "gap by ZeroMQ alone, p50", 250, "us"),
    "handover.page": Goal(6, "gap with the token page, p50", 80, "us"),
    "overuse.short": Goal(8, "past the quota, 0.1 ms kernels, p99", 1, "ms"),
    "overuse.long": Goal(8, "past the quota, 30 ms kernels, p99", 30, "ms"),
    "overuse.charged": Goal(8, "charged / worked", 0.995, at_least=True),
    "conservation.page": Goal(9, "work / exclusive work", 0.985, at_least=True),
    "conservation.zeromq": Goal(9, "work / exclusive work, by ZeroMQ alone", 0.96, at_least=True),
    "return.long_gap": Goal(10, "last work to the token's return, gap longer than a hand-over, p50", 0.3, "ms"),
    "return.short_gap": Goal(10, "last work to the token's return, gap unknown or short, p99", 1, "ms"),
    "latency.p99": Goal(11, "service time p99 / alone", 1.10),
    "latency.batch": Goal(11, "batch tenant's share of what is left", 0.9, at_least=True),
    "tenants.idle": Goal(12, "daemon with 64 idle tenants", 1, "% of a core"),
    "tenants.busy": Goal(12, "daemon with 8 busy tenants at 10 ms quota", 5, "% of a core"),
    "tenants.join": Goal(12, "64 tenants x 4 processes joining at once: all served", 256, "processes", at_least=True),
    "dead.killed.median": Goal(13, "holder killed, median", 5, "ms"),
    "dead.killed.worst": Goal(13, "holder killed, worst", 50, "ms"),
    "dead.frozen.worst": Goal(13, "holder frozen, worst", 500, "ms"),
    "startup.cpu": Goal(14, "library's CPU time per process", 5, "ms"),
    "startup.wall": Goal(14, "200 at once: wall time over the baseline's, each", 2.5, "ms"),
    "extender.filter": Goal(15, "filter handler, p99", 1, "ms"),
    "extender.http.5000": Goal(15, "over HTTP with 5,000 names, p99", 3, "ms"),
    "extender.http.500": Goal(15, "over HTTP with 500 names, p99", 1, "ms"),
    "extender.rate": Goal(15, "filter + prioritize, 500 names", 450, "pods/s", at_least=True),
    "extender.overcommit": Goal(15, "over-committed cards", 0),
    "scheduler.rate": Goal(16, "rate / kube-scheduler alone", 0.6, at_least=True),
    "closed.due": Goal(17, "each tenant / min(fluid share, request)", 0.9, at_least=True),
    "closed.busy": Goal(17, "device busy / fluid server's", 0.9, at_least=True),
    "hostbound.native": Goal(18, "device busy / native slicing's", 0.97, at_least=True),
    "hostbound.ideal": Goal(18, "device busy / ideal scheduler's", 0.95, at_least=True),
    "hostbound.part": Goal(18, "each tenant beside a busy one / ideal scheduler's", 0.95, at_least=True),
    "hostbound.wait": Goal(18, "iteration of one kernel beside a busy one, p50 / native slicing's", 1.0),
    "torch.native": Goal(19, "sum of rates / native slicing's", 0.97, at_least=True),
    "torch.turn": Goal(19, "sum of rates / alone in turn, the card is the bottleneck", 0.97, at_least=True),
    "torch.share": Goal(19, "share of the card's busy time off by, the card is the bottleneck", 1.0, "pp"),
    "torch.latency": Goal(19, "request of a latency tenant, p99 / alone without the library", 1.2),
    "lengths.past": Goal(20, "work past the quota's end, at most, beyond the one kernel under way", 2, "ms"),
    "lengths.first": Goal(20, "the same where a steady kernel becomes long for the first time", 2, "ms"),
    "lengths.busy": Goal(20, "card busy", 0.95, at_least=True),
    "lengths.sight": Goal(20, "a function's first launch costs, beyond a known one", 20, "us"),
    "lengths.share": Goal(20, "share beside a busy one off a fluid server's, new functions load", 1.0, "pp"),
    "lengths.neighbour": Goal(20, "what one that never waits costs its neighbour beyond a fluid server", 2.0, "pp"),
    "streams.work": Goal(21, "kernels in a held second / in one without the library", 0.95, at_least=True),
    "torch.alone": Goal(19, "rate alone / without the library", 0.99, at_least=True),
}


MET, AT_FLOOR, SHORT = "met", "short, at its floor", "short"
NEAR_FLOOR = 0.05  # a figure that is no further from its floor than this part of it is at it


class Claim(NamedTuple):
    """One figure set against its goal. `case` says of what, where a bench has several; `cause` why it falls short.

    `floor` is the best that any arbiter could reach on this machine, measured in the same run; None where there is no
    such measurement. It excuses nothing that is far from it: see `verdict`.
    """

    goal: Goal
    measured: float
    case: str = ""
    cause: str = ""
    floor: float | None = None

    @property
    def met(self) -> bool:
        return self._meets(self.measured)

    @property
    def verdict(self) -> str:
        """MET; AT_FLOOR where the floor misses the goal too and the figure is within NEAR_FLOOR of it; else SHORT."""
        if self.met:
            return MET
        if self.floor is None or self._meets(self.floor):
            return SHORT
        short = self.floor - self.measured if self.goal.at_least else self.measured - self.floor
        return AT_FLOOR if short <= NEAR_FLOOR * self.floor else SHORT

    def _meets(self, figure: float) -> bool:
        return figure >= self.goal.bound if self.goal.at_least else figure <= self.goal.bound

    def text(self) -> str:
        """What it claims, for `passed`."""
        return f"row {self.goal.row}: {self.case + ': ' if self.case else ''}{self.goal.what} {self.goal.text()}"

    def as_json(self) -> dict[str, Any]:
        return (
            {
                "row": self.goal.row,
                "case": self.case,
                "what": self.goal.what,
                "measured": self.measured,
                "goal": self.goal.text(),
                "met": self.met,
                "verdict": self.verdict,
            }
            | ({} if self.floor is None else {"floor": self.floor})
            | ({"cause": self.cause} if self.cause and not self.met else {})
        )


def claim(key: str, measured: float | None, case: str = "", cause: str = "", floor: float | None = None) -> Claim:
    """Set a figure against the goal of this name; what could not be measured (None) meets no goal."""
    goal = GOALS[key]
    missing = float("-inf") if goal.at_least else float("inf")
    return Claim(goal, missing if measured is None else float(measured), case, cause, floor)


def lines(rows: Iterable[dict[str, Any]], broken: Sequence[str] = ()) -> list[str]:
    """A table of goal versus measured out of the benches' JSON, then which rows fall short.

    `rows` are the "rows" of all benches with "bench" added; `broken` names benches that gave no JSON.
    """
    ordered = sorted(rows, key=lambda row: (row["row"], row["what"], row["case"]))
    cells = [("row", "bench", "what", "case", "goal", "measured", "floor", "")]
    for row in ordered:
        measured = row["measured"]
        shown = f"{measured:.4g}" if measured is not None else "-"
        floor = f"{row['floor']:.4g}" if "floor" in row else ""
        cells.append(
            (str(row["row"]), row["bench"], row["what"], row["case"], row["goal"], shown, floor, row["verdict"])
        )
    widths = [max(len(cell[i]) for cell in cells) for i in range(7)]
    table = ["  ".join([*(text.ljust(width) for text, width in zip(cell, widths, strict=False)), cell[7]]).rstrip()
             for cell in cells]  # fmt: skip
    short = sorted({row["row"] for row in ordered if row["verdict"] == SHORT})
    floored = sorted({row["row"] for row in ordered if row["verdict"] == AT_FLOOR} - set(short))
    silent = [number for number in ROWS if number not in {row["row"] for row in ordered}]
    table.append("")
    table.append(f"rows that fall short: {', '.join(map(str, short)) or 'none'}")
    if floored:
        table.append(f"rows that fall short, at the floor of this machine: {', '.join(map(str, floored))}")
    table += [f"  row {row['row']} {row['case']}: {row['cause']}" for row in ordered if row.get("cause")]
    if silent:
        table.append(f"rows not measured in this run: {', '.join(map(str, silent))}")
    if broken:
        table.append(f"benches that gave no figures: {', '.join(broken)}")
    return table
