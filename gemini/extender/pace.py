"""Devices of nodes, at the pace at which they are believed: each node's once a second.

A node's token may write its Device as often as it likes, and for each that is new all nodes are looked at anew.
The first one counts at once, so does the next after a second of rest; of several within one the last, when it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

PACE_NS = 10**9


class Keeper(Protocol):
    def replace(self, kind: str, objects: Iterable[object], version: int = 0) -> None: ...

    def apply(self, kind: str, event: str, given: object) -> None: ...


class Paced:
    """A cluster for a watch of one kind of objects that go by their names."""

    def __init__(self, cluster: Keeper, clock_ns: Callable[[], int]) -> None:
        self._cluster, self._clock_ns = cluster, clock_ns
        self._taken: dict[str, int] = {}  # name -> when; those of the last second
        self._late: dict[str, tuple[str, str, object]] = {}

    def replace(self, kind: str, objects: Iterable[object], version: int = 0) -> None:
        self._late.clear()
        self._cluster.replace(kind, objects, version)

    def apply(self, kind: str, event: str, given: object) -> None:
        name, now_ns = _name(given), self._clock_ns()
        if now_ns - self._taken.get(name, now_ns - PACE_NS) < PACE_NS:
            self._late[name] = (kind, event, given)
            return
        self._late.pop(name, None)
        self._taken[name] = now_ns
        self._cluster.apply(kind, event, given)

    def sweep(self) -> None:
        """To be called about once a second."""
        now_ns = self._clock_ns()
        self._taken = {name: at for name, at in self._taken.items() if now_ns - at < PACE_NS}
        for name in [name for name in self._late if name not in self._taken]:
            self.apply(*self._late[name])


def _name(given: object) -> str:
    metadata: Any = given.get("metadata") if isinstance(given, dict) else None
    return str(metadata.get("name")) if isinstance(metadata, dict) else ""
