"""For all tests."""

from __future__ import annotations

import signal

import pytest

from libhook import compiled


def pytest_sessionstart(session: pytest.Session) -> None:
    """What runs is what is written: compiled modules hide sources that have changed since. And who is started by nohup,
    or behind by a script, hands on signals that are ignored, which programs started by a test would leave so."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if old := compiled.stale():
        names = ", ".join(str(path.relative_to(compiled.ROOT)) for path in old[:3])
        pytest.exit(f"{names}{' and more' if old[3:] else ''}: newer than what was compiled; run make build", 4)
