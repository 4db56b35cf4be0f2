"""What another project's device plugin gave a container, by the reply that the kubelet keeps. Pure.

NVIDIA's plugin, HAMi's and Volcano's name the cards in the environment, as CDI devices, in annotations of the container
or as mounts, as they are told to. The reply is what the runtime goes by, and no user of the cluster can change it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from gemini.kube import names
from gemini.kube.escapes import RUNTIME_DEVICES
from gemini.kube.kubelet_api import v1beta1

MIB = 2**20
CARD_MOUNTS = ("/var/run/nvidia-container-devices", "/run/nvidia-container-devices")
_NONE = ("", "void", "none")


@dataclass(frozen=True)
class Given:
    """`cards`: as the reply names them; `memory`: bytes of each, 0: not said; `preloads`: a library of its own too."""

    cards: tuple[str, ...]
    memory: int
    preloads: bool

    def unknown(self, known: Collection[str]) -> str | None:
        """A card that is none of those."""
        return next((card for card in self.cards if card not in known), None)


def read(reply: bytes) -> Given | None:
    """None where it is no reply."""
    try:
        said = v1beta1.ContainerAllocateResponse.FromString(reply)
    except Exception:  # protobuf's DecodeError
        return None
    amounts = [value for key, value in said.envs.items() if key.startswith(names.HAMI_MEMORY)]
    sizes = [int(text) * MIB for value in amounts if (text := value.removesuffix("m")).isdecimal() and len(text) < 10]
    preloads = any(mount.container_path == names.PRELOAD_FILE for mount in said.mounts)
    return Given(tuple(dict.fromkeys(_cards(said))), min(sizes, default=0), preloads)


def _cards(said: Any) -> Iterator[str]:
    yield from (one for one in said.envs.get(names.ENV_VISIBLE_DEVICES, "").split(",") if one.strip() not in _NONE)
    devices = [device.name for device in said.cdi_devices]
    for key, value in said.annotations.items():
        if key.startswith(RUNTIME_DEVICES):
            devices += value.split(",")
    for device in devices:
        kind, _, name = device.strip().partition("=")
        if kind.endswith("/gpu") and name:
            yield name
    for mount in said.mounts:
        path = PurePosixPath(mount.container_path)
        if str(path.parent) in CARD_MOUNTS:
            yield path.name
