"""The burst estimator: intervals of work in, estimates and pieces of timeline out."""

from __future__ import annotations

import random
from typing import Any

from libhook.core import ffi, lib

MS = 1_000_000


def fresh() -> Any:
    burst = ffi.new("struct burst *")
    lib.burst_init(burst)
    return burst


def add(burst: Any, start: int, end: int, wanted: int | None = None) -> tuple[int, int] | None:
    piece = ffi.new("struct burst_piece *")
    if lib.burst_add(burst, start if wanted is None else wanted, start, end, piece):
        return piece.start_ns, piece.end_ns
    return None


def test_a_regular_tenant_is_known_after_a_few_bursts() -> None:
    burst, now, pieces = fresh(), 1000 * MS, []
    for _ in range(6):
        pieces.append(add(burst, now, now + 5 * MS))
        now += 25 * MS
    assert lib.burst_expected(burst) == 5 * MS
    assert burst.gap_ns == 20 * MS
    assert pieces[0] is None
    assert pieces[1:] == [((1000 + 25 * i) * MS, (1005 + 25 * i) * MS) for i in range(5)]
    assert lib.burst_patience(burst) == 0  # a long gap is expected: give back at once


def test_time_waited_at_the_gate_is_no_gap_but_ends_the_piece() -> None:
    burst = fresh()
    add(burst, 10 * MS, 20 * MS)
    assert add(burst, 50 * MS, 60 * MS, wanted=20 * MS) == (10 * MS, 20 * MS)
    assert (burst.gap_ns, burst.bursts) == (0, 0)
    assert lib.burst_expected(burst) == 20 * MS


def test_short_pauses_do_not_end_a_burst_and_say_how_long_to_wait() -> None:
    burst, now = fresh(), MS
    for _ in range(50):
        add(burst, now, now + 100_000)
        now += 120_000
    assert burst.bursts == 0
    assert lib.burst_patience(burst) == 40_000  # twice the usual pause


def test_a_pattern_of_short_pauses_is_believed_over_at_its_usual_length() -> None:
    burst, now = fresh(), MS
    for _ in range(8):
        for _ in range(10):
            add(burst, now, now + 500_000)
            now += 520_000
        assert lib.burst_patience(burst) < lib.BURST_PATIENCE_MAX_NS
        now += 20 * MS
    add(burst, now, now + 500_000)
    assert lib.burst_patience(burst) > 0  # in the middle: wait twice the pause
    for i in range(1, 10):
        add(burst, now + i * 520_000, now + i * 520_000 + 500_000)
    assert lib.burst_patience(burst) == 0  # at its usual end
    for i in range(10, 20):
        add(burst, now + i * 520_000, now + i * 520_000 + 500_000)
    assert lib.burst_patience(burst) > 0  # it went on far beyond: no pattern


def test_early_in_its_usual_burst_a_program_that_said_nothing_was_kept_from_running_rather_than_done() -> None:
    burst, now = fresh(), 1000 * MS
    assert lib.burst_patience_untold(burst) == lib.BURST_MERGE_NS  # nothing is known
    for _ in range(6):
        add(burst, now, now + 12 * MS)
        now += 32 * MS
    add(burst, now, now + 100_000)  # the first kernel of the next
    assert lib.burst_patience(burst) == 0
    assert lib.burst_patience_untold(burst) == 500_000
    add(burst, now + 100_000, now + 8 * MS)
    assert lib.burst_patience_untold(burst) == 80_000  # it may well be done


def test_overlapping_streams_are_counted_once_in_any_order() -> None:
    burst = fresh()
    add(burst, 10 * MS, 14 * MS)
    add(burst, 11 * MS, 13 * MS)
    add(burst, 12 * MS, 16 * MS)
    assert burst.total_busy_ns == 6 * MS
    assert burst.end_ns == 16 * MS


def test_taking_a_piece_does_not_end_the_burst() -> None:
    burst, piece = fresh(), ffi.new("struct burst_piece *")
    assert not lib.burst_take(burst, piece)
    add(burst, 10 * MS, 20 * MS)
    assert lib.burst_take(burst, piece)
    assert (piece.start_ns, piece.end_ns) == (10 * MS, 20 * MS)
    assert not lib.burst_take(burst, piece)
    add(burst, 19 * MS, 20 * MS + 3)  # another clock's rounding is no new run
    assert not lib.burst_take(burst, piece)
    add(burst, 40 * MS, 45 * MS, wanted=20 * MS)
    assert lib.burst_take(burst, piece)
    assert (piece.start_ns, piece.end_ns) == (40 * MS, 45 * MS)


def test_random_intervals_never_count_more_than_their_span() -> None:
    rng = random.Random(3)
    burst, now = fresh(), MS
    first = now
    for _ in range(5000):
        start = now + rng.randrange(-300_000, 2 * MS)
        start = max(start, first)
        end = start + rng.randrange(0, 2 * MS)
        add(burst, start, end, wanted=start - rng.randrange(0, MS))
        now = max(now, end)
        assert burst.total_busy_ns <= burst.end_ns - first
        assert lib.burst_patience(burst) <= lib.BURST_PATIENCE_MAX_NS
        assert lib.burst_expected(burst) <= 1_000_000_000
