"""The fluid reference gives what can be computed by hand."""

from __future__ import annotations

import pytest

from bench.gps import Program, shares

MS = 1_000_000


def test_always_busy_programs_get_what_they_are_owed() -> None:
    busy = [Program(request, 1.0, 10 * MS, 0) for request in (0.5, 0.3, 0.2)]
    assert shares(busy, 2) == pytest.approx([0.5, 0.3, 0.2], abs=1e-3)


def test_a_program_alone_is_slowed_by_its_host_time_only() -> None:
    assert shares([Program(0.3, 1.0, 5 * MS, 20 * MS)], 10) == pytest.approx([0.2], abs=1e-3)


def test_a_limit_holds_also_where_nobody_else_wants_the_card() -> None:
    assert shares([Program(0.1, 0.5, 5 * MS, 0)], 2) == pytest.approx([0.5], abs=1e-3)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [  # the figures of the same programs on an independent fluid simulation
        (Program(0.5, 1.0, MS, MS), Program(0.5, 1.0, 50 * MS, 2 * MS), (0.33, 0.66)),
        (Program(0.3, 1.0, 5 * MS, 20 * MS), Program(0.7, 1.0, 10 * MS, 0), (0.14, 0.86)),
    ],
)
def test_programs_that_come_and_go(first: Program, second: Program, expected: tuple[float, float]) -> None:
    assert shares([first, second], 20) == pytest.approx(expected, abs=0.015)
