"""The reporter on the real control plane and kubelet, and NVIDIA's own device plugin beside our scheduler."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.api import ApiError, Object, condition, unscheduled
from tests.e2e.conftest import ROOT
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.pods import pod
from tests.e2e.process import until
from tests.e2e.test_extender import CORE, DEVICES, RATIO, crd, gemini, record, sharepod  # noqa: F401
from tests.e2e.vendor import RESOURCE, nvidia_plugin, simulated

USER = "gemini-reporter"
LIMITS = {RESOURCE: "1"}
GIB = 2**30


@pytest.fixture(scope="module")
def rights(plane: Plane, crd: None) -> Iterator[None]:  # noqa: F811
    """The reporter's ClusterRole, bound to its user."""
    file = str(ROOT / "deploy/kustomize/base/clusterrole-reporter.yaml")
    plane.kubectl("apply", "-f", file)
    subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    role = {"kind": "ClusterRole", "name": USER}
    plane.api.post(path, {"metadata": {"name": USER}, "roleRef": role, "subjects": [subject]})

    def served() -> bool:
        try:
            plane.api.get(DEVICES)
        except ApiError as error:
            if error.status != 429:  # the storage of a new kind is made after it is established
                raise
            return False
        return True

    until(served, "Devices to be served")
    yield
    plane.api.delete(f"{path}/{USER}")
    plane.kubectl("delete", "-f", file)


@contextmanager
def reporter(plane: Plane, node: Node, machine: str) -> Iterator[Object]:
    """`gemini reporter` inside the node, with the rights of its ClusterRole; its Device once it is written."""
    command = [
        sys.executable, "-m", "gemini", "reporter", "--kubeconfig", str(plane.kubeconfig(USER)), "--node", node.name,
        "--look-seconds", "1",
    ]  # fmt: skip
    with node.running(f"{node.name}-reporter", command, simulated(machine)):
        yield plane.api.wait_one(f"{DEVICES}/{node.name}", lambda one: bool(one["spec"].get("devices")))
    plane.api.delete(f"{DEVICES}/{node.name}")


def foreign(device: Object) -> dict[str, list[str]]:
    """Pod uid -> cards, as the Device's annotation says."""
    said = (device["metadata"].get("annotations") or {}).get("gemini.io/devices-checkpoints", "[]")
    return {entry["podUID"]: entry["deviceIDs"] for entry in json.loads(said)}


def test_B2_B16_B17_reporter_makes_the_device_and_says_capacity_and_model_on_the_node(
    plane: Plane, node: Node, rights: None, machine: str
) -> None:
    with reporter(plane, node, machine) as device:
        cards = device["spec"]["devices"]
        assert [(card["type"], card["minor"], card["health"], card["model"]) for card in cards] == [
            ("gpu", minor, True, "NVIDIA H200") for minor in range(2)
        ]
        assert cards[0]["resources"] == {CORE: "100", "gemini.io/gpu-memory": str(80 * GIB), RATIO: "100"}
        assert device["metadata"]["ownerReferences"][0]["name"] == node.name
        said = plane.api.wait_one(
            f"/api/v1/nodes/{node.name}",
            lambda one: (
                one["metadata"]["labels"].get("gemini.io/gpu-model") == "NVIDIA-H200"
                and one["status"]["allocatable"].get(RATIO) == "200"
            ),
        )
        for part in ("capacity", "allocatable"):
            assert said["status"][part]["gemini.io/gpu-memory"] == str(160 * GIB)
        node.restart_kubelet()
        plane.api.wait_one(f"/api/v1/nodes/{node.name}", lambda one: one["status"]["allocatable"].get(RATIO) == "200")


