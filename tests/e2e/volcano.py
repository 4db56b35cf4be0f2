"""Volcano's real scheduler and controllers on a plane, and the words of its device plugin for shares of cards.

That plugin wants NVIDIA's driver. It is HAMi's in other words, so HAMi's stand-in (hami.py) says them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import yaml

from tests.e2e.api import Object
from tests.e2e.checkouts import Checkout
from tests.e2e.hami import MIB, SPLIT, Words
from tests.e2e.plane import ADMINS, HOST, Plane
from tests.e2e.process import free_port

NAME = "volcano"
NUMBER, CORES, MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-cores", "volcano.sh/vgpu-memory"
WORDS = Words(
    NUMBER, f"{{uuid}},{SPLIT},{MIB},NVIDIA-NVIDIA H200,true,hami-core:", "volcano.sh/node-vgpu-register",
    "volcano.sh/node-vgpu-handshake", "volcano.sh/devices-to-allocate", "volcano.sh/bind-phase", "hamivgpu",
)  # fmt: skip
# As its installation has it; with whatever plugin more.
PLUGINS = (
    ("priority", "gang", "conformance"),
    ("overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack"),
)
SHARES_OF_CARDS = {
    "name": "deviceshare",
    "arguments": {"deviceshare.VGPUEnable": True, "deviceshare.NodeLockEnable": True},
}


@contextlib.contextmanager
def volcano(plane: Plane, checkout: Checkout, plugin: Object) -> Iterator[str]:
    """The scheduler of that name, and the controllers that make a group of each pod without one; its metrics' URL."""
    for file in sorted((checkout.source / "config/crd").glob("*/bases/*.yaml")):
        plane.kubectl("create", "-f", str(file))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    tiers: list[Object] = [{"plugins": [{"name": name} for name in tier]} for tier in PLUGINS]
    tiers[-1]["plugins"].append(plugin)
    configuration = plane.folder / "volcano.yaml"
    configuration.write_text(yaml.safe_dump({"actions": "enqueue, allocate, backfill", "tiers": tiers}))
    with contextlib.ExitStack() as stack:
        for part, more in (("controller-manager", ()), ("scheduler", (f"--scheduler-conf={configuration}",))):
            health, listen, config = free_port(), free_port(), plane.kubeconfig(f"volcano-{part}", ADMINS)
            command = [
                checkout.programs / part, f"--kubeconfig={config}", "--leader-elect=false", "--enable-healthz",
                f"--healthz-address={HOST}:{health}", "--enable-metrics", f"--listen-address={HOST}:{listen}", *more,
            ]  # fmt: skip
            environment = {"KUBECONFIG": str(config)}
            url = f"http://{HOST}:{health}/healthz"
            stack.enter_context(plane.running(f"volcano-{part}", command, environment, url))
        yield f"http://{HOST}:{listen}/metrics"
