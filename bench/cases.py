"""The main of a bench that measures named cases in several arms: its options, its runs, its claims, its report."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from bench.arms import Runs, measured
from bench.goals import Claim
from bench.report import report

C = TypeVar("C")


def run_cases(
    doc: str | None,
    question: str,
    cases: Mapping[str, C],
    arms: Sequence[str],
    measure: Callable[[C, str, float], dict[str, Any]],
    judge: Callable[[str, C, Runs], Iterable[Claim]],
    *,
    seconds: float,
) -> int:
    """Measure (case, arm, seconds) so often as is asked for; `judge` sets the runs of a case against the goals."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--case", action="append", choices=sorted(cases), help="only this one; may be repeated")
    args = parser.parse_args()
    table: dict[str, Runs] = {}
    claims: list[Claim] = []
    for name in args.case or cases:
        case = cases[name]

        def one(arm: str, case: C = case) -> dict[str, Any]:
            return measure(case, arm, args.seconds)

        table[name] = measured(arms, args.runs, one)
        claims += judge(name, case, table[name])
    return report(question, {"cases": table}, {}, claims)
