"""The table of goals: what meets a goal, what falls short, and what a person is shown."""

from __future__ import annotations

import pytest

from bench import goals
from bench.goals import GOALS, ROWS, Goal, claim


def test_every_goal_belongs_to_a_row_and_every_row_has_one() -> None:
    assert {goal.row for goal in GOALS.values()} == set(ROWS)


@pytest.mark.parametrize(
    ("at_least", "measured", "met"),
    [(False, 1.0, True), (False, 1.001, False), (True, 1.0, True), (True, 0.999, False)],
)
def test_a_figure_on_the_bound_meets_the_goal(at_least: bool, measured: float, met: bool) -> None:
    goal = Goal(3, "error", 1.0, "pp", at_least)
    assert goals.Claim(goal, measured).met is met


@pytest.mark.parametrize("key", sorted(GOALS))
def test_what_was_not_measured_meets_no_goal(key: str) -> None:
    assert not claim(key, None).met


def test_the_table_names_the_rows_that_fall_short_with_their_cause_and_those_not_measured() -> None:
    rows = [
        {**claim("share.1s.p99", 0.4, "2 equal").as_json(), "bench": "fairness"},
        {**claim("handover.page", 125.0, cause="a wake takes 25 us").as_json(), "bench": "handover"},
    ]
    text = "\n".join(goals.lines(rows, ["limit"]))
    assert "rows that fall short: 6" in text
    assert "row 6 : a wake takes 25 us" in text
    assert "benches that gave no figures: limit" in text
    silent = next(line for line in text.splitlines() if line.startswith("rows not measured"))
    assert " 3" not in silent.replace(" 13", "")
    assert "17" in silent


def test_a_cause_is_shown_only_where_the_goal_was_missed() -> None:
    assert "cause" not in claim("handover.page", 70.0, cause="a wake takes 25 us").as_json()
