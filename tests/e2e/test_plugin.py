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
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.bed import until_shares
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
from tests.e2e.pods import pod
from tests.e2e.process import free_port
from tests.e2e.sharing import USER, Daemon, Sharing, device_plugin, parts_of_tenants, simulated, with_load
from tests.e2e.test_extender import CORE, DEVICES, GIB, gemini
from tests.e2e.test_extender import crd as crd
from tests.e2e.test_reporter import reporter
from tests.e2e.test_reporter import rights as rights

pytestmark = pytest.mark.timeout(900)  # 200 pods on a busy machine
ROLE = ROOT / "deploy/kustomize/base/clusterrole-device-plugin.yaml"
SHARES = {"big": "0.7", "small": "0.3"}


@pytest.fixture(scope="module")
def role(plane: Plane) -> Iterator[None]:
    plane.kubectl("apply", "-f", str(ROLE))
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    binding = {"metadata": {"name": USER}, "roleRef": {"kind": "ClusterRole", "name": USER}}
    subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    plane.api.post(path, {**binding, "subjects": [subject]})
    yield
    plane.api.delete(f"{path}/{USER}")
    plane.kubectl("delete", "-f", str(ROLE))


@pytest.fixture(scope="module")
def cluster(plane: Plane, rights: None, role: None) -> Iterator[None]:
    """Extender, webhook, and a scheduler that asks them."""
    with gemini(plane):
        yield


@pytest.fixture(scope="module")
def lab() -> Iterator[str]:
    """GEMINI_SIM of the real node's machine."""
    with simulated() as machine:
        yield machine


@pytest.fixture(scope="module")
def shared(plane: Plane, node: Node, lab: str, cluster: None) -> Iterator[Sharing]:
    """The real node with reporter, daemon and device plugin."""
    with (
        reporter(plane, node, lab) as given,
        Daemon(node, lab) as daemon,
        device_plugin(plane, node, lab, "--ld-so-preload"),
    ):
        node.wait_capacity(CORE, 200)
        yield Sharing([card["id"] for card in given["spec"]["devices"]], daemon)


@contextlib.contextmanager
def device(plane: Plane, node: str, uuids: list[str], memory: int = 80 * GIB) -> Iterator[None]:
    cards = tuple(Device(m, uuid=uuid, model="H200", memory=memory) for m, uuid in enumerate(uuids))
    plane.api.post(DEVICES, write_device(Cards(node, cards)))
    try:
        yield
    finally:
        plane.api.delete(f"{DEVICES}/{node}")


def sharepod(name: str, node: Node | FakeNode, script: str, **annotations: str) -> Object:
    """A pod with a share that says nothing of how it is enforced; the load generator is mounted as $LOAD."""
    given = with_load(pod(name, node, script))
    given["metadata"]["annotations"] = {f"gemini.io/{k.replace('_', '-')}": v for k, v in annotations.items()}
    return given


