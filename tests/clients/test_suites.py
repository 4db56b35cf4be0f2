"""NVIDIA's own tests end the same with and without the library in front of the driver, and as they were recorded.

A part of them here; all of them by `python -m tests.clients.suite` (see there).
"""

from __future__ import annotations

import pytest

from tests.clients import suite


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", suite.SUITES)
def test_the_clients_own_tests_end_the_same_with_the_library_and_without(name: str) -> None:
    asked = suite.SUITES[name]
    if suite.folder_of(asked) is None:
        pytest.skip("the client is not installed")
    bare, guest = suite.outcomes_both_ways(asked, part=True)
    assert suite.differences(bare, guest, ("without the library", "with it")) == []
    known = {test: outcome for test, outcome in suite.recorded(name).items() if test in bare}
    assert suite.differences(known, bare, ("recorded", "now")) == []
    assert "passed" in bare.values()
