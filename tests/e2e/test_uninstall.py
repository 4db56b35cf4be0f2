"""A release of an older chart is upgraded under tenants that run, and goes. What is left on the node and in the API
server is what docs/uninstalling.md names, and the next release may have another name and another namespace."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

import pytest

from bench.bed import until_shares
from gemini.kube import names
from tests.e2e.api import ApiError, Object, condition
from tests.e2e.charts import CHART, NAMESPACE, Helm, Values, older_chart
from tests.e2e.conftest import built
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.process import until
from tests.e2e.product_image import ProductImage
from tests.e2e.test_chart_install import (
    SHARES,
    WAIT,
    Installed,
    Watch,
    import_images,
    release_values,
    share_pod,
)

pytestmark = pytest.mark.timeout(1200)
STAYS_IN_CAPACITY = {names.RESOURCE_CORE: "0"}  # once the kubelet has given the plugin up; before, what it had
FOLDERS = {"/run/gemini", "/var/lib/gemini", "/var/lib/kubelet/plugins/gemini.io"}
# In every namespace: made by Kubernetes itself, or about what has been.
BY_KUBERNETES = {"ServiceAccount/default", "ConfigMap/kube-root-ca.crt"}


def test_an_older_release_is_upgraded_and_goes_and_one_of_another_name_comes_and_goes(
    plane: Plane, node: Node, product: ProductImage, tmp_path: Path
) -> None:
    import_images(node, product)
    helm = Helm(built("helm") / "helm", tmp_path, plane)
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    values = release_values(plane, node, f"id={name},gpus=2,memory=80GiB,name=NVIDIA H200")
    node_path = f"/api/v1/nodes/{node.name}"
    # What another test's release left in folders of this machine is no matter here.
    node.output(["sh", "-c", "rm -rf /run/gemini /var/lib/gemini /var/run/cdi/gemini*"])
    plane.api.patch(node_path, {"metadata": {"labels": {names.NODE_LABEL: "true"}}})
    before = _cluster_objects(plane)
    try:
        with plane.scheduler():
            older = older_chart(tmp_path)
            for release, namespace, chart in (("gemini", NAMESPACE, older), ("other", "elsewhere", CHART)):
                _come_and_go(
                    plane, node, helm, release, namespace, chart, {**values, **_scheduler(node, values, namespace)}
                )
                _nothing_is_left(plane, node, namespace, before)
                plane.api.delete(f"/api/v1/namespaces/{namespace}")  # the second is there by another name
    finally:
        for file in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
            file.unlink()


def test_an_api_server_that_is_away_for_a_while_delays_it_and_does_not_end_it(plane: Plane, namespace: str) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    plane.api.post(leases, {"metadata": {"name": "gemini-node-n1"}, "spec": {}})
    command = [sys.executable, "-m", "gemini", "uninstall", "cluster", "--kubeconfig", str(plane.admin)]
    plane.kill_apiserver()
    with plane.running("uninstall", [*command, "--namespace", namespace, "--seconds", "600"]) as process:
        try:
            until(lambda: not process.running or "it is asked again" in process.log.read_text(), "its first call")
        finally:
            plane.start_apiserver()
        assert process.wait(300) == 0, process.log.read_text()
    assert plane.api.get(leases)["items"] == []


def _nothing_is_left(plane: Plane, node: Node, namespace: str, before: set[str]) -> None:
    assert _cluster_objects(plane) - before == set()
    until(lambda: _namespaced(plane, namespace) <= BY_KUBERNETES, f"the end of what {namespace} has", 60)
    status = plane.api.get(f"/api/v1/nodes/{node.name}")
    left = {k: v for k, v in status["status"]["capacity"].items() if k.split("/")[0] == names.DOMAIN}
    assert set(left) <= set(STAYS_IN_CAPACITY), left
    allocatable = status["status"]["allocatable"]
    assert all(v == "0" for k, v in allocatable.items() if k.startswith(f"{names.DOMAIN}/")), allocatable
    labels = {key for key in status["metadata"]["labels"] if key.startswith(names.DOMAIN)}
    assert labels == {names.NODE_LABEL}
    assert set(_files(node)) == FOLDERS


def _scheduler(node: Node, values: Values, namespace: str) -> Values:
    """Where it finds the extender: the node's network has no DNS."""
    alias = {"ip": node.address, "hostnames": [f"gemini-extender.{namespace}.svc"]}
    return {"scheduler": {**values["scheduler"], "hostAliases": [alias]}}


