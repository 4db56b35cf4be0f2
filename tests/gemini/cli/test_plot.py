"""The picture is drawn, and its labels do not lie on each other."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from gemini.cli.plot import Panel, draw, spread


def test_labels_keep_apart_and_in_order() -> None:
    placed = spread([0.33, 0.34, 0.33, 0.9], 0.05)
    inner = sorted(placed)
    assert all(b - a >= 0.05 - 1e-9 for a, b in itertools.pairwise(inner))
    assert placed[0] < placed[2] < placed[1] < placed[3]


@pytest.mark.parametrize("seconds", [0.5, 3.0])
def test_a_run_becomes_a_png(tmp_path: Path, seconds: float) -> None:
    at = np.arange(0, int(seconds * 1e9), 10_000_000, dtype=np.int64)
    busy = np.outer(at, [0.5, 0.3]).astype(np.int64)
    draw(
        str(tmp_path / "run.png"),
        "title",
        [0.5, 0.3],
        [Panel("with", "ab", at, busy), Panel("without", "ab", at, busy)],
    )
    assert (tmp_path / "run.png").read_bytes()[:4] == b"\x89PNG"
