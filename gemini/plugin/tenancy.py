"""The daemon's tenants: told when a container starts, removed when its pod is gone, brought back where it lost them."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gemini.kube import names
from gemini.kube.checkpoint import Entry
from gemini.kube.client import ApiFault
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
    async def remove(self, name: str) -> None: ...


class Tenancy:
    """`removed` is told the name of each tenant that is removed."""

    def __init__(self, view: View, daemon: Tenants, host: Host, removed: Callable[[str], None]) -> None:
        self._view, self._daemon, self._host, self._removed = view, daemon, host, removed
        self._told: set[str] = set()  # tenants whose pods were told that their share is not enforced

    async def register(self, pod: PodClaims, claim: Claim, tenant: str) -> None:
        """Raises DaemonFault."""
        for other, name in self._view.of_pod(pod):  # what init containers held is the later ones' now
            if other.role is Role.INIT and name != tenant:
                await self._daemon.remove(name)
        try:
            await self._daemon.register(_tenant(claim, tenant))
        except DaemonFault as fault:
            if not fault.clash:
                raise
            await self.tidy()  # a pod that is gone may hold it still
            await self._daemon.register(_tenant(claim, tenant))

    async def tidy(self) -> None:
        """Removes the tenants of pods that are gone, brings back those that the daemon lost, and says of which pods the
        share is not enforced. Raises DaemonFault."""
        there = await self._daemon.tenants()
        holders: dict[str, tuple[Entry, reply.Given]] = {}
        for entry in self._view.entries():
            if (given := reply.read(entry.reply)) is not None:
                holders[given.tenant] = (entry, given)
        ours = [name for name in there if reply.TENANT.fullmatch(name)]
        if suspects := [name for name in ours if not self._alive(name, holders)]:
            await self._view.refresh()
            for name in suspects:
                if not self._alive(name, holders):
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
            if name in there or pod is None or claim is None or set(claim.cards) != set(given.cards):
                continue
            if entry.container in _running(pod.object):
                log.info("tenant-again tenant=%s pod=%s/%s", name, pod.namespace, pod.name)
                await self._daemon.register(_tenant(claim, name))

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


def _tenant(claim: Claim, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "request": claim.request / WHOLE,
        "limit": claim.limit / WHOLE,
        "memory_bytes": claim.memory,
        "latency": claim.latency,
        "gpus": list(claim.cards),
    }


def _statuses(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _running(pod: Mapping[str, Any]) -> set[str]:
    return {one.get("name", "") for one in _statuses(pod) if "running" in (one.get("state") or {})}
