"""What several replicas tell each other: for each node the bindings that are under way, in an object of the API server.

A replica promises cards from what it has watched, which may be behind. Before it binds, it enters the promise into the
node's Lease, by compare-and-set on the version that its own book has taken in. Whoever finds another version there
reads it, and the node's pods besides, and chooses anew: so two replicas never promise one share twice, and no lock is
held that a dead replica could leave behind. A replica that is alone pays one small write for each round of bindings;
bindings of one node that come together share it.

Why that is enough: writes of one lease stand in one order, and each writer has taken in all entries before its own. An
entry is left out only by a replica that has seen the pod's fate in the API server. A replica that comes later lists the
node's pods (and claims, where any was ever promised) after reading the lease, and sees it too. A pod that is not known
though the watch of all pods has come as far as that list was deleted, for it was there when its entry was written. An
entry whose pod is never bound is left out after a time-out longer than any call may take.

The first half is pure: entries to text and back. `Ledger` does its I/O through the client that it is given.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gemini.extender.grown import GROWN, Grown, read_grown, write_grown
from gemini.extender.leaseroom import TOO_MUCH, beyond
from gemini.extender.reserve import BIND_NS, FRESH_NS
from gemini.kube import names
from gemini.kube.answer import ApiFault, Refused, is_unknown
from gemini.kube.claim import PREFIX
from gemini.kube.life import gone
from gemini.kube.resize import Amounts
from gemini.placement.model import GROWTH, Grant, Placement, Role

ENTRIES = f"{names.DOMAIN}/promises"
# Say that a claim was ever promised there, or more for a pod that runs: who reads the lease reads those objects too.
CLAIMS, RESIZES = f"{names.DOMAIN}/claims", f"{names.DOMAIN}/resizes"
SORTS = {CLAIMS: PREFIX, RESIZES: GROWTH}  # by what the keys of such promises begin with
NODE_LEASE = "gemini-node-{}"
BEFORE_ANY_LIST = 1  # a version of pods and claims
ROUNDS = 5
FORGET_NS = 2 * BIND_NS


class Stale(Exception):
    """Another replica has written meanwhile; the book has been brought up to date. Choose anew."""


@dataclass(frozen=True)
class Promise:
    """`by`: the replica that binds the pod, and alone may take the promise back; in a node's lease with the number of
    the write that entered it, so that whoever saw an earlier one of the same pod does not take it for as old."""

    placement: Placement
    by: str


def write_entries(promises: Iterable[Promise]) -> str:
    record = [
        [
            p.by, p.placement.pod, p.placement.node,
            *([g.type, g.minor, g.core, g.memory, g.tenant, g.role.value] for g in p.placement.grants),
        ]
        for p in promises
    ]  # fmt: skip
    return json.dumps(record, separators=(",", ":"))


def read_entries(lease: dict[str, Any]) -> list[Promise]:
    """What a lease says; what is no such text says nothing."""
    text = ((lease.get("metadata") or {}).get("annotations") or {}).get(ENTRIES, "[]")
    found: list[Promise] = []
    try:
        for by, pod, node, *grants in json.loads(text):
            parts = tuple(Grant(kind, minor, core, memory, tenant, Role(role))
                          for kind, minor, core, memory, tenant, role in grants)  # fmt: skip
            found.append(Promise(Placement(pod, node, parts), by))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return []
    return found


class Store(Protocol):
    """What the ledger needs of the API server."""

    async def lease(self, namespace: str, name: str) -> dict[str, Any] | None: ...

    async def all_leases(self, namespace: str) -> list[dict[str, Any]]: ...

    async def put_lease(self, namespace: str, name: str, metadata: dict[str, Any]) -> str: ...

    async def pods_on(self, node: str) -> tuple[list[dict[str, Any]], int]: ...

    async def claims_on(self, node: str) -> tuple[list[dict[str, Any]], int]: ...

    async def resize(self, namespace: str, name: str) -> dict[str, Any]: ...


class Owner(Protocol):
    """What the ledger asks of the book's keeper."""

    def settled(self, pod: str) -> bool:
        """Whether the pod's fate is known: bound, or gone."""

    def gone(self, pod: str, pods: int, claims: int) -> bool:
        """Whether a pod or claim that was there when its kind had that version is known not to be any more."""

    def over(self, pod: str) -> bool:
        """Whether a pod's programs have ended for good, whether or not it is there still."""

    def namespace_of(self, key: str) -> str:
        """Whose a promise is, by its key; empty: not known."""

    def see(self, pods: Sequence[dict[str, Any]]) -> None:
        """Pods as a read has shown them just now."""

    def see_claims(self, claims: Sequence[dict[str, Any]]) -> None:
        """The same of claims."""

    def see_resizes(self, resizes: Sequence[dict[str, Any]]) -> None:
        """The same of Resizes."""

    def see_grown(self, grown: Mapping[str, Amounts]) -> None:
        """What a lease says that pods have at most."""

    def adopt(self, node: str, placements: Sequence[Placement]) -> None:
        """All that other replicas promise on the node."""

    def owner_of(self, node: str) -> dict[str, Any] | None:
        """The owner reference of the node's lease."""


