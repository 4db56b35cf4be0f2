"""Pods with parts of a card as KAI's binder has them, on a real kubelet and a containerd that knows CDI.

KAI itself places them where the environment names a checkout of it (checkouts.py). Without one, what its binder writes
is written here: the pod that keeps the card, the label, the ConfigMap that says which card is seen. NVIDIA's device
plugin and runtime are stand-ins.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from bench.bed import until_shares
from gemini.kube import names
from tests.e2e.api import ApiError, Object, condition
from tests.e2e.conftest import checked_out
from tests.e2e.kai import KEEPERS, NAME, QUEUE, RESERVATIONS, kai, say_cards
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.pods import pod
from tests.e2e.sharing import Daemon, Sharing, device_plugin, state, with_load
from tests.e2e.test_extender import crd
from tests.e2e.test_placed import PLACED, SHARES, WITHIN, gone, opted_in, shares_of, webhook
from tests.e2e.test_plugin import lab, role
from tests.e2e.toy_plugin import ToyPlugin

__all__ = ["crd", "lab", "opted_in", "role", "webhook"]
pytestmark = pytest.mark.timeout(900)
GROUP, GPU = "the-group", "nvidia.com/gpu"


@pytest.fixture(scope="module")
def enforced(plane: Plane, cdi_node: Node, lab: str, role: None, webhook: None) -> Iterator[Sharing]:
    """NVIDIA's plugin gives the second card alone."""
    node = cdi_node
    placed = ("--mode", "placed", "--cdi", "--cdi-dir", str(node.cdi_folder))
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Daemon(node, lab))
        stack.enter_context(device_plugin(plane, node, lab, *placed))
        node.wait_capacity(PLACED, 200)
        uuids = [card["uuid"] for card in state(node)["devices"]]
        vendor = ToyPlugin(node.kubelet_folder / "device-plugins", ["toy-0", "toy-1"], GPU)
        vendor.environment = {"NVIDIA_VISIBLE_DEVICES": uuids[1]}
        vendor.start()
        stack.callback(vendor.stop)
        vendor.register()
        node.wait_capacity(GPU, 2)
        plane.api.post("/api/v1/namespaces", {"metadata": {"name": RESERVATIONS}})
        stack.callback(plane.api.delete, f"/api/v1/namespaces/{RESERVATIONS}")
        plane.wait_default_account(RESERVATIONS)
        yield Sharing(uuids, daemon)


@pytest.fixture
def keeper(plane: Plane, cdi_node: Node, enforced: Sharing) -> Iterator[None]:
    """The second card is kept for the group."""
    made = pod("gpu-reservation", cdi_node, "sleep 1000", {GPU: "1"}, nodeName=cdi_node.name)
    made["metadata"]["labels"] = {names.KAI_GROUP: GROUP}
    plane.api.post(KEEPERS, made)
    plane.api.wait_one(f"{KEEPERS}/gpu-reservation", condition("Ready"))
    yield
    plane.api.delete(f"{KEEPERS}/gpu-reservation", 0)
    plane.api.wait_gone(f"{KEEPERS}/gpu-reservation")


def kais_pod(name: str, node: Node, share: float) -> Object:
    """As KAI's users write it."""
    given = with_load(pod(name, node, "env | grep ^NVIDIA; exec $LOAD --kernel-us 2000 --seconds 1000"))
    given["spec"] |= {"schedulerName": NAME}
    given["metadata"] |= {"annotations": {"gpu-fraction": str(share)}, "labels": {"kai.scheduler/queue": QUEUE}}
    return given


def admitted(given: Object) -> Object:
    """As KAI's admission leaves it."""
    source = {"configMapKeyRef": {"name": "shared-gpu", "key": "NVIDIA_VISIBLE_DEVICES"}}
    given["spec"]["containers"][0]["env"].append({"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": source})
    return given


