"""What the webhook was told: whose pods it reads, what it puts into them, what it admits.

Pure data, which reviews (review.py) and patches (patch.py) are made by.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from gemini.kube import names
from gemini.kube.scope import DEFAULT_SCHEDULER, Reading, read_part
from gemini.kube.spelling import MEBI

# What well-known injectors call the containers that they add, before us or after.
SIDECARS = frozenset({
    "istio-proxy", "istio-init", "istio-validation", "linkerd-proxy", "linkerd-init", "linkerd-network-validator",
    "vault-agent", "vault-agent-init", "consul-dataplane", "consul-connect-inject-init", "kuma-sidecar", "kuma-init",
    "daprd", "cloud-sql-proxy", "gke-gcsfuse-sidecar", "nginx-mesh-sidecar",
})  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """`scheduler`: the name that sharepods get; None: the extender stands behind the default scheduler."""

    scheduler: str | None = None
    types: frozenset[str] = names.DEVICE_TYPES
    library: str = names.LIBRARY_PATH
    socket: str = names.SOCKET_PATH
    binders: frozenset[str] = frozenset()  # user names that may bind sharepods
    gpushare_unit: str = MEBI  # of one aliyun.com/gpu-mem, where the pod does not say
    allowed: frozenset[str] = frozenset()  # of escapes.ALLOWANCES
    by_cdi: bool = False  # cards come as CDI devices, whatever the environment says
    sidecars: frozenset[str] = SIDECARS  # containers that a share of the whole pod does not mean
    reading: Reading = field(default_factory=Reading)  # which spellings are read of which pods

    @property
    def schedulers(self) -> tuple[str, ...]:
        """Those that a sharepod may name."""
        return (self.scheduler or DEFAULT_SCHEDULER, DEFAULT_SCHEDULER)

    def opted_in(self) -> Settings:
        """The same for namespaces that opted in to the spellings of others."""
        read = self.reading.spellings | self.reading.opted
        return replace(self, reading=replace(self.reading, spellings=read))

    def part(self, pod: object) -> Any:
        return read_part(pod, self.reading, self.schedulers)
