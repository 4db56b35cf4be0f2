"""The probe's stalls mark the windows that they fall into, and no others."""

from __future__ import annotations

import time

import numpy as np

from bench.jitter import Probe


def test_windows_with_a_stall_are_marked() -> None:
    probe = Probe()
    probe.stalls = [(100, 120)]
    starts = np.array([0, 50, 95, 110, 120, 200])
    assert probe.stalled(starts, 50).tolist() == [False, False, True, True, False, False]
    assert probe.stalled(starts, 51).tolist() == [False, True, True, True, False, False]


def test_the_probe_is_a_process_that_answers() -> None:
    with Probe() as probe:
        pass
    assert all(end > begin for begin, end in probe.stalls)


def test_stalls_excuse_an_error_of_their_own_length_and_no_more() -> None:
    probe = Probe()
    assert not probe.excuses(0.0, 0.5), "there was none"
    probe.stalls = [(0, 3_000_000), (9_000_000, 11_000_000)]
    assert probe.excuses(1.0, 0.5), "5 ms of 500"
    assert not probe.excuses(1.01, 0.5)
    assert probe.excuses(0.5, 1.0)
    assert probe.excuses(2.0, 0.5, before=[(0, 5_000_000)]), "and 5 ms before it"
    now_ns = time.monotonic_ns()
    old, new = (0, now_ns - 2 * 10**9), (0, now_ns - 10**8)
    assert probe.last_second([old, new]) == [new]
