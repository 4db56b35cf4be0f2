"""What docs/autoscaling.md says: a placeholder turns a wait for a card into one that autoscalers understand."""

from __future__ import annotations

import re
from collections.abc import Callable

import yaml

from tests.e2e.api import Object, condition
from tests.e2e.conftest import ROOT
from tests.e2e.plane import Plane
from tests.e2e.test_extender import crd, gemini, nodes_with_cards, sharepod

__all__ = ["crd"]
LABEL = "app=gemini-placeholder"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def manifests() -> list[Object]:
    """Those of the page."""
    (text,) = re.findall(r"```yaml\n# placeholder.yaml\n(.*?)```", (ROOT / "docs/autoscaling.md").read_text(), re.S)
    return list(yaml.safe_load_all(text))


def says(text: str) -> Callable[[Object], bool]:
    def check(pod: Object) -> bool:
        listed = pod["status"].get("conditions", ())
        return any(one["type"] == "PodScheduled" and text in one.get("message", "") for one in listed)

    return check


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
        waits = plane.api.wait_one(f"{path}/fragmented", says("InsufficientCore"))
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
                    path, lambda pods: [p for p in pods if says("2 Insufficient gemini.io/gpu-core")(p)],
                    "the placeholder lacks the sum", labelSelector=LABEL,
                )  # fmt: skip
                plane.api.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments/gemini-placeholder")
        finally:
            plane.api.delete(f"{CLASSES}/{priority['metadata']['name']}")
