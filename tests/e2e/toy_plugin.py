"""A device plugin that is nothing but its wire: cards of a toy resource, and a record of what the kubelet asked.

Used to prove the fake kubelet and the real one alike; `python -m tests.e2e.toy_plugin FOLDER` serves
until it is told to end.
"""

from __future__ import annotations

import queue
import signal
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from gemini.kube.kubelet_api import HEALTHY, KUBELET_SOCKET, UNHEALTHY, VERSION, handlers, stub, v1beta1

RESOURCE = "toy.gemini.io/card"


class ToyPlugin:
    def __init__(self, folder: Path, cards: Iterable[str], resource: str = RESOURCE, prefers: bool = True) -> None:
        self.folder, self.resource = folder, resource
        self.health = dict.fromkeys(cards, HEALTHY)
        self.calls: list[tuple[str, list[str]]] = []
        self.refuse_allocate = ""
        self.environment: dict[str, str] = {}  # besides TOY_CARDS
        self._options = v1beta1.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=prefers)
        self._watchers: list[queue.SimpleQueue[bool]] = []
        self._server: Any = None
        self._socket = folder / f"{resource.replace('/', '_')}.sock"

    # -- up and down

    def start(self) -> None:
        """Serves; again after a restart of the kubelet, which has removed the socket."""
        if self._server:
            self.stop()
        self._socket.unlink(missing_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers([handlers("v1beta1.DevicePlugin", self)])
        self._server.add_insecure_port(f"unix://{self._socket}")
        self._server.start()

    def register(self, version: str = VERSION) -> None:
        request = v1beta1.RegisterRequest(
            version=version, endpoint=self._socket.name, resource_name=self.resource, options=self._options
        )
        with grpc.insecure_channel(f"unix://{self.folder / KUBELET_SOCKET}") as channel:
            stub(channel, "v1beta1.Registration").Register(request, timeout=60, wait_for_ready=True)

    def stop(self) -> None:
        for watcher in self._watchers:
            watcher.put(False)
        self._server.stop(0).wait()

    def set_health(self, card: str, healthy: bool) -> None:
        self.health[card] = HEALTHY if healthy else UNHEALTHY
        for watcher in self._watchers:
            watcher.put(True)

    # -- what the kubelet calls

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        return self._options

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:
        changed: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._watchers.append(changed)
        context.add_callback(lambda: changed.put(False))
        going_on = True
        while going_on:
            yield v1beta1.ListAndWatchResponse(
                devices=[v1beta1.Device(ID=card, health=health) for card, health in self.health.items()]
            )
            going_on = changed.get()
        self._watchers.remove(changed)

    def GetPreferredAllocation(self, request: Any, context: Any) -> Any:
        replies = []
        for asked in request.container_requests:
            self.calls.append(("prefer", list(asked.available_deviceIDs)))
            must = list(asked.must_include_deviceIDs)
            others = [one for one in sorted(asked.available_deviceIDs, reverse=True) if one not in must]
            chosen = (must + others)[: asked.allocation_size]
            replies.append(v1beta1.ContainerPreferredAllocationResponse(deviceIDs=chosen))
        return v1beta1.PreferredAllocationResponse(container_responses=replies)

    def Allocate(self, request: Any, context: Any) -> Any:
        if self.refuse_allocate:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.refuse_allocate)
        replies = []
        for asked in request.container_requests:
            cards = list(asked.devices_ids)
            self.calls.append(("allocate", cards))
            mount = v1beta1.Mount(container_path="/toy", host_path=str(self.folder), read_only=True)
            replies.append(
                v1beta1.ContainerAllocateResponse(
                    envs={"TOY_CARDS": ",".join(sorted(cards)), **self.environment}, mounts=[mount]
                )
            )
        return v1beta1.AllocateResponse(container_responses=replies)

    def PreStartContainer(self, request: Any, context: Any) -> Any:
        self.calls.append(("start", list(request.devices_ids)))
        return v1beta1.PreStartContainerResponse()


def main() -> None:
    plugin = ToyPlugin(Path(sys.argv[1]), [f"card-{index}" for index in range(4)])
    plugin.start()
    plugin.register()
    signal.sigwait([signal.SIGTERM, signal.SIGINT])
    plugin.stop()


if __name__ == "__main__":
    main()
