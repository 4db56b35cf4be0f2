"""The device plugin's half of the kubelet's gRPC: its calls given to service.py, slots listed, registration.

A kubelet that starts again knows nobody: it is registered with again, on a fresh socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc

from gemini.kube.kubelet_api import HEALTHY, UNHEALTHY, v1beta1
from gemini.plugin.kubelet import Kubelet, listen
from gemini.plugin.placed import PlacedService
from gemini.plugin.service import Service
from gemini.plugin.slots import slot_id
from gemini.plugin.view import Refusal

TRY_AGAIN_SECONDS = 1.0
log = logging.getLogger("gemini.plugin")


class Plugin:
    """What the kubelet calls: gRPC to Service and back, and the list of slots."""

    def __init__(self, service: Service | PlacedService) -> None:
        self.service = service
        self.options = v1beta1.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        service.view.changed = self.change

    def change(self) -> None:
        """Every open list is sent anew."""
        old, self._changed = self._changed, asyncio.Event()
        old.set()

    def end_lists(self) -> None:
        self._ended.set()
        self.change()

    def begin(self) -> None:
        self._ended.clear()

    def slots(self) -> Any:
        reply_ = v1beta1.ListAndWatchResponse()
        for card in self.service.view.cards.values():
            health = HEALTHY if card.health else UNHEALTHY
            for number in range(self.service.view.kind.count(card)):
                device = reply_.devices.add(ID=slot_id(card.uuid, number), health=health)
                if card.numa is not None:
                    device.topology.nodes.add(ID=card.numa)
        return reply_

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        return self.options

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        while not self._ended.is_set():
            changed = self._changed
            yield self.slots()
            await changed.wait()

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:
        answer = v1beta1.PreferredAllocationResponse()
        for asked in request.container_requests:
            try:
                chosen = await self.service.prefer(
                    asked.available_deviceIDs, asked.must_include_deviceIDs, asked.allocation_size
                )
            except Refusal as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    async def Allocate(self, request: Any, context: Any) -> Any:
        answer = v1beta1.AllocateResponse()
        for asked in request.container_requests:
            try:
                answer.container_responses.append(await self.service.allocate(asked.devices_ids))
            except Refusal as error:
                log.error("allocate refused=%s", error)
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return answer

    async def PreStartContainer(self, request: Any, context: Any) -> Any:
        try:
            await self.service.start(request.devices_ids)
        except Refusal as error:
            log.error("start refused=%s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return v1beta1.PreStartContainerResponse()


class Shell:
    """Serves a Plugin to whichever kubelet runs. `registered` tells whether the one that runs now knows us."""

    def __init__(self, plugin: Plugin, kubelet: Kubelet) -> None:
        self.plugin, self.kubelet = plugin, kubelet
        self.registered = asyncio.Event()
        self.socket = kubelet.folder / f"gemini-{plugin.service.view.kind.resource.replace('/', '_')}.sock"
        self._server: Any = None
        self._known: tuple[int, int, int] | None = None

    async def run(self) -> None:
        async for _ in self.kubelet.changes():
            while not await self._look():
                await asyncio.sleep(TRY_AGAIN_SECONDS)

    async def _look(self) -> bool:
        """Whether all is well, or there is no kubelet to be registered with."""
        now = self.kubelet.stamp()
        if now is not None and now == self._known and self.socket.exists():
            return True
        self.registered.clear()
        self._known = None
        if now is None:
            return True
        try:
            await self._serve()
            await self.kubelet.register(self.socket.name, self.plugin.service.view.kind.resource, self.plugin.options)
        except OSError as error:
            log.warning("register error=%s", error)
            return False
        self._known = now
        self.registered.set()
        log.info("registered resource=%s socket=%s", self.plugin.service.view.kind.resource, self.socket)
        return True

    async def _serve(self) -> None:
        await self.stop()
        self.plugin.begin()
        self._server = await listen(self.socket, "v1beta1.DevicePlugin", self.plugin)

    async def stop(self) -> None:
        if self._server is not None:
            self.plugin.end_lists()
            await self._server.stop(0.2)
            self._server = None
