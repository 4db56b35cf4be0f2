"""Pods that HAMi's real scheduler places, on a real kubelet: Gemini's node side holds them to their time."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from bench.bed import until_shares
from tests.e2e.api import Object, condition
from tests.e2e.conftest import built
from tests.e2e.hami import CORES, GPU, MEMORY, NAME, HamiPlugin, hami_scheduler
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.pods import pod
from tests.e2e.process import free_port, until
from tests.e2e.sharing import Daemon, Sharing, device_plugin, parts_of_tenants, state, with_load
from tests.e2e.test_extender import crd
from tests.e2e.test_plugin import lab, role

__all__ = ["crd", "lab", "role"]
pytestmark = pytest.mark.timeout(900)
PLACED = "gemini.io/placed"
SHARES = {"big": 0.7, "small": 0.3}
WITHIN, WINDOW_SECONDS = 0.01, 10


@pytest.fixture(scope="module")
def webhook(plane: Plane, crd: None) -> Iterator[None]:
    """Ours as an installation has it asked about namespaces that opted in, and to judge what became of their pods."""
    pair, port = plane.authority.issue("gemini-webhook", hosts=("127.0.0.1",)), free_port()
    command = [
        sys.executable, "-m", "gemini", "webhook", "--port", str(port), "--allow", "hostPID",
        "--kubeconfig", str(plane.kubeconfig("gemini-webhook", ("system:masters",))),
        "--tls-cert", str(pair.certificate), "--tls-key", str(pair.key),
    ]  # fmt: skip
    url = f"https://127.0.0.1:{port}"
    opted, changed = {"namespaceSelector": {"matchLabels": {PLACED: "enforce"}}}, ("CREATE", "UPDATE")
    with (
        plane.running("webhook", command, ready_url=f"{url}/readyz"),
        plane.webhook("gemini-placed", f"{url}/mutate/placed", reinvocationPolicy="IfNeeded", **opted),
        plane.webhook("gemini-mutate", f"{url}/mutate"),
        plane.webhook("gemini-validate", f"{url}/validate", validating=True, operations=changed),
        plane.webhook("gemini-validate-placed", f"{url}/validate/placed", validating=True, operations=changed, **opted),
    ):
        yield


@pytest.fixture(scope="module")
def enforced(plane: Plane, node: Node, lab: str, role: None, webhook: None) -> Iterator[Sharing]:
    program = built("hami") / "scheduler"
    with Daemon(node, lab) as daemon, device_plugin(plane, node, lab, "--mode", "placed", "--ld-so-preload"):
        node.wait_capacity(PLACED, 200)
        uuids = [card["uuid"] for card in state(node)["devices"]]
        with HamiPlugin(plane, node, uuids), hami_scheduler(plane, program):
            plane.api.wait_one(f"/api/v1/nodes/{node.name}", known_to_hami, "HAMi's scheduler knows the node's cards")
            yield Sharing(uuids, daemon)


def known_to_hami(node: Object) -> bool:
    """Its scheduler answers each report of a plugin's by asking for the next one."""
    return str(node["metadata"]["annotations"].get("hami.io/node-handshake", "")).startswith("Requesting")


@pytest.fixture
def opted_in(plane: Plane, namespace: str) -> str:
    plane.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {PLACED: "enforce"}}})
    return namespace


def hami_pod(name: str, node: Node, script: str, cores: int, **limits: str) -> Object:
    """A pod as HAMi's users write it: nothing in it is ours."""
    return with_load(pod(name, node, script, {GPU: "1", CORES: str(cores), MEMORY: "20000", **limits}))


def shares_of(node: Node, lab: str) -> dict[str, float]:
    """Of the second card, over WINDOW_SECONDS."""
    by_request = {share: name for name, share in SHARES.items()}
    parts = parts_of_tenants(node, lab, len(SHARES), WINDOW_SECONDS, card=1)
    found = {by_request[tenant["request"]]: part for tenant, part in parts if tenant["request"] in by_request}
    print({name: round(part / sum(found.values()), 4) for name, part in found.items()}, "of", sum(found.values()))
    return found


def gone(plane: Plane, namespace: str, *names: str) -> None:
    for name in names:
        plane.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")
        plane.api.wait_gone(f"/api/v1/namespaces/{namespace}/pods/{name}")


