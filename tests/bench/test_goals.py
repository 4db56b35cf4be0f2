"""The table of goals: what meets a goal, what falls short, and what a person is shown."""

from __future__ import annotations

import re

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


@pytest.mark.parametrize(
    ("measured", "floor", "verdict"),
    [
        (1.08, 1.30, goals.MET),  # by luck: the goal is what counts
        (1.16, None, goals.SHORT),  # no floor was measured
        (1.16, 1.07, goals.SHORT),  # it could be reached
        (1.30, 1.15, goals.SHORT),  # it could not, but much of this is our own
        (1.16, 1.12, goals.AT_FLOOR),
    ],
)
def test_a_floor_excuses_only_what_is_at_it_and_only_where_it_misses_the_goal_itself(
    measured: float, floor: float | None, verdict: str
) -> None:
    found = claim("latency.p99", measured, floor=floor)
    assert found.verdict == verdict
    assert found.met is (verdict == goals.MET)


def test_a_floor_under_what_should_be_much_is_a_ceiling() -> None:
    assert claim("closed.due", 0.86, floor=0.87).verdict == goals.AT_FLOOR
    assert claim("closed.due", 0.80, floor=0.87).verdict == goals.SHORT
    assert claim("closed.due", 0.86, floor=0.99).verdict == goals.SHORT


def test_the_table_names_rows_at_their_floor_apart_and_never_as_met() -> None:
    rows = [{**claim("closed.due", 0.86, "1/0.1", "pauses of 0.25 ms", 0.87).as_json(), "bench": "closed_loop"}]
    text = "\n".join(goals.lines(rows))
    assert "rows that fall short: none" in text
    assert "rows that fall short, at the floor of this machine: 17" in text
    assert re.search(r" 0\.86 +0\.87 +short, at its floor$", text, re.MULTILINE)
    assert "row 17 1/0.1: pauses of 0.25 ms" in text
