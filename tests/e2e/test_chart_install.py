"""A release of the chart on the real kubelet: its own objects run every part from an image, and shares hold through an
upgrade.

The node has no service network and no DNS, so the values put our pods on the node's own network. The cluster's
scheduler places the chart's pods, the chart's own those with a share.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.bed import until_shares
from gemini.kube import names
from tests.e2e.api import ApiError, Object, condition
from tests.e2e.charts import CHART, NAMESPACE, Helm, Values
from tests.e2e.conftest import built
from tests.e2e.node import Node
from tests.e2e.pki import write_kubeconfig
from tests.e2e.plane import HOST, Plane
from tests.e2e.process import free_port, until
from tests.e2e.product_image import NAME, REPOSITORY, TAG, ProductImage, write_scheduler_image

pytestmark = pytest.mark.timeout(900)
SHARES = {"training": "0.7", "inference": "0.3"}
ROOM_BYTES = 2 << 30  # containerd's copy of the image and the unpacked files
RELEASE = ("gemini", "--namespace", NAMESPACE)
WAIT = ("--wait", "--timeout", "360s")
SPELLINGS = (  # besides our annotations
    {names.RESOURCE_CORE: "30"},
    {f"{names.KUBERNETES}/gpu": "50"},
    {f"{names.KOORDINATOR}/gpu-core": "50", f"{names.KOORDINATOR}/gpu-memory-ratio": "50"},
    {names.NVIDIA_GPU: "1"},
    {names.ALIYUN_GPU_MEM: "9"},
    {names.SHARED_REQUEST: "0.3", names.SHARED_LIMIT: "0.5"},
)
HOOKS = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
# The clock, and busy nanoseconds of each process of the first card, once so many of them work.
BUSY = """
import json, sys, time
from libhook.observer import Timeline
with Timeline(sys.argv[1]) as seen:
    first, deadline = seen.busy(0)[1], time.monotonic() + 60
    while sum(busy > first.get(pid, 0) + 5e7 for pid, busy in seen.busy(0)[1].items()) < 2:
        assert time.monotonic() < deadline, "they do not both work"
        time.sleep(0.05)
    print(json.dumps(seen.busy(0)))
"""
STATE = """
import http.client, json, socket
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("/run/gemini/control.sock")
connection.request("GET", "/state")
print(connection.getresponse().read().decode())
"""


@dataclass
class Installed:
    """The release, and what it was installed with."""

    helm: Helm
    values: Values
    machine: str
    cards: list[str]

    def upgrade(self, **more: Values) -> None:
        for part, values in more.items():
            self.values[part] = {**self.values[part], **values}
        self.helm.run("upgrade", *RELEASE[:1], str(CHART), *RELEASE[1:], *WAIT, values=self.values)


@pytest.fixture(scope="module")
def image(node: Node, product: ProductImage) -> None:
    import_images(node, product)


def import_images(node: Node, product: ProductImage, *more: str) -> None:
    """Onto a node what the chart's pods run: our own image, which has `more` names there, and a kube-scheduler."""
    if (free := shutil.disk_usage(node.folder).free) < ROOM_BYTES:
        pytest.skip(f"{node.folder} has room for {free >> 20} MiB; our own image needs {ROOM_BYTES >> 20}")
    node.import_image(product.archive, NAME, *more)
    plane, archive = node.plane, node.folder / "scheduler.tar"
    version = plane.api.get("/version")["gitVersion"]
    name = write_scheduler_image(archive, built("node") / "busybox", plane.tools / "kube-scheduler", version)
    node.import_image(archive, name)
    archive.unlink()


@pytest.fixture(scope="module")
def installed(plane: Plane, node: Node, image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    helm = Helm(built("helm") / "helm", tmp_path_factory.mktemp("helm"), plane)
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    machine = f"id={name},gpus=2,memory=80GiB,name=NVIDIA H200"
    try:
        values = release_values(plane, node, machine)
        plane.api.patch(f"/api/v1/nodes/{node.name}", {"metadata": {"labels": {names.NODE_LABEL: "true"}}})
        with plane.scheduler():
            helm.run("install", *RELEASE[:1], str(CHART), *RELEASE[1:], "--create-namespace", *WAIT, values=values)
            try:
                node.wait_capacity(names.RESOURCE_CORE, 200)
                path = f"/apis/{names.DEVICE_API_VERSION}/devices/{node.name}"
                device = plane.api.wait_one(path, lambda one: len(one["spec"].get("devices", ())) == 2)
                yield Installed(helm, values, machine, [card["id"] for card in device["spec"]["devices"]])
            finally:
                _keep_logs(plane)
                helm.run("uninstall", *RELEASE, *WAIT)
                plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}")
                plane.api.wait_gone(f"/api/v1/namespaces/{NAMESPACE}", seconds=180)
    finally:
        for left in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
            left.unlink()


