"""Beside what clusters run already: pods of NVIDIA's plugin, of other schedulers, and other webhooks' containers."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import Object, condition
from tests.e2e.injector import injector
from tests.e2e.plane import ADMINS, Plane
from tests.e2e.process import free_port
from tests.e2e.test_extender import CORE, crd, gemini, nodes_with_cards, priorities, record, sharepod

__all__ = ["crd", "priorities"]
NVIDIA = "nvidia.com/gpu"


def plain(name: str, resources: dict[str, Any] | None = None, **spec: Any) -> Object:
    container = {"name": "main", "image": "x", "resources": {"limits": resources or {}}}
    body = {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def test_pods_of_nvidias_plugin_run_beside_sharepods_and_nobody_touches_them(
    plane: Plane, namespace: str, crd: None
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with (
        plane.nodes(1, prefix="vendor", capacity={NVIDIA: "4"}) as (theirs,),
        nodes_with_cards(plane, 1, 2) as (ours,),
        gemini(plane),
    ):
        validator = plain("validator", {NVIDIA: 1}, nodeName=theirs)
        privileged = plain("rdma", {NVIDIA: 1})
        privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
        monitor = plain("monitor", {NVIDIA: 1})
        monitor["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        of_others = [plain("whole", {NVIDIA: 1}), validator, privileged, monitor]
        for given in of_others:
            plane.api.post(path, given)
        plane.api.post(path, sharepod("half", gpu_request="0.5"))
        for given in of_others:
            bound = plane.api.wait_one(f"{path}/{given['metadata']['name']}", condition("Ready"))
            assert bound["spec"]["nodeName"] == theirs
            assert bound["spec"]["schedulerName"] == "default-scheduler"
            container = bound["spec"]["containers"][0]
            assert container["resources"]["limits"] == {NVIDIA: "1"}
            assert container.get("env") == given["spec"]["containers"][0].get("env")
            assert not any(key.startswith("gemini.io/") for key in bound["metadata"].get("annotations") or {})
        assert plane.api.wait_one(f"{path}/half", condition("Ready"))["spec"]["nodeName"] == ours
        volcanos = plain("volcanos", {NVIDIA: 1}, schedulerName="volcano")
        assert plane.api.post(path, volcanos)["spec"]["schedulerName"] == "volcano"
        meant = plain("meant", {NVIDIA: 1}, nodeSelector={"gemini.io/gpu": "true"})
        assert plane.api.post(path, meant)["spec"]["containers"][0]["resources"]["limits"][CORE] == "100"


def test_admission_is_asked_nothing_about_a_pod_of_nvidias_plugin(plane: Plane, namespace: str, crd: None) -> None:
    """Neither when it is made nor, the extender binding it, when it is bound; as a sharepod is asked about."""
    path, port = f"/api/v1/namespaces/{namespace}/pods", free_port()
    context = plane.authority.client_context("admin", ADMINS)

    def reviews() -> float:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", context=context, timeout=60) as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("gemini_webhook_reviews_total{"))

    with (
        plane.nodes(1, prefix="vendor", capacity={NVIDIA: "1"}) as (theirs,), nodes_with_cards(plane, 1, 1),
        gemini(plane, installed=True, webhook_port=port),
    ):  # fmt: skip
        plane.api.post(path, plain("whole", {NVIDIA: 1}))
        assert plane.api.wait_one(f"{path}/whole", condition("Ready"))["spec"]["nodeName"] == theirs
        assert reviews() == 0
        plane.api.post(path, sharepod("half", gpu_request="0.5"))
        plane.api.wait_one(f"{path}/half", condition("Ready"))
        assert reviews() == 2  # as it is written, and as it was written


def test_a_pod_of_nvidias_plugin_preempts_as_it_would_without_us(
    plane: Plane, namespace: str, crd: None, priorities: list[str]
) -> None:
    """The extender is asked about its victims, on a node that has no cards of ours."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    least, _, high = priorities
    with plane.nodes(1, prefix="vendor", capacity={NVIDIA: "1"}) as (theirs,), gemini(plane):
        plane.api.post(path, plain("low", {NVIDIA: 1}, priorityClassName=least))
        plane.api.wait_one(f"{path}/low", condition("Ready"))
        plane.api.post(path, plain("high", {NVIDIA: 1}, priorityClassName=high))
        assert plane.api.wait_one(f"{path}/high", condition("Ready"))["spec"]["nodeName"] == theirs
        plane.api.wait_gone(f"{path}/low")


