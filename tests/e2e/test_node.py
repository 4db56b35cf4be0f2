"""The real kubelet with containerd and runc: containers run, a device plugin is called, a restart loses nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import Object, condition
from tests.e2e.image import IMAGE
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.toy_plugin import RESOURCE

ROOT = Path(__file__).resolve().parents[2]
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"


def pod(name: str, node: Node, script: str, limits: dict[str, str] | None = None, **spec: Any) -> Object:
    container = {
        "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/bash", "-c", script],
        "resources": {"limits": limits or {}},
    }  # fmt: skip
    return {
        "metadata": {"name": name},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": node.name}, "terminationGracePeriodSeconds": 0,
                 "containers": [container], **spec},
    }  # fmt: skip


@pytest.fixture
def scheduled(plane: Plane, node: Node) -> Iterator[None]:
    with plane.scheduler():
        yield


@pytest.mark.usefixtures("scheduled")
def test_container_runs_and_kubectl_reads_its_log_and_enters_it(plane: Plane, node: Node, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.api.post(path, pod("hello", node, "echo hello from $HOSTNAME; sleep 1000"))
    plane.api.wait_one(f"{path}/hello", condition("Ready"))
    assert "hello from hello" in plane.kubectl("-n", namespace, "logs", "hello").stdout
    entered = plane.kubectl("-n", namespace, "exec", "hello", "--", "cat", "/proc/1/cmdline").stdout
    assert "sleep" in entered


@pytest.mark.usefixtures("scheduled")
def test_device_plugins_environment_and_mount_are_seen_inside(plane: Plane, node: Node, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    environment = {"PYTHONPATH": str(ROOT)}
    with node.running("toy-plugin", [sys.executable, "-m", "tests.e2e.toy_plugin", PLUGIN_FOLDER], environment):
        node.wait_capacity(RESOURCE, 4)
        plane.api.post(
            path, pod("two", node, "echo cards: $TOY_CARDS; ls /toy", {RESOURCE: "2"}, restartPolicy="Never")
        )
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
