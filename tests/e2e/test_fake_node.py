"""The fake kubelet as a node of the real plane: bound by its scheduler, admitted in any order, restarted in between."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.api import Object, condition
from tests.e2e.fake_node import FakeNode
from tests.e2e.plane import Plane
from tests.e2e.toy_plugin import RESOURCE, ToyPlugin

PODS = 40


def pod(name: str, node: str, cards: int) -> Object:
    limits: dict[str, Any] = {RESOURCE: str(cards)}
    container = {"name": "main", "image": "toy", "resources": {"limits": limits}}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}},
    }


@pytest.mark.parametrize("seed", range(2))
def test_pods_admitted_in_random_order_with_restarts_never_share_a_card(
    plane: Plane, namespace: str, seed: int
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with plane.scheduler(), FakeNode(plane, f"fake-kubelet-{seed}", seed) as node:
        toy = ToyPlugin(node.kubelet.plugin_folder, [f"card-{index}" for index in range(PODS)])

        def back() -> None:
            toy.start()
            toy.register()
            node.wait_capacity(RESOURCE, PODS)

        back()
        for index in range(PODS):
            plane.api.post(path, pod(f"p{index}", node.name, 1))
        pods = node.bound(namespace, PODS)
        assert all(node.admit_all(pods, restarts=3, after_restart=back))
        held = [card for one in pods for card in node.kubelet.held(one["metadata"]["uid"], "main")[RESOURCE].devices]
        assert len(set(held)) == PODS
        for one in pods:
            plane.api.wait_one(f"{path}/{one['metadata']['name']}", condition("Ready"))
            (card,) = node.kubelet.held(one["metadata"]["uid"], "main")[RESOURCE].devices
            assert node.kubelet.env(one["metadata"]["uid"], "main") == {"TOY_CARDS": card}
        toy.stop()


def test_pod_that_the_plugin_refuses_is_failed_as_the_kubelet_fails_it(plane: Plane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with plane.scheduler(), FakeNode(plane) as node:
        toy = ToyPlugin(node.kubelet.plugin_folder, ["card-0"])
        toy.start()
        toy.register()
        node.wait_capacity(RESOURCE, 1)
        toy.refuse_allocate = "not this one"
        plane.api.post(path, pod("refused", node.name, 1))
        assert node.admit_all(node.bound(namespace, 1)) == [False]
        failed = plane.api.get(f"{path}/refused")["status"]
        assert (failed["phase"], failed["reason"]) == ("Failed", "UnexpectedAdmissionError")
        assert "not this one" in failed["message"]
        toy.stop()
