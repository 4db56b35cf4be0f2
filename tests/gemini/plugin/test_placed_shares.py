"""The node side for pods that another scheduler placed, on real parts: daemon, gRPC, library and simulated card.

Kubelet and API server are in memory here; tests/e2e/test_placed.py has real ones, and HAMi's own scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.bed import until_shares
from gemini.kube import names
from gemini.plugin import reply
from gemini.plugin.app import LIB
from gemini.plugin.daemon import Daemon, DaemonFault
from gemini.plugin.host import Host
from gemini.plugin.kubelet import Kubelet
from gemini.plugin.placed import PlacedService
from gemini.plugin.placedview import PlacedView
from gemini.plugin.shell import Plugin, Shell
from libhook.observer import Timeline
from tests.e2e.fake_kubelet import FakeKubelet
from tests.e2e.process import until
from tests.e2e.toy_plugin import ToyPlugin
from tests.gemini.plugin import rig

GPU = "nvidia.com/gpu"
SHARES = {"big": 0.7, "small": 0.3}
WITHIN, WINDOW_SECONDS = 0.01, 10


class Running:
    """A node: the plugin in a thread of its own, which serves the fake kubelet."""

    def __init__(self, folder: Path, machine: str, cdi: bool) -> None:
        self.cdi, self._by_cdi = folder / "cdi", cdi
        self.api, self.kubelet, self.state = rig.Api(), FakeKubelet(folder / "kubelet"), folder / "state"
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self._parts = contextlib.ExitStack()
        self._machine = machine

    def __enter__(self) -> Running:
        serve = [sys.executable, "-m", "gemini", "serve", "--state-dir", str(self.state), f"--sim={self._machine}"]
        self.daemon = subprocess.Popen(serve, stderr=subprocess.DEVNULL)
        try:
            return self._started()
        except BaseException:
            self.daemon.kill()
            self.daemon.wait()
            raise

    def _started(self) -> Running:
        until(lambda: (self.state / "control.sock").exists(), "the daemon")
        self.kubelet.start()
        self._call(self._start())
        self.cards = list(self.service.view.cards)
        self.theirs = ToyPlugin(self.kubelet.plugin_folder, [f"slot-{number}" for number in range(4)], GPU)
        self.theirs.start()
        self.theirs.register()
        for resource, many in ((GPU, 4), (names.RESOURCE_PLACED, 200)):
            self.kubelet.wait_devices(resource, many)
        return self

    async def _start(self) -> None:
        self.kubelets = Kubelet(self.kubelet.plugin_folder, self.kubelet.pod_resources_socket)
        paths = reply.Paths(str(LIB / "libgemini_hook.so"), str(self.state / "tenants"), None, str(LIB / "sim"))
        view = PlacedView("n", self.api, self.kubelets)
        options = reply.Options(paths, self._by_cdi, machine=self._machine)
        self.service = PlacedService(view, options, Daemon(self.state), Host(self.cdi), lambda: secrets.token_hex(4))
        self.shell = Shell(Plugin(self.service), self.kubelets)
        self.api.seen = view.apply
        while not view.cards:  # the daemon is about to answer
            with contextlib.suppress(DaemonFault):
                await self.service.tidy()
        self._serving = self.loop.create_task(self.shell.run())
        await asyncio.wait_for(self.shell.registered.wait(), 60)

    def __exit__(self, *_: object) -> None:
        self._parts.close()
        self._call(self._stop())
        self.theirs.stop()
        self.kubelet.stop()
        self.daemon.terminate()
        self.daemon.wait(60)
        self.loop.call_soon_threadsafe(self.loop.stop)

    async def _stop(self) -> None:
        self._serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._serving
        await self.shell.stop()
        await self.kubelets.close()

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def requests(self) -> dict[str, float]:
        """Of the daemon's tenants."""
        listed = self._call(Daemon(self.state).tenants())
        return {name: one["request"] for name, one in listed.items()}

    def tidied(self) -> dict[str, float]:
        self._call(self.service.tidy())
        return self.requests()

    def keep(self, group: str, card: str) -> None:
        """KAI's pod that keeps the card for pods of that group."""
        self.theirs.environment = {"NVIDIA_VISIBLE_DEVICES": card}
        metadata = {"name": group, "namespace": names.KAI_RESERVATIONS[0], "uid": f"uid-{group}", "annotations": {}}
        metadata["labels"] = {names.KAI_GROUP: group}
        pod = {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]}}
        self.api.put({**pod, "status": {"phase": "Running"}})
        self.kubelet.admit(pod)

    def run_kais(self, name: str, fraction: str, group: str) -> int:
        """A pod of that name with a part of the group's card, as KAI's binder and our admission have it."""
        metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": {}}
        metadata["labels"] = {names.KAI_GROUP: group}
        container = {"name": "main", "resources": {"limits": {names.RESOURCE_PLACED: "1"}}}
        container["env"] = [{"name": names.ENV_PLACED, "value": f"{fraction},1"}]
        pod = {"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": "Pending"}}
        self.api.put(pod)
        (device,) = self.kubelet.admit(pod)["main"][names.RESOURCE_PLACED].reply.cdi_devices
        tenant = device.name.partition("=")[2]
        (said,) = json.loads((self.cdi / reply.cdi_file(tenant)).read_text())["devices"]
        environment = dict(one.split("=", 1) for one in said["containerEdits"]["env"])
        return self._start_load(environment, f"{self.state}/tenants/{tenant}")

    def run(self, name: str, cores: int, card: str) -> int:
        """A pod of that name, as another scheduler placed it on the card; the pid of the program in its container."""
        self.theirs.environment = {"NVIDIA_VISIBLE_DEVICES": card, "CUDA_DEVICE_MEMORY_LIMIT_0": "20000m"}
        limits = {GPU: "1", "nvidia.com/gpucores": str(cores), names.RESOURCE_PLACED: "1"}
        metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": {}}
        containers = [{"name": "main", "resources": {"limits": limits}}]
        pod = {"metadata": metadata, "spec": {"containers": containers}, "status": {"phase": "Pending"}}
        self.api.put(pod)
        held = self.kubelet.admit(pod)["main"]
        ours = held[names.RESOURCE_PLACED].reply
        (socket,) = (one.host_path for one in ours.mounts if one.container_path == "/run/gemini")
        return self._start_load({**ours.envs, **held[GPU].reply.envs, "CUDA_VISIBLE_DEVICES": card}, socket)

    def _start_load(self, environment: dict[str, str], socket: str) -> int:
        inside = {**os.environ, **environment}
        inside |= {  # what the mounts would bring
            "LD_PRELOAD": str(LIB / "libgemini_hook.so"), "LD_LIBRARY_PATH": str(LIB / "sim"),
            "GEMINI_SOCKET": f"ipc://{socket}/tenant.sock",
        }  # fmt: skip
        load = [str(LIB / "gemini-load"), "--kernel-us", "2000", "--seconds", "1000"]
        process = subprocess.Popen(load, env=inside, stdout=subprocess.DEVNULL)
        self._parts.callback(process.wait)
        self._parts.callback(process.kill)
        return process.pid


