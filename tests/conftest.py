"""For all tests."""

from __future__ import annotations

import pytest

from libhook import compiled


def pytest_sessionstart(session: pytest.Session) -> None:
    """What runs is what is written: compiled modules hide sources that have changed since."""
    if old := compiled.stale():
        names = ", ".join(str(path.relative_to(compiled.ROOT)) for path in old[:3])
        pytest.exit(f"{names}{' and more' if old[3:] else ''}: newer than what was compiled; run make build", 4)
