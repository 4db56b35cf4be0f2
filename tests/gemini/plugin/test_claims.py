"""What containers were promised: the pod's spec and the record it was bound with, read together."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gemini.kube import names
from gemini.placement.model import Role
from gemini.plugin.claims import claims_of
from gemini.plugin.slots import CORE, gpushare
from gemini.plugin.view import slim
from tests.gemini.plugin.pods import GIB, bound, cards

KNOWN = cards(2)


def test_a_share_on_the_pod_is_one_tenant_on_the_same_card_for_all_its_containers() -> None:
    pod = bound("p", KNOWN, [1], ("main", "side"), ("prepare",), gpu_request="0.5", gpu_limit="0.8")
    found = claims_of(pod, CORE, KNOWN)
    assert found is not None
    assert [(claim.container, claim.slots) for claim in found.claims] == [("prepare", 1), ("main", 49), ("side", 1)]
    for claim in found.claims:
        assert (claim.cards, claim.request, claim.limit, claim.memory) == (("GPU-1",), 50, 80, 8 * GIB)
        assert (claim.tenant, claim.card_memory, claim.latency, claim.cpu_bind) == (0, 16 * GIB, False, 0)


def test_a_share_of_a_container_is_a_tenant_of_its_own() -> None:
    pod = bound(
        "p", KNOWN, None, ("main", "side"), ("prepare",), gpu_request__main="0.6", gpu_request__prepare="0.9",
        gpu_memory__main="2Gi", gpu_class__main="latency", cpu_bind__main="2",
    )  # fmt: skip
    found = claims_of(pod, CORE, KNOWN)
    assert found is not None
    prepare, main = found.claims
    assert (prepare.role, prepare.request, prepare.slots) == (Role.INIT, 90, 90)
    assert (main.role, main.request, main.memory, main.latency, main.cpu_bind) == (Role.APP, 60, 2 * GIB, True, 2)
    assert main.tenant != prepare.tenant


def test_several_cards_are_all_in_the_claim() -> None:
    found = claims_of(bound("p", KNOWN, [0, 1], gpu_request="0.3", gpu_count="2"), CORE, KNOWN)
    assert found is not None
    assert (found.claims[0].cards, found.claims[0].slots, found.claims[0].request) == (("GPU-0", "GPU-1"), 60, 30)


@pytest.mark.parametrize("said", ["9" * 5_000, "-1", "x", ""])
def test_a_time_of_the_promise_that_is_none_ends_nothing(said: str) -> None:
    """One of 5,000 digits ended the plugin, at each of its starts for as long as the pod was there."""
    pod = bound("p", KNOWN, [0], gpu_request="0.3")
    pod["metadata"]["annotations"][names.ASSUME_TIME] = said
    found = claims_of(pod, CORE, KNOWN)
    assert found is not None
    assert (found.order, found.fault) == (0, "")


def test_best_effort_asks_one_slot_and_is_promised_no_time() -> None:
    found = claims_of(bound("p", KNOWN, [0], gpu_memory="1Gi"), CORE, KNOWN)
    assert found is not None
    assert (found.claims[0].slots, found.claims[0].request, found.claims[0].memory) == (1, 0, GIB)


def test_gpushares_pod_has_that_projects_environment() -> None:
    pod = bound("p", KNOWN, [1], limits={names.ALIYUN_GPU_MEM: "8192"})
    found = claims_of(pod, gpushare("MiB"), KNOWN)
    assert found is not None
    (claim,) = found.claims
    assert (claim.slots, claim.request, claim.memory) == (8192, 50, 8 * GIB)
    assert claim.more == {
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "8192",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "8192",
        "ALIYUN_COM_GPU_MEM_DEV": "16384",
    }


def test_gpushares_pod_may_count_in_gibibytes_on_a_node_that_does() -> None:
    pod = bound("p", KNOWN, [1], limits={names.ALIYUN_GPU_MEM: "8"}, gpushare_unit="GiB")
    assert pod["metadata"]["annotations"][names.ALIYUN_POD] == "8"
    assert pod["metadata"]["annotations"][names.ALIYUN_DEVICE] == "16"
    found = claims_of(pod, gpushare("GiB"), KNOWN)
    assert found is not None
    (claim,) = found.claims
    assert (claim.slots, claim.request, claim.memory) == (8, 50, 8 * GIB)
    assert claim.more["ALIYUN_COM_GPU_MEM_DEV"] == "16"


@pytest.mark.parametrize(("unit", "node"), [("GiB", "MiB"), ("MiB", "GiB")])
def test_gpushares_pod_in_another_unit_than_the_nodes_is_a_fault(unit: str, node: str) -> None:
    pod = bound("p", KNOWN, [1], limits={names.ALIYUN_GPU_MEM: "8"}, gpushare_unit=unit)
    found = claims_of(pod, gpushare(node), KNOWN)
    assert found is not None
    assert f"gpushare-unit: {unit} is not what this node counts" in found.fault


def test_a_pod_that_asks_no_slots_of_ours_is_none() -> None:
    plain = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "main"}]}}
    assert claims_of(plain, CORE, KNOWN) is None
    assert claims_of(bound("p", KNOWN, [0], gpu_request="0.5"), gpushare("MiB"), KNOWN) is None
    assert claims_of(bound("p", KNOWN, [0], limits={names.ALIYUN_GPU_MEM: "8192"}), CORE, KNOWN) is None


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (None, "not bound by the Gemini extender"),
        ("{", "is no record of an allocation"),
        ('{"gpu": [{"minor": 0}]}', "is no device of a record"),
        ("{}", "does not add up to what the pod's containers ask for"),
        (
            '{"gpu": [{"minor": 0, "resources": {"gemini.io/gpu-core": 90, "gemini.io/gpu-memory": 15032385536}}]}',
            "does not add up",
        ),
    ],
)
def test_a_pod_without_a_record_that_makes_sense_has_a_fault(record: str | None, told: str) -> None:
    pod = bound("p", KNOWN, [0], gpu_request="0.5")
    del pod["metadata"]["annotations"][names.ALLOCATION]
    if record is not None:
        pod["metadata"]["annotations"][names.ALLOCATION] = record
    found = claims_of(pod, CORE, KNOWN)
    assert found is not None
    assert told in found.fault
    assert not found.claims


def test_a_record_that_names_an_unknown_card_is_still_a_claim_on_it() -> None:
    pod = bound("p", KNOWN, [0], gpu_request="0.5")
    found = claims_of(pod, CORE, {})
    assert found is not None
    assert (found.claims[0].cards, found.claims[0].card_memory) == (("GPU-0",), 0)
    assert json.loads(pod["metadata"]["annotations"][names.ALLOCATION]) == found.record


def test_of_a_large_pod_little_is_kept_and_the_same_is_read() -> None:
    """A node's plugin kept each of its pods as large as the API server stores it."""
    pod = bound("p", KNOWN, containers=("main", "side"), init=("first",), gpu_request="0.5", gpu_memory="4Gi")
    env = [{"name": f"A{i}", "value": "v" * 60} for i in range(13_000)]
    states = [{"name": "main", "image": "x" * 1000, "state": {"running": {"startedAt": "now"}}}]
    ended = [{"name": "first", "state": {"terminated": {"exitCode": 0, "message": "x" * 4000}}}]
    pod["spec"]["containers"][0]["env"] = env
    pod["status"] = {"phase": "Running", "containerStatuses": states, "initContainerStatuses": ended}
    small, whole = slim(pod), claims_of(pod, CORE, KNOWN)
    assert len(json.dumps(small)) < 8_000
    assert small["status"]["containerStatuses"] == [{"name": "main", "state": {"running": {"exitCode": None}}}]
    assert small["status"]["initContainerStatuses"] == [{"name": "first", "state": {"terminated": {"exitCode": 0}}}]
    read = claims_of(small, CORE, KNOWN)
    assert whole is not None
    assert read is not None
    assert not whole.fault
    assert replace(read, object={}) == replace(whole, object={})
