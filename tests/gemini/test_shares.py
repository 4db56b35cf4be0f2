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


def test_a_window_longer_than_the_record_gives_no_windows() -> None:
    at, busy = record([0, 1], 10, 1)
    assert shares.window_errors(at, busy, np.array([0.5, 0.5]), window_ns=2_000 * MS).shape == (0, 2)
