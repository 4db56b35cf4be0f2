"""What is each mechanism of the scheduler worth? Each is measured with it and with it switched off, in turns.

    python -m bench.mechanisms [--seconds 3] [--runs 3] [--case NAME]

A mechanism is code that somebody has to understand. It stays where the figure that it is for is worse without it by
more than runs of the same arm differ. What has a setting is switched off by that (docs/configuration.md). A figure is
the one by which the goal that it belongs to is judged (bench/goals.py). For each stand the medians with the mechanism
and without, by how much the one with it is better, in its own unit, and how far runs of the same arm lie apart at most.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from bench import closed_loop, conservation, fairness, handover, hostbound, latency_class, limit, tenants
from bench.arms import ARMS, GEMINI, WITHOUT, Arm, Runs
from bench.cases import run_cases
from bench.goals import Claim

MIX = "30/3 at 0.6 beside 3/3 at 0.2, 1/1 at 0.2"
EQUAL = "8 equal"
UNEVEN = "0.7 and 0.3"


def _waited(found: dict[str, Any]) -> float:
    """How long an iteration of the first program took at the median, in ms."""
    return float(found["iteration_ms"][0]["p50"])


class Figure(NamedTuple):
    """What is measured of an arm in so many seconds, and whether more of it is better."""

    what: str
    measure: Callable[[str, float], float]
    more: bool = False


FIGURES: dict[str, Figure] = {
    "gap": Figure("gap at a hand-over, us", lambda arm, s: float(handover.measure(arm, s)["gap_us"]["p50"])),
    "daemon": Figure("8 busy tenants, % of a core", lambda arm, s: float(tenants.busy(arm, 8, s)["of_a_core_percent"])),
    "exclusive": Figure(
        "8 busy tenants, of exclusive work",
        lambda arm, s: float(conservation.measure(conservation.CASES[EQUAL], arm, s)["of_exclusive"]),
        more=True,
    ),
    "error": Figure(
        "8 equal, error over 1 s, mean, pp",
        lambda arm, s: float(fairness.measure(fairness.CASES[EQUAL], arm, s)["1s"]["mean_pp"]),
    ),
    "spread": Figure(
        "8 equal, error over 1 s, p99, pp",
        lambda arm, s: float(fairness.measure(fairness.CASES[EQUAL], arm, s)["1s"]["p99_pp"]),
    ),
    "uneven": Figure(
        "0.7 and 0.3, error over 1 s, mean, pp",
        lambda arm, s: float(fairness.measure(fairness.CASES[UNEVEN], arm, s)["1s"]["mean_pp"]),
    ),
    "tight": Figure(
        "alone, part of a limit of 0.1 that is had",
        lambda arm, s: float(limit.measure(limit.CASES["alone, limit 0.1"], arm, s)["had"]),
        more=True,
    ),
    "limit": Figure(
        "alone, part of a limit of 0.3 that is had",
        lambda arm, s: float(limit.measure(limit.CASES["alone, limit 0.3"], arm, s)["had"]),
        more=True,
    ),
    "due": Figure(
        "tenants that come and go, least part of what is due",
        lambda arm, s: closed_loop.least(
            np.array(closed_loop.measure(closed_loop.MIXES[MIX], arm, s)["shares"]),
            closed_loop.fluid(closed_loop.MIXES[MIX]),
            closed_loop.MIXES[MIX],
        ),
        more=True,
    ),
    "latency": Figure(
        "6 ms of a latency tenant, p99 by alone",
        lambda arm, s: float(latency_class.measure(latency_class.CASES["6 ms, away 14 ms"], arm, s)["p99_by_alone"]),
    ),
    "short": Figure(
        "0.5 ms each 40 ms beside a busy one, p50, ms",
        lambda arm, s: _waited(hostbound.run(hostbound.MIXES["0.5 ms each 40 ms beside busy"], arm, s)),
    ),
    "server": Figure(
        "requests of 1 ms beside training, p50, ms",
        lambda arm, s: _waited(hostbound.run(hostbound.MIXES["server of 20 x 50 us beside training"], arm, s)),
    ),
    "hosts": Figure(
        "two programs whose hosts take time, card busy",
        lambda arm, s: float(hostbound.run(hostbound.MIXES["20/40/20 twice"], arm, s)["sum"]),
        more=True,
    ),
}


class Mechanism(NamedTuple):
    """How it is switched off, and what it is for."""

    off: Arm
    figures: tuple[str, ...]


CASES: dict[str, Mechanism] = {
    "the token page": Mechanism(Arm(page=False), ("gap", "exclusive")),
    "hand-overs decided ahead": Mechanism(Arm(config="ahead = 0\n"), ("gap", "exclusive", "daemon")),
    "several of them in a row": Mechanism(Arm(config="ahead = 1\n"), ("daemon", "exclusive")),
    "messages' time that is not charged": Mechanism(Arm(config="hop_most_ms = 0.001\n"), ("error", "spread", "uneven")),
    "quotas that end together go by arrival": Mechanism(Arm(config="alike_ms = 0.001\n"), ("error", "spread")),
    "resumption before the end of a rest": Mechanism(Arm(config="resume_early_ms = 0.001\n"), ("limit", "tight")),
    "preemption": Mechanism(Arm(config="preemption = false\n"), ("due", "latency")),
    "small caps where somebody hurries": Mechanism(
        Arm(config="cap_prompt_ms = 1\ncap_short_ms = 1\n"), ("latency", "due", "short", "server")
    ),
    "grants beside others": Mechanism(Arm(config="shared = false\n"), ("hosts",)),
}


def measure(case: Mechanism, arm: str, seconds: float) -> dict[str, Any]:
    """One run of an arm: its figures, by name."""
    ARMS[WITHOUT] = case.off
    return {name: FIGURES[name].measure(arm, seconds) for name in case.figures}


def judge(name: str, case: Mechanism, runs: Runs) -> Iterable[Claim]:
    """No goal says how much is enough: the table is for whoever decides what stays."""
    for figure in case.figures:
        own, off = ([run[figure] for run in runs[arm]] for arm in (GEMINI, WITHOUT))
        better = (float(np.median(own)) - float(np.median(off))) * (1 if FIGURES[figure].more else -1)
        apart = max(max(found) - min(found) for found in (own, off))
        figures = f"{np.median(own):8.3f} {np.median(off):8.3f}  better by {better:8.3f}, runs lie {apart:.3f} apart"
        print(
            f"{name:40} {FIGURES[figure].what:52} {figures}",
            file=sys.stderr,
            flush=True,
        )
    return ()


def main() -> int:
    question = "What is each mechanism of the scheduler worth?"
    return run_cases(__doc__, question, CASES, (GEMINI, WITHOUT), measure, judge, seconds=3)


if __name__ == "__main__":
    sys.exit(main())
