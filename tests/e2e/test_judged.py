"""That the judges of resizes see what they are there to see."""

from __future__ import annotations

import pytest

from libhook.observer import Segment
from tests.e2e.judged import MS, SECOND, TURN_NS, Limit, moved_s, resolution_s, worst_window

A, B = 1, 2
OLD, NEW = 1 / 11, 0.9


def turns(parts: list[tuple[int, float]], turn: int = TURN_NS) -> list[Segment]:
    """Turns of two tenants: until each of these moments the first one has that part of the time."""
    made, now, lag = list[Segment](), 0, 0.0
    for until, part in parts:
        while now < until:
            who = A if lag < 0 else B  # the first one has had less than its part
            lag += turn * ((who == A) - part)
            made.append(Segment(who, now, now + turn - 200_000, 1, 0))
            now += turn
    return made


@pytest.mark.parametrize("turn", [TURN_NS, TURN_NS // 2])
@pytest.mark.parametrize(("old", "new"), [(OLD, NEW), (NEW, OLD)])
@pytest.mark.parametrize("moved", [0, 20, 50, 90, 130, 200])
def test_when_a_share_moved_is_told_to_the_resolution(old: float, new: float, moved: int, turn: int) -> None:
    for phase in range(0, 12 * TURN_NS // MS, 7):
        since = SECOND + phase * MS
        record = turns([(since + moved * MS, old), (since + SECOND, new)], turn)
        told = moved_s(record, A, B, since, new)
        assert told <= moved / 1000 + TURN_NS / SECOND
        assert told >= moved / 1000 - resolution_s(old, new)


def test_a_share_that_never_moves_is_seen() -> None:
    assert moved_s(turns([(2 * SECOND, OLD)]), A, B, SECOND, NEW) == float("inf")
    assert moved_s(turns([(2 * SECOND, 0.5)]), A, B, SECOND, NEW) == float("inf")


def within(limit: float, seconds: float, turn: int) -> list[Segment]:
    gap = round(turn / limit)
    return [Segment(A, at, at + turn, 1, 0) for at in range(0, round(seconds * SECOND), gap)]


def test_a_tenant_within_its_limit_is_above_it_by_a_turn_and_no_more() -> None:
    worst = worst_window(within(0.2, 3, TURN_NS), A, Limit(0, 0.2), 3 * SECOND)
    assert 0 < worst.beyond_ns <= TURN_NS


@pytest.mark.parametrize("length", [60 * MS, 200 * MS, SECOND])
def test_a_window_of_any_length_above_the_limit_is_seen(length: int) -> None:
    record = within(0.2, 1, TURN_NS)
    more = Segment(A, 2 * SECOND, 2 * SECOND + length, 1, 0)
    worst = worst_window([*record, more], A, Limit(0, 0.2), 4 * SECOND)
    assert (worst.begin, worst.end) == (2 * SECOND, 2 * SECOND + length)
    assert worst.beyond_ns == round(0.8 * length)
    for kill in (2 * SECOND - 1, 2 * SECOND + 1):  # after a kill it is allowed, and no more than that
        after = worst_window([*record, more], A, Limit(0, 0.2), 4 * SECOND, [kill], worst.beyond_ns)
        assert after.beyond_ns <= TURN_NS
        after = worst_window([*record, more], A, Limit(0, 0.2), 4 * SECOND, [kill], worst.beyond_ns - 2 * TURN_NS)
        assert after.beyond_ns > TURN_NS
    assert worst_window([*record, more], A, Limit(0, 0.2), 4 * SECOND, [SECOND // 2], SECOND) == worst


def test_more_is_valid_from_the_wish_on_and_less_from_when_it_is_enforced() -> None:
    limit = Limit(0, 0.2)
    limit.becomes(0.5, SECOND, 2 * SECOND)
    limit.becomes(0.3, 3 * SECOND, 4 * SECOND)
    assert [limit.at(at * SECOND // 2) for at in range(1, 10)] == [0.2, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.3, 0.3]
