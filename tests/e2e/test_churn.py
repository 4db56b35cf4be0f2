"""A minute of an editor who does at random all that he may: no card is promised twice, and nobody else notices."""

from __future__ import annotations

import json

import pytest

from tests.e2e.churn import play, told
from tests.e2e.plane import Plane

SECONDS = 60


@pytest.mark.timeout(600)
def test_an_editor_who_rewrites_at_random_all_that_he_may_costs_nobody_else_anything(plane: Plane) -> None:
    outcome = play(plane, SECONDS)
    print(json.dumps(told(outcome), indent=1))
    assert outcome.good(), json.dumps(told(outcome), indent=1)
    assert outcome.let["create"]
    assert not outcome.let["elsewhere"] + outcome.let["create_with_a_record"] + outcome.let["create_on_a_node"]
