"""Pods of NVIDIA's plugin and of ours come and go, fifty of each at a time: those of NVIDIA's are left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.plane import Plane
from tests.e2e.sidebyside import WAYS, play
from tests.e2e.test_extender import crd

__all__ = ["crd"]
SECONDS = 90


@pytest.mark.timeout(600)
def test_no_pod_of_nvidias_plugin_is_touched_or_refused(plane: Plane, vendor: Path, crd: None) -> None:
    outcome = play(plane, vendor, SECONDS, turns=2)
    print(json.dumps(outcome.told(), indent=1))
    assert not outcome.wrong, outcome.wrong[:5]
    assert set(outcome.waits) == {"alone", "plain", "ours", *WAYS}
    assert all(len(seconds) > 10 for seconds in outcome.waits.values())
    # A binding may be tried again, but hardly every second one.
    bound = {way: sum(turn.get("bind", 0) for turn in turns) for way, turns in outcome.asked.items()}
    theirs = {way: len(outcome.waits[way]) for way in WAYS}
    assert bound["asked"] >= theirs["asked"] + outcome.beside["asked"]
    for way in ("second", "unasked"):
        assert bound[way] < theirs[way] / 2 + outcome.beside[way], "pods of NVIDIA's were asked about"
    assert outcome.admitted
