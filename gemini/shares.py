"""Shares out of a device's timeline: pure functions over cumulative GPU time, no clock, no device.

A *record* is what an observer of the timeline sampled: `at_ns`, shape (samples,), ascending, and `busy_ns`, shape
(samples, tenants), the GPU time that each tenant had been given up to then. Between samples both are taken as linear.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
Shares = NDArray[np.float64]

HANDOVERS_LEAVE = 0.96  # of a card, at least (row 9 of bench/goals.py, by ZeroMQ alone)


def busy_between(at_ns: Times, busy_ns: Times, starts_ns: Times, window_ns: int) -> Shares:
    """GPU time per tenant in the windows [start, start + window_ns): shape (windows, tenants), nanoseconds."""
    ends = starts_ns + window_ns
    return np.stack(
        [np.interp(ends, at_ns, column) - np.interp(starts_ns, at_ns, column) for column in busy_ns.T], axis=1
    )


def sliding(at_ns: Times, window_ns: int, step_ns: int) -> Times:
    """Starts of all windows of `window_ns` that lie wholly within the record, `step_ns` apart; may be empty."""
    return np.arange(at_ns[0], at_ns[-1] - window_ns + 1, step_ns, dtype=np.int64)


def achieved(at_ns: Times, busy_ns: Times) -> Shares:
    """Share of the whole record per tenant, 0..1."""
    return np.asarray((busy_ns[-1] - busy_ns[0]) / float(at_ns[-1] - at_ns[0]), dtype=np.float64)


def errors(shares: Shares, entitled: Shares) -> Shares:
    """|busy_i - entitled_i x min(1, sum busy / sum entitled)|, row by row: idle time is nobody's error.

    Where limits leave the card idle (they sum to less than it), what was not had of them is an error: of the idle time
    only what hand-overs may take of a card is excused. So there the sum of busy counts as HANDOVERS_LEAVE at least.

    `shares` has shape (windows, tenants) or (tenants,), `entitled` (tenants,); both in 0..1, and so is the result.
    """
    total, owed = shares.sum(axis=-1, keepdims=True), entitled.sum()
    if owed < 1 - 1e-6:
        total = np.maximum(total, HANDOVERS_LEAVE)
    return np.asarray(np.abs(shares - entitled * np.minimum(1.0, total / owed)), dtype=np.float64)


def window_errors(
    at_ns: Times, busy_ns: Times, entitled: Shares, window_ns: int = 1_000_000_000, step_ns: int = 10_000_000
) -> Shares:
    """`errors` over all sliding windows: shape (windows, tenants)."""
    starts = sliding(at_ns, window_ns, step_ns)
    return errors(busy_between(at_ns, busy_ns, starts, window_ns) / window_ns, entitled)
