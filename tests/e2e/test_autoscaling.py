"""What docs/autoscaling.md says: a placeholder turns a wait for a card into one that autoscalers understand, of which a
real Karpenter adds a node."""

from __future__ import annotations

import re
from collections.abc import Callable

import yaml

from tests.e2e.api import Object, condition, unscheduled
from tests.e2e.conftest import ROOT, built
from tests.e2e.karpenter import Karpenter, karpenter, reported, waiting
from tests.e2e.plane import Plane
from tests.e2e.process import until
from tests.e2e.test_extender import CORE, GIB, MEMORY, RATIO, crd, gemini, nodes_with_cards, sharepod

__all__ = ["crd"]
LABEL = "app=gemini-placeholder"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def manifests() -> list[Object]:
    """Those of the page."""
    (text,) = re.findall(r"```yaml\n# placeholder.yaml\n(.*?)```", (ROOT / "docs/autoscaling.md").read_text(), re.S)
    return list(yaml.safe_load_all(text))


def test_a_pod_that_waits_for_fragmented_cards_takes_the_placeholders_and_that_lacks_the_sum(
    plane: Plane, namespace: str, crd: None
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    priority, deployment = manifests()
    template = deployment["spec"]["template"]
    template["metadata"]["annotations"] = {"gemini.io/gpu-count": "2"}  # all cards of a node of this test
    with nodes_with_cards(plane, 1, 2, prefix="full"), gemini(plane):
        for name in ("a", "b"):
            plane.api.post(path, sharepod(name, gpu_request="0.6"))
            plane.api.wait_one(f"{path}/{name}", condition("Ready"))
        plane.api.post(path, sharepod("fragmented", gpu_request="0.5"))  # 80 are free in sum
        waits = plane.api.wait_one(f"{path}/fragmented", unscheduled("InsufficientCore"))
        assert "Insufficient gemini.io/gpu-core" not in str(waits["status"]["conditions"])
        plane.api.delete(f"{path}/fragmented", 0)
        plane.api.post(CLASSES, priority)
        try:
            with nodes_with_cards(plane, 1, 2, prefix="spare") as (spare,):
                plane.api.post(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)
                held = plane.api.wait(
                    path, lambda pods: [p for p in pods if p["spec"].get("nodeName")], "it", labelSelector=LABEL
                )
                assert held[0]["spec"]["nodeName"] == spare
                plane.api.post(path, sharepod("fragmented", gpu_request="0.5"))
                assert plane.api.wait_one(f"{path}/fragmented", condition("Ready"))["spec"]["nodeName"] == spare
                plane.api.wait(
                    path, lambda pods: list(filter(unscheduled("2 Insufficient gemini.io/gpu-core"), pods)),
                    "the placeholder lacks the sum", labelSelector=LABEL,
                )  # fmt: skip
                plane.api.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments/gemini-placeholder")
        finally:
            plane.api.delete(f"{CLASSES}/{priority['metadata']['name']}")


def test_a_real_autoscaler_adds_a_node_for_a_pod_that_waits_for_fragmented_cards(
    plane: Plane, namespace: str, crd: None
) -> None:
    """Without the placeholder it takes it that the pod fits. With it there is always one node to spare."""
    pods, events = f"/api/v1/namespaces/{namespace}/pods", f"/api/v1/namespaces/{namespace}/events"
    priority, deployment = manifests()
    deployment["spec"]["template"]["metadata"]["annotations"] = {"gemini.io/gpu-count": "2"}
    capacity = {CORE: "200", MEMORY: str(160 * GIB), RATIO: "200"}

    def of(pod: str, reason: str, by: str) -> Callable[[Object], bool]:
        return lambda event: (event["involvedObject"]["name"], event["reason"], event["source"].get("component")) == (
            pod, reason, by,
        )  # fmt: skip

    def spare(scaler: Karpenter, many: int) -> None:
        """It has added so many nodes, and the placeholder holds the last one."""
        until(lambda: len(scaler.nodes()) == many, f"{many} nodes of Karpenter's", seconds=120)
        plane.api.wait(
            pods,
            lambda listed: [one for one in listed if condition("Ready")(one)],
            "the placeholder",
            labelSelector=LABEL,
        )

    with (
        nodes_with_cards(plane, 1, 2, prefix="full"), gemini(plane),
        karpenter(plane, built("controllers"), capacity) as scaler, reported(scaler, 2, 80 * GIB),
    ):  # fmt: skip
        for name in ("a", "b"):
            plane.api.post(pods, sharepod(name, gpu_request="0.6"))
            plane.api.wait_one(f"{pods}/{name}", condition("Ready"))
        plane.api.post(pods, sharepod("fragmented", gpu_request="0.5"))
        plane.api.wait_one(f"{pods}/fragmented", unscheduled("InsufficientCore"))
        plane.api.post(
            pods, sharepod("large", gpu_count="3")
        )  # no node is as large: Karpenter says so, having looked at both
        plane.api.wait(
            events, lambda told: [one for one in told if of("large", "FailedScheduling", "karpenter")(one)], "it looked"
        )
        assert scaler.nodes() == []
        plane.api.delete(f"{pods}/large", 0)
        plane.api.post(CLASSES, priority)
        try:
            plane.api.post(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)
            runs = plane.api.wait_one(f"{pods}/fragmented", condition("Ready"), seconds=180)
            assert runs["spec"]["nodeName"] in scaler.nodes()
            spare(scaler, 2)
            assert waiting(plane.api.get(pods)["items"]) == []
            plane.api.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments/gemini-placeholder")
        finally:
            plane.api.delete(f"{CLASSES}/{priority['metadata']['name']}")
