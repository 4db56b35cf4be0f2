"""Beside what clusters run already: pods of NVIDIA's plugin, of other schedulers, and other webhooks' containers."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import Object, condition
from tests.e2e.injector import ISTIO, LINKERD, NATIVE_ISTIO, VAULT, Kind, injector
from tests.e2e.plane import ADMINS, Plane
from tests.e2e.process import free_port
from tests.e2e.test_extender import CORE, crd, gemini, nodes_with_cards, priorities, record, sharepod

__all__ = ["crd", "priorities"]
NVIDIA = "nvidia.com/gpu"


def plain(name: str, resources: dict[str, Any] | None = None, **spec: Any) -> Object:
    container = {"name": "main", "image": "x", "resources": {"limits": resources or {}}}
    body = {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def reviews(plane: Plane, port: int, path: str = "") -> int:
    """How many the webhook at that port has answered; `path`: of those that were sent there."""
    context, begin = plane.authority.client_context("admin", ADMINS), "gemini_webhook_reviews_total{"
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", context=context, timeout=60) as reply:
        lines = [line for line in reply.read().decode().splitlines() if line.startswith(begin) and path in line]
    return round(sum(float(line.split()[-1]) for line in lines))


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


@pytest.mark.parametrize("second", [True, False], ids=["a scheduler of our own", "the cluster's scheduler"])
def test_admission_is_asked_nothing_about_a_pod_of_nvidias_plugin(
    plane: Plane, namespace: str, crd: None, second: bool
) -> None:
    """Neither when it is made nor when it is bound, as a sharepod is asked about. Where sharepods have a scheduler of
    their own the same goes for all pods."""
    path, port = f"/api/v1/namespaces/{namespace}/pods", free_port()
    with (
        plane.nodes(1, prefix="vendor", capacity={NVIDIA: "1"}) as (theirs,), nodes_with_cards(plane, 1, 1),
        gemini(plane, installed=True, second=second, webhook_port=port),
    ):  # fmt: skip
        plane.api.post(path, plain("whole", {NVIDIA: 1}))
        assert plane.api.wait_one(f"{path}/whole", condition("Ready"))["spec"]["nodeName"] == theirs
        if second:
            plane.api.post(path, plain("plain"))
            plane.api.wait_one(f"{path}/plain", condition("Ready"))
        assert reviews(plane, port) == 0
        plane.api.post(path, sharepod("half", gpu_request="0.5"))
        plane.api.wait_one(f"{path}/half", condition("Ready"))
        assert reviews(plane, port) == 2  # as it is written, and as it was written


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


@pytest.mark.parametrize("istio", [ISTIO, NATIVE_ISTIO], ids=["container", "native sidecar"])
def test_injectors_before_and_after_us_call_us_again_and_that_changes_nothing(
    plane: Plane, namespace: str, crd: None, istio: Kind
) -> None:
    """Istio's, Linkerd's and Vault's way, each before and after ours. What ours wrote is what each of them was shown
    after it, and what there is in the end: also where the API server called ours a second time."""
    path, port = f"/api/v1/namespaces/{namespace}/pods", free_port()
    own = {"containers": [{"name": "main", "image": "x"}, {"name": "second", "image": "x"}]}
    with nodes_with_cards(plane, 1, 8), gemini(plane, installed=True, webhook_port=port):
        for number, places in enumerate(product("az", repeat=3)):
            name, kinds = f"meshed-{number}", (istio, LINKERD, VAULT)
            with ExitStack() as stack:
                shown = [
                    (place, stack.enter_context(injector(plane, f"{place}-{kind.sidecar}", kind)))
                    for place, kind in zip(places, kinds, strict=True)
                ]
                before = reviews(plane, port, "/mutate")
                made = plane.api.post(path, sharepod(name, own, gpu_request="0.5"))
                called = reviews(plane, port, "/mutate") - before
                assert called == 2 or "z" not in places, places
                for place, pods in shown:
                    assert len(pods) >= (2 if place == "a" else 1), places
                    for pod in pods[place == "a" :]:  # those after us
                        assert said_of(pod) == said_of(made), places
                assert settled(plane.api.call("POST", path, fresh(made), {"dryRun": "All"})) == settled(made)
            containers = {one["name"]: one for part in PARTS for one in made["spec"].get(part, ())}
            strange = set().union(*(kind.names for kind in kinds))
            assert set(containers) == {"main", "second", *strange}
            core = {key: one["resources"].get("limits", {}).get(CORE) for key, one in containers.items()}
            assert core == {**dict.fromkeys(strange), "main": "49", "second": "1"}, places
            for key in strange:
                assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in containers[key]["env"], (places, key)
            (card,) = record(plane.api.wait_one(f"{path}/{name}", condition("Ready")))
            assert card["resources"][CORE] == 50


PARTS = ("containers", "initContainers")


def said_of(pod: Object) -> Any:
    """What admission of ours says of a pod with these two containers."""
    notes = {key: text for key, text in pod["metadata"]["annotations"].items() if "gemini.io" in key}
    own = [one for one in pod["spec"]["containers"] if one["name"] in ("main", "second")]
    return notes, [(one["name"], one["resources"], one["env"]) for one in own], pod["spec"]["schedulerName"]


def fresh(pod: Object) -> Object:
    """The pod as somebody who has read it would make another of it."""
    metadata = {"name": f"{pod['metadata']['name']}-again", "annotations": pod["metadata"]["annotations"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}


def settled(pod: Object) -> Any:
    return pod["metadata"]["annotations"], pod["spec"]


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
        with injector(plane, "z-mesh", Kind("istio-proxy")):
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
