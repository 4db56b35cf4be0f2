"""Tests whose point is a figure of time are tried again.

Where all runs on a machine with other things to do, each process may stand still for seconds at any moment, and a
figure of time then says something about the machine. So a test that judges one carries `@pytest.mark.tries(n)`: it
passes if any of n tries does, each with fixtures of its own, and fails only if all do. That is for what a wrong product
gets wrong each time: neither for a race that comes about now and then, nor for a wait, which is for an event and takes
as long as it takes. What every failed try said is shown when the last one fails too.
"""

from __future__ import annotations

import os

import pytest
from _pytest.runner import runtestprotocol

# A run that is expected to fail (tests/mutants) tries once.
MOST = int(os.environ.get("GEMINI_TRIES", "100"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Try a test with the mark until one try passes; only the last try is reported."""
    mark = item.get_closest_marker("tries")
    if mark is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    earlier: list[tuple[str, str]] = []
    tries = min(mark.args[0], MOST)
    for number in range(1, tries + 1):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        failed = [report for report in reports if report.failed]
        if not failed or any("from pytest-timeout" in report.longreprtext for report in failed):
            break
        if number < tries:
            earlier += [(f"try {number} of {tries}, {report.when}", report.longreprtext) for report in failed]
    for report in reports:
        if report.failed:
            report.sections = earlier + list(report.sections)
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
