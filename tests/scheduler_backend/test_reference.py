"""docs/protocol.md says what the tables say."""

from scheduler_backend import reference
from scheduler_backend.core.rows import TRANSITIONS
from tests.scheduler_backend.rig import ROOT


def test_the_protocol_page_is_in_step_with_the_tables():
    page = (ROOT / "docs" / "protocol.md").read_text()
    assert reference.renew(page) == page, "run: python -m scheduler_backend.reference docs/protocol.md"


def test_every_move_says_what_it_does():
    assert all(reference.said(row.run) for row in TRANSITIONS.values())
