"""Random groups on the real control plane, whose extender is killed now and then: none runs in part for long."""

from __future__ import annotations

import json

import pytest

from tests.e2e.manygroups import play
from tests.e2e.plane import Plane
from tests.e2e.test_extender import crd

__all__ = ["crd"]
GROUPS = 40


@pytest.mark.timeout(900)
def test_no_group_runs_in_part_for_longer_than_is_stated(plane: Plane, crd: None) -> None:
    outcome = play(plane, GROUPS, seed=2)
    said = outcome.told()
    print(json.dumps(said, indent=1))
    assert not outcome.wrong, outcome.wrong
    assert outcome.kills
    assert said["ran"] > GROUPS // 3