def release_values(plane: Plane, node: Node, machine: str) -> Values:
    def part(**more: object) -> Values:
        return {"hostNetwork": True, "port": free_port(node.address), "replicas": 1, **more}

    alias = {"ip": node.address, "hostnames": [f"gemini-extender.{NAMESPACE}.svc"]}
    return {
        "image": {"repository": REPOSITORY, "tag": TAG, "pullPolicy": "Never"},
        "apiServer": {"host": HOST, "port": int(plane.server.rpartition(":")[2])},
        "node": {
            "hostNetwork": True,
            "simulate": machine,
            "daemon": {"metricsPort": free_port(node.address)},
            "devicePlugin": {"port": free_port(node.address)},
        },
        "extender": part(),
        "webhook": part(timeoutSeconds=20),
        "scheduler": part(hostAliases=[alias]),
    }


@pytest.fixture(scope="module")
def sharing(plane: Plane, installed: Installed) -> Iterator[str]:
    """The namespace of two pods that share the first card, as busy as they can be."""
    with plane.namespace() as namespace:
        path = f"/api/v1/namespaces/{namespace}/pods"
        for name, share in SHARES.items():
            plane.kubectl("-n", namespace, "apply", "-f", "-", text=json.dumps(_sharepod(name, share, installed)))
        for name, share in SHARES.items():
            ready = plane.api.wait_one(f"{path}/{name}", condition("Ready"), seconds=180)
            (given,) = json.loads(ready["metadata"]["annotations"][names.ALLOCATION])["gpu"]
            assert (given["uuid"], given["resources"][names.RESOURCE_CORE]) == (
                installed.cards[0], round(float(share) * 100)
            )  # fmt: skip
            assert ready["spec"]["schedulerName"] == "gemini-scheduler"
        yield namespace


def _sharepod(name: str, share: str, installed: Installed) -> Object:
    return share_pod(name, share, installed.cards[0])


