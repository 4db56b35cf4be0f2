"""Which node is meant where no --state-dir is named: the one whose daemon has the cards.

A user's daemon may have been started where XDG_RUNTIME_DIR was set, and be asked from where it is not (cron, su,
sudo -u). The machine's own daemon is there for all users whom its administrator lets in.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gemini.cli.control import NoDaemon, ask
from gemini.cli.node import Node
from gemini.cli.problem import Problem
from gemini.cli.starting import check_machine
from scheduler_backend import private
from scheduler_backend.config import SYSTEM_STATE_DIR, default_state_dir


def places() -> list[Path]:
    """Where a daemon for this user may be, the likeliest first."""
    uid = os.geteuid()
    return list(
        dict.fromkeys((default_state_dir(), Path(f"/run/user/{uid}/gemini"), private.own_folder(uid), SYSTEM_STATE_DIR))
    )


def meant(sim: str | None) -> Node:
    """The first place where a daemon answers; where none does, the default one. Elsewhere than in that a daemon counts
    that may be believed and that serves the machine which is meant (a simulated one is a user's own, as a rule)."""
    first, *others = (Node(place, sim) for place in places())
    if _there(first):
        try:
            ask(first, "GET", "/healthz", timeout=5.0)
            return first
        except NoDaemon:  # remains of one
            pass
        except Problem:  # the command says it
            return first
    for other in others:
        if sim is not None and other.state_dir == SYSTEM_STATE_DIR and "users=all" not in sim:
            continue
        with suppress(Problem):
            if _there(other):
                check_machine(other)
                return other
    return first


def _there(node: Node) -> bool:
    try:
        return node.control.exists()
    except OSError:
        return False
