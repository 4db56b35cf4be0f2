"""The DRA kubelet plugin's sockets: one by which the kubelet finds it, one for the claims' verbs; gRPC to Claims.

A kubelet looks for sockets in its registry folder, when one appears and when it starts, asks who is there, and calls
the plugin's own socket from then on. So nothing is to be done when the kubelet starts again. The socket in the registry
appears last and goes first.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from gemini.kube import names
from gemini.kube.kubelet_api import DRA, DRA_PLUGIN, DRA_SERVICE, dra, registration
from gemini.plugin import prepared
from gemini.plugin.dra import Claims, Named
from gemini.plugin.kubelet import listen
from gemini.plugin.prepared import CannotPrepare

log = logging.getLogger("gemini.plugin")


class DraServer:
    """`registry`: the kubelet's folder; `folder`: of our own socket, as the kubelet sees it too."""

    def __init__(self, claims: Claims, registry: Path, folder: Path) -> None:
        self.claims = claims
        self.registered = asyncio.Event()
        self.socket, self._entry = folder / "dra.sock", registry / f"{names.DRIVER}-reg.sock"
        self._servers: list[Any] = []

    async def start(self) -> None:
        """Raises OSError."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        for socket, service in ((self.socket, f"{DRA}.DRAPlugin"), (self._entry, "pluginregistration.Registration")):
            self._servers.append(await listen(socket, service, self))

    async def stop(self) -> None:
        if self._servers:  # else the sockets there are another's
            self._entry.unlink(missing_ok=True)
        while self._servers:
            await self._servers.pop().stop(0.2)

    # ---- registration

    async def GetInfo(self, request: Any, context: Any) -> Any:
        return registration.PluginInfo(
            type=DRA_PLUGIN, name=names.DRIVER, endpoint=str(self.socket), supported_versions=[DRA_SERVICE]
        )

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:
        if request.plugin_registered:
            self.registered.set()
            log.info("registered driver=%s socket=%s", names.DRIVER, self.socket)
        else:
            self.registered.clear()
            log.error("the kubelet refuses driver=%s error=%s", names.DRIVER, request.error)
        return registration.RegistrationStatusResponse()

    # ---- claims

    async def NodePrepareResources(self, request: Any, context: Any) -> Any:
        answer = dra.NodePrepareResourcesResponse()
        for asked in request.claims:
            entry = answer.claims[asked.uid]
            try:
                ready = await self.claims.prepare(Named(asked.namespace, asked.name, asked.uid))
            except CannotPrepare as error:
                log.error("prepare claim=%s/%s refused=%s", asked.namespace, asked.name, error)
                entry.error = f"claim {asked.namespace}/{asked.name}: {error}"
                continue
            for one in ready.results:
                entry.devices.add(
                    request_names=[one.request], pool_name=one.pool, device_name=one.device, share_id=one.share,
                    cdi_device_ids=prepared.cdi_names(ready, self.claims.options),
                )  # fmt: skip
        return answer

    async def NodeUnprepareResources(self, request: Any, context: Any) -> Any:
        answer = dra.NodeUnprepareResourcesResponse()
        for asked in request.claims:
            entry = answer.claims[asked.uid]
            entry.SetInParent()  # every claim has an entry, an empty one where all is well
            try:
                await self.claims.unprepare(Named(asked.namespace, asked.name, asked.uid))
            except CannotPrepare as error:
                log.error("unprepare claim=%s/%s refused=%s", asked.namespace, asked.name, error)
                entry.error = f"claim {asked.namespace}/{asked.name}: {error}"
        return answer
