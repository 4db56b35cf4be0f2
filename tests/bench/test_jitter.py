"""The probe's stalls mark the windows that they fall into, and no others."""

from __future__ import annotations

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
