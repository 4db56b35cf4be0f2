"""NVIDIA's device plugin takes the simulated cards for real ones: on the real kubelet and on the fake one."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.fake_node import FakeNode
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.pods import pod
from tests.e2e.vendor import RESOURCE, nvidia_plugin

SCRIPT = "echo card: $NVIDIA_VISIBLE_DEVICES"
LIMITS = {RESOURCE: "1"}


def test_container_on_the_real_kubelet_is_given_a_simulated_card(
    plane: Plane, node: Node, namespace: str, vendor: Path, machine: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with plane.scheduler(), nvidia_plugin(node, vendor, machine):
        node.wait_capacity(RESOURCE, 2)
        plane.api.post(path, pod("vendor", node, SCRIPT, LIMITS))
        plane.api.wait_one(f"{path}/vendor", lambda one: one["status"].get("phase") == "Succeeded")
        assert "card: GPU-" in plane.kubectl("-n", namespace, "logs", "vendor").stdout


def test_plugin_comes_back_after_each_restart_of_the_kubelet(
    plane: Plane, namespace: str, vendor: Path, machine: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with plane.scheduler(), FakeNode(plane, "vendor") as node, nvidia_plugin(node, vendor, machine):
        node.wait_capacity(RESOURCE, 2)
        for index in range(2):
            plane.api.post(path, pod(f"p{index}", node, SCRIPT, LIMITS))
        pods = node.bound(namespace, 2)
        back = lambda: node.wait_capacity(RESOURCE, 2)  # noqa: E731
        assert node.admit_all(pods, restarts=1, after_restart=back) == [True, True]
        cards = [node.kubelet.env(one["metadata"]["uid"], "main")["NVIDIA_VISIBLE_DEVICES"] for one in pods]
        assert len(set(cards)) == 2