def share_pod(name: str, share: str, card: str) -> Object:
    """A busy tenant of the card."""
    said = {names.GPU_REQUEST: share, names.GPU_MEMORY: "8Gi", names.GPU_UUID: card}
    container = {
        "name": "main", "image": NAME, "imagePullPolicy": "Never",
        "command": ["gemini", "load", "--kernel-us", "2000", "--seconds", "1000"],
    }  # fmt: skip
    # A simulated machine is root's and knows its users by process id; a card asks for neither.
    spec = {
        "hostPID": True, "securityContext": {"runAsUser": 0}, "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0, "containers": [container],
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": said}, "spec": spec}


class Watch:
    """What each pod got of the first card since `begin`, by the card's own timeline."""

    def __init__(self, node: Node, installed: Installed, namespace: str) -> None:
        self._node, self._machine, self._namespace = node, installed.machine, namespace
        self._began, self._before = self._look()

    def shares(self) -> dict[str, float]:
        ended, after = self._look()
        found = {}
        for tenant in json.loads(self._node.output([sys.executable, "-c", STATE]))["tenants"]:
            name = tenant["name"].removeprefix(f"pod.{self._namespace}.").rpartition("-")[0]
            busy = sum(after.get(str(pid), 0) - self._before.get(str(pid), 0) for pid in tenant["clients"])
            found[name] = busy / (ended - self._began)
        return {name: found[name] for name in SHARES}

    def _look(self) -> tuple[int, dict[str, int]]:
        clock, busy = json.loads(self._node.output([sys.executable, "-c", BUSY, self._machine], seconds=180))
        return clock, busy


def test_shares_hold_from_the_charts_own_objects_and_through_an_upgrade_of_every_part(
    plane: Plane, node: Node, installed: Installed, sharing: str
) -> None:
    path = f"/api/v1/namespaces/{sharing}/pods"
    secrets = {name: _secret(plane, name) for name in ("extender", "webhook", "scheduler")}
    before = {one["metadata"]["uid"]: one["metadata"]["name"] for one in _pods(plane)}
    wanted = {name: float(share) for name, share in SHARES.items()}

    def during() -> dict[str, float]:
        watch = Watch(node, installed, sharing)
        new = {"podAnnotations": {"e2e": f"upgraded-{uuid.uuid4().hex}"}}
        installed.upgrade(node=new, extender=new, webhook=new)
        return watch.shares()

    until_shares(during, wanted, 0.05, seconds=180)  # not how busy: this machine has other things to do meanwhile
    (daemon,) = (name for one in _pods(plane) if (name := one["metadata"]["name"]).startswith("gemini-node"))
    said = plane.kubectl("-n", NAMESPACE, "logs", daemon, "-c", "daemon").stdout
    assert "took-over" in said, "it did not wait beside the old one"
    after = {one["metadata"]["uid"]: one["metadata"]["name"] for one in _pods(plane)}
    kept = {name for uid, name in before.items() if uid in after}
    assert len(kept) == 1, kept  # the scheduler's; all else was replaced
    assert {name: _secret(plane, name) for name in secrets} == secrets, "an upgrade keeps the certificates"
    for one in plane.api.get(path)["items"]:
        (status,) = one["status"]["containerStatuses"]
        assert status["restartCount"] == 0

    def look() -> dict[str, float]:
        watch = Watch(node, installed, sharing)
        node.output(["sleep", "3"])
        return watch.shares()

    until_shares(look, wanted, 0.05, least=0.5, seconds=180)


def test_only_the_nodes_parts_run_as_root(plane: Plane, installed: Installed) -> None:
    users = {}
    for one in _pods(plane):
        for name in (container["name"] for container in one["spec"]["containers"]):
            command = ("exec", one["metadata"]["name"], "-c", name, "--", "cat", "/proc/self/status")
            users[name] = re.findall(r"^Uid:\t(\d+)", plane.kubectl("-n", NAMESPACE, *command).stdout, re.M)
    root, nobody = ["0"], ["65532"]
    assert users == {
        "daemon": root, "device-plugin": root, "reporter": root,
        "extender": nobody, "webhook": nobody, "scheduler": nobody,
    }  # fmt: skip


def test_helm_test_passes_beside_them(installed: Installed, sharing: str) -> None:
    assert "Succeeded" in installed.helm.run("test", *RELEASE, "--timeout", "240s")


def test_pods_that_name_no_share_never_wait_for_the_webhook(plane: Plane, installed: Installed, sharing: str) -> None:
    pods = f"/api/v1/namespaces/{sharing}/pods"
    asking = _sharepod("asking", "0.1", installed)
    plain = {**asking, "metadata": {"name": "plain"}}

    def tried(pod: Object) -> str:
        try:
            return json.dumps(plane.api.call("POST", pods, pod, {"dryRun": "All"}))
        except ApiError as error:
            return str(error)

    assert "1.5 is above 1" in tried(_sharepod("bad", "1.5", installed))
    plane.kubectl("label", "namespace", sharing, "gemini.io/spellings=all")  # else gemini.io's alone is read
    words = {**plain, "spec": {**plain["spec"], "containers": [dict(plain["spec"]["containers"][0])]}}
    words["spec"]["containers"][0]["resources"] = {"limits": {f"{names.KUBERNETES}/gpu": "50"}}
    until(lambda: names.ENV_SOCKET in tried(words), "the API server knows the namespace's label", 60)
    for said in SPELLINGS:
        pod = json.loads(json.dumps(plain))
        if any(key.startswith(names.KUBESHARE) for key in said):
            pod["metadata"]["labels"] = said
        else:
            pod["spec"]["containers"][0]["resources"] = {"limits": said}
        assert names.ENV_SOCKET in tried(pod), said
    hooks = {kind: plane.api.get(f"{HOOKS}/{kind}/gemini")["webhooks"] for kind in KINDS}
    try:
        for kind, listed in hooks.items():
            nobody = [{**one, "clientConfig": {"url": f"https://{HOST}:1/"}} for one in listed]
            plane.api.patch(f"{HOOKS}/{kind}/gemini", {"webhooks": nobody})
        until(lambda: "failed calling webhook" in tried(asking), "the API server knows the new configuration", 180)
        assert '"name": "plain"' in tried(plain)
    finally:
        for kind, listed in hooks.items():
            plane.api.patch(f"{HOOKS}/{kind}/gemini", {"webhooks": listed})
    until(lambda: names.RESOURCE_CORE in tried(asking), "the webhook is asked again", 180)


def test_a_nodes_credentials_change_what_is_on_that_node_alone(plane: Plane, node: Node, installed: Installed) -> None:
    (pod,) = (name for one in _pods(plane) if (name := one["metadata"]["name"]).startswith("gemini-node"))
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}")
    said = {}
    with plane.nodes(1, prefix="other") as (other,):
        for whose, options in (("the pod's", bound), ("nobody's", ())):
            token = plane.kubectl("-n", NAMESPACE, "create", "token", "gemini-node", *options).stdout.strip()
            path = plane.folder / "gemini-node.kubeconfig"
            write_kubeconfig(path, plane.server, plane.authority.certificate, {"token": token})
            for name in (node.name, other):
                change = ("label", "node", name, "--overwrite", f"{names.NODE_MODEL_LABEL}=e2e-{uuid.uuid4().hex}")
                done = plane.kubectl("--kubeconfig", str(path), *change, check=False)
                said[whose, name] = done.stdout + done.stderr
    assert said.pop(("the pod's", node.name)) == f"node/{node.name} labeled\n"
    assert all("gemini-node changes what is on its own node alone" in text for text in said.values()), said


def _pods(plane: Plane) -> list[Object]:
    found: list[Object] = plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


def _keep_logs(plane: Plane) -> None:
    """What the parts said, beside the logs of the plane."""
    for one in _pods(plane):
        name = one["metadata"]["name"]
        said = plane.kubectl("-n", NAMESPACE, "logs", name, "--all-containers", "--prefix", check=False)
        (plane.logs / f"chart-{name}.log").write_text(said.stdout + said.stderr)


def _secret(plane: Plane, part: str) -> dict[str, str]:
    data: dict[str, str] = plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/gemini-{part}-tls")["data"]
    return data
