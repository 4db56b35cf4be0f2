"""HAMi beside us: its real scheduler, which is an extender and a webhook, and a device plugin that keeps its protocol.

The plugin is a stand-in, for HAMi's own wants NVIDIA's driver. It says on the node what cards there are, as HAMi's
scheduler reads it, takes a bound pod's cards from the annotation by which that scheduler gave them, and replies with
the environment and mounts of HAMi's. Volcano's, which was made of it, does so in words of its own. NVIDIA's runtime,
which would show the container these cards alone, is missing too: the simulated driver is told by CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from gemini.kube.kubelet_api import HEALTHY, KUBELET_SOCKET, VERSION, handlers, stub, v1beta1
from tests.e2e.api import ApiError, Object
from tests.e2e.node import Node
from tests.e2e.plane import Plane, scheduler_configuration
from tests.e2e.process import free_port

NAME = "hami-scheduler"
GPU, CORES, MEMORY = "nvidia.com/gpu", "nvidia.com/gpucores", "nvidia.com/gpumem"
SPLIT, MIB = 10, 81_920  # tenants of a card at most, and its memory, as HAMi's plugin would say them
REPORT_SECONDS = 10.0  # HAMi's scheduler takes a node's cards for gone after a minute without a word


@dataclass(frozen=True)
class Words:
    """The resource that counts cards, and the annotations by which scheduler and device plugin tell each other."""

    number: str
    card: str  # one of a node, to be filled in
    cards: str
    handshake: str
    to_allocate: str
    phase: str
    lock: str  # of a node, while a pod is bound to it


WORDS = Words(
    GPU, f"{{uuid}},{SPLIT},{MIB},100,NVIDIA-NVIDIA H200,0,true:", "hami.io/node-nvidia-register",
    "hami.io/node-handshake", "hami.io/vgpu-devices-to-allocate", "hami.io/bind-phase", "hami.io/mutex.lock",
)  # fmt: skip


@contextlib.contextmanager
def hami_scheduler(plane: Plane, program: Path) -> Iterator[None]:
    """HAMi's extender and webhook, and a kube-scheduler of that name which asks them, as its chart has it."""
    port, metrics = free_port(), free_port()
    pair = plane.authority.issue("hami", hosts=("127.0.0.1",))
    kubeconfig = {"KUBECONFIG": str(plane.kubeconfig("hami", ("system:masters",)))}
    command = [
        program, f"--http_bind=127.0.0.1:{port}", f"--cert_file={pair.certificate}", f"--key_file={pair.key}",
        f"--scheduler-name={NAME}", f"--metrics-bind-address=127.0.0.1:{metrics}",
    ]  # fmt: skip
    url = f"https://127.0.0.1:{port}"
    managed = [{"name": name, "ignoredByScheduler": True} for name in (GPU, MEMORY, CORES)]
    entry = {
        "urlPrefix": url, "filterVerb": "filter", "bindVerb": "bind", "weight": 1, "nodeCacheCapable": True,
        "enableHTTPS": True, "tlsConfig": {"insecure": True}, "managedResources": managed,
    }  # fmt: skip
    configuration = scheduler_configuration([entry], profiles=[{"schedulerName": NAME}])
    with (
        plane.running("hami", command, environment=kubeconfig, ready_url=f"{url}/healthz"),
        plane.webhook("z-hami", f"{url}/webhook"),
        plane.scheduler(configuration, NAME),
    ):
        yield


