"""Pods that Volcano's real scheduler places, on a real kubelet: Gemini's node side holds them to their time.

Runs where the environment names a checkout of Volcano (checkouts.py).
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from bench.bed import until_shares
from tests.e2e.api import Object, condition
from tests.e2e.conftest import checked_out
from tests.e2e.hami import MIB, HamiPlugin
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.pods import pod
from tests.e2e.process import until
from tests.e2e.sharing import Daemon, Sharing, device_plugin, state, with_load
from tests.e2e.test_extender import crd
from tests.e2e.test_placed import PLACED, SHARES, WITHIN, gone, opted_in, shares_of, webhook
from tests.e2e.test_plugin import lab, role
from tests.e2e.volcano import CORES, MEMORY, NAME, NUMBER, SHARES_OF_CARDS, WORDS, volcano

__all__ = ["crd", "lab", "opted_in", "role", "webhook"]
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def enforced(plane: Plane, node: Node, lab: str, role: None, webhook: None) -> Iterator[Sharing]:
    checkout = checked_out("volcano")
    with Daemon(node, lab) as daemon, device_plugin(plane, node, lab, "--mode", "placed", "--ld-so-preload"):
        node.wait_capacity(PLACED, 200)
        uuids = [card["uuid"] for card in state(node)["devices"]]
        # Two more plugins of Volcano's say nothing but how much there is.
        amounts = {CORES: str(100 * len(uuids)), MEMORY: str(MIB * len(uuids))}
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        plane.api.patch(f"/api/v1/nodes/{node.name}/status", status)
        with HamiPlugin(plane, node, uuids, WORDS), volcano(plane, checkout, SHARES_OF_CARDS) as metrics:

            def knows_cards() -> bool:
                """Until then it binds such pods without a card: it reads no cards of the nodes that it finds."""
                with urllib.request.urlopen(metrics, timeout=60) as told:
                    said = told.read().decode()
                return all(uuid in said for uuid in uuids)

            until(knows_cards, "Volcano's scheduler knows the node's cards", 120)
            yield Sharing(uuids, daemon)


def volcanos_pod(name: str, node: Node, share: float, uuid: str) -> Object:
    """As Volcano's users write it: nothing in it is ours."""
    script = "grep -o -m1 [^/]*libgemini_hook.so /proc/self/maps; exec $LOAD --kernel-us 2000 --seconds 1000"
    asked = {NUMBER: "1", CORES: str(round(share * 100)), MEMORY: "20000"}
    made = with_load(pod(name, node, script, asked, schedulerName=NAME))
    made["metadata"]["annotations"]["volcano.sh/vgpu-use-gpuuuid"] = uuid
    return made


def test_pods_that_volcanos_scheduler_placed_are_held_to_their_cores_also_after_a_restart_of_the_daemon(
    plane: Plane, node: Node, opted_in: str, lab: str, enforced: Sharing
) -> None:
    path = f"/api/v1/namespaces/{opted_in}/pods"
    for name, share in SHARES.items():
        plane.api.post(path, volcanos_pod(name, node, share, enforced.uuids[1]))
    for name in SHARES:
        started = plane.api.wait_one(f"{path}/{name}", condition("Ready"), seconds=300)
        annotations = started["metadata"]["annotations"]
        assert started["spec"]["schedulerName"] == NAME
        assert annotations["volcano.sh/bind-phase"] == "success"
        assert annotations["volcano.sh/vgpu-ids-new"].startswith(enforced.uuids[1])
        assert not any(key.startswith("gemini.io/") for key in annotations)
        assert "libgemini_hook.so\n" in plane.log(opted_in, name, "\n"), "the library is not in front"
    tenants = {one["request"]: one for one in state(node)["tenants"]}
    assert {share: one["limit"] for share, one in tenants.items()} == {0.7: 0.7, 0.3: 0.3}
    assert all(one["gpus"] == [1] and one["memory_limit_bytes"] == 20_000 << 20 for one in tenants.values())
    until_shares(lambda: shares_of(node, lab), SHARES, WITHIN, least=0.5, seconds=300)
    enforced.daemon.start()
    until_shares(lambda: shares_of(node, lab), SHARES, WITHIN, least=0.5, seconds=300)
    gone(plane, opted_in, *SHARES)
