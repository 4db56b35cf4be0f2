"""What a ResourceClaim makes of a container: one tenant, by a name that follows from the claim alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gemini.kube.claim import Claim, read_claim
from gemini.plugin import prepared, reply
from gemini.plugin.prepared import CannotPrepare, Prepared
from gemini.plugin.slots import Card

GIB = 1 << 30
CARDS = {f"GPU-{m}": Card(f"GPU-{m}", m, 80 * GIB) for m in range(2)}
PATHS = reply.Paths("/var/lib/gemini/libgemini_hook.so", "/run/gemini/tenants")


def result(minor: int = 0, core: int = 30, **more: Any) -> dict[str, Any]:
    return {
        "request": "card", "driver": "gemini.io", "pool": "n1", "device": f"gpu-{minor}",
        "shareID": f"s-{minor}-{core}", "consumedCapacity": {"core": str(core), "memory": "4Gi"}, **more,
    }  # fmt: skip


def claim_object(*results: dict[str, Any], config: Any = (), uid: str = "u-1", name: str = "c") -> dict[str, Any]:
    allocation = {"devices": {"results": list(results or (result(),)), "config": list(config)}}
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid}, "status": {"allocation": allocation}}


def claim(*results: dict[str, Any], config: Any = ()) -> Claim:
    found = read_claim(claim_object(*results, config=config))
    assert found is not None
    return found


def ready(*results: dict[str, Any], config: Any = ()) -> Prepared:
    return prepared.prepare(claim(*results, config=config), CARDS, "n1")


def said(source: str = "FromClaim", driver: str = "gemini.io", **parameters: Any) -> dict[str, Any]:
    return {"source": source, "opaque": {"driver": driver, "parameters": parameters}}


def test_claim_is_one_tenant_with_what_was_allocated_and_promised() -> None:
    found = ready()
    assert found.spec() == {
        "name": prepared.tenant_of("ns", "c", "u-1"), "request": 0.3, "limit": 1.0, "memory_bytes": 4 * GIB,
        "latency": False, "gpus": ["GPU-0"],
    }  # fmt: skip
    assert prepared.TENANT.fullmatch(found.tenant)
    assert found.tenant.startswith("claim.ns.c-")
    assert found.results == (prepared.Result("card", "n1", "gpu-0", "s-0-30"),)


def test_name_follows_from_the_uid_and_is_never_too_long() -> None:
    assert prepared.tenant_of("ns", "c", "u-1") == prepared.tenant_of("ns", "c", "u-1")
    assert prepared.tenant_of("ns", "c", "u-1") != prepared.tenant_of("ns", "c", "u-2")
    long = prepared.tenant_of("n" * 63, "c" * 253, "u")
    assert len(long) <= 63
    assert prepared.TENANT.fullmatch(long)


def test_several_cards_are_one_tenant_and_parts_of_one_card_add_up() -> None:
    assert ready(result(0), result(1)).cards == ("GPU-0", "GPU-1")
    both = ready(result(0, 30), result(0, 20, request="more/second"))
    assert (both.cards, both.request, both.memory) == (("GPU-0",), 50, 8 * GIB)
    assert [one.request for one in both.results] == ["card", "more"]  # the kubelet does not name the alternative


@pytest.mark.parametrize(
    ("results", "node", "why"),
    [
        ((result(0, 30), result(1, 20)), "n1", "make a claim of each"),
        ((result(7),), "n1", "gpu-7 is no card of this node"),
        ((result(consumedCapacity={"core": "30", "memory": "0"}),), "n1", "memory 0 of its card"),
        ((result(),), "n2", "its devices are n1's"),
        ((result(bindingConditions=["gemini.io/promised"]),), "n1", "the extender has not promised its cards"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(
    results: tuple[dict[str, Any], ...], node: str, why: str
) -> None:
    with pytest.raises(CannotPrepare, match=why):
        prepared.prepare(claim(*results), CARDS, node)


def test_configuration_says_limit_and_class_and_the_claims_own_wins() -> None:
    config = [said(limit="80%"), said("FromClass", limit="0.5", **{"class": "latency"}), said(driver="x", limit="9")]
    found = ready(config=config)
    assert (found.limit, found.latency) == (80, True)


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"limit": "0.2"}, "limit 0.2 is below the 30 percent"),
        ({"limit": "much"}, "limit: much is not a number"),
        ({"limit": None}, "limit: "),
        ({"class": "fast"}, "class 'fast' is none of latency, batch"),
        ({"request": "0.1"}, "its configuration says request, which is not known"),
    ],
)
def test_configuration_that_makes_no_sense_is_refused(parameters: dict[str, Any], why: str) -> None:
    with pytest.raises(CannotPrepare, match=why):
        ready(config=[said(**parameters)])


def test_cdi_file_brings_library_socket_amounts_and_the_cards_over_what_the_image_says() -> None:
    found = ready()
    spec = json.loads(prepared.cdi_spec(found, reply.Options(PATHS), ("/dev/nvidia0",)))
    (device,) = spec["devices"]
    edits = device["containerEdits"]
    env = dict(text.split("=", 1) for text in edits["env"])
    assert f"{spec['kind']}={device['name']}" == prepared.cdi_names(found, reply.Options(PATHS))[0]
    assert env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
    assert (env["GEMINI_REQUEST"], env["GEMINI_MEMORY_LIMIT"]) == ("0.3", str(4 * GIB))
    assert env["LD_PRELOAD"].endswith("libgemini_hook.so")
    assert f"/run/gemini/tenants/{found.tenant}" in [mount["hostPath"] for mount in edits["mounts"]]
    assert edits["deviceNodes"] == [{"path": "/dev/nvidia0"}]


def test_cards_come_as_cdi_devices_where_the_runtime_knows_them_so() -> None:
    options = reply.Options(PATHS, gpu_cdi="nvidia.com/gpu")
    found = ready(result(0), result(1))
    assert prepared.cdi_names(found, options)[1:] == ["nvidia.com/gpu=GPU-0", "nvidia.com/gpu=GPU-1"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in prepared.cdi_spec(found, options)
