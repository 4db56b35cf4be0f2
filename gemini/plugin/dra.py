"""ResourceClaims of our DeviceClass, served to the kubelet: prepare, unprepare, and what restarts leave behind.

No I/O but through what is given: the API server, the daemon, the host's files. The kubelet names claims; what they hold
stands in the API server, promised by the extender (gemini/extender/claims.py). To prepare one is to register its tenant
at the daemon and to write the CDI file by which the runtime gives its share to containers. Both can be done again at
any time, and the kubelet does so after each of its restarts.

For each prepared claim a file in `folder` says what the daemon was told, for a daemon that has lost its state. It also
says whose claim it is, for a kubelet that has lost its own: what nobody unprepared is cleared away once the claim has
gone. And it has the text of the CDI file. The kubelet prepares a claim once, whatever becomes of that one, and without
it no container of the claim's starts again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

from gemini.kube.answer import ApiFault, Refused
from gemini.kube.claim import read_claim
from gemini.plugin import prepared, reply
from gemini.plugin.daemon import DaemonFault
from gemini.plugin.host import Host
from gemini.plugin.prepared import CannotPrepare, Prepared
from gemini.plugin.slots import Card

LOOK_AGAIN = 12  # tidyings between two looks at whether a prepared claim is there still: a minute
log = logging.getLogger("gemini.plugin")


class Kubernetes(Protocol):
    async def claim(self, namespace: str, name: str) -> dict[str, Any]: ...


class Tenants(Protocol):
    async def tenants(self) -> dict[str, dict[str, Any]]: ...
    async def register(self, spec: Mapping[str, Any]) -> None: ...
    async def remove(self, name: str) -> None: ...


@dataclass(frozen=True)
class Named:
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class Record:
    """Whose it is, what the daemon was told, and the CDI file's text (empty: an older plugin's record)."""

    named: Named
    spec: dict[str, Any]
    cdi: str


class Claims:
    """Those of one node. `cards`: its cards by uuid, as they are now; `make_room`: removes the tenants of pods that are
    gone, which may hold a share still that was promised anew."""

    def __init__(
        self,
        node: str,
        options: reply.Options,
        kubernetes: Kubernetes,
        daemon: Tenants,
        host: Host,
        folder: Path,
        cards: Callable[[], Mapping[str, Card]],
        make_room: Callable[[], Awaitable[None]],
        device_nodes: bool = False,
    ) -> None:
        self.node, self.options, self.counts = node, options, Counter[tuple[str, str]]()
        self._kubernetes, self._daemon, self._host, self._folder = kubernetes, daemon, host, folder
        self._cards, self._make_room, self._device_nodes = cards, make_room, device_nodes
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tidied = 0

    async def prepare(self, named: Named) -> Prepared:
        """Raises CannotPrepare; the kubelet tries again after a while."""
        tenant = prepared.tenant_of(named.namespace, named.name, named.uid)
        async with self._lock(tenant):
            try:
                ready = prepared.prepare(await self._read(named), self._cards(), self.node)
                await self._register(ready)
                self._write(named, ready)
            except (ApiFault, DaemonFault, OSError, CannotPrepare) as error:
                self.counts["prepare", "refused"] += 1
                raise _refusal(error) from None
        self.counts["prepare", "ok"] += 1
        log.info("prepared claim=%s/%s tenant=%s", named.namespace, named.name, tenant)
        return ready

    async def unprepare(self, named: Named) -> None:
        """No fault where nothing was prepared. Raises CannotPrepare."""
        tenant = prepared.tenant_of(named.namespace, named.name, named.uid)
        async with self._lock(tenant):
            try:
                await self._drop(tenant)
            except (DaemonFault, OSError) as error:
                self.counts["unprepare", "refused"] += 1
                raise _refusal(error) from None
        self.counts["unprepare", "ok"] += 1
        log.info("unprepared claim=%s/%s tenant=%s", named.namespace, named.name, tenant)

    async def tidy(self) -> None:
        """Brings back CDI files, and tenants that the daemon lost; removes those that nobody will unprepare. Raises
        DaemonFault."""
        for name, record in self._records().items():
            if not self._is_shown(name, record):
                async with self._lock(name):
                    self._show_again(name)
        there = await self._daemon.tenants()
        records = self._records()
        for name in there:
            if prepared.TENANT.fullmatch(name) and name not in records:
                async with self._lock(name):
                    if name not in self._records():
                        log.info("tenant-removed tenant=%s", name)
                        await self._daemon.remove(name)
        for name, record in records.items():
            if name not in there:
                async with self._lock(name):
                    if name in self._records():
                        log.info("tenant-again tenant=%s", name)
                        await self._daemon.register(record.spec)
        if self._tidied % LOOK_AGAIN == 0:
            for name, record in records.items():
                if await self._over(named := record.named):
                    log.info("claim-gone claim=%s/%s tenant=%s", named.namespace, named.name, name)
                    async with self._lock(name):
                        await self._drop(name)
        self._tidied += 1

    # ---- steps

    async def _read(self, named: Named) -> Any:
        given = await self._kubernetes.claim(named.namespace, named.name)
        if (given.get("metadata") or {}).get("uid") != named.uid:
            raise CannotPrepare("it is another claim of that name now")
        claim = read_claim(given)
        if claim is None:
            raise CannotPrepare("nothing of gemini.io is allocated to it")
        return claim

    async def _register(self, ready: Prepared) -> None:
        spec = ready.spec()
        known = self._records().get(ready.tenant)
        if (
            known is not None and known.spec["gpus"] != spec["gpus"]
        ):  # another allocation: a tenant's cards do not change
            await self._daemon.remove(ready.tenant)
        try:
            await self._daemon.register(spec)
        except DaemonFault as fault:
            if not fault.clash:
                raise
            await self._make_room()
            await self._daemon.register(spec)

    def _write(self, named: Named, ready: Prepared) -> None:
        nodes: tuple[str, ...] = ()
        if self._device_nodes:
            nodes = self._host.device_nodes(tuple(self._cards()[uuid].minor for uuid in ready.cards))
        self._folder.mkdir(parents=True, exist_ok=True)
        record = self._folder / f"{ready.tenant}.json"
        draft, shown = record.with_suffix(".new"), prepared.cdi_spec(ready, self.options, nodes)
        draft.write_text(json.dumps({"claim": asdict(named), "tenant": ready.spec(), "cdi": shown}))
        draft.rename(record)
        self._host.write_cdi(reply.cdi_file(ready.tenant), shown)

    def _is_shown(self, tenant: str, record: Record) -> bool:
        return not record.cdi or self._host.read_cdi(reply.cdi_file(tenant)) == record.cdi

    def _show_again(self, tenant: str) -> None:
        """Where somebody took the CDI file away, or wrote something else into it."""
        record = self._records().get(tenant)
        if record is None or self._is_shown(tenant, record):
            return
        try:
            self._host.write_cdi(reply.cdi_file(tenant), record.cdi)
            log.warning("claim-file-made-anew tenant=%s", tenant)
        except OSError as error:  # the daemon's tenants are looked after all the same
            log.error("claim-file-unwritable tenant=%s error=%s", tenant, _refusal(error))

    async def _drop(self, tenant: str) -> None:
        await self._daemon.remove(tenant)
        self._host.drop_cdi(reply.cdi_file(tenant))
        (self._folder / f"{tenant}.json").unlink(missing_ok=True)

    def _records(self) -> dict[str, Record]:
        """By tenant."""
        found = {}
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                said = json.loads(path.read_text())
                found[path.stem] = Record(Named(**said["claim"]), said["tenant"], str(said.get("cdi", "")))
        return found

    async def _over(self, named: Named) -> bool:
        """Whether the claim is known to have no devices here any more."""
        try:
            given = await self._kubernetes.claim(named.namespace, named.name)
        except Refused as error:
            return error.status == 404
        except ApiFault:
            return False
        if (given.get("metadata") or {}).get("uid") != named.uid:
            return True
        claim = read_claim(given)
        return claim is None or claim.node != self.node

    def _lock(self, tenant: str) -> asyncio.Lock:
        """One thing at a time with a claim; it is there for as long as somebody holds it or waits for it."""
        return self._locks.setdefault(tenant, asyncio.Lock())


def _refusal(error: Exception) -> CannotPrepare:
    """In one line, with the mend where it is ours to know."""
    if isinstance(error, OSError):
        return CannotPrepare(f"{error.filename}: {error.strerror}; see --install-dir and --cdi-dir")
    return CannotPrepare(str(error))
