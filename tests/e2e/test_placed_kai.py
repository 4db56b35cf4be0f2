"""Pods with parts of a card as KAI's binder has them, on a real kubelet and a containerd that knows CDI.

KAI's scheduler is not to be had from Go's module proxy; what its binder writes is written here: the pod that keeps the
card, the label, the ConfigMap that says which card is seen. NVIDIA's device plugin and runtime are stand-ins.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from bench.bed import until_shares
from gemini.kube import names
from tests.e2e.api import ApiError, Object, condition
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.pods import pod
from tests.e2e.sharing import Daemon, device_plugin, state, with_load
from tests.e2e.test_extender import crd
from tests.e2e.test_placed import PLACED, SHARES, WITHIN, gone, opted_in, shares_of, webhook
from tests.e2e.test_plugin import lab, role
from tests.e2e.toy_plugin import ToyPlugin

__all__ = ["crd", "lab", "opted_in", "role", "webhook"]
pytestmark = pytest.mark.timeout(900)
KEEPERS, GROUP = f"/api/v1/namespaces/{names.KAI_RESERVATIONS[0]}/pods", "the-group"
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def cards(plane: Plane, cdi_node: Node, lab: str, role: None, webhook: None) -> Iterator[list[str]]:
    """The node's; the second one is kept for the group."""
    node = cdi_node
    placed = ("--mode", "placed", "--cdi", "--cdi-dir", str(node.cdi_folder))
    with contextlib.ExitStack() as stack:
        stack.enter_context(Daemon(node, lab))
        stack.enter_context(device_plugin(plane, node, lab, *placed))
        node.wait_capacity(PLACED, 200)
        uuids = [card["uuid"] for card in state(node)["devices"]]
        vendor = ToyPlugin(node.kubelet_folder / "device-plugins", ["toy-0", "toy-1"], GPU)
        vendor.environment = {"NVIDIA_VISIBLE_DEVICES": uuids[1]}
        vendor.start()
        stack.callback(vendor.stop)
        vendor.register()
        node.wait_capacity(GPU, 2)
        plane.api.post("/api/v1/namespaces", {"metadata": {"name": names.KAI_RESERVATIONS[0]}})
        stack.callback(plane.api.delete, f"/api/v1/namespaces/{names.KAI_RESERVATIONS[0]}")
        plane.wait_default_account(names.KAI_RESERVATIONS[0])
        keeper = pod("gpu-reservation", node, "sleep 1000", {GPU: "1"}, nodeName=node.name)
        keeper["metadata"]["labels"] = {names.KAI_GROUP: GROUP}
        plane.api.post(KEEPERS, keeper)
        plane.api.wait_one(f"{KEEPERS}/gpu-reservation", condition("Ready"))
        yield uuids


def kais_pod(name: str, node: Node, share: float) -> Object:
    """As KAI's users write it and its admission leaves it."""
    given = with_load(pod(name, node, "env | grep ^NVIDIA; exec $LOAD --kernel-us 2000 --seconds 1000"))
    given["spec"] |= {"schedulerName": "kai-scheduler"}
    source = {"configMapKeyRef": {"name": "shared-gpu", "key": "RUNAI-VISIBLE-DEVICES"}}
    given["spec"]["containers"][0]["env"].append({"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": source})
    given["metadata"]["annotations"] = {"gpu-fraction": str(share)}
    return given


def bind(plane: Plane, path: str, name: str, node: Node) -> None:
    """As KAI's binder does."""
    plane.api.patch(f"{path}/{name}", {"metadata": {"labels": {names.KAI_GROUP: GROUP}}})
    target = {"apiVersion": "v1", "kind": "Node", "name": node.name}
    plane.api.post(f"{path}/{name}/binding", {"metadata": {"name": name}, "target": target})


def test_pods_that_kai_placed_see_its_card_and_have_their_fractions_of_it(
    plane: Plane,
    cdi_node: Node,
    opted_in: str,
    lab: str,
    cards: list[str],
) -> None:
    path = f"/api/v1/namespaces/{opted_in}/pods"
    wrong = {"RUNAI-VISIBLE-DEVICES": cards[0]}  # by an editor of the namespace
    plane.api.post(f"/api/v1/namespaces/{opted_in}/configmaps", {"metadata": {"name": "shared-gpu"}, "data": wrong})
    for name, share in SHARES.items():
        made = plane.api.post(path, kais_pod(name, cdi_node, share))
        written = {one["name"]: one.get("value") for one in made["spec"]["containers"][0]["env"]}
        assert written[names.ENV_PLACED] == f"{share:.0%},1"
        with pytest.raises(ApiError, match="in a pod that exists"):
            plane.api.patch(f"{path}/{name}", {"metadata": {"annotations": {"gpu-fraction": "0.9"}}})
        bind(plane, path, name, cdi_node)
    for name in SHARES:
        plane.api.wait_one(f"{path}/{name}", condition("Ready"))
        assert plane.log(opted_in, name, "\n") == f"NVIDIA_VISIBLE_DEVICES={cards[1]}\n"
    tenants = {one["request"]: one for one in state(cdi_node)["tenants"]}
    assert {share: one["memory_limit_bytes"] for share, one in tenants.items()} == {0.7: 56 << 30, 0.3: 24 << 30}
    assert all((one["limit"], one["gpus"]) == (1, [1]) for one in tenants.values()), json.dumps(tenants)
    until_shares(lambda: shares_of(cdi_node, lab), SHARES, WITHIN, least=0.5, seconds=300)
    gone(plane, opted_in, *SHARES)
