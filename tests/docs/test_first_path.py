"""The recorded first ten minutes are those of README as it stands now."""

from __future__ import annotations

import re

from tests.docs.first_path import PAGE, commands


def test_the_recorded_way_is_readmes_and_is_short() -> None:
    page = PAGE.read_text()
    typed = re.findall(r"^\$ (.*)$", page, re.MULTILINE)
    assert typed == commands()
    assert len(typed) <= 5
    took = [float(seconds) for seconds in re.findall(r"^\[([\d.]+) s\]$", page, re.MULTILINE)]
    assert len(took) == len(typed)
    assert sum(took) <= 600
    screen = page.rpartition("$ gemini top")[2]
    for name in "ab":
        row = re.search(rf"^{name} .*% .*yes", screen, re.MULTILINE)
        assert row, "both are held to their shares"