class HamiPlugin:
    """HAMi's device plugin, as far as scheduler and kubelet see it. `uuids`: the node's cards."""

    def __init__(self, plane: Plane, node: Node, uuids: Sequence[str], words: Words = WORDS) -> None:
        self._plane, self._node, self._uuids, self._words = plane, node, list(uuids), words
        self._folder = node.kubelet_folder / "device-plugins"
        self._socket, self._ended, self._lock = self._folder / "hami.sock", threading.Event(), threading.Lock()
        self._options = v1beta1.DevicePluginOptions()
        self.preload = node.folder / "hami.preload"  # on the host, what HAMi mounts as /etc/ld.so.preload
        self.preload.touch()

    def __enter__(self) -> HamiPlugin:
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers([handlers("v1beta1.DevicePlugin", self)])
        self._socket.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix://{self._socket}")
        self._server.start()
        request = v1beta1.RegisterRequest(
            version=VERSION, endpoint=self._socket.name, resource_name=self._words.number, options=self._options
        )
        with grpc.insecure_channel(f"unix://{self._folder / KUBELET_SOCKET}") as channel:
            stub(channel, "v1beta1.Registration").Register(request, timeout=60, wait_for_ready=True)
        self._reporting = threading.Thread(target=self._report, daemon=True)
        self._reporting.start()
        self._node.wait_capacity(self._words.number, SPLIT * len(self._uuids))
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._reporting.join()
        self._server.stop(0).wait()

    def _report(self) -> None:
        words = self._words
        cards = "".join(words.card.format(uuid=uuid) for uuid in self._uuids)
        while True:
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
            said = {words.handshake: f"Reported {now}", words.cards: cards}
            with contextlib.suppress(ApiError, OSError):
                self._annotate(f"/api/v1/nodes/{self._node.name}", said)
            if self._ended.wait(REPORT_SECONDS):
                return

    def _annotate(self, path: str, annotations: dict[str, str | None]) -> None:
        self._plane.api.patch(path, {"metadata": {"annotations": annotations}})

    # -- what the kubelet calls

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        return self._options

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:
        ids = [f"{uuid}-{number}" for uuid in self._uuids for number in range(SPLIT)]
        yield v1beta1.ListAndWatchResponse(devices=[v1beta1.Device(ID=one, health=HEALTHY) for one in ids])
        self._ended.wait()

    def GetPreferredAllocation(self, request: Any, context: Any) -> Any:
        return v1beta1.PreferredAllocationResponse()

    def PreStartContainer(self, request: Any, context: Any) -> Any:
        return v1beta1.PreStartContainerResponse()

    def Allocate(self, request: Any, context: Any) -> Any:
        with self._lock:
            return v1beta1.AllocateResponse(container_responses=[self._next() for _ in request.container_requests])

    def _next(self) -> Any:
        """The reply for the next container of the pod that the scheduler has just bound here."""
        words = self._words
        selected = {"fieldSelector": f"spec.nodeName={self._node.name}"}
        pods = self._plane.api.get("/api/v1/pods", **selected)["items"]
        (pod,) = (one for one in pods if one["metadata"].get("annotations", {}).get(words.phase) == "allocating")
        containers = pod["metadata"]["annotations"][words.to_allocate].split(";")
        index = next(i for i, text in enumerate(containers) if text)
        cards = [text.split(",") for text in containers[index].split(":") if text]
        containers[index] = ""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        done = {} if any(containers) else {words.phase: "success"}
        self._annotate(path, {words.to_allocate: ";".join(containers), **done})
        if done:
            self._annotate(f"/api/v1/nodes/{self._node.name}", {words.lock: None})
        return self._reply(cards, pod["spec"]["containers"][index])

    def _reply(self, cards: list[list[str]], container: Object) -> Any:
        visible = ",".join(card[0] for card in cards)
        reply = v1beta1.ContainerAllocateResponse()
        reply.envs.update({"NVIDIA_VISIBLE_DEVICES": visible, "CUDA_VISIBLE_DEVICES": visible})
        reply.envs.update({f"CUDA_DEVICE_MEMORY_LIMIT_{i}": f"{memory}m" for i, (*_, memory, _) in enumerate(cards)})
        reply.envs["CUDA_DEVICE_SM_LIMIT"] = cards[0][3]
        env = {one["name"]: one.get("value") for one in container.get("env") or ()}
        if env.get("CUDA_DISABLE_CONTROL") != "true":
            reply.mounts.add(container_path="/etc/ld.so.preload", host_path=str(self.preload), read_only=True)
        return reply
