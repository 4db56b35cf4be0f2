"""What a container is given: environment, mounts, CDI names. Built from its claim, and read back from the kubelet.

Pure. The kubelet keeps the first reply for the container's whole life and shows it in its checkpoint, so the reply says
which tenant it belongs to and which cards it means. The tenant is a name for this one allocation: its socket directory
is what is mounted, and who the daemon is told stands behind it is decided when the container starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Protocol

from gemini import cdi
from gemini.kube import names
from gemini.kube.kubelet_api import v1beta1
from gemini.placement.model import WHOLE
from gemini.plugin.claims import Claim

TENANT = re.compile(r"pod\.[A-Za-z0-9_.-]{1,49}-[0-9a-f]{8}")
_MOST_NAME = 49  # of namespace and pod in a tenant's name, which has 63 characters at most
# What must be the same in the reply and in the claim of whoever got it; the cards are compared besides.
SETTINGS = (names.ENV_REQUEST, names.ENV_LIMIT, names.ENV_MEMORY_LIMIT, names.ENV_MEMORY_FRACTION)


@dataclass(frozen=True)
class Paths:
    """Where things lie on the host. `preload`: its ld.so.preload for containers, where it is to be mounted; `sim`: the
    folder of the simulated driver, where the node's cards are simulated."""

    library: str
    tenants: str  # the daemon's folder of socket directories
    preload: str | None = None
    sim: str | None = None


@dataclass(frozen=True)
class Options:
    """`cdi`: give by CDI names what would be mounted; `gpu_cdi`: the kind under which the runtime knows the cards, such
    as nvidia.com/gpu; `machine`: GEMINI_SIM of a simulated node."""

    paths: Paths
    cdi: bool = False
    gpu_cdi: str | None = None
    machine: str | None = None


class Amounts(Protocol):
    """What is promised, of one container or one ResourceClaim: percent of each card's time, bytes of its memory."""

    @property
    def cards(self) -> tuple[str, ...]: ...
    @property
    def request(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def card_memory(self) -> int: ...


@dataclass(frozen=True)
class Given:
    """What a reply says of itself."""

    tenant: str
    cards: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


def tenant_name(namespace: str, pod: str, token: str) -> str:
    """A name for one allocation, that a person recognises. `token`: eight hexadecimal digits, never used before."""
    return f"{tenant_stem(namespace, pod)}-{token}"


def tenant_stem(namespace: str, pod: str) -> str:
    return "pod." + f"{namespace}.{pod}"[:_MOST_NAME]


def settings(claim: Amounts) -> dict[str, str]:
    """The amounts, as frameworks may want to know them. What counts is what the daemon is told."""
    said = {
        names.ENV_REQUEST: _share(claim.request),
        names.ENV_LIMIT: _share(claim.limit),
    }
    if claim.memory:
        said[names.ENV_MEMORY_LIMIT] = str(claim.memory)
        if claim.card_memory:
            ten_thousandths = min(10_000, claim.memory * 10_000 // claim.card_memory)
            said[names.ENV_MEMORY_FRACTION] = f"{ten_thousandths / 10_000:g}"
    return said


def _share(percent: int) -> str:
    return f"{percent / WHOLE:g}"


def build(claim: Claim, tenant: str, options: Options, nodes: tuple[str, ...] = ()) -> Any:
    """The ContainerAllocateResponse. `nodes`: device nodes to pass."""
    cards = ",".join(claim.cards)
    reply = v1beta1.ContainerAllocateResponse(
        annotations={names.CONTAINER_TENANT: tenant, names.CONTAINER_CARDS: cards},
        devices=[v1beta1.DeviceSpec(container_path=n, host_path=n, permissions="rw") for n in nodes],
    )
    # Over what the image says, and "void" where CDI brings the cards: NVIDIA's own hook then does nothing.
    reply.envs[names.ENV_VISIBLE_DEVICES] = "void" if options.gpu_cdi else cards
    for key, value in {**settings(claim), **claim.more}.items():
        reply.envs[key] = value
    if options.cdi:
        reply.cdi_devices.add(name=f"{names.CDI_KIND}={tenant}")
    else:
        reply.envs.update(environment(claim, options))
        for host, inside in mounts(tenant, options.paths):
            reply.mounts.add(container_path=inside, host_path=host, read_only=inside != "/dev/shm")
    if options.gpu_cdi:
        for uuid in claim.cards:
            reply.cdi_devices.add(name=f"{options.gpu_cdi}={uuid}")
    return reply


def read(reply: bytes) -> Given | None:
    """None where it is no reply of ours."""
    try:
        said = v1beta1.ContainerAllocateResponse.FromString(reply)
    except Exception:  # protobuf's DecodeError
        return None
    tenant, cards = said.annotations.get(names.CONTAINER_TENANT), said.annotations.get(names.CONTAINER_CARDS)
    if not tenant or not cards or not TENANT.fullmatch(tenant):
        return None
    kept = {key: said.envs[key] for key in SETTINGS if key in said.envs}
    return Given(tenant, tuple(cards.split(",")), kept)


def cdi_spec(claim: Claim, tenant: str, options: Options) -> str:
    """The CDI file by which a runtime gives what would be mounted."""
    return cdi.spec({tenant: cdi.edits(environment(claim, options), mounts(tenant, options.paths))})


def cdi_file(tenant: str) -> str:
    return cdi.CONTAINER_FILE.format(tenant)


def environment(claim: Amounts, options: Options) -> dict[str, str]:
    said = {names.ENV_PRELOAD: names.LIBRARY_PATH, names.ENV_SOCKET: f"ipc://{names.SOCKET_PATH}"}
    if options.machine is not None:
        # No runtime narrows down the cards of a simulated machine, so the driver is told to.
        said |= {names.ENV_SIM: options.machine, "LD_LIBRARY_PATH": names.SIM_PATH}
        said |= {"CUDA_VISIBLE_DEVICES": ",".join(claim.cards)}
    return said


def mounts(tenant: str, paths: Paths) -> list[tuple[str, str]]:
    mounts = [
        (paths.library, names.LIBRARY_PATH),
        (f"{paths.tenants}/{tenant}", str(PurePosixPath(names.SOCKET_PATH).parent)),
    ]
    if paths.preload is not None:
        mounts.append((paths.preload, names.PRELOAD_FILE))
    if paths.sim is not None:
        mounts += [(paths.sim, names.SIM_PATH), ("/dev/shm", "/dev/shm")]
    return mounts
