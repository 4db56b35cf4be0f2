"""The objects that the reporter writes."""

from __future__ import annotations

from typing import Any

from gemini.kube.device import read_device
from gemini.placement.model import Link
from gemini.reporter.health import Fault
from gemini.reporter.inventory import Card, Inventory
from gemini.reporter.record import advertised, device_object, merged, model_label, node_of, node_patches
from gemini.reporter.sysfs import Adapter, Place

GIB = 1 << 30
OWNER = {"metadata": {"name": "n1", "uid": "u-1"}}
SEEN = Inventory(
    tuple(
        Card(i, i, f"GPU-{i}", "NVIDIA H200", 8 * GIB, f"0000:0{i}:00.0", Place("0", "sw0", (0, 1, 4)))
        for i in range(4)
    ),
    (Link(0, 1, "NVLINK", 2),),
    (Adapter("mlx5_0", True, Place("0", "sw0", (0,))), Adapter("mlx5_1", False, Place())),
)
FAULT = {"GPU-1": Fault("Xid", "Xid 79", 5 * 10**9, 5 * 10**9)}


def written(faults: dict[str, Fault] | None = None, checkpoint: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    node = node_of("n1", SEEN, faults or {}, 16)
    return device_object(node, SEEN, faults or {}, checkpoint or [], OWNER, 1_700_000_010 * 10**9, 10 * 10**9)


def test_B14_device_object_says_all_and_the_extender_reads_it_back() -> None:
    found = read_device(written())
    assert found.faults == ()
    assert found.node == node_of("n1", SEEN, {}, 16)
    assert written()["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u-1"}
    ]
    card = written()["spec"]["devices"][0]
    assert card["topology"] == {"numa": "0", "pcie": "sw0", "cpus": "0-1,4", "address": "0000:00:00.0"}


def test_B16_unhealthy_card_stands_there_with_the_reason_and_since_when() -> None:
    given = written(FAULT)
    assert [d.health for d in read_device(given).node.devices if d.type == "gpu"] == [True, False, True, True]
    (condition,) = given["spec"]["devices"][1]["conditions"]
    assert (condition["reason"], condition["lastTransitionTime"]) == ("Xid", "2023-11-14T22:13:25Z")
    assert "conditions" not in given["spec"]["devices"][0]


def test_B2_memory_and_ratio_and_other_devices_are_capacity_of_the_node() -> None:
    assert advertised(node_of("n1", SEEN, {})) == {
        "gemini.io/gpu-memory": (str(32 * GIB), str(32 * GIB)),
        "gemini.io/gpu-memory-ratio": ("400", "400"),
        "gemini.io/rdma": ("200", "100"),
    }
    assert advertised(node_of("n1", SEEN, FAULT))["gemini.io/gpu-memory-ratio"] == ("400", "300")


def test_A2_node_that_serves_gpushares_memory_says_its_cards_in_that_projects_words() -> None:
    status = {"capacity": {"aliyun.com/gpu-mem": "32552"}}
    _, patch = node_patches({"status": status}, node_of("n1", SEEN, {}))
    assert patch is not None
    assert patch["status"]["capacity"]["aliyun.com/gpu-count"] == "4"


def test_B17_model_is_a_label_and_what_is_said_already_is_not_written_again() -> None:
    node = node_of("n1", SEEN, FAULT)
    label, status = node_patches({}, node)
    assert label == {"metadata": {"labels": {"gemini.io/gpu-model": "NVIDIA-H200"}}}
    assert status is not None
    said = {"metadata": label["metadata"], "status": status["status"]}
    assert node_patches(said, node) == (None, None)
    label, _ = node_patches(said, node_of("n1", Inventory((), (), ()), {}))
    assert label == {"metadata": {"labels": {"gemini.io/gpu-model": None}}}


def test_adapters_that_went_are_no_capacity_any_more() -> None:
    said = {"status": {"capacity": {"gemini.io/rdma": "100"}, "allocatable": {"gemini.io/rdma": "100"}}}
    _, patch = node_patches(said, node_of("n1", Inventory(SEEN.cards, (), ()), {}))
    assert patch is not None
    assert patch["status"]["capacity"]["gemini.io/rdma"] == "0"


def test_label_is_a_legal_value_whatever_the_card_is_called() -> None:
    for name, value in (("NVIDIA H200 (simulated)", "NVIDIA-H200-simulated"), ("-- x", "x"), ("a" * 90, "a" * 63)):
        seen = Inventory((Card(0, 0, "GPU-0", name, GIB, "", Place()),), (), ())
        assert model_label(node_of("n", seen, {})) == value
    assert model_label(node_of("n", Inventory((), (), ()), {})) == ""


def test_what_others_put_on_the_device_stays_and_an_unchanged_one_is_not_written() -> None:
    known = written(checkpoint=[{"podUID": "p", "deviceIDs": ["GPU-0"]}])
    known["metadata"] |= {"resourceVersion": "7", "labels": {"a": "b"}}
    known["metadata"]["annotations"]["theirs"] = "x"
    known["spec"]["partitions"] = {"policy": "honor", "sets": [[0, 1]]}
    known["status"] = {}
    again = written(checkpoint=[{"podUID": "p", "deviceIDs": ["GPU-0"]}])
    assert merged(known, again) is None
    less = merged(known, written())
    assert less is not None
    assert less["metadata"] == {**known["metadata"], "annotations": {"theirs": "x"}}
    assert less["spec"]["partitions"] == known["spec"]["partitions"]
    assert merged(None, again) == again
