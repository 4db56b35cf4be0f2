"""Binding a container to the cores that are nearest to its card, before a process of it runs elsewhere.

Which cores those are cores.py says; the cgroups are host.py's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from gemini.plugin.claims import Claim, PodClaims
from gemini.plugin.cores import nearest, parse_cpus
from gemini.plugin.host import CannotBind, Host
from gemini.plugin.slots import Card

log = logging.getLogger("gemini.plugin")


class Binding:
    """`soon` does something in the background."""

    def __init__(self, host: Host, soon: Callable[[Awaitable[None]], None]) -> None:
        self._host, self._soon = host, soon
        self._bound: dict[str, set[int]] = {}  # tenant -> cores

    def forget(self, tenant: str) -> None:
        self._bound.pop(tenant, None)

    async def bind(self, pod: PodClaims, claim: Claim, tenant: str, card: Card | None) -> None:
        """Raises CannotBind, ValueError."""
        group = self._host.pod_cgroup(pod.uid)
        near: set[int] = set()
        if card is not None:
            near = parse_cpus(card.cpus) if card.cpus else set()
            if not near and card.numa is not None:
                near = self._host.cores_of_node(card.numa)
        load = Counter(core for cores in self._bound.values() for core in cores)
        cores = self._host.bound(group)  # by us, before this start of the container
        if len(cores) != claim.cpu_bind:
            cores = self._bound.get(tenant) or nearest(claim.cpu_bind, self._host.allowed(group), near, load)
        self._bound[tenant] = cores
        assert pod.spec is not None
        if all(one.cpu_bind == claim.cpu_bind for one in pod.spec.containers) and len(pod.spec.ask.tenants) == 1:
            self._host.bind(group, cores)  # before the container is made: no process of it ever runs elsewhere
        else:
            self._soon(self._bind_next(group, self._host.containers(group), cores))

    async def _bind_next(self, group: Any, before: set[Any], cores: set[int]) -> None:
        """The container that is made next in the pod's cgroup: the one whose start we were asked about."""
        for _ in range(12_000):  # a minute
            if fresh := self._host.containers(group) - before:
                for one in fresh:
                    try:
                        self._host.bind(one, cores)
                    except CannotBind as error:
                        log.error("cpu-bind error=%s", error)
                return
            await asyncio.sleep(0.005)