def test_no_container_of_a_sharepod_gets_a_card_by_a_configmap(
    plane: Plane, node: Node, namespace: str, shared: Sharing
) -> None:
    """The one with a share has the plugin's word over its image's, but envFrom would win: so it is refused there. The
    other has ours over both."""
    path = f"/api/v1/namespaces/{namespace}"
    data = {"NVIDIA_VISIBLE_DEVICES": "all", "A": "b"}
    plane.api.post(f"{path}/configmaps", {"metadata": {"name": "all"}, "data": data})
    script, source = "env | grep -E '^(NVIDIA|X_|A=)' | sort; sleep 1000", {"configMapRef": {"name": "all"}}
    given = sharepod("mapped", node, script, **{"gpu_request.main": "0.1"})
    given["spec"]["containers"][0]["name"] = "main"
    other = {**given["spec"]["containers"][0], "name": "other", "envFrom": [source]}
    given["spec"]["containers"].append(other)
    given["spec"]["containers"][0]["envFrom"] = [source]
    with pytest.raises(AssertionError, match="may set NVIDIA_VISIBLE_DEVICES"):
        plane.api.post(f"{path}/pods", given)
    given["spec"]["containers"][0]["envFrom"] = [{**source, "prefix": "X_"}]
    plane.api.post(f"{path}/pods", given)
    pod = plane.api.wait_one(f"{path}/pods/mapped", condition("Ready"))
    (card,) = json.loads(pod["metadata"]["annotations"]["gemini.io/allocation"])["gpu"]

    def said(container: str) -> list[str]:
        last = "NVIDIA_VISIBLE_DEVICES=void" if container == "other" else "X_NVIDIA_VISIBLE_DEVICES=all"
        return plane.log(namespace, "mapped", f"{last}\n", container).split()

    assert said("main") == [f"NVIDIA_VISIBLE_DEVICES={card['uuid']}", "X_A=b", "X_NVIDIA_VISIBLE_DEVICES=all"]
    assert said("other") == ["A=b", "NVIDIA_VISIBLE_DEVICES=void"]
    plane.api.delete(f"{path}/pods/mapped")
    plane.api.wait_gone(f"{path}/pods/mapped")


