"""What the tests of the parts of a token machine have in common."""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.seat import Member
from scheduler_backend.core.tenant import WHOLE_PPM

HALF = WHOLE_PPM // 2


def returned(member: Member, *, more: bool = False, busy_ns: int = 0, held_ns: int = 0) -> ev.TokenReturned:
    """The Return of a process for the grant it has."""
    return ev.TokenReturned(member.client, 0, member.epoch, more, busy_ns=busy_ns, held_ns=held_ns)
