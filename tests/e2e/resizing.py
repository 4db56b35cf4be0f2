"""Pods that run on a fake node with the real device plugin and daemon, on a simulated card, for tests of resizes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.bed import HOOK, LOAD, preloaded
from gemini.kube.resize import Amounts
from libhook.observer import Timeline
from tests.e2e.fake_node import FakeNode
from tests.e2e.plane import Plane
from tests.e2e.process import Process, free_port
from tests.e2e.sharing import USER as NODE_USER
from tests.e2e.test_extender import CORE, USER, gemini, sharepod
from tests.e2e.test_plugin import asked, device, short_folder


@dataclass
class Stage:
    """A fake node with the real plugin and daemon, and the extender: each is killed and begins anew when told to."""

    plane: Plane
    node: FakeNode
    state: Path
    machine: str
    install: Path
    extender_port: int
    processes: dict[str, Process] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    kills: list[tuple[str, int]] = field(default_factory=list)  # part, moment
    trace: bool = False  # whether the daemon records its events

    def command(self, part: str) -> list[str]:
        gemini_ = [sys.executable, "-m", "gemini"]
        if part == "extender":
            config = str(self.plane.kubeconfig(USER))
            return [*gemini_, part, "--kubeconfig", config, "--port", str(self.extender_port), "--policies", ""]
        if part == "serve":
            untraced = [] if self.trace else ["--no-trace"]
            return [*gemini_, part, "--state-dir", str(self.state), f"--sim={self.machine}", *untraced]
        return [
            *gemini_, part, "--node", self.node.name, "--port", str(self.ports.setdefault(part, free_port())),
            "--kubeconfig", str(self.plane.kubeconfig(NODE_USER)), "--install-dir", str(self.install), "--state-dir",
            str(self.state), "--kubelet-dir", str(self.node.kubelet.plugin_folder), "--pod-resources",
            str(self.node.kubelet.pod_resources_socket),
        ]  # fmt: skip

    def start(self, part: str) -> None:
        self.processes[part] = self.plane.run(part, self.command(part))

    def kill(self, part: str, after: float) -> None:
        time.sleep(after)
        self.kills.append((part, time.monotonic_ns()))
        self.processes[part].kill()
        self.plane.stop_process(self.processes[part])
        self.start(part)

    def stop(self) -> None:
        for process in self.processes.values():
            self.plane.stop_process(process)

    def names(self) -> list[str]:
        """The daemon's tenants."""
        return [one["name"] for one in asked(self.state)["tenants"]]

    def tenants(self) -> dict[str, Amounts]:
        """What the daemon gives, by the names of pods; none where it is about to begin."""
        try:
            listed = asked(self.state)["tenants"]
        except (OSError, ValueError):
            return {}
        return {
            one["name"].rpartition("-")[0].rpartition(".")[2]: Amounts(
                round(one["request"] * 100), round(one["limit"] * 100), one["memory_limit_bytes"]
            )
            for one in listed
        }


@contextlib.contextmanager
def loads(stage: Stage, pods: Sequence[str], *options: str) -> Iterator[dict[str, int]]:
    """A busy program of each pod: pids by pod. `options`: more of the load generator's."""
    children: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for one in asked(stage.state)["tenants"]:
            name = one["name"].rpartition("-")[0].rpartition(".")[2]
            environment = {
                **os.environ, "GEMINI_SIM": stage.machine, "LD_LIBRARY_PATH": str(Path(LOAD).parent / "sim"),
                "LD_PRELOAD": preloaded(HOOK), "GEMINI_SOCKET": one["socket"],
            }  # fmt: skip
            children[name] = subprocess.Popen(
                [str(LOAD), "--seconds", "3600", *options], env=environment, stdout=-3, stdin=-3
            )
        assert sorted(children) == sorted(pods)
        yield {name: child.pid for name, child in children.items()}
    finally:
        for child in children.values():
            child.kill()
            child.wait()


@contextlib.contextmanager
def staged(
    plane: Plane, namespace: str, machine: str, install: Path, shares: Mapping[str, Mapping[str, str]],
    trace: bool = False,
) -> Iterator[tuple[str, Stage, Timeline]]:  # fmt: skip
    """The extender's URL, the stage and its card, with a pod that runs for each of `shares`: name -> what it says."""
    machine = machine.replace("gpus=2", "gpus=1")
    with (
        gemini(plane) as url, FakeNode(plane, "resized") as node, short_folder() as state, Timeline(machine) as card,
        device(plane, node.name, [one.uuid for one in card.devices()]), contextlib.ExitStack() as stack,
    ):  # fmt: skip
        stage = Stage(plane, node, state, machine, install, int(url.rpartition(":")[2]), trace=trace)
        stack.callback(stage.stop)
        stage.processes["extender"] = next(one for one in plane._started if one.name == "extender")
        for part in ("serve", "device-plugin"):
            stage.start(part)
        node.wait_capacity(CORE, 100)
        for name, says in shares.items():
            plane.api.post(f"/api/v1/namespaces/{namespace}/pods", sharepod(name, **says))
        for pod in node.bound(namespace, len(shares)):
            assert node.admit(pod), plane.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")[
                "status"
            ]
        yield url, stage, card