def test_shares_of_two_pods_hold_on_the_devices_own_timeline_also_after_a_restart_of_the_daemon(
    plane: Plane, node: Node, namespace: str, lab: str, shared: Sharing
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    script = "grep -o -m1 [^/]*libgemini_hook.so /proc/self/maps; env | grep -E 'NVIDIA|GEMINI' | sort; "
    script += "exec $LOAD --kernel-us 2000 --seconds 1000"
    card = shared.uuids[0]
    for name, share in SHARES.items():
        text = json.dumps(sharepod(name, node, script, gpu_request=share, gpu_uuid=card))
        plane.kubectl("-n", namespace, "apply", "-f", "-", text=text)
    for name, share in SHARES.items():
        started = plane.api.wait_one(f"{path}/{name}", condition("Ready"))
        (given,) = json.loads(started["metadata"]["annotations"]["gemini.io/allocation"])["gpu"]
        assert (given["uuid"], given["resources"][CORE]) == (card, round(float(share) * 100))
        said = plane.log(namespace, name, "\nNVIDIA_VISIBLE_DEVICES=")
        assert "libgemini_hook.so\n" in said, "the library is not in front"
        assert f"NVIDIA_VISIBLE_DEVICES={card}\n" in said
        assert f"GEMINI_REQUEST={share}\n" in said
        bare = ("exec", name, "--", "env", "-i", "/bin/grep", "-m1", "libgemini_hook", "/proc/self/maps")
        assert "libgemini_hook.so" in plane.kubectl("-n", namespace, *bare).stdout, "by /etc/ld.so.preload"
    assert_shares(node, namespace, lab, {name: float(share) for name, share in SHARES.items()})
    shared.daemon.start()
    assert_shares(node, namespace, lab, {name: float(share) for name, share in SHARES.items()})


def assert_shares(node: Node, namespace: str, lab: str, shares: dict[str, float]) -> None:
    """By the device's own timeline, over some seconds; who the processes are, the daemon knows."""

    def look() -> dict[str, float]:
        return {
            tenant["name"].partition(f".{namespace}.")[2].rpartition("-")[0]: part
            for tenant, part in parts_of_tenants(node, lab, len(shares), 3)
        }

    until_shares(look, shares, 0.05, least=0.5, seconds=180)


def test_cpu_bind_shows_the_cards_nearest_cores_in_the_affinity_mask_of_every_process(
    plane: Plane, node: Node, namespace: str, shared: Sharing
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    near = sorted(os.sched_getaffinity(0))
    # The first thing that runs, a static program, and one that somebody starts later.
    script = "cd /proc/self; grep Cpus_allowed_list status; /bin/busybox grep Cpus_allowed_list status; "
    script += "echo both said; sleep 1000"
    for name, bind in (("two", 2), ("one", 1)):
        plane.api.post(path, sharepod(name, node, script, gpu_request="0.3", cpu_bind=str(bind)))
        plane.api.wait_one(f"{path}/{name}", condition("Ready"))
        said = plane.log(namespace, name, "\nboth said\n").splitlines()[:-1]
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
        with (
            device(plane, node.name, uuids),
            plane.running("daemon", serve),
            fake_plugin(plane, node, state, tmp_path),
        ):
            node.wait_capacity(CORE, 100 * CARDS)
            for number in range(PODS):
                plane.api.post(path, sharepod(f"equal-{number:03}", node, "true", gpu_request="0.04"))
            pods = node.bound(namespace, PODS, seconds=300)

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


def test_A1_A2_A9_A12_A13_gpushares_node_counts_mebibytes_and_its_pod_gets_that_projects_environment(
    plane: Plane, namespace: str, cluster: None, machine: str, tmp_path: Path
) -> None:
    machine = machine.replace("memory=80GiB", "memory=16276MiB")
    path = f"/api/v1/namespaces/{namespace}/pods"
    with FakeNode(plane, "gpushare") as node, short_folder() as state, Timeline(machine) as seen:
        serve = [sys.executable, "-m", "gemini", "serve", "--state-dir", str(state), f"--sim={machine}", "--no-trace"]
        uuids = [one.uuid for one in seen.devices()]
        with (
            device(plane, node.name, uuids, 16276 << 20),
            plane.running("daemon", serve),
            fake_plugin(plane, node, state, tmp_path, "--mode", "gpushare"),
        ):
            node.wait_capacity("aliyun.com/gpu-mem", 32552)
            assert CORE not in plane.api.get(f"/api/v1/nodes/{node.name}")["status"]["capacity"]
            asked_for = pod("binpack-1", node, "true", {"aliyun.com/gpu-mem": "1024"})
            plane.api.post(path, asked_for)
            (bound,) = node.bound(namespace, 1)
            assert bound["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "false"
            assert node.admit(bound)
            seen_at = plane.api.wait_one(
                f"{path}/binpack-1", lambda one: one["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
            )
            index = seen_at["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_IDX"]
            env = node.kubelet.env(bound["metadata"]["uid"], "main")
            assert {key.removeprefix("ALIYUN_COM_GPU_MEM_"): env[key] for key in env if key.startswith("ALIYUN")} == {
                "IDX": index, "POD": "1024", "CONTAINER": "1024", "DEV": "16276",
            }  # fmt: skip
            assert env["NVIDIA_VISIBLE_DEVICES"] == uuids[int(index)]
            ((_, tenant),) = {one["name"]: one for one in asked(state)["tenants"]}.items()
            assert (tenant["memory_limit_bytes"], tenant["request"]) == (1 << 30, 0.06)


@contextlib.contextmanager
def fake_plugin(
    plane: Plane, node: FakeNode, state: Path, install: Path, *options: str, port: int | None = None
) -> Iterator[None]:
    port = port or free_port()
    command = [
        sys.executable, "-m", "gemini", "device-plugin", "--node", node.name, "--port", str(port),
        "--kubeconfig", str(plane.kubeconfig(USER)), "--install-dir", str(install), "--state-dir", str(state),
        "--kubelet-dir", str(node.kubelet.plugin_folder), "--pod-resources", str(node.kubelet.pod_resources_socket),
        *options,
    ]  # fmt: skip
    with plane.running("device-plugin", command, ready_url=f"http://127.0.0.1:{port}/readyz"):
        yield


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A path that leaves room for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="g", dir="/tmp") as name:
        yield Path(name)


def asked(state: Path) -> Object:
    """The daemon's /state."""
    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(state / "control.sock"))
    connection.request("GET", "/state")
    answer: Object = json.loads(connection.getresponse().read())
    return answer


def test_the_daemon_sets_are_taken_by_the_api_server_and_their_commands_by_gemini(plane: Plane, cluster: None) -> None:
    folders = [str(ROOT / "deploy/kustomize" / name) for name in ("node", "node-gpushare", "node-placed")]
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
