"""Named shares, told to whoever makes them known outside the daemon. Data and an interface; no I/O here.

A share is a tenant that is there for good: a line of the config file, or one that was added by name. The daemon tells
its Publisher the whole set whenever that changes, and reminds it now and then. What the Publisher does with it (CDI
devices for containers, see gemini/cdi.py) is not the daemon's matter, and what goes wrong there costs no tenant.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.devices import Gpu


class Share(NamedTuple):
    """One share: what was promised, the folder of its sockets, its cards, and whether the node has others besides."""

    spec: TenantSpec
    folder: Path
    gpus: tuple[Gpu, ...]
    narrowed: bool


class Publisher(Protocol):
    """Makes shares known. Raises nothing: what went wrong is said in `problem`, one line, until it goes well."""

    where: str  # for people: the place where they are made known
    problem: str | None

    def publish(self, shares: Sequence[Share]) -> None:
        """From now on there are these shares and no others."""

    def look(self) -> None:
        """Called four times a second: what somebody took away is made anew."""
