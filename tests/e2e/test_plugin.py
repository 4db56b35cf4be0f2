"""The device plugin on real nodes: shares that hold inside containers, and who was given what, whatever the order."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import importlib
import json
import os
import socket
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemini.cli.main import COMMANDS
from gemini.kube.device import write_device
from gemini.placement.model import Device
from gemini.placement.model import Node as Cards
from gemini.plugin.cores import parse_cpus
from libhook.observer import Timeline
from tests.e2e.api import Object, condition
from tests.e2e.conftest import ROOT
from tests.e2e.fake_node import FakeNode
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.pods import INSIDE, LIBRARIES, pod
from tests.e2e.process import free_port
from tests.e2e.test_extender import CORE, DEVICES, GIB, gemini
from tests.e2e.test_extender import crd as crd

USER = "gemini-device-plugin"
ROLE = ROOT / "deploy/kustomize/base/clusterrole-device-plugin.yaml"
UUIDS = """
import json, sys
from libhook.observer import Timeline
with Timeline(sys.argv[1]) as seen:
    print(json.dumps([device.uuid for device in seen.devices()]))
"""
# Busy nanoseconds of each process of the first card over some seconds, once so many of them work.
SHARES = """
import json, sys, time
from libhook.observer import Timeline
with Timeline(sys.argv[1]) as seen:
    deadline = time.monotonic() + 60
    while sum(busy > 5e7 for busy in seen.busy(0)[1].values()) < int(sys.argv[2]):
        assert time.monotonic() < deadline, "they do not all work"
        time.sleep(0.05)
    began, before = seen.busy(0)
    time.sleep(float(sys.argv[3]))
    ended, after = seen.busy(0)
    print(json.dumps({pid: (after[pid] - before.get(pid, 0)) / (ended - began) for pid in after}))
"""
STATE = """
import http.client, json, socket
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("/run/gemini/control.sock")
connection.request("GET", "/state")
print(connection.getresponse().read().decode())
"""


@pytest.fixture(scope="module")
def role(plane: Plane) -> Iterator[None]:
    plane.kubectl("apply", "-f", str(ROLE))
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    binding = {"metadata": {"name": f"{USER}-e2e"}, "roleRef": {"kind": "ClusterRole", "name": USER}}
    subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    plane.api.post(path, {**binding, "subjects": [subject]})
    yield
    plane.api.delete(f"{path}/{USER}-e2e")
    plane.kubectl("delete", "-f", str(ROLE))


@pytest.fixture(scope="module")
def cluster(plane: Plane, crd: None, role: None) -> Iterator[None]:
    """Extender, webhook, and a scheduler that asks them."""
    with gemini(plane):
        yield


@pytest.fixture(scope="module")
def lab() -> Iterator[str]:
    """GEMINI_SIM of the real node's machine."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    yield f"id={name},gpus=2,memory=80GiB,name=NVIDIA H200"
    for left in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
        left.unlink()


@pytest.fixture(scope="module")
def cards(plane: Plane, node: Node, lab: str, cluster: None) -> Iterator[list[str]]:
    """The real node shares two simulated cards; their uuids."""
    with sharing(plane, node, lab) as uuids:
        node.wait_capacity(CORE, 200)
        yield uuids


@contextlib.contextmanager
def device(plane: Plane, node: str, uuids: list[str]) -> Iterator[None]:
    cards = tuple(Device(m, uuid=uuid, model="H200", memory=80 * GIB, numa="0") for m, uuid in enumerate(uuids))
    plane.api.post(DEVICES, write_device(Cards(node, cards)))
    try:
        yield
    finally:
        plane.api.delete(f"{DEVICES}/{node}")