Key = tuple[str, str]  # pod, by whom: two replicas may both be binding one pod, and one of them will fail
NUMBER = "+"  # between a replica and the number of its write; in no name of a host


@dataclass
class _Wanted:
    placements: tuple[Placement, ...]
    mark: int
    future: asyncio.Future[None]


@dataclass
class _Page:
    """One node's lease as this replica knows it."""

    version: str | None = None  # of the lease; None: it is not there
    read: bool = False  # whether entries are those of the version
    entries: dict[Key, Promise] = field(default_factory=dict)
    own: dict[str, Key] = field(default_factory=dict)  # those of this replica, by their pods
    first_seen: dict[Key, int] = field(default_factory=dict)
    reads: int = 0
    as_of: dict[Key, tuple[int, int]] = field(default_factory=dict)  # of what was read: versions of pods and claims
    inherited: bool = False  # read at the start; what others promise there is not in the book yet
    sorts: frozenset[str] = frozenset()  # of what else than pods was ever promised there
    wanted: list[_Wanted] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    grown: Grown = field(default_factory=Grown)
    writer: asyncio.Task[None] | None = None


class Ledger:
    """The leases of all nodes. Used on one event loop."""

    def __init__(self, store: Store, owner: Owner, namespace: str, clock_ns: Callable[[], int], replica: str) -> None:
        self.replica = replica
        self._store, self._owner, self._namespace, self._clock_ns = store, owner, namespace, clock_ns
        self._pages: dict[str, _Page] = {}
        self._writes = 0
        self._reads = 0  # of all pages: a node that comes again is given a mark that none of its choices had before
        self._sorts: frozenset[str] = frozenset()  # those of pages that were forgotten

    def nodes(self) -> KeysView[str]:
        """Those that it has a page of."""
        return self._pages.keys()

    async def inherit(self) -> list[dict[str, Any]]:
        """Takes in all leases that are there: after a restart the first binding on each node need not be refused and
        tried again with its lease read. To be called before pods and claims are listed, and nothing may be entered
        before they were: so a promise to a pod that is not among them is known to be over. What there is of leases.
        Raises ApiFault."""
        prefix = NODE_LEASE.format("")
        leases = await self._store.all_leases(self._namespace)
        for lease in leases:
            name = str((lease.get("metadata") or {}).get("name", ""))
            if name.startswith(prefix):
                page = self._pages.setdefault(name.removeprefix(prefix), _Page())
                self._take_in(page, lease, (BEFORE_ANY_LIST, BEFORE_ANY_LIST))
                page.inherited = True
        return leases

    def mark(self, node: str) -> int:
        """What is chosen now is chosen from the book as of this mark."""
        page = self._pages.get(node)
        return page.reads if page is not None else 0

    async def enter(self, node: str, placements: Sequence[Placement], mark: int) -> None:
        """Returns when the promises stand in the node's lease. Raises Stale, also where the book has taken something
        in since they were chosen, or what the client raises; then they do not, or count for the time-out at most."""
        page = self._pages.setdefault(node, _Page(sorts=self._sorts))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        page.wanted.append(_Wanted(tuple(placements), mark, future))
        self._write(node, page)
        await future

    def leave(self, node: str, pods: Sequence[str]) -> None:
        """Takes promises back, with the node's next write."""
        page = self._pages.get(node)
        if page is not None:
            page.dropped.update(pod for pod in pods if pod in page.own)

    def grew(self, node: str, pod: str, amounts: Amounts) -> None:
        """Has the lease say what a pod that is there has at most, with the node's next write."""
        self._pages.setdefault(node, _Page(sorts=self._sorts)).grown.add(pod, amounts, BEFORE_ANY_LIST)
        self._owner.see_grown({pod: amounts})

    def entered(self, node: str, placement: Placement) -> bool:
        """Whether that promise stands in the lease, as our own, and will for long enough to bind: a call for that may
        take 10 s."""
        page = self._pages.get(node)
        key = None if page is None else page.own.get(placement.pod)
        if page is None or key is None or placement.pod in page.dropped:
            return False
        if self._clock_ns() - page.first_seen.get(key, 0) >= FRESH_NS:
            return False
        return page.entries[key].placement == placement

    def others(self, node: str) -> list[Placement]:
        """What other replicas promise there, as far as is known."""
        page = self._pages.get(node)
        return self._theirs(page) if page is not None else []

    def _theirs(self, page: _Page) -> list[Placement]:
        return [p.placement for key, p in page.entries.items() if not self._is_own(p.by) and not self._over(page, key)]

    def _over(self, page: _Page, key: Key) -> bool:
        """Whether it is known what became of a promise, or that its pod is no more."""
        return self._owner.settled(key[0]) or (key in page.as_of and self._owner.gone(key[0], *page.as_of[key]))

    def _is_own(self, by: str) -> bool:
        return by.partition(NUMBER)[0] == self.replica

    def _put(self, page: _Page, entries: dict[Key, Promise]) -> None:
        page.entries, page.own = entries, {key[0]: key for key in entries if self._is_own(key[1])}

    def forget(self, node: str) -> None:
        """A node that is gone; its lease goes with it, sooner or later. A page stays as long as it is written, or a
        promise of ours on it may count still: to be asked again until it goes."""
        page = self._pages.get(node)
        if page is None or page.writer is not None or page.wanted:
            return
        now_ns = self._clock_ns()
        for key in page.entries:
            fresh = now_ns - page.first_seen.get(key, now_ns) < FORGET_NS
            if self._is_own(key[1]) and fresh and not self._over(page, key):
                return
        self._sorts |= page.sorts
        del self._pages[node]

    def flush(self, node: str) -> None:
        """Writes what was taken back, or has grown, though nobody enters anything."""
        page = self._pages.get(node)
        if page is not None and (page.dropped or page.grown.news):
            self._write(node, page)

    # ---- one writer for each node

    def _write(self, node: str, page: _Page) -> None:
        if page.writer is None:
            page.writer = asyncio.get_running_loop().create_task(self._run(node, page))

    async def _run(self, node: str, page: _Page) -> None:
        try:
            while page.wanted or page.dropped or page.grown.news:
                if page.inherited and page.entries:  # what was chosen without them is stale
                    self._owner.adopt(node, self._theirs(page))
                    self._read_anew(page)
                page.inherited = False
                wanted, page.wanted = page.wanted, []
                batch = [one for one in wanted if one.mark == page.reads]
                _tell([one for one in wanted if one.mark != page.reads], Stale(node))
                if not batch and not page.dropped and not page.grown.news:
                    continue
                try:
                    await self._round(node, page, batch)
                except Exception as error:  # each caller decides what to do; the writer goes on
                    if not isinstance(error, Stale):  # it may have been written
                        page.version, page.read = None, False
                        page.dropped.clear()
                        page.grown.news = False  # it goes with the next write
                    _tell(batch, error)
                else:
                    _tell(batch, None)
        finally:
            page.writer = None

    async def _round(self, node: str, page: _Page, batch: list[_Wanted]) -> None:
        # A page that was never read is tried as if there were no lease yet: where that is so, nobody has promised
        # anything; where it is not, the refusal leads to reading it.
        now_ns = self._clock_ns()
        dropped = set(page.dropped)
        left = dropped | {placement.pod for one in batch for placement in one.placements}  # or entered anew
        kept = {
            key: promise
            for key, promise in page.entries.items()
            if not (self._is_own(key[1]) and key[0] in left)
            and not self._over(page, key)
            and now_ns - page.first_seen.get(key, now_ns) < FORGET_NS
        }
        annotations = {}
        news, page.grown.news = page.grown.news, False
        if grown := page.grown.left(lambda pod, at: self._owner.over(pod) or self._owner.gone(pod, at, 0)):
            annotations[GROWN] = write_grown(grown)
        self._writes += 1
        fresh = self._fresh(self._within(node, kept, batch, len(annotations.get(GROWN, ""))))
        entries = kept | fresh
        sorts = page.sorts | {sort for sort, begin in SORTS.items() if any(pod.startswith(begin) for pod, _ in fresh)}
        annotations |= {ENTRIES: write_entries(entries.values()), **dict.fromkeys(sorted(sorts), "true")}
        metadata: dict[str, Any] = {"annotations": annotations}
        if page.version is not None:
            metadata["resourceVersion"] = page.version
        reference = self._owner.owner_of(node)
        if reference is not None:
            metadata["ownerReferences"] = [reference]
        try:
            page.version = await self._store.put_lease(self._namespace, NODE_LEASE.format(node), metadata)
        except Refused as error:
            if error.status not in (404, 409):
                raise
            page.grown.news = news
            await self._read(node, page)
            raise Stale(node) from None
        self._put(page, entries)
        page.read, page.sorts = True, sorts
        page.dropped -= dropped
        page.first_seen = {key: now_ns if key in fresh else page.first_seen.get(key, now_ns) for key in entries}
        page.as_of = {key: versions for key, versions in page.as_of.items() if key in entries and key not in fresh}

    def _fresh(self, batch: Sequence[_Wanted]) -> dict[Key, Promise]:
        by = f"{self.replica}{NUMBER}{self._writes}"
        return {(p.pod, by): Promise(p, by) for one in batch for p in one.placements}

    def _within(self, node: str, kept: Mapping[Key, Promise], batch: list[_Wanted], besides: int) -> list[_Wanted]:
        """Those for which the lease has room beside so many bytes of other things; the others are told."""

        def size(key: Key, promise: Promise) -> tuple[str, int]:
            return self._owner.namespace_of(key[0]), len(write_entries([promise]))

        groups = [[size(*item) for item in self._fresh([one]).items()] for one in batch]
        over = beyond(len(write_entries(kept.values())), (size(*item) for item in kept.items()), groups, besides)
        _tell([one for one, much in zip(batch, over, strict=True) if much], Refused(413, TOO_MUCH.format(node)))
        return [one for one, much in zip(batch, over, strict=True) if not much]

    async def _read(self, node: str, page: _Page) -> None:
        """Takes in the lease and then the node's pods and claims, in this order."""
        lease = await self._store.lease(self._namespace, NODE_LEASE.format(node))
        page.sorts |= _sorts_in(lease)
        pods, pods_version = await self._store.pods_on(node)
        resizes = await self._resizes_of(pods) if RESIZES in page.sorts else []
        claims, claims_version = await self._store.claims_on(node) if CLAIMS in page.sorts else ([], 0)
        self._take_in(page, lease, (pods_version, claims_version))
        self._read_anew(page)
        page.dropped = {pod for pod in page.dropped if pod in page.own}
        self._owner.see(pods)
        self._owner.see_claims(claims)
        self._owner.see_resizes(resizes)
        self._owner.adopt(node, self._theirs(page))

    async def _resizes_of(self, pods: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of pods with a record, one by one: of all of the cluster anybody may make ever so many. Pods that have
        ended, of which there may be as many, hold nothing."""
        named = [pod.get("metadata") or {} for pod in pods if not gone(pod.get("status") or {})]
        recorded = [one for one in named if names.ALLOCATION in (one.get("annotations") or {})]
        found = await asyncio.gather(*(self._resize_of(one) for one in recorded))
        return [one for one in found if one is not None]

    async def _resize_of(self, metadata: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return await self._store.resize(str(metadata.get("namespace", "")), str(metadata.get("name", "")))
        except ApiFault as error:
            if is_unknown(error):
                return None
            raise

    def _take_in(self, page: _Page, lease: dict[str, Any] | None, as_of: tuple[int, int]) -> None:
        found = {} if lease is None else {(p.placement.pod, p.by): p for p in read_entries(lease)}
        now_ns = self._clock_ns()
        page.version = None if lease is None else str(lease["metadata"].get("resourceVersion", ""))
        page.sorts |= _sorts_in(lease)
        # One of ours that we know nothing of: its page was forgotten since, or nobody answered when it was written. The
        # others may have seen it for so long that they leave it out soon, so it counts, but nobody may bind by it.
        seen_ns = {key: now_ns - BIND_NS if self._is_own(key[1]) else now_ns for key in found}
        page.first_seen = {key: page.first_seen.get(key, seen_ns[key]) for key in found}
        self._put(page, found)
        page.read = True
        page.as_of = dict.fromkeys(found, as_of)
        grown = read_grown(lease)
        page.grown.take_in(grown, as_of[0])
        self._owner.see_grown(grown)

    def _read_anew(self, page: _Page) -> None:
        """What was chosen on the node before is stale."""
        self._reads += 1
        page.reads = self._reads


def _sorts_in(lease: dict[str, Any] | None) -> frozenset[str]:
    return frozenset(SORTS) & (((lease or {}).get("metadata") or {}).get("annotations") or {}).keys()


def _tell(batch: Sequence[_Wanted], error: Exception | None) -> None:
    for one in batch:
        if not one.future.done():
            if error is None:
                one.future.set_result(None)
            else:
                one.future.set_exception(error)
