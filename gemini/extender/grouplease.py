"""What all replicas know of a group that is being put together: one Lease each, written by compare and set.

A replica that runs alone keeps the same in memory. `GroupState` is pure; `GroupStore` does its I/O through the client
that it is given. A Lease has no owner: the group's pods live in other namespaces, where the garbage collector looks for
none, and takes a Lease away that names one. Who wrote it takes it away when its time is up, or who starts and finds it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gemini.extender.ledger import ENTRIES, Promise, read_entries, write_entries
from gemini.extender.reserve import SECOND, GroupKey
from gemini.kube import names
from gemini.kube.answer import Refused

GROUP_LEASE = "gemini-group-{}"
UNTIL = f"{names.DOMAIN}/promised-until"
ARRIVED = f"{names.DOMAIN}/arrived"
TOGETHER = f"{names.DOMAIN}/together"
REST = f"{names.DOMAIN}/rest"
# A group that was not put together in time rests so many seconds, then twice as many. kube-scheduler tries a pod again
# after 10 s at the latest: after the first rest all members are there to be woken at once.
FIRST_REST, LONGEST_REST = 12, 300
AT_ONCE = 12  # Leases that are taken away, of the client's connections
SWEEP_SECONDS = 0.5  # after which those who wait for the end of a sweep have their turn


@dataclass(frozen=True)
class Rest:
    """A group that was not put together in time: until when (wall clock) it is not tried again, for how many seconds,
    and why. It is of these pods (uids): with others in their place it is another matter."""

    until_ns: int
    seconds: int
    members: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class GroupState:
    """`promises`: the cards of each member, good until `until_ns` (wall clock). `arrived`: members (uid) that wait at
    their last step, and until when each does. `together`: all were there, and may be bound. `version`: of the Lease;
    None: there is none."""

    promises: tuple[Promise, ...] = ()
    until_ns: int = 0
    arrived: Mapping[str, int] = field(default_factory=dict)
    together: bool = False
    rest: Rest | None = None
    version: str | None = None

    def annotations(self) -> dict[str, str]:
        said = {ENTRIES: write_entries(self.promises), UNTIL: str(self.until_ns)}
        if self.arrived:
            said[ARRIVED] = json.dumps(dict(self.arrived))
        if self.together:
            said[TOGETHER] = "true"
        if self.rest is not None:
            said[REST] = json.dumps([self.rest.until_ns, self.rest.seconds, list(self.rest.members), self.rest.text])
        return said


def read_state(lease: Mapping[str, Any] | None) -> GroupState:
    """What a Lease says; what is no such text says nothing."""
    if lease is None:
        return GroupState()
    metadata = lease.get("metadata") or {}
    said = metadata.get("annotations") or {}
    until = str(said.get(UNTIL, "0"))
    arrived: dict[str, int] = {}
    rest = None
    try:
        arrived = {str(uid): int(at) for uid, at in json.loads(said.get(ARRIVED, "{}")).items()}
        if REST in said:
            at, seconds, members, text = json.loads(said[REST])
            rest = Rest(int(at), int(seconds), tuple(str(one) for one in members), str(text))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        pass
    return GroupState(
        tuple(read_entries(dict(lease))), int(until) if until.isdecimal() else 0, arrived, said.get(TOGETHER) == "true",
        rest, str(metadata.get("resourceVersion", "")),
    )  # fmt: skip


def lease_name(key: GroupKey) -> str:
    return GROUP_LEASE.format(hashlib.sha256("/".join(key).encode()).hexdigest()[:20])


class Store(Protocol):
    """What is needed of the API server."""

    async def lease(self, namespace: str, name: str) -> dict[str, Any] | None: ...

    async def put_lease(self, namespace: str, name: str, metadata: dict[str, Any]) -> str: ...

    async def drop_lease(self, namespace: str, name: str, version: str | None = None) -> None: ...


class GroupStore:
    """The states of all groups. `namespace`: of the Leases; None: there is no other replica."""

    def __init__(self, store: Store, namespace: str | None) -> None:
        self._store, self.namespace = store, namespace
        self._own: dict[str, GroupState] = {}
        self._writes = 0
        self._ends: dict[str, int] = {}  # Leases that are taken away, and from when (wall clock)

    async def read(self, key: GroupKey) -> GroupState:
        """Raises ApiFault."""
        if self.namespace is None:
            return self._own.get(lease_name(key), GroupState())
        return read_state(await self._store.lease(self.namespace, lease_name(key)))

    async def write(self, key: GroupKey, state: GroupState) -> GroupState:
        """In place of the one of that version; what was written. Raises Refused (404, 409) where it is another now."""
        name = lease_name(key)
        if self.namespace is None:
            if state.version != self._own.get(name, GroupState()).version:
                raise Refused(409, "changed")
            self._writes += 1
            written = self._own[name] = replace(state, version=str(self._writes))
        else:
            metadata: dict[str, Any] = {"annotations": state.annotations()}
            if state.version is not None:
                metadata["resourceVersion"] = state.version
            written = replace(state, version=await self._store.put_lease(self.namespace, name, metadata))
        self._ends[name] = _over(written)
        return written

    def found(self, leases: Sequence[Mapping[str, Any]]) -> None:
        """Leases that were there at the start, by whomever."""
        for lease in leases:
            name = str((lease.get("metadata") or {}).get("name", ""))
            if name.startswith(GROUP_LEASE.format("")):
                self._ends[name] = _over(read_state(lease))

    async def sweep(self, now_ns: int) -> None:
        """Takes away those whose time is up, as many as there is time for; what another replica has prolonged stays.
        Raises ApiFault."""
        due = [name for name, until_ns in self._ends.items() if until_ns <= now_ns]
        loop = asyncio.get_running_loop()
        ends = loop.time() + SWEEP_SECONDS
        for begin in range(0, len(due), AT_ONCE):
            here = (self._take_away(name, now_ns) for name in due[begin : begin + AT_ONCE])
            for error in await asyncio.gather(*here, return_exceptions=True):
                if isinstance(error, BaseException):
                    raise error
            if loop.time() >= ends:
                break

    async def _take_away(self, name: str, now_ns: int) -> None:
        if self.namespace is None:
            self._own.pop(name, None)
        elif (lease := await self._store.lease(self.namespace, name)) is not None:
            state = read_state(lease)
            if (until_ns := _over(state)) > now_ns:
                self._ends[name] = until_ns
                return
            try:
                await self._store.drop_lease(self.namespace, name, state.version)
            except Refused as error:
                if error.status == 409:  # written just now: looked at again by the next sweep
                    return
                self._ends[name] = now_ns + LONGEST_REST * SECOND  # a right that we lack is not asked for every second
                raise
        self._ends.pop(name, None)


def _over(state: GroupState) -> int:
    """From when on a state says nothing any more."""
    rest = state.rest
    return max(state.until_ns, rest.until_ns + LONGEST_REST * SECOND if rest is not None else 0)
