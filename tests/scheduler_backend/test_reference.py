"""docs/protocol.md and docs/configuration.md say what the tables say."""

import pytest

from scheduler_backend import reference
from scheduler_backend.core.rows import TRANSITIONS
from tests.scheduler_backend.rig import ROOT


@pytest.mark.parametrize("page", reference.PAGES)
def test_a_page_is_in_step_with_the_tables(page: str):
    text = (ROOT / page).read_text()
    assert reference.renew(page, text) == text, "run: python -m scheduler_backend.reference"


def test_every_constant_of_the_policy_is_explained():
    assert set(reference.MEANINGS) == set(reference.Policy._fields)


def test_every_move_says_what_it_does():
    assert all(reference.said(row.run) for row in TRANSITIONS.values())
