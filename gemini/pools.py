"""Processes that Python's pools keep: what they start later is where they themselves were started.

A process that multiprocessing's fork server forks has the fork server's environment and libraries, and joblib gives
later calls to the workers that it has. So those of before a share are outside of it, and those of within end with it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

FORK_SERVER, LOKY, JOBLIB = (
    "multiprocessing.forkserver",
    "loky.reusable_executor",
    "joblib.externals.loky.reusable_executor",
)
NAMES = {
    FORK_SERVER: "multiprocessing's fork server runs",
    LOKY: "loky's workers run",
    JOBLIB: "joblib's workers run",
}
MENDS = {
    FORK_SERVER: "enter the share before the first process of that method, or use spawn",
    LOKY: "end them before by loky.get_reusable_executor().shutdown()",
    JOBLIB: "end them before by joblib.externals.loky.get_reusable_executor().shutdown()",
}


def running() -> set[str]:
    """The modules whose processes there are."""
    found = {name for name in (LOKY, JOBLIB) if _works(getattr(sys.modules.get(name), "_executor", None))}
    return found | ({FORK_SERVER} if getattr(_fork_server(), "_forkserver_pid", None) is not None else set())


def end(modules: Iterable[str]) -> None:
    """End what these keep, once it has done its work. A fork server with children stays with them."""
    for name in modules:
        if name != FORK_SERVER:
            with suppress(AttributeError):
                sys.modules[name]._executor.shutdown(wait=True)
        elif not any(child.is_alive() for child in sys.modules["multiprocessing"].active_children()):
            with suppress(AttributeError, OSError):
                _fork_server()._stop()


def _works(executor: Any) -> bool:
    """Has that one of loky workers? It is kept after its end."""
    return executor is not None and not getattr(getattr(executor, "_flags", None), "shutdown", False)


def _fork_server() -> Any:
    return getattr(sys.modules.get(FORK_SERVER), "_forkserver", None)
