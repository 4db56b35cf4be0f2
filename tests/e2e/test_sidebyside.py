"""A minute of pods of NVIDIA's plugin and of ours, fifty of each at a time: those of NVIDIA's are left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.plane import Plane
from tests.e2e.sidebyside import play
from tests.e2e.test_extender import crd

__all__ = ["crd"]
SECONDS = 60


@pytest.mark.timeout(600)
def test_no_pod_of_nvidias_plugin_is_touched_or_refused(plane: Plane, vendor: Path, crd: None) -> None:
    outcome = play(plane, vendor, SECONDS)
    print(json.dumps(outcome.told(), indent=1))
    assert not outcome.wrong, outcome.wrong[:5]
    assert all(len(seconds) > 10 for seconds in outcome.waits.values())
    assert outcome.admitted