@pytest.fixture
def machine() -> Iterator[str]:
    name = f"placed-{secrets.token_hex(4)}"
    yield f"id={name},gpus=2,memory=80GiB,name=NVIDIA H200"
    for left in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
        left.unlink()


@pytest.fixture
def node(machine: str, request: pytest.FixtureRequest) -> Iterator[Running]:
    short = tempfile.TemporaryDirectory(prefix="gemini-", dir="/tmp", ignore_cleanup_errors=True)
    with short as folder, Running(Path(folder), machine, getattr(request, "param", False)) as running:
        yield running


def assert_shares(machine: str, pids: dict[str, int]) -> None:
    """By the timeline of the second card."""
    with Timeline(machine) as seen:
        until(lambda: len(seen.busy(1)[1].keys() & pids.values()) == len(pids), "all work on the card")

        def look() -> dict[str, float]:
            began, before = seen.busy(1)
            time.sleep(WINDOW_SECONDS)
            ended, after = seen.busy(1)
            return {name: (after[pid] - before.get(pid, 0)) / (ended - began) for name, pid in pids.items()}

        until_shares(look, SHARES, WITHIN, least=0.5, seconds=300)


@pytest.mark.alone
def test_busy_containers_get_the_cores_that_their_pods_ask_for_within_a_point(node: Running, machine: str) -> None:
    assert_shares(machine, {name: node.run(name, round(share * 100), node.cards[1]) for name, share in SHARES.items()})


@pytest.mark.alone
@pytest.mark.parametrize("node", [True], indirect=True, ids=["by CDI"])
def test_busy_containers_of_kais_get_their_fractions_of_the_card_that_kai_keeps_for_them(
    node: Running, machine: str
) -> None:
    node.keep("g1", node.cards[1])
    assert_shares(machine, {name: node.run_kais(name, f"{share:.0%}", "g1") for name, share in SHARES.items()})


def test_each_container_of_a_pod_has_its_own_share_while_it_runs_also_when_the_pod_begins_anew(node: Running) -> None:
    """A kubelet gives an init container's slot to what comes after it, so one slot stands for two containers."""
    limits = {GPU: "1", "nvidia.com/gpucores": "70", names.RESOURCE_PLACED: "1"}
    less = {**limits, "nvidia.com/gpucores": "60"}
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p", "annotations": {}},
        "spec": {
            "initContainers": [{"name": "first", "resources": {"limits": less}}],
            "containers": [{"name": "main", "resources": {"limits": limits}}],
        },
    }

    def begin(container: str, **first: Any) -> dict[str, float]:
        """The requests of the daemon's tenants once it has begun. `first`: the init container's state."""
        node.api.put({**pod, "status": {"initContainerStatuses": [{"name": "first", "state": first}]}})
        node.kubelet.start_container("uid-p", container)
        return node.requests()

    node.theirs.environment = {"NVIDIA_VISIBLE_DEVICES": node.cards[1]}
    node.api.put({**pod, "status": {"phase": "Pending"}})
    held = node.kubelet.admit(pod, start=False)
    slots = {held[name][names.RESOURCE_PLACED].devices for name in ("first", "main")}
    assert len(slots) == 1
    tenants = {name: held[name][names.RESOURCE_PLACED].reply.annotations[names.CONTAINER_TENANT] for name in held}
    ended = {"terminated": {"exitCode": 0}}
    assert begin("first", waiting={}) == {tenants["first"]: 0.6}
    assert begin("main", **ended) == {tenants["main"]: 0.7}
    # Its sandbox has gone, and it begins with the first one again; the status of that may be older than its start.
    assert begin("first", waiting={}) == {tenants["first"]: 0.6}
    assert begin("main", **ended) == {tenants["main"]: 0.7}
    begin("first", **ended)
    node.api.put({**pod, "status": {"initContainerStatuses": [{"name": "first", "state": {"running": {}}}]}})
    until(lambda: node.tidied() == {tenants["first"]: 0.6}, "the share of the one that runs")