@pytest.mark.parametrize("native", [False, True], ids=["container", "native sidecar"])
@pytest.mark.parametrize("order", ["before", "after"])
def test_another_webhooks_container_is_admitted_and_the_share_is_the_pods(
    plane: Plane, namespace: str, crd: None, order: str, native: bool
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    hook = {"before": "a-mesh", "after": "z-mesh"}[order]  # ours is gemini-mutate
    two = {"containers": [{"name": "main", "image": "x"}, {"name": "second", "image": "x"}]}
    with ExitStack() as stack:
        stack.enter_context(nodes_with_cards(plane, 1, 1))
        stack.enter_context(gemini(plane, reinvocationPolicy="IfNeeded"))
        stack.enter_context(injector(plane, hook, "istio-proxy", native))
        plane.api.post(path, sharepod("meshed", two, gpu_request="0.5"))
        bound = plane.api.wait_one(f"{path}/meshed", condition("Ready"))
        containers = [*bound["spec"]["containers"], *bound["spec"].get("initContainers", ())]
        asked = {one["name"]: one["resources"].get("limits", {}).get(CORE) for one in containers}
        assert asked == {"main": "49", "second": "1", "istio-proxy": None}
        (proxy,) = (one for one in containers if one["name"] == "istio-proxy")
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in proxy["env"]
        (card,) = record(bound)
        assert card["resources"][CORE] == 50


def test_defaults_of_a_limit_range_do_not_refuse_annotated_pods(plane: Plane, namespace: str, crd: None) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    limits = {"limits": [{"type": "Container", "default": {CORE: "10"}, "defaultRequest": {CORE: "10"}}]}
    with nodes_with_cards(plane, 1, 2), gemini(plane, reinvocationPolicy="IfNeeded"):
        plane.api.post(f"/api/v1/namespaces/{namespace}/limitranges", {"metadata": {"name": "l"}, "spec": limits})
        plane.api.post(path, sharepod("annotated", gpu_request="0.5"))
        plane.api.post(path, plain("silent"))
        for name, core in (("annotated", 50), ("silent", 10)):
            bound = plane.api.wait_one(f"{path}/{name}", condition("Ready"))
            assert [card["resources"][CORE] for card in record(bound)] == [core]
        with injector(plane, "z-mesh", "istio-proxy"):
            plane.api.post(path, sharepod("meshed", gpu_request="0.3"))
            bound = plane.api.wait_one(f"{path}/meshed", condition("Ready"))
            limits_of = {one["name"]: one["resources"].get("limits", {}) for one in bound["spec"]["containers"]}
            assert limits_of["main"][CORE] == "30"
            assert CORE not in limits_of["istio-proxy"], json.dumps(limits_of)


def test_manifests_that_gemini_migrate_rewrote_run(plane: Plane, namespace: str, crd: None, tmp_path: Path) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    volcano = plain("volcano", {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-cores": 30}, schedulerName="volcano")
    kai = plain("kai", schedulerName="kai-scheduler")
    kai["metadata"]["annotations"] = {"gpu-fraction": "0.3"}
    of_each = {
        "hami": plain("hami", {NVIDIA: 1, "nvidia.com/gpucores": 30, "nvidia.com/gpumem": 4096}),
        "volcano": volcano, "kai": kai,
    }  # fmt: skip
    with nodes_with_cards(plane, 1, 3), gemini(plane):
        for source, pod in of_each.items():
            file = tmp_path / f"{source}.json"
            file.write_text(json.dumps(pod))
            command = [sys.executable, "-m", "gemini", "migrate", "--from", source, "-f", str(file), "--write"]
            subprocess.run(command, check=True, timeout=60)
            plane.kubectl("-n", namespace, "apply", "-f", str(file))
            bound = plane.api.wait_one(f"{path}/{source}", condition("Ready"))
            assert [card["resources"][CORE] for card in record(bound)] == [30], source
