"""docs/api.md has all that the package offers, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import gemini

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


def test_the_page_has_each_public_name_once() -> None:
    assert sorted(re.findall(r"^\.\. auto\w+:: (\w+)", PAGE.read_text(), re.M)) == sorted(gemini.__all__)


def test_each_says_what_it_is() -> None:
    assert [name for name in gemini.__all__ if not getattr(gemini, name).__doc__] == []