def _come_and_go(
    plane: Plane, node: Node, helm: Helm, release: str, namespace: str, chart: Path, values: Values
) -> None:
    where = (release, "--namespace", namespace)
    helm.run("install", release, str(chart), *where[1:], "--create-namespace", *WAIT, values=values)
    node.wait_capacity(names.RESOURCE_CORE, 200)
    path = f"/apis/{names.DEVICE_API_VERSION}/devices/{node.name}"
    device = plane.api.wait_one(path, lambda one: len(one["spec"].get("devices", ())) == 2)
    release_now = Installed(
        helm, values, values["node"]["simulate"], [card["id"] for card in device["spec"]["devices"]]
    )
    with plane.namespace() as tenants:
        pods = f"/api/v1/namespaces/{tenants}/pods"
        for name, share in SHARES.items():
            pod = share_pod(name, share, release_now.cards[0])
            plane.kubectl("-n", tenants, "apply", "-f", "-", text=json.dumps(pod))
        for name in SHARES:
            running = plane.api.wait_one(f"{pods}/{name}", condition("Ready"), seconds=180)
            assert names.ALLOCATION in running["metadata"]["annotations"]
        if chart != CHART:
            _upgrade(plane, node, release_now, where, tenants)
        parts = _running(plane, namespace)
        refused = helm.call("uninstall", *where, *WAIT)
        assert refused.returncode != 0, refused.stdout
        said = plane.kubectl("-n", namespace, "logs", "job/gemini-uninstall-cluster").stdout
        held = ", ".join(f"pod {tenants}/{name}" for name in sorted(SHARES))
        assert f"cards are held by {held}; delete those first: nothing was removed" in said
        assert _running(plane, namespace) == parts, "it was half uninstalled"
        assert set(_files(node)) > FOLDERS
        for name in SHARES:
            plane.api.delete(f"{pods}/{name}", 0)
            plane.api.wait_gone(f"{pods}/{name}")
    helm.run("uninstall", *where, *WAIT)


def _upgrade(plane: Plane, node: Node, release: Installed, where: tuple[str, ...], tenants: str) -> None:
    """To the chart of today, the parts of the release anew, while the tenants have their shares and run on."""
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/devices.gemini.io"
    assert plane.api.get(definition)["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    before = _running(plane, where[2])
    wanted = {name: float(share) for name, share in SHARES.items()}

    def during() -> dict[str, float]:
        watch = Watch(node, release, tenants)
        new = {"podAnnotations": {"e2e": f"upgraded-{uuid.uuid4().hex}"}}
        for part in ("node", "extender", "webhook"):
            release.values[part] = {**release.values[part], **new}
        release.helm.run("upgrade", where[0], str(CHART), *where[1:], *WAIT, values=release.values)
        return watch.shares()

    until_shares(during, wanted, 0.05, seconds=180)
    assert "helm.sh/resource-policy" not in plane.api.get(definition)["metadata"].get("annotations", {})
    assert len(before & _running(plane, where[2])) == 1, "all but the scheduler are new"
    for one in plane.api.get(f"/api/v1/namespaces/{tenants}/pods")["items"]:
        (status,) = one["status"]["containerStatuses"]
        assert status["restartCount"] == 0

    def look() -> dict[str, float]:
        watch = Watch(node, release, tenants)
        node.output(["sleep", "3"])
        return watch.shares()

    until_shares(look, wanted, 0.05, least=0.5, seconds=180)


def _running(plane: Plane, namespace: str) -> set[str]:
    """The uids of our parts."""
    listed = plane.api.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector="app.kubernetes.io/name=gemini")
    return {one["metadata"]["uid"] for one in listed["items"] if "deletionTimestamp" not in one["metadata"]}


def _files(node: Node) -> list[str]:
    """Ours on the node, and folders."""
    where = "/run/gemini /var/lib/gemini /var/run/cdi /var/lib/kubelet/device-plugins /var/lib/kubelet/plugins"
    listed = node.output(["sh", "-c", f"find {where} /var/lib/kubelet/plugins_registry 2>/dev/null || true"])
    return [line for line in listed.splitlines() if "gemini" in line]


def _cluster_objects(plane: Plane) -> set[str]:
    """Cluster-wide objects that have to do with us, by kind and name, but for the namespace."""
    found = {one for one in _objects(plane, "", namespaced=False) if "gemini" in one.lower()}
    return {one for one in found if not one.startswith("Namespace/")}


def _namespaced(plane: Plane, namespace: str) -> set[str]:
    found = _objects(plane, f"/namespaces/{namespace}", namespaced=True)
    return {one for one in found if not one.startswith("Event/")}


def _objects(plane: Plane, under: str, namespaced: bool) -> set[str]:
    """KIND/NAME of all objects of all kinds that the API server lists."""
    roots = ["/api/v1"]
    roots += [f"/apis/{group['preferredVersion']['groupVersion']}" for group in plane.api.get("/apis")["groups"]]
    found = set()
    for root in roots:
        try:
            kinds: list[Object] = plane.api.get(root)["resources"]
        except ApiError:  # an API that is on its way out
            continue
        for kind in kinds:
            if kind["namespaced"] == namespaced and "list" in kind["verbs"] and "/" not in kind["name"]:
                items = plane.api.get(f"{root}{under}/{kind['name']}")["items"]
                found |= {f"{kind['kind']}/{one['metadata']['name']}" for one in items}
    return found
