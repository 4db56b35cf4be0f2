"""The kubelet's gRPC APIs, as message classes, stubs and handlers: device plugins (v1beta1), pod resources (v1),
registration of plugins that it finds by their sockets, and DRA (v1).

No I/O is done here. The messages are written down below in the few words that matter on the wire (field number, type,
name), as the public API has them (k8s.io/kubelet: pkg/apis/deviceplugin/v1beta1, podresources/v1, dra/v1 and
pluginregistration/v1). They become classes when this module is imported: no generated code, and no compiler of it. A
field is reached by its name there: `v1beta1.AllocateResponse().container_responses`. Both kinds of gRPC work, with
threads (grpc) and asyncio (grpc.aio):

    plugin = stub(channel, "v1beta1.DevicePlugin")
    reply = plugin.Allocate(v1beta1.AllocateRequest(), timeout=10)
    server.add_generic_rpc_handlers([handlers("v1beta1.Registration", servicer)])

How to add a message or a field: a line in the table. A field that is not listed is skipped when read, as protobuf does.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"  # whatever the kubelet's --root-dir says
KUBELET_SOCKET = "kubelet.sock"  # in that folder
POD_RESOURCES_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
REGISTRY_FOLDER = "/var/lib/kubelet/plugins_registry"  # where a kubelet looks for sockets of plugins that register
DRA_PLUGIN, DRA_SERVICE = "DRAPlugin", "v1.DRAPlugin"  # the type of plugin, and the service that it says it has
DRA = "k8s.io.kubelet.pkg.apis.dra.v1"

# One message a line: name, then `number type name`; `*` repeated, `map` string to string, `%` string to that type, a
# capital one of these.
_MESSAGES = {
    "v1beta1": """
        Empty
        DevicePluginOptions: 1 bool pre_start_required, 2 bool get_preferred_allocation_available
        RegisterRequest: 1 string version, 2 string endpoint, 3 string resource_name, 4 DevicePluginOptions options
        NUMANode: 1 int64 ID
        TopologyInfo: 1 *NUMANode nodes
        Device: 1 string ID, 2 string health, 3 TopologyInfo topology
        ListAndWatchResponse: 1 *Device devices
        PreStartContainerRequest: 1 *string devices_ids
        PreStartContainerResponse
        ContainerPreferredAllocationRequest: 1 *string available_deviceIDs, 2 *string must_include_deviceIDs, \
            3 int32 allocation_size
        PreferredAllocationRequest: 1 *ContainerPreferredAllocationRequest container_requests
        ContainerPreferredAllocationResponse: 1 *string deviceIDs
        PreferredAllocationResponse: 1 *ContainerPreferredAllocationResponse container_responses
        ContainerAllocateRequest: 1 *string devices_ids
        AllocateRequest: 1 *ContainerAllocateRequest container_requests
        Mount: 1 string container_path, 2 string host_path, 3 bool read_only
        DeviceSpec: 1 string container_path, 2 string host_path, 3 string permissions
        CDIDevice: 1 string name
        ContainerAllocateResponse: 1 map envs, 2 *Mount mounts, 3 *DeviceSpec devices, 4 map annotations, \
            5 *CDIDevice cdi_devices
        AllocateResponse: 1 *ContainerAllocateResponse container_responses
    """,
    "v1": """
        NUMANode: 1 int64 ID
        TopologyInfo: 1 *NUMANode nodes
        ContainerDevices: 1 string resource_name, 2 *string device_ids, 3 TopologyInfo topology
        ContainerMemory: 1 string memory_type, 2 uint64 size, 3 TopologyInfo topology
        CDIDevice: 1 string name
        ClaimResource: 1 *CDIDevice cdi_devices, 2 string driver_name, 3 string pool_name, 4 string device_name, \
            5 string share_id
        DynamicResource: 2 string claim_name, 3 string claim_namespace, 4 *ClaimResource claim_resources
        ContainerResources: 1 string name, 2 *ContainerDevices devices, 3 *int64 cpu_ids, \
            4 *ContainerMemory memory, 5 *DynamicResource dynamic_resources
        PodResources: 1 string name, 2 string namespace, 3 *ContainerResources containers
        ListPodResourcesRequest
        ListPodResourcesResponse: 1 *PodResources pod_resources
        AllocatableResourcesRequest
        AllocatableResourcesResponse: 1 *ContainerDevices devices, 2 *int64 cpu_ids, 3 *ContainerMemory memory
        GetPodResourcesRequest: 1 string pod_name, 2 string pod_namespace
        GetPodResourcesResponse: 1 PodResources pod_resources
    """,
    "pluginregistration": """
        InfoRequest
        PluginInfo: 1 string type, 2 string name, 3 string endpoint, 4 *string supported_versions
        RegistrationStatus: 1 bool plugin_registered, 2 string error
        RegistrationStatusResponse
    """,
    DRA: """
        Claim: 1 string namespace, 2 string uid, 3 string name
        Device: 1 *string request_names, 2 string pool_name, 3 string device_name, 4 *string cdi_device_ids, \
            5 string share_id
        NodePrepareResourcesRequest: 1 *Claim claims
        NodePrepareResourceResponse: 1 *Device devices, 2 string error
        NodePrepareResourcesResponse: 1 %NodePrepareResourceResponse claims
        NodeUnprepareResourcesRequest: 1 *Claim claims
        NodeUnprepareResourceResponse: 1 string error
        NodeUnprepareResourcesResponse: 1 %NodeUnprepareResourceResponse claims
    """,
}  # fmt: skip

# Service -> method -> (request, reply); `*` before the reply: a stream of them.
_SERVICES: dict[str, dict[str, tuple[str, str]]] = {
    "v1beta1.Registration": {"Register": ("RegisterRequest", "Empty")},
    "v1beta1.DevicePlugin": {
        "GetDevicePluginOptions": ("Empty", "DevicePluginOptions"),
        "ListAndWatch": ("Empty", "*ListAndWatchResponse"),
        "GetPreferredAllocation": ("PreferredAllocationRequest", "PreferredAllocationResponse"),
        "Allocate": ("AllocateRequest", "AllocateResponse"),
        "PreStartContainer": ("PreStartContainerRequest", "PreStartContainerResponse"),
    },
    "v1.PodResourcesLister": {
        "List": ("ListPodResourcesRequest", "ListPodResourcesResponse"),
        "GetAllocatableResources": ("AllocatableResourcesRequest", "AllocatableResourcesResponse"),
        "Get": ("GetPodResourcesRequest", "GetPodResourcesResponse"),
    },
    "pluginregistration.Registration": {
        "GetInfo": ("InfoRequest", "PluginInfo"),
        "NotifyRegistrationStatus": ("RegistrationStatus", "RegistrationStatusResponse"),
    },
    f"{DRA}.DRAPlugin": {
        "NodePrepareResources": ("NodePrepareResourcesRequest", "NodePrepareResourcesResponse"),
        "NodeUnprepareResources": ("NodeUnprepareResourcesRequest", "NodeUnprepareResourcesResponse"),
    },
}

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING, "bool": _Field.TYPE_BOOL, "int32": _Field.TYPE_INT32, "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
}  # fmt: skip
_FIELD = re.compile(r"(\d+) ([*%]?)(\w+) (\w+)")


def _declare_field(package: str, message: Any, number: str, mark: str, kind: str, name: str) -> None:
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if mark or kind == "map":
        field.label = _Field.LABEL_REPEATED
    if mark == "%" or kind == "map":  # on the wire a repeated message of key and value, nested and marked
        entry = message.nested_type.add(name=name.capitalize() + "Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
        _declare_type(package, value, "string" if kind == "map" else kind)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{message.name}.{entry.name}"
    else:
        _declare_type(package, field, kind)


def _declare_type(package: str, field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"


def _messages(package: str) -> Any:
    """A namespace with a class for each message of the package."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for line in _MESSAGES[package].strip().splitlines():
        name, _, fields = line.strip().partition(":")
        message = file.message_type.add(name=name)
        for match in _FIELD.finditer(fields):
            _declare_field(package, message, *match.groups())
    pool = descriptor_pool.DescriptorPool()  # our own: a program may know another package named v1
    pool.Add(file)
    names = [message.name for message in file.message_type]
    found = {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in names}
    return SimpleNamespace(**found)


