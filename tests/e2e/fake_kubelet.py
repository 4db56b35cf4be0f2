"""A kubelet without containers: it speaks the real device-plugin gRPC and admits pods in whatever order a test wants.

What it keeps of the real one (pkg/kubelet/cm/devicemanager of 1.36, topology manager "none"), for plugins lean on it:
- Registration connects back to the plugin's socket before it answers; then ListAndWatch runs until it breaks, which
  makes the devices unhealthy until the plugin registers again.
- A start of the kubelet removes every socket in the plugin folder, so plugins must notice and come back. Allocations
  survive, by the checkpoint file, in the kubelet's own format (all but the checksum, which is 0).
- Devices of a container: first what init containers of the pod held, then the plugin's preference among the healthy and
  free, then any of these: here picked by a seeded random generator, as Go's map order would. One Allocate for each
  container and resource, never a second one for a container that has its devices.
- PreStartContainer, where the plugin asked for it, before each start of a container. Devices of a pod are free once the
  pod is removed. PodResources v1 tells who holds what.

It never looks at annotations: which pod a device ends up with is the kubelet's own decision, as in life.
"""

from __future__ import annotations

import base64
import json
import random
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from gemini.kube.kubelet_api import HEALTHY, KUBELET_SOCKET, VERSION, handlers, stub, v1, v1beta1

CHECKPOINT = "kubelet_internal_checkpoint"
CALL_SECONDS = 60.0
CONNECT_SECONDS = 60.0


class AdmissionError(AssertionError):
    """The pod would have ended as UnexpectedAdmissionError."""


@dataclass
class Held:
    """What one container got of one resource."""

    devices: frozenset[str]
    reply: Any  # ContainerAllocateResponse


@dataclass
class Endpoint:
    """A registered plugin. Devices are what its ListAndWatch said last; none when it broke."""

    options: Any
    channel: Any
    plugin: Any
    devices: dict[str, Any] = field(default_factory=dict)
    listing: Any = None

    @property
    def healthy(self) -> set[str]:
        return {name for name, device in self.devices.items() if device.health == HEALTHY}


