"""ResourceClaims on the real kubelet: prepared by our plugin, given by CDI, their shares hold beside annotated pods."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.e2e.api import Object, condition
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.process import Process, until
from tests.e2e.sharing import Daemon, device_plugin, simulated, state
from tests.e2e.test_claims import DRA, claimpod, promised, slices_of
from tests.e2e.test_extender import CORE
from tests.e2e.test_plugin import assert_shares, cluster, role, sharepod  # noqa: F401
from tests.e2e.test_reporter import crd, reporter, rights  # noqa: F401

pytestmark = pytest.mark.timeout(900)
WORK = "grep -o -m1 [^/]*libgemini_hook.so /proc/self/maps; env | grep -E 'NVIDIA|GEMINI' | sort; "
WORK += "exec $LOAD --kernel-us 2000 --seconds 1000"


@pytest.fixture(scope="module")
def lab() -> Iterator[str]:
    """GEMINI_SIM of the node's machine, which has one card."""
    with simulated(cards=1) as machine:
        yield machine


@contextlib.contextmanager
def plugin(plane: Plane, node: Node, lab: str, *options: str) -> Iterator[Process]:
    """The device plugin, once the kubelet brings it pods and claims."""
    with device_plugin(plane, node, lab, "--cdi-dir", str(node.cdi_folder), *options) as running:
        until(lambda: "registered driver=gemini.io" in running.log.read_text(), "the kubelet to know the driver", 180)
        yield running


@pytest.fixture(scope="module")
def shared(plane: Plane, cdi_node: Node, lab: str, cluster: None) -> Iterator[str]:  # noqa: F811
    """The node with reporter, daemon and plugin; its card."""
    with reporter(plane, cdi_node, lab) as device, Daemon(cdi_node, lab):
        with plugin(plane, cdi_node, lab):
            cdi_node.wait_capacity(CORE, 100)
            plane.api.wait(f"{DRA}/resourceslices", lambda found: slices_of(found, cdi_node.name), "a slice", 180)
            (card,) = device["spec"]["devices"]
            yield card["id"]
        plane.api.delete(f"{DRA}/resourceslices/{cdi_node.name}-gemini.io")


def claimed(name: str, node: Node, core: int, script: str = WORK) -> tuple[Object, Object]:
    """A claim, and a pod that works with it."""
    claim, asks = claimpod(name, core)
    pod = sharepod(name, node, script)
    pod["spec"]["resourceClaims"] = asks["spec"]["resourceClaims"]
    pod["spec"]["containers"][0]["resources"] = asks["spec"]["containers"][0]["resources"]
    return claim, pod


def create(plane: Plane, namespace: str, claim: Object, pod: Object) -> None:
    plane.api.post(f"{DRA}/namespaces/{namespace}/resourceclaims", claim)
    plane.api.post(f"/api/v1/namespaces/{namespace}/pods", pod)


def tenants(node: Node) -> dict[str, Object]:
    return {one["name"]: one for one in state(node)["tenants"]}


def test_claim_is_served_beside_an_annotated_pod_and_nobody_gets_more_than_the_card(
    plane: Plane, cdi_node: Node, namespace: str, lab: str, shared: str
) -> None:
    path, node = f"/api/v1/namespaces/{namespace}/pods", cdi_node
    create(plane, namespace, *claimed("big", node, 70))
    plane.api.post(path, sharepod("small", node, WORK, gpu_request="0.3", gpu_memory="1Gi"))
    for name in ("big", "small"):
        plane.api.wait_one(f"{path}/{name}", condition("Ready"), seconds=180)
    create(plane, namespace, *claimed("over", node, 20))
    plane.api.wait_one(f"{path}/over", condition("PodScheduled", "False"), seconds=180)
    said = plane.log(namespace, "big", "\nNVIDIA_VISIBLE_DEVICES=")
    assert "libgemini_hook.so\n" in said, "the library is not in front"
    assert f"NVIDIA_VISIBLE_DEVICES={shared}\n" in said
    assert "GEMINI_REQUEST=0.7\n" in said
    assert_shares(node, namespace, lab, {"big": 0.7, "small": 0.3})

    # A new kubelet prepares again what runs, a new plugin knows what the old one did, and nobody was interrupted.
    before = plane.api.get(f"{path}/big")["status"]["containerStatuses"][0]
    node.restart_kubelet()
    assert_shares(node, namespace, lab, {"big": 0.7, "small": 0.3})
    after = plane.api.get(f"{path}/big")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)

    claims = plane.api.get(f"{DRA}/namespaces/{namespace}/resourceclaims")["items"]
    held = promised(claims, plane.api.get(path)["items"])
    assert sum(held.values()) == 100
    assert not plane.api.get(f"{path}/over")["spec"].get("nodeName")
    plane.api.delete(f"{path}/big", grace_seconds=0)
    plane.api.wait_one(f"{path}/over", condition("Ready"), seconds=180)
    until(lambda: not any(name.startswith(f"claim.{namespace}.big-") for name in tenants(node)), "the tenant gone", 180)
    assert not list(node.cdi_folder.glob(f"*claim.{namespace}.big-*"))
