"""The real kubelet with containerd and runc: containers run, a device plugin is called, a restart loses nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.api import condition
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.pods import INSIDE, pod, with_simulated_gpu
from tests.e2e.toy_plugin import RESOURCE

ROOT = Path(__file__).resolve().parents[2]
OBSERVE = """
import json, sys
from libhook.observer import Timeline
with Timeline(sys.argv[1]) as seen:
    print(json.dumps(len({segment.pid for segment in seen.segments(0)[1]})))
"""
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"


@pytest.fixture
def scheduled(plane: Plane, node: Node) -> Iterator[None]:
    with plane.scheduler():
        yield


@pytest.mark.usefixtures("scheduled")
def test_container_runs_and_kubectl_reads_its_log_and_enters_it(plane: Plane, node: Node, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.api.post(path, pod("hello", node, "echo hello from $HOSTNAME; sleep 1000"))
    plane.api.wait_one(f"{path}/hello", condition("Ready"))
    assert plane.log(namespace, "hello", "\n") == "hello from hello\n"
    entered = plane.kubectl("-n", namespace, "exec", "hello", "--", "cat", "/proc/1/cmdline").stdout
    assert "sleep" in entered


@pytest.mark.usefixtures("scheduled")
def test_device_plugins_environment_and_mount_are_seen_inside(plane: Plane, node: Node, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    environment = {"PYTHONPATH": str(ROOT)}
    with node.running("toy-plugin", [sys.executable, "-m", "tests.e2e.toy_plugin", PLUGIN_FOLDER], environment):
        node.wait_capacity(RESOURCE, 4)
        plane.api.post(path, pod("two", node, "echo cards: $TOY_CARDS; ls /toy", {RESOURCE: "2"}))
        plane.api.wait_one(f"{path}/two", lambda one: one["status"].get("phase") == "Succeeded")
        said = plane.kubectl("-n", namespace, "logs", "two").stdout
        assert "cards: card-2,card-3" in said  # the toy prefers the last
        assert "kubelet.sock" in said


@pytest.mark.usefixtures("scheduled")
def test_containers_go_on_through_a_restart_of_the_kubelet(plane: Plane, node: Node, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.api.post(path, pod("lasting", node, "sleep 1000"))
    before = plane.api.wait_one(f"{path}/lasting", condition("Ready"))["status"]["containerStatuses"][0]
    node.restart_kubelet()
    plane.api.post(path, pod("later", node, "sleep 1000"))
    plane.api.wait_one(f"{path}/later", condition("Ready"))
    after = plane.api.get(f"{path}/lasting")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)


@pytest.mark.usefixtures("scheduled")
def test_two_pods_with_the_library_in_front_use_one_simulated_card(
    plane: Plane, node: Node, namespace: str, machine: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    script = "cat /proc/self/maps | grep -c libgemini_hook; $LOAD --kernel-us 500 --seconds 2 --json -"
    env = {"LD_PRELOAD": f"{INSIDE}/libgemini_hook.so"}  # what the webhook or the device plugin will say
    for name in ("a", "b"):
        plane.api.post(path, with_simulated_gpu(pod(name, node, script, env=env), machine))
    seen = {}
    for name in ("a", "b"):
        plane.api.wait_one(f"{path}/{name}", lambda one: one["status"].get("phase") in ("Succeeded", "Failed"))
        maps, _, load = plane.kubectl("-n", namespace, "logs", name).stdout.partition("\n")
        assert int(maps) > 0, "the library is not in front"
        seen[name] = json.loads(load)
    assert all(one["launches"] > 0 and one["gpu_seconds"] < one["seconds"] for one in seen.values()), seen
    assert json.loads(node.output([sys.executable, "-c", OBSERVE, machine])) == 2, "who worked on the first card"
