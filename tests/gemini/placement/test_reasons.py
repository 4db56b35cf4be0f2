"""The table of reasons: the page lists each, and what the parts say stands in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemini.placement.reasons import BY_DISTANCE, UNRESOLVABLE, Reason

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "placement.md"


def listed() -> list[str]:
    """The names in the first column of the page's table of reasons, in its order."""
    _, _, table = PAGE.read_text().partition("| reason | of |\n|---|---|\n")
    rows = table.split("\n\n")[0].splitlines()
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: str(reason.text))
def test_the_page_lists_each_reason(reason: Reason) -> None:
    assert reason.text in listed(), f"docs/placement.md does not list {reason.text}"


def test_the_page_lists_nothing_else_and_those_of_cards_from_farthest_to_nearest() -> None:
    assert set(listed()) == {reason.text for reason in Reason}
    of_cards = {reason.text for reason in BY_DISTANCE}
    assert [name for name in listed() if name in of_cards] == [reason.text for reason in BY_DISTANCE]


def test_no_eviction_mends_what_a_card_is() -> None:
    assert {"ModelMismatch", "UuidMismatch", "Unhealthy", "Cordoned"} <= UNRESOLVABLE