def test_B18_B20_no_sharepod_is_ever_put_on_a_card_that_nvidias_plugin_gave_out(
    plane: Plane, node: Node, namespace: str, rights: None, vendor: Path, machine: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with nvidia_plugin(node, vendor, machine), plane.namespace("theirs") as theirs:
        node.wait_capacity(RESOURCE, 2)
        with plane.scheduler():
            plane.api.post(path, pod("before", node, "echo card: $NVIDIA_VISIBLE_DEVICES; sleep 1000", LIMITS))
            given = plane.api.wait_one(f"{path}/before", condition("Ready"))
        card = plane.log(namespace, "before", "\n").split()[1]
        assert card.startswith("GPU-")
        other = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [theirs]}
        selector = {"namespaceSelector": {"matchExpressions": [other]}}
        with gemini(plane, **selector), reporter(plane, node, machine):
            plane.api.patch(f"/api/v1/nodes/{node.name}/status", {"status": {"capacity": {CORE: "200"}}})
            node.wait_capacity(CORE, 200)
            # B20: it ran before anything of ours did, without our annotation; the kubelet's record tells its card.
            held = plane.api.wait_one(f"{DEVICES}/{node.name}", lambda one: bool(foreign(one)))
            assert foreign(held) == {given["metadata"]["uid"]: [card]}
            for i in range(6):
                plane.api.post(path, sharepod(f"p{i}", gpu_request="0.25"))
            bound = plane.api.wait(path, lambda found: _placed(found, 4), "four shares of 0.25")
            (free,) = {record(one)[0]["uuid"] for one in bound}
            assert free != card
            late = {f"p{i}" for i in range(6)} - {one["metadata"]["name"] for one in bound}
            for name in late:
                plane.api.wait_one(f"{path}/{name}", unscheduled("InsufficientCore"))
            plane.api.delete(f"{path}/before", grace_seconds=0)
            found = [plane.api.wait_one(f"{path}/{name}", lambda one: one["spec"].get("nodeName")) for name in late]
            assert {record(one)[0]["uuid"] for one in found} == {card}

            # The other way round: a pod that comes past the webhook does not get a card that is shared.
            again = f"/api/v1/namespaces/{theirs}/pods"
            plane.api.post(again, pod("after", node, "sleep 1000", LIMITS))
            plane.api.wait_one(f"{again}/after", unscheduled("pods or claims share cards here"))
            for i in range(6):
                plane.api.delete(f"{path}/p{i}", grace_seconds=0)
            given = plane.api.wait_one(f"{again}/after", condition("Ready"))
            uid = given["metadata"]["uid"]
            plane.api.wait_one(f"{DEVICES}/{node.name}", lambda one: len(foreign(one).get(uid, [])) == 1)


def test_a_pod_that_asks_for_more_cards_than_a_kubelet_can_count_keeps_no_share_from_its_node(
    plane: Plane, node: Node, namespace: str, rights: None, vendor: Path, machine: str
) -> None:
    """The kubelet takes it for none: the pod runs, and its cards are never told."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    with nvidia_plugin(node, vendor, machine), plane.namespace("theirs") as theirs:
        node.wait_capacity(RESOURCE, 2)
        other = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [theirs]}
        selector = {"namespaceSelector": {"matchExpressions": [other]}}
        with gemini(plane, **selector), reporter(plane, node, machine):
            plane.api.patch(f"/api/v1/nodes/{node.name}/status", {"status": {"capacity": {CORE: "200"}}})
            node.wait_capacity(CORE, 200)
            again = f"/api/v1/namespaces/{theirs}/pods"
            plane.api.post(again, pod("odd", node, "sleep 1000", {RESOURCE: "10E"}, nodeName=node.name))
            plane.api.wait_one(f"{again}/odd", condition("Ready"))
            plane.api.post(path, sharepod("share", gpu_request="0.25"))
            plane.api.wait_one(f"{path}/share", lambda one: one["spec"].get("nodeName"))


def _placed(pods: list[Object], count: int) -> list[Object]:
    """The sharepods that have a node, once there are so many."""
    bound = [one for one in pods if one["metadata"]["name"] != "before" and one["spec"].get("nodeName")]
    return bound if len(bound) == count else []