v1beta1: Any = _messages("v1beta1")
v1: Any = _messages("v1")
registration: Any = _messages("pluginregistration")
dra: Any = _messages(DRA)
_PACKAGES = {"v1beta1": v1beta1, "v1": v1, "pluginregistration": registration, DRA: dra}


def stub(channel: Any, service: str) -> Any:
    """The methods of `service`, to be called on `channel`, which is grpc's or grpc.aio's."""
    package = _PACKAGES[service.rpartition(".")[0]]
    methods = {}
    for name, (request, reply) in _SERVICES[service].items():
        call = channel.unary_stream if reply.startswith("*") else channel.unary_unary
        methods[name] = call(
            f"/{service}/{name}",
            request_serializer=getattr(package, request).SerializeToString,
            response_deserializer=getattr(package, reply.lstrip("*")).FromString,
        )
    return SimpleNamespace(**methods)


def handlers(service: str, servicer: object) -> Any:
    """What a server of `service` answers: methods of `servicer` with the API's own names (request, context)."""
    package = _PACKAGES[service.rpartition(".")[0]]
    methods = {}
    for name, (request, reply) in _SERVICES[service].items():
        streams = reply.startswith("*")
        handler = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        methods[name] = handler(
            getattr(servicer, name),
            request_deserializer=getattr(package, request).FromString,
            response_serializer=getattr(package, reply.lstrip("*")).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service, methods)
