"""The machine's own moves, the form of a row of its table, and the count of grants. Data only: rows.py says what runs.

A message of a client and a move of our own go the same way, through TRANSITIONS, so that a tenant's story tells both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from scheduler_backend.core import events as ev
from scheduler_backend.core.seat import Seat, State


class InvalidTransition(ev.LocalProtocolError):
    """The table has no such row: a bug. The text is the tenant's story."""


class Take(NamedTuple):
    """Move: the free token becomes the tenant's; with an epoch, as it was prepared."""

    epoch: int = 0
    quota_ns: int = 0


class Drained(NamedTuple):
    """Move: the holder's one process has drained; its Return is still on the way."""


class Prolong(NamedTuple):
    """Move: the holder would be picked again, so its quota grows."""

    quota_ns: int


class Recall(NamedTuple):
    """Move: the token is asked back early."""

    reason: int


class Admit(NamedTuple):
    """Move: it is host-bound and may run beside others."""


class Close(NamedTuple):
    """Move: one that runs beside others is asked to stop."""

    reason: int


class Pause(NamedTuple):
    """Move: it would run beside others, but one of them is favoured."""


class Compete(NamedTuple):
    """Move: it is to have turns like all others."""


class Lapse(NamedTuple):
    """Move: a process's lease ran out."""

    client: int


class Overrun(NamedTuple):
    """Move: a live process has not drained long after its quota."""

    client: int


class Row(NamedTuple):
    """One legal move: what runs, and the states it may lead to."""

    run: Callable[[Any, Seat, Any], None]  # of the machine
    to: tuple[State, ...]


class Epochs:
    """The node's count of grants. `last` is the highest number that may be out, over all incarnations."""

    __slots__ = ("last",)

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def take(self) -> int:
        """The next number."""
        self.last += 1
        return self.last