class FakeKubelet:
    """`root` stands for /var/lib/kubelet: `device-plugins` and `pod-resources` are made in it. Use as a context."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.plugin_folder = root / "device-plugins"
        self.pod_resources_socket = root / "pod-resources" / KUBELET_SOCKET
        self.plugin_folder.mkdir(parents=True, exist_ok=True)
        self.pod_resources_socket.parent.mkdir(exist_ok=True)
        self._random = random.Random(seed)
        self._changed = threading.Condition(threading.RLock())  # guards all below; notified at every change of devices
        self._endpoints: dict[str, Endpoint] = {}
        self._pods: dict[str, Mapping[str, Any]] = {}  # uid -> the pod, in order of admission
        self._held: dict[tuple[str, str], dict[str, Held]] = {}  # (uid, container) -> resource -> what it has
        self._known: set[str] = set()  # resources that some plugin ever registered; survives restarts
        self._admitting = threading.Lock()  # the real one admits one pod after the other

    # -- up and down

    def __enter__(self) -> FakeKubelet:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        for left in self.plugin_folder.iterdir():
            if left.name != CHECKPOINT:
                left.unlink()
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers([handlers("v1beta1.Registration", self)])
        self._server.add_insecure_port(f"unix://{self.plugin_folder / KUBELET_SOCKET}")
        self._listing = grpc.server(ThreadPoolExecutor(4))
        self._listing.add_generic_rpc_handlers([handlers("v1.PodResourcesLister", self)])
        self.pod_resources_socket.unlink(missing_ok=True)
        self._listing.add_insecure_port(f"unix://{self.pod_resources_socket}")
        self._server.start()
        self._listing.start()

    def stop(self) -> None:
        self._server.stop(0).wait()
        self._listing.stop(0).wait()
        with self._changed:
            gone, self._endpoints = self._endpoints, {}
        for endpoint in gone.values():
            endpoint.channel.close()

    def restart(self) -> None:
        """Ends and starts again: plugins lose their streams and sockets, the record comes back from the checkpoint."""
        self.stop()
        with self._changed:
            self._held, self._known = self._read_checkpoint()
        self.start()

    # -- what plugins and readers call

    def Register(self, request: Any, context: Any) -> Any:
        if request.version != VERSION:
            context.abort(grpc.StatusCode.UNKNOWN, f"requested API version {request.version!r} is not supported")
        if "/" not in request.resource_name:
            context.abort(grpc.StatusCode.UNKNOWN, f"the ResourceName {request.resource_name!r} is invalid")
        channel = grpc.insecure_channel(
            f"unix://{self.plugin_folder / request.endpoint}", options=[("grpc.max_receive_message_length", 4 << 20)]
        )
        try:
            grpc.channel_ready_future(channel).result(CONNECT_SECONDS)
        except grpc.FutureTimeoutError:
            channel.close()
            context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin {request.endpoint}")
        options = v1beta1.DevicePluginOptions()
        options.CopyFrom(request.options)
        endpoint = Endpoint(options, channel, stub(channel, "v1beta1.DevicePlugin"))
        with self._changed:
            replaced = self._endpoints.get(request.resource_name)
            self._endpoints[request.resource_name] = endpoint
            self._known.add(request.resource_name)
        if replaced:
            replaced.channel.close()
        threading.Thread(target=self._follow, args=(endpoint,), daemon=True).start()
        return v1beta1.Empty()

    def _follow(self, endpoint: Endpoint) -> None:
        try:
            for said in endpoint.plugin.ListAndWatch(v1beta1.Empty()):
                with self._changed:
                    endpoint.devices = {device.ID: device for device in said.devices}
                    self._write_checkpoint()
                    self._changed.notify_all()
        except (grpc.RpcError, ValueError):  # broken, or its channel closed by us
            pass
        with self._changed:
            endpoint.devices = {}
            self._changed.notify_all()

    def List(self, request: Any, context: Any) -> Any:
        with self._changed:
            return v1.ListPodResourcesResponse(pod_resources=[self._resources(uid) for uid in self._pods])

    def Get(self, request: Any, context: Any) -> Any:
        wanted = (request.pod_namespace, request.pod_name)
        with self._changed:
            for uid, pod in self._pods.items():
                if _name(pod) == wanted:
                    return v1.GetPodResourcesResponse(pod_resources=self._resources(uid))
        return context.abort(grpc.StatusCode.UNKNOWN, f"pod {wanted[1]} in namespace {wanted[0]} not found")

    def GetAllocatableResources(self, request: Any, context: Any) -> Any:
        with self._changed:
            return v1.AllocatableResourcesResponse(
                devices=[
                    v1.ContainerDevices(resource_name=resource, device_ids=[name], topology=_topology(device))
                    for resource, endpoint in self._endpoints.items()
                    for name, device in endpoint.devices.items()
                ]
            )

    # -- what tests call

    def wait_devices(self, resource: str, healthy: int, seconds: float = 60.0) -> set[str]:
        """The healthy devices of `resource`, once there are exactly so many; by the plugin's own messages."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._healthy(resource)) == healthy, seconds):
                has = len(self._healthy(resource))
                raise AssertionError(f"{resource}: {has} healthy devices after {seconds:g} s, not {healthy}")
            return self._healthy(resource)

    def devices(self, resource: str) -> dict[str, Any]:
        with self._changed:
            return dict(self._endpoints[resource].devices) if resource in self._endpoints else {}

    def offered(self) -> list[tuple[str, set[str], set[str]]]:
        """Each resource that was ever registered, with its devices and the healthy ones of them."""
        with self._changed:
            return [(name, set(self.devices(name)), set(self._healthy(name))) for name in sorted(self._known)]

    def admit(self, pod: Mapping[str, Any], start: bool = True) -> dict[str, dict[str, Held]]:
        """Allocates for every container of `pod` (a dict as the API has it), and starts them; what each one holds."""
        uid = pod["metadata"]["uid"]
        with self._admitting:
            with self._changed:
                self._pods[uid] = pod
            try:
                self._allocate_pod(uid, pod["spec"])
            except AdmissionError:
                self.remove(uid)
                raise
        names = [container["name"] for container in _containers(pod["spec"])]
        if start:
            for name in names:
                self.start_container(uid, name)
        return {name: self.held(uid, name) for name in names}

    def start_container(self, uid: str, container: str) -> None:
        """What precedes every start and restart of a container."""
        for resource, held in self.held(uid, container).items():
            with self._changed:
                endpoint = self._endpoints.get(resource)
            if endpoint is None:
                raise AdmissionError(f"{resource}: no plugin to call before {container} starts")
            if endpoint.options.pre_start_required:
                request = v1beta1.PreStartContainerRequest(devices_ids=sorted(held.devices))
                _call(endpoint.plugin.PreStartContainer, request)

    def remove(self, uid: str) -> None:
        """The pod is gone, with its containers: its devices are free."""
        with self._changed:
            self._pods.pop(uid, None)
            for key in [key for key in self._held if key[0] == uid]:
                del self._held[key]
            self._write_checkpoint()

    def held(self, uid: str, container: str) -> dict[str, Held]:
        with self._changed:
            return dict(self._held.get((uid, container), {}))

    def env(self, uid: str, container: str) -> dict[str, str]:
        """The environment that the plugins gave the container."""
        return {name: value for held in self.held(uid, container).values() for name, value in held.reply.envs.items()}

    # -- the device manager

    def _healthy(self, resource: str) -> set[str]:
        endpoint = self._endpoints.get(resource)
        return endpoint.healthy if endpoint else set()

    def _allocate_pod(self, uid: str, spec: Mapping[str, Any]) -> None:
        reusable: dict[str, set[str]] = {}
        init = {container["name"] for container in spec.get("initContainers") or []}
        for container in _containers(spec):
            name = container["name"]
            for resource, amount in (container.get("resources", {}).get("limits") or {}).items():
                if resource in self._known and int(amount):
                    self._allocate(uid, name, resource, int(amount), reusable.get(resource, set()))
            for resource, held in self.held(uid, name).items():
                if name in init and container.get("restartPolicy") != "Always":
                    reusable.setdefault(resource, set()).update(held.devices)
                else:
                    reusable.setdefault(resource, set()).difference_update(held.devices)

    def _allocate(self, uid: str, container: str, resource: str, amount: int, reusable: set[str]) -> None:
        where = f"{container}: {resource}"
        with self._changed:
            if resource in self._held.get((uid, container), {}):
                return
            endpoint = self._endpoints.get(resource)
            if endpoint is None or not endpoint.healthy:
                raise AdmissionError(f"{where}: no healthy devices present")
            in_use = {one for held in self._held.values() if resource in held for one in held[resource].devices}
            free = endpoint.healthy - in_use
        chosen = set(self._some(reusable, amount))
        needed = amount - len(chosen)
        if len(free) < needed:
            raise AdmissionError(f"{where}: requested number of devices unavailable, {needed} of {len(free)}")
        if needed:
            preferred = self._preferred(endpoint, free | chosen, chosen, amount) & free
            chosen |= set(self._some(preferred, needed))
            chosen |= set(self._some(free - chosen, amount - len(chosen)))
        order = self._some(chosen, len(chosen))
        request = v1beta1.AllocateRequest(container_requests=[v1beta1.ContainerAllocateRequest(devices_ids=order)])
        reply = _call(endpoint.plugin.Allocate, request)
        if not reply.container_responses:
            raise AdmissionError(f"{where}: no containers return in allocation response")
        with self._changed:
            held = Held(frozenset(chosen), reply.container_responses[0])
            self._held.setdefault((uid, container), {})[resource] = held
            self._write_checkpoint()

    def _preferred(self, endpoint: Endpoint, available: set[str], must: set[str], amount: int) -> set[str]:
        if not endpoint.options.get_preferred_allocation_available:
            return set()
        asked = v1beta1.ContainerPreferredAllocationRequest(
            available_deviceIDs=self._some(available, len(available)),
            must_include_deviceIDs=self._some(must, len(must)),
            allocation_size=amount,
        )
        request = v1beta1.PreferredAllocationRequest(container_requests=[asked])
        reply = _call(endpoint.plugin.GetPreferredAllocation, request)
        return set(reply.container_responses[0].deviceIDs) if reply.container_responses else set()

    def _some(self, names: set[str], count: int) -> list[str]:
        """Any `count` of the names (all, if there are fewer), in any order: Go ranges over a set."""
        return self._random.sample(sorted(names), min(count, len(names)))

    def _resources(self, uid: str) -> Any:
        namespace, name = _name(self._pods[uid])
        containers = []
        for container in _containers(self._pods[uid]["spec"]):
            held = self._held.get((uid, container["name"]), {})
            devices = [v1.ContainerDevices(resource_name=r, device_ids=sorted(h.devices)) for r, h in held.items()]
            containers.append(v1.ContainerResources(name=container["name"], devices=devices))
        return v1.PodResources(name=name, namespace=namespace, containers=containers)

    # -- the checkpoint: the real one's format

    def _write_checkpoint(self) -> None:
        entries = [
            {
                "PodUID": uid,
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": self._by_numa(resource, held.devices),
                "AllocResp": base64.b64encode(held.reply.SerializeToString()).decode(),
            }
            for (uid, container), resources in self._held.items()
            for resource, held in resources.items()
        ]
        registered = {resource: sorted(self._healthy(resource)) for resource in sorted(self._known)}
        text = json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": 0})
        fresh = self.plugin_folder.parent / f".{CHECKPOINT}"
        fresh.write_text(text)
        fresh.rename(self.plugin_folder / CHECKPOINT)

    def _by_numa(self, resource: str, names: frozenset[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        endpoint = self._endpoints.get(resource)
        for name in sorted(names):
            device = endpoint.devices.get(name) if endpoint else None
            for numa in [node.ID for node in device.topology.nodes] if device and device.topology.nodes else [-1]:
                found.setdefault(str(numa), []).append(name)
        return found

    def _read_checkpoint(self) -> tuple[dict[tuple[str, str], dict[str, Held]], set[str]]:
        path = self.plugin_folder / CHECKPOINT
        if not path.exists():
            return {}, set()
        text = json.loads(path.read_text())["Data"]
        held: dict[tuple[str, str], dict[str, Held]] = {}
        for entry in text["PodDeviceEntries"]:
            reply = v1beta1.ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"]))
            devices = frozenset(name for names in entry["DeviceIDs"].values() for name in names)
            held.setdefault((entry["PodUID"], entry["ContainerName"]), {})[entry["ResourceName"]] = Held(devices, reply)
        return held, set(text["RegisteredDevices"])


def _call(method: Any, request: Any) -> Any:
    try:
        return method(request, timeout=CALL_SECONDS)
    except grpc.RpcError as why:
        raise AdmissionError(f"rpc error: code = {why.code().name} desc = {why.details()}") from None


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(spec.get("initContainers") or []), *spec["containers"]]


def _name(pod: Mapping[str, Any]) -> tuple[str, str]:
    return pod["metadata"].get("namespace", "default"), pod["metadata"]["name"]


def _topology(device: Any) -> Any:
    return v1.TopologyInfo(nodes=[v1.NUMANode(ID=node.ID) for node in device.topology.nodes])
