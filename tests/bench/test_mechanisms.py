"""Each mechanism that the table is about can be switched off, and has a figure that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.arms import GEMINI, WITHOUT, Arm
from bench.mechanisms import CASES, FIGURES, judge
from scheduler_backend.config import read_file
from scheduler_backend.core.policy import Policy


@pytest.mark.parametrize("name", CASES)
def test_it_is_switched_off_by_a_setting(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    settings = tmp_path / "gemini.toml"
    settings.write_text(case.off.config)
    _, policy, _ = read_file(settings)
    assert policy != Policy() or not case.off.page
    assert set(case.figures) <= set(FIGURES)
    assert case.off != Arm()


def test_what_is_better_is_said_in_the_figures_own_direction(capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES["hand-overs decided ahead"]
    own = [{"gap": gap, "exclusive": 0.98, "daemon": 3.0} for gap in (70.0, 80.0)]
    off = [{"gap": gap, "exclusive": 0.95, "daemon": 4.0} for gap in (400.0, 430.0)]
    assert list(judge("hand-overs decided ahead", case, {GEMINI: own, WITHOUT: off})) == []
    gap, exclusive, daemon = capsys.readouterr().err.splitlines()
    assert "better by  340.000, runs lie 30.000 apart" in gap
    assert "better by    0.030, runs lie 0.000 apart" in exclusive
    assert "better by    1.000" in daemon