@contextlib.contextmanager
def sharing(plane: Plane, node: Node, machine: str, *options: str) -> Iterator[list[str]]:
    """The node with its daemon and device plugin; the uuids of its cards."""
    uuids: list[str] = json.loads(node.output([sys.executable, "-c", UUIDS, machine]))
    serve = [sys.executable, "-m", "gemini", "serve", "--state-dir", "/run/gemini", f"--sim={machine}"]
    port = free_port()
    plugin = [
        sys.executable, "-m", "gemini", "device-plugin", "--node", node.name, "--port", str(port), f"--sim={machine}",
        "--kubeconfig", str(plane.kubeconfig(USER)), "--install-dir", str(node.folder / "install"), *options,
    ]  # fmt: skip
    with (
        device(plane, node.name, uuids),
        node.running("daemon", serve),
        node.running("device-plugin", plugin) as running,
    ):
        running.wait_http(f"http://127.0.0.1:{port}/readyz")
        yield uuids


def sharepod(name: str, node: Node | FakeNode, script: str, **annotations: str) -> Object:
    """A pod with a share that says nothing of how it is enforced; the load generator is mounted as $LOAD."""
    given = pod(name, node, script, env={"LOAD": f"{INSIDE}/gemini-load"})
    spec = given["spec"]
    spec["hostPID"] = True  # the simulated machine knows its users by process id; a card does not ask for it
    spec["volumes"] = [{"name": "load", "hostPath": {"path": str(LIBRARIES)}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "load", "mountPath": INSIDE, "readOnly": True}]
    given["metadata"]["annotations"] = {f"gemini.io/{k.replace('_', '-')}": v for k, v in annotations.items()}
    return given


