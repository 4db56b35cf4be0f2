"""Shares out of a card's own record as single pieces of work: a simulated card's segments, a real card's stamps.

A real card has no observer. There each kernel of `gemini-load --stamps` stores when it began and ended by %globaltimer,
a clock that all processes on the card share. Under the card's native time slicing a kernel's span may hold a slice of
somebody else's; therefore no kernel counts for more than its asked length (and the clock's resolution, at most 2 us).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gemini.shares import Times

Segments = NDArray[np.int64]  # shape (kernels, 3): begin_ns, end_ns, index of the program; sorted by begin
RESOLUTION_NS = 2000
STEP_NS = 5_000_000


def read(files: Sequence[Path], kernel_ns: int) -> Segments:
    """Every stamped kernel of several programs, in one order. OSError where a file is missing."""
    parts = [np.zeros((0, 3), dtype=np.int64)]
    for index, file in enumerate(files):
        pairs = np.fromfile(file, dtype=np.uint64).reshape(-1, 2).astype(np.int64)
        pairs = pairs[pairs[:, 0] > 0]  # 0: launched, never finished
        pairs[:, 0] = np.maximum(pairs[:, 0], pairs[:, 1] - kernel_ns - RESOLUTION_NS)
        parts.append(np.column_stack([pairs, np.full(len(pairs), index)]))
    every = np.concatenate(parts)
    return every[np.argsort(every[:, 0], kind="stable")]


def record(segments: Segments, programs: int, settle_ns: int) -> tuple[Times, NDArray[np.int64]]:
    """(at_ns, busy_ns) as gemini/shares.py has them, every 5 ms of the time in which all programs ran, less `settle_ns`
    at its begin. ValueError where they never ran together."""
    own = [segments[segments[:, 2] == index] for index in range(programs)]
    if not all(len(part) for part in own):
        raise ValueError("not every program left a stamp")
    begin, end = max(part[0, 0] for part in own) + settle_ns, min(part[-1, 1] for part in own)
    at = np.arange(begin, end, STEP_NS, dtype=np.int64)
    if len(at) < 2:
        raise ValueError("the programs did not run together")
    return at, np.stack([worked(part, at) for part in own], axis=1)


def worked(part: Segments, at: Times) -> NDArray[np.int64]:
    """How long one program had worked at each of the moments, exactly: `part` is its pieces, in order."""
    if not len(part):
        return np.zeros(len(at), dtype=np.int64)
    done = np.concatenate([[0], np.cumsum(part[:, 1] - part[:, 0])])
    knots = np.maximum.accumulate(part[:, :2].ravel())  # neighbours may overlap by the clock's resolution
    values = np.column_stack([done[:-1], done[1:]]).ravel()
    return np.asarray(np.interp(at, knots, values), dtype=np.int64)


def idle_us(segments: Segments) -> NDArray[np.float64]:
    """Idle time of the card at each change from one program's kernels to another's, microseconds."""
    changes = np.nonzero(segments[1:, 2] != segments[:-1, 2])[0]
    ends = np.maximum.accumulate(segments[:, 1])
    return np.asarray((segments[changes + 1, 0] - ends[changes]) / 1e3, dtype=np.float64)
