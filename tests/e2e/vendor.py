"""NVIDIA's own device plugin, unmodified, on the simulated NVML: what else gives out cards on a node of ours."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.e2e.fake_node import FakeNode
from tests.e2e.node import Node
from tests.e2e.process import Process

SIMULATED = Path(__file__).resolve().parents[2] / "libhook/lib/sim"
RESOURCE = "nvidia.com/gpu"
# Its --driver-root-ctr-path is where it would look for the library first; so it is left to LD_LIBRARY_PATH.
OPTIONS = ("--driver-root-ctr-path=/nonexistent",)
# The plugin's folder is compiled in: beside a fake kubelet it is given one of its own at that path.
AT_THE_PATH = """
mount -t tmpfs tmpfs /var/lib && mkdir -p /var/lib/kubelet/device-plugins &&
mount --bind "$0" /var/lib/kubelet/device-plugins && exec "$@"
"""


def simulated(machine: str) -> dict[str, str]:
    """The environment in which NVML is the simulated one; `machine` as GEMINI_SIM says it."""
    paths = [str(SIMULATED), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": ":".join(paths), "GEMINI_SIM": machine}


@contextlib.contextmanager
def nvidia_plugin(node: Node | FakeNode, program: Path, machine: str) -> Iterator[Process]:
    """The plugin on `node` for as long as the block runs; wait for its cards by `node.wait_capacity(RESOURCE, n)`."""
    environment: Mapping[str, str] = simulated(machine)
    if isinstance(node, Node):
        with node.running(f"{node.name}-nvidia", [program, *OPTIONS], environment) as plugin:
            yield plugin
        return
    inside: list[str | Path] = [
        "unshare",
        "-m",
        "--propagation",
        "private",
        "sh",
        "-c",
        AT_THE_PATH,
        node.kubelet.plugin_folder,
    ]
    with node.plane.running(f"{node.name}-nvidia", [*inside, program, *OPTIONS], environment) as plugin:
        yield plugin
