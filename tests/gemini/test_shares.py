"""gemini/shares.py: the measures of a run."""

import numpy as np
import pytest

from gemini import shares

MS = 1_000_000


def record(pattern: list[int], quota_ms: int, seconds: int) -> tuple[np.ndarray, np.ndarray]:
    """Turns of `quota_ms` for the tenants of `pattern`, sampled at each turn's end."""
    turns = seconds * 1000 // quota_ms
    busy = np.zeros((turns + 1, max(pattern) + 1), dtype=np.int64)
    for turn in range(turns):
        busy[turn + 1] = busy[turn]
        busy[turn + 1, pattern[turn % len(pattern)]] += quota_ms * MS
    return np.arange(turns + 1, dtype=np.int64) * quota_ms * MS, busy


def test_equal_turns_have_no_error_over_whole_rounds() -> None:
    at, busy = record([0, 1], 10, 3)
    assert shares.achieved(at, busy) == pytest.approx([0.5, 0.5])
    assert shares.window_errors(at, busy, np.array([0.5, 0.5])).max() < 1e-9


def test_a_starved_tenant_shows_in_the_worst_window() -> None:
    at, busy = record([0] * 50 + [1] * 50, 10, 4)  # half a second each
    worst = shares.window_errors(at, busy, np.array([0.5, 0.5]), window_ns=500 * MS).max()
    assert worst == pytest.approx(0.5)


def test_idle_time_is_nobodys_error() -> None:
    half_idle = np.array([0.25, 0.25])
    assert shares.errors(half_idle, np.array([0.5, 0.5])).max() == 0


def test_where_limits_leave_the_card_idle_what_is_owed_is_the_limit() -> None:
    owed, had = np.array([0.25, 0.15, 0.1, 0.03]), np.array([0.233, 0.142, 0.093, 0.029])
    assert shares.errors(had, owed) == pytest.approx([0.017, 0.008, 0.007, 0.001])


def test_what_hand_overs_take_is_nobodys_error_though_limits_leave_a_little_idle() -> None:
    owed = np.array([0.5, 0.48])
    assert shares.errors(owed * 0.96 / 0.98, owed).max() < 1e-9
    assert shares.errors(owed * 0.90 / 0.98, owed).max() == pytest.approx(0.5 * 0.06 / 0.98)
    assert shares.errors(np.array([0.5, 0.47]), owed).max() == pytest.approx(0.48 * 0.97 / 0.98 - 0.47)


def test_a_window_longer_than_the_record_gives_no_windows() -> None:
    at, busy = record([0, 1], 10, 1)
    assert shares.window_errors(at, busy, np.array([0.5, 0.5]), window_ns=2_000 * MS).shape == (0, 2)
