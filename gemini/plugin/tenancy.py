"""The daemon's tenants: told when a container starts, removed when its pod is gone, brought back where it lost them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from gemini.kube import names
from gemini.kube.answer import ApiFault
from gemini.kube.checkpoint import Entry
from gemini.kube.resize import Amounts
from gemini.placement.model import WHOLE, Role
from gemini.plugin import reply
from gemini.plugin.claims import Claim, PodClaims
from gemini.plugin.daemon import DaemonFault
from gemini.plugin.host import Host
from gemini.plugin.view import View

_STEM = re.compile(r"(.*)-[0-9a-f]{8}")
log = logging.getLogger("gemini.plugin")


class Tenants(Protocol):
    async def tenants(self) -> dict[str, dict[str, Any]]: ...
    async def register(self, spec: Mapping[str, Any]) -> None: ...
    async def change(self, spec: Mapping[str, Any]) -> None: ...
    async def remove(self, name: str) -> None: ...


class Tenancy:
    """`removed` is told the name of each tenant that is removed."""

    def __init__(self, view: View, daemon: Tenants, host: Host, removed: Callable[[str], None]) -> None:
        self._view, self._daemon, self._host, self._removed = view, daemon, host, removed
        self.changing = asyncio.Lock()  # who gives a tenant its amounts, so that none is given those of before
        self._told: set[str] = set()  # tenants whose pods were told that their share is not enforced

    async def register(self, pod: PodClaims, claim: Claim, tenant: str) -> None:
        """Raises DaemonFault."""
        async with self.changing:
            await self._register(pod, claim, tenant)

    async def _register(self, pod: PodClaims, claim: Claim, tenant: str) -> None:
        # What init containers held is the later ones' now; where one of them runs again all of those have ended.
        ended = {Role.INIT, Role.APP} if claim.role is Role.INIT else {Role.INIT}
        for other, name in self._view.of_pod(pod):
            if other.role in ended and name != tenant:
                await self._daemon.remove(name)
        try:
            await self._daemon.register(self.promised(pod, claim, tenant))
        except DaemonFault as fault:
            if not fault.clash:
                raise
            await self._tidy()  # a pod that is gone may hold it still
            await self._daemon.register(self.promised(pod, claim, tenant))

    def promised(self, pod: PodClaims, claim: Claim, tenant: str) -> dict[str, Any]:
        """What the daemon is told of a tenant that begins, or begins anew: by its record, or what its Resize says that
        the node may be enforcing."""
        resize = self._view.resize_of(pod)
        if resize is not None and resize.booked is not None and resize.enforced is not None:
            claim = with_amounts(claim, resize.enforced)
        return tenant_spec(claim, tenant)

    async def tidy(self) -> None:
        """Removes the tenants of pods that are gone, brings back those that the daemon lost, gives each what it is
        promised where the daemon has other amounts, and says of which pods the share is not enforced. What the daemon
        refuses of one keeps no other from its share; the first such fault is raised when all have had their turn:
        DaemonFault."""
        async with self.changing:
            await self._tidy()

    async def _tidy(self) -> None:
        there = await self._daemon.tenants()
        holders: dict[str, tuple[Entry, reply.Given]] = {}
        fault: DaemonFault | None = None
        for entry in self._view.entries():
            if (given := reply.read(entry.reply)) is not None:
                holders[given.tenant] = (entry, given)
        ours = [name for name in there if reply.TENANT.fullmatch(name)]
        shown = [name for name in self._host.cdi_tenants() if reply.TENANT.fullmatch(name)]  # some have never begun
        if suspects := [name for name in dict.fromkeys((*ours, *shown)) if not self._alive(name, holders)]:
            await self._view.refresh()
            for name in suspects:
                if not self._alive(name, holders):
                    if name in there:
                        log.info("tenant-removed tenant=%s", name)
                        await self._daemon.remove(name)
                    self._host.drop_cdi(reply.cdi_file(name))
                    self._removed(name)
                    self._told.discard(name)
        for name, (entry, given) in holders.items():
            pod = self._view.pods.get(entry.pod)
            claim = pod.claim(entry.container) if pod else None
            if pod is not None and there.get(name, {}).get("ungated_lookups") and name not in self._told:
                self._told.add(name)
                await self._not_enforced(pod, entry.container)
            if pod is None or claim is None or set(claim.cards) != set(given.cards):
                continue
            spec = self.promised(pod, claim, name)
            try:
                if name not in there:
                    if entry.container in _running(pod.object):
                        log.info("tenant-again tenant=%s pod=%s/%s", name, pod.namespace, pod.name)
                        await self._daemon.register(spec)
                elif self._settled(pod) and _other(there[name], spec) and not await self._ends(pod):
                    log.info("tenant-changed tenant=%s pod=%s/%s", name, pod.namespace, pod.name)
                    await self._daemon.register(spec)
            except DaemonFault as error:
                fault = fault or error
        if fault is not None:
            raise fault

    async def _ends(self, pod: PodClaims) -> bool:
        """Whether it is being deleted: in the foreground its Resize goes first. What it had given back by then others
        were promised, so it ends with what the daemon gives it."""
        if self._view.resize_of(pod) is not None:
            return False
        if _deleted(pod):
            return True
        try:
            await self._view.read()  # the watch of pods may be behind that of Resizes
        except ApiFault:
            return True  # nobody knows; the next tidying asks again
        now = self._view.pods.get(pod.uid)
        return now is None or _deleted(now)

    def _settled(self, pod: PodClaims) -> bool:
        """Whether its amounts are known; else somebody is about to write what they are (resizing.py)."""
        resize = self._view.resize_of(pod)
        return resize is None or resize.booked is None or resize.settled

    async def _not_enforced(self, pod: PodClaims, container: str) -> None:
        why = f"container {container} uses driver calls that are newer than the library, which neither holds them back "
        with contextlib.suppress(ApiFault):  # the daemon's metric says it too
            await self._view.kubernetes.say(
                pod.object, names.NOT_ENFORCED, why + "nor counts them; update gemini on the node"
            )

    def _alive(self, tenant: str, holders: Mapping[str, tuple[Entry, reply.Given]]) -> bool:
        """Whether a pod of this node stands behind the tenant. The kubelet may have lost its record; then a pod of that
        name is enough."""
        if tenant in holders:
            return holders[tenant][0].pod in self._view.pods
        match = _STEM.fullmatch(tenant)
        stems = {reply.tenant_stem(pod.namespace, pod.name) for pod in self._view.pods.values()}
        return match is not None and match.group(1) in stems


def with_amounts(claim: Claim, amounts: Amounts) -> Claim:
    return replace(claim, request=amounts.request, limit=amounts.limit, memory=amounts.memory)


def amounts_of(claim: Claim) -> Amounts:
    """By the record."""
    return Amounts(claim.request, claim.limit, claim.memory)


def _other(state: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Whether the daemon, by its state, has other amounts for a tenant."""
    shares = any(round(float(state.get(key, 0)) * WHOLE) != round(spec[key] * WHOLE) for key in ("request", "limit"))
    return shares or state.get("memory_limit_bytes", 0) != spec["memory_bytes"]


def tenant_spec(claim: Claim, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "request": claim.request / WHOLE,
        "limit": claim.limit / WHOLE,
        "memory_bytes": claim.memory,
        "latency": claim.latency,
        "gpus": list(claim.cards),
    }


def _deleted(pod: PodClaims) -> bool:
    return (pod.object.get("metadata") or {}).get("deletionTimestamp") is not None


def _statuses(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _running(pod: Mapping[str, Any]) -> set[str]:
    return {one.get("name", "") for one in _statuses(pod) if "running" in (one.get("state") or {})}