def test_pods_that_hamis_scheduler_placed_are_held_to_their_cores_also_after_a_restart_of_the_daemon(
    plane: Plane, node: Node, opted_in: str, lab: str, enforced: Sharing
) -> None:
    path = f"/api/v1/namespaces/{opted_in}/pods"
    script = "grep -o -m1 [^/]*libgemini_hook.so /proc/self/maps; exec $LOAD --kernel-us 2000 --seconds 1000"
    for name, share in SHARES.items():
        one = hami_pod(name, node, script, round(share * 100))
        one["metadata"]["annotations"]["nvidia.com/use-gpuuuid"] = enforced.uuids[1]
        plane.api.post(path, one)
    for name in SHARES:
        started = plane.api.wait_one(f"{path}/{name}", condition("Ready"))
        assert started["spec"]["schedulerName"] == NAME
        annotations = started["metadata"]["annotations"]
        assert annotations["hami.io/bind-phase"] == "success"
        assert annotations["hami.io/vgpu-devices-allocated"].startswith(enforced.uuids[1])
        assert not any(key.startswith("gemini.io/") for key in annotations)
        assert "libgemini_hook.so\n" in plane.log(opted_in, name, "\n"), "the library is not in front"
        bare = ("exec", name, "--", "env", "-i", "/bin/grep", "-m1", "libgemini_hook", "/proc/self/maps")
        assert "libgemini_hook.so" in plane.kubectl("-n", opted_in, *bare).stdout, "by /etc/ld.so.preload"
    tenants = {one["request"]: one for one in state(node)["tenants"]}
    assert {share: one["limit"] for share, one in tenants.items()} == {0.7: 0.7, 0.3: 0.3}
    assert all(one["gpus"] == [1] and one["memory_limit_bytes"] == 20_000 << 20 for one in tenants.values())
    until_shares(lambda: shares_of(node, lab), SHARES, WITHIN, least=0.5, seconds=300)
    enforced.daemon.start()
    until_shares(lambda: shares_of(node, lab), SHARES, WITHIN, least=0.5, seconds=300)
    gone(plane, opted_in, *SHARES)


def test_a_container_that_cannot_be_held_to_its_time_waits_and_its_events_say_why(
    plane: Plane, node: Node, namespace: str, enforced: Sharing
) -> None:
    """In a namespace that did not opt in: a container opts in by itself, and forgets to keep HAMi's library away."""
    path, events = f"/api/v1/namespaces/{namespace}/pods", f"/api/v1/namespaces/{namespace}/events"
    plane.api.post(path, hami_pod("free", node, "sleep 1000", 30))
    assert "LD_PRELOAD" not in environment_of(plane, namespace, "free"), "nobody opted in"
    plane.api.post(path, hami_pod("both", node, "sleep 1000", 30, **{PLACED: "1"}))
    plane.api.wait(
        events, lambda listed: any("set CUDA_DISABLE_CONTROL=true in its env" in one["message"] for one in listed),
        "the reason as an event", 300,
    )  # fmt: skip
    (status,) = plane.api.get(f"{path}/both")["status"]["containerStatuses"]
    assert "waiting" in status["state"]
    enforced.daemon.stop()
    alone = hami_pod("alone", node, "sleep 1000", 30, **{PLACED: "1"})
    alone["spec"]["containers"][0]["env"].append({"name": "CUDA_DISABLE_CONTROL", "value": "true"})
    plane.api.post(path, alone)
    plane.api.wait(
        events, lambda listed: any("see that gemini serve runs on this node" in one["message"] for one in listed),
        "the reason as an event", 300,
    )  # fmt: skip
    enforced.daemon.start()
    plane.api.wait_one(f"{path}/alone", condition("Ready"), seconds=300)
    assert environment_of(plane, namespace, "alone")["GEMINI_SOCKET"] == "ipc:///run/gemini/tenant.sock"
    plane.api.wait(
        events, lambda listed: any(one["reason"] == "PlacedShareEnforced" for one in listed), "what it is promised", 300
    )
    gone(plane, namespace, "free", "both", "alone")
    until(lambda: not state(node)["tenants"], "tenants gone with their pods")


def environment_of(plane: Plane, namespace: str, name: str) -> dict[str, str]:
    plane.api.wait_one(f"/api/v1/namespaces/{namespace}/pods/{name}", condition("Ready"))
    lines = plane.kubectl("-n", namespace, "exec", name, "--", "env").stdout.splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)