def test_shares_of_two_pods_hold_on_the_devices_own_timeline(
    plane: Plane, node: Node, namespace: str, lab: str, cards: list[str]
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    script = "grep -o -m1 [^/]*libgemini_hook.so /proc/self/maps; env | grep -E 'NVIDIA|GEMINI' | sort; "
    script += "exec $LOAD --kernel-us 2000 --seconds 1000"
    shares = {"big": "0.7", "small": "0.3"}
    for name, share in shares.items():
        text = json.dumps(sharepod(name, node, script, gpu_request=share, gpu_uuid=cards[0]))
        plane.kubectl("-n", namespace, "apply", "-f", "-", text=text)
    for name, share in shares.items():
        started = plane.api.wait_one(f"{path}/{name}", condition("Ready"))
        (card,) = json.loads(started["metadata"]["annotations"]["gemini.io/allocation"])["gpu"]
        assert (card["uuid"], card["resources"][CORE]) == (cards[0], round(float(share) * 100))
        said = plane.kubectl("-n", namespace, "logs", name).stdout
        assert "libgemini_hook.so\n" in said, "the library is not in front"
        assert f"NVIDIA_VISIBLE_DEVICES={cards[0]}\n" in said
        assert f"GEMINI_REQUEST={share}\n" in said
    busy = json.loads(node.output([sys.executable, "-c", SHARES, lab, "2", "4"]))
    tenants = json.loads(node.output([sys.executable, "-c", STATE]))["tenants"]
    found = {}
    for tenant in tenants:
        name = tenant["name"].removeprefix(f"pod.{namespace}.").rpartition("-")[0]
        found[name] = sum(busy.get(str(pid), 0.0) for pid in tenant["clients"])
    assert sum(found.values()) > 0.5, found
    for name, share in shares.items():
        assert found[name] / sum(found.values()) == pytest.approx(float(share), abs=0.05), found


def test_cpu_bind_shows_the_cards_nearest_cores_in_the_affinity_mask_of_every_process(
    plane: Plane, node: Node, namespace: str, cards: list[str]
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    near = sorted(os.sched_getaffinity(0))
    # The first thing that runs, a static program, and one that somebody starts later.
    script = "cd /proc/self; grep Cpus_allowed_list status; /bin/busybox grep Cpus_allowed_list status; sleep 1000"
    for name, bind in (("two", 2), ("one", 1)):
        plane.api.post(path, sharepod(name, node, script, gpu_request="0.3", cpu_bind=str(bind)))
        plane.api.wait_one(f"{path}/{name}", condition("Ready"))
        said = plane.kubectl("-n", namespace, "logs", name).stdout.splitlines()
        later = plane.kubectl("-n", namespace, "exec", name, "--", "grep", "Cpus_allowed_list", "/proc/self/status")
        masks = {frozenset(parse_cpus(line.split()[1])) for line in (*said, *later.stdout.splitlines())}
        assert masks == {frozenset(near[:bind])}, (name, said, later)


PODS, CARDS, RESTARTS = 200, 8, 4


def test_two_hundred_equal_pods_in_random_order_with_kubelet_restarts_are_all_given_what_they_were_promised(
    plane: Plane, namespace: str, cluster: None, machine: str, tmp_path: Path
) -> None:
    """Annotation, kubelet record, container environment and the daemon's tenants say the same of each pod."""
    machine = machine.replace("gpus=2", f"gpus={CARDS}")
    path = f"/api/v1/namespaces/{namespace}/pods"
    with FakeNode(plane, "equals", seed=7) as node, short_folder() as state:
        serve = [sys.executable, "-m", "gemini", "serve", "--state-dir", str(state), f"--sim={machine}", "--no-trace"]
        with Timeline(machine) as seen:
            uuids = [one.uuid for one in seen.devices()]
        port = free_port()
        plugin = [
            sys.executable, "-m", "gemini", "device-plugin", "--node", node.name, "--port", str(port),
            "--kubeconfig", str(plane.kubeconfig(USER)), "--install-dir", str(tmp_path), "--state-dir", str(state),
            "--kubelet-dir", str(node.kubelet.plugin_folder),
            "--pod-resources", str(node.kubelet.pod_resources_socket),
        ]  # fmt: skip
        ready = f"http://127.0.0.1:{port}/readyz"
        with (
            device(plane, node.name, uuids),
            plane.running("daemon", serve),
            plane.running("device-plugin", plugin, ready_url=ready),
        ):
            node.wait_capacity(CORE, 100 * CARDS)
            for number in range(PODS):
                plane.api.post(path, sharepod(f"equal-{number:03}", node, "true", gpu_request="0.04"))
            pods = node.bound(namespace, PODS, seconds=120)

            def back() -> None:
                node.kubelet.wait_devices(CORE, 100 * CARDS)

            assert all(node.admit_all(pods, RESTARTS, back))
            tenants = {one["name"]: one for one in asked(state)["tenants"]}
            assert len(tenants) == PODS
            per_card: Counter[str] = Counter()
            for one in plane.api.get(path)["items"]:
                (entry,) = json.loads(one["metadata"]["annotations"]["gemini.io/allocation"])["gpu"]
                per_card[entry["uuid"]] += 1
                held = node.kubelet.held(one["metadata"]["uid"], "main")[CORE]
                assert {slot.partition("::")[0] for slot in held.devices} == {entry["uuid"]}
                assert held.reply.envs["NVIDIA_VISIBLE_DEVICES"] == entry["uuid"]
                (mount,) = (m for m in held.reply.mounts if m.container_path == "/run/gemini")
                tenant = tenants.pop(Path(mount.host_path).name)
                assert [uuids[gpu] for gpu in tenant["gpus"]] == [entry["uuid"]]
                assert (tenant["request"], tenant["memory_limit_bytes"]) == (0.04, 80 * GIB * 4 // 100)
            assert set(per_card.values()) == {PODS // CARDS}


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A path that leaves room for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="g", dir="/tmp") as name:
        yield Path(name)


def asked(state: Path) -> Object:
    """The daemon's /state."""
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(state / "control.sock"))
    connection.request("GET", "/state")
    answer: Object = json.loads(connection.getresponse().read())
    return answer


def test_the_daemon_sets_are_taken_by_the_api_server_and_their_commands_by_gemini(plane: Plane, cluster: None) -> None:
    folders = [str(ROOT / "deploy/kustomize" / name) for name in ("node", "node-gpushare")]
    try:
        for folder in folders:
            made = json.loads(plane.kubectl("apply", "-k", folder, "-o", "json").stdout)["items"]
            (wanted,) = (one for one in made if one["kind"] == "DaemonSet")
            for container in wanted["spec"]["template"]["spec"]["containers"]:
                name, *options = container["args"]
                parser = argparse.ArgumentParser(exit_on_error=False)
                importlib.import_module(COMMANDS[name][0]).configure(parser)
                parser.parse_args(options)
    finally:
        for folder in folders:
            plane.kubectl("delete", "-k", folder, "--wait=false", "--ignore-not-found")