def bind(plane: Plane, path: str, name: str, node: Node) -> None:
    """As KAI's binder does."""
    plane.api.patch(f"{path}/{name}", {"metadata": {"labels": {names.KAI_GROUP: GROUP}}})
    target = {"apiVersion": "v1", "kind": "Node", "name": node.name}
    plane.api.post(f"{path}/{name}/binding", {"metadata": {"name": name}, "target": target})


def test_pods_that_kai_placed_see_its_card_and_have_their_fractions_of_it(
    plane: Plane, cdi_node: Node, opted_in: str, lab: str, enforced: Sharing, keeper: None
) -> None:
    path = f"/api/v1/namespaces/{opted_in}/pods"
    wrong = {"NVIDIA_VISIBLE_DEVICES": enforced.uuids[0]}  # by an editor of the namespace
    plane.api.post(f"/api/v1/namespaces/{opted_in}/configmaps", {"metadata": {"name": "shared-gpu"}, "data": wrong})
    for name, share in SHARES.items():
        made = plane.api.post(path, admitted(kais_pod(name, cdi_node, share)))
        written = {one["name"]: one.get("value") for one in made["spec"]["containers"][0]["env"]}
        assert written[names.ENV_PLACED] == f"{share:.0%},1"
        with pytest.raises(ApiError, match="in a pod that exists"):
            plane.api.patch(f"{path}/{name}", {"metadata": {"annotations": {"gpu-fraction": "0.9"}}})
        bind(plane, path, name, cdi_node)
    hold(plane, cdi_node, opted_in, lab, enforced)
    gone(plane, opted_in, *SHARES)


def hold(plane: Plane, node: Node, namespace: str, lab: str, enforced: Sharing) -> None:
    """Both run on the second card and have their fractions of its memory and time."""
    for name in SHARES:
        plane.api.wait_one(f"/api/v1/namespaces/{namespace}/pods/{name}", condition("Ready"), seconds=300)
        assert plane.log(namespace, name, "\n") == f"NVIDIA_VISIBLE_DEVICES={enforced.uuids[1]}\n"
    tenants = {one["request"]: one for one in state(node)["tenants"]}
    assert {share: one["memory_limit_bytes"] for share, one in tenants.items()} == {0.7: 56 << 30, 0.3: 24 << 30}
    assert all((one["limit"], one["gpus"]) == (1, [1]) for one in tenants.values()), json.dumps(tenants)
    until_shares(lambda: shares_of(node, lab), SHARES, WITHIN, least=0.5, seconds=300)


def test_pods_that_kais_own_scheduler_placed_have_their_fractions_also_after_a_restart_of_the_daemon(
    plane: Plane, cdi_node: Node, opted_in: str, lab: str, enforced: Sharing
) -> None:
    path = f"/api/v1/namespaces/{opted_in}/pods"
    labels = {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "81920"}  # by NVIDIA's feature discovery
    plane.api.patch(f"/api/v1/nodes/{cdi_node.name}", {"metadata": {"labels": labels}})
    with kai(plane, checked_out("kai")):
        # One after the other: KAI's binder takes a card's keeper away when it binds two to a new group at once, for it
        # looks for the group's pods in a cache that lags behind its own writes (seen at 72de64fc).
        plane.api.post(path, kais_pod("big", cdi_node, SHARES["big"]))
        group = say_cards(plane)["metadata"]["labels"][names.KAI_GROUP]
        plane.api.wait_one(f"{path}/big", condition("Ready"), seconds=300)
        plane.api.post(path, kais_pod("small", cdi_node, SHARES["small"]))
        hold(plane, cdi_node, opted_in, lab, enforced)
        for name in SHARES:
            placed = plane.api.get(f"{path}/{name}")
            assert placed["spec"]["schedulerName"] == NAME
            assert placed["metadata"]["labels"][names.KAI_GROUP] == group
        enforced.daemon.start()
        until_shares(lambda: shares_of(cdi_node, lab), SHARES, WITHIN, least=0.5, seconds=300)
        gone(plane, opted_in, *SHARES)
        plane.api.wait(KEEPERS, lambda left: not left, "KAI gives its card back")
