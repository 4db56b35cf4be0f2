"""The page of the promises: its table of attacks is the one that is played, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from bench.hostile.attacks import listing
from scheduler_backend import bounds

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()


def test_the_attacks_on_the_page_are_those_that_are_played() -> None:
    assert PAGE.endswith(f"\n{listing()}"), "run python -m bench.hostile --list"


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    assert f"\n{bounds.listing()}\n" in PAGE, "print scheduler_backend.bounds.listing()"


def test_the_tests_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert named
    written = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not {name for name in named if f"def {name}(" not in written}
    for path in re.findall(r"`(tests/[\w/]+\.py)`", PAGE):
        assert (ROOT / path).exists(), path
