"""Stamps of kernels become shares and idle times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemini import shares, stamps

TURN, GAP = 10_000_000, 100_000  # two programs in turns of 10 ms, the card idle for 0.1 ms between


def written(path: Path, pairs: list[tuple[int, int]]) -> Path:
    np.array(pairs, dtype=np.uint64).tofile(path)
    return path


@pytest.fixture
def turns(tmp_path: Path) -> stamps.Segments:
    begins = [i * (TURN + GAP) for i in range(600)]
    a = written(tmp_path / "a", [(t + 1, t + TURN) for t in begins[0::2]])
    b = written(tmp_path / "b", [(t + 1, t + TURN) for t in begins[1::2]] + [(0, 0)])
    return stamps.read([a, b], TURN)


def test_two_programs_in_turns_have_equal_shares(turns: stamps.Segments) -> None:
    at_ns, busy_ns = stamps.record(turns, 2, 1_000_000_000)
    assert shares.achieved(at_ns, busy_ns) == pytest.approx([0.5 * TURN / (TURN + GAP)] * 2, abs=0.002)


def test_the_card_idles_between_their_turns(turns: stamps.Segments) -> None:
    assert stamps.idle_us(turns) == pytest.approx([GAP / 1e3] * 599, abs=0.01)


def test_a_kernel_that_was_switched_away_counts_its_own_length_only(tmp_path: Path) -> None:
    file = written(tmp_path / "a", [(1_000_000, 4_000_000)])
    segments = stamps.read([file], 100_000)
    assert segments[0, 1] - segments[0, 0] == 100_000 + stamps.RESOLUTION_NS


def test_programs_that_never_ran_together_are_refused(tmp_path: Path) -> None:
    a, b = written(tmp_path / "a", [(1, 100)]), written(tmp_path / "b", [(1000, 1100)])
    with pytest.raises(ValueError, match="together"):
        stamps.record(stamps.read([a, b], 99), 2, 0)
    with pytest.raises(ValueError, match="stamp"):
        stamps.record(stamps.read([a], 99), 2, 0)
