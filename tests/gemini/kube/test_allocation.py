"""The record in a pod's annotations: what is written is read back, and nothing else is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gemini.cli.scenario_parts import read_node
from gemini.kube.allocation import annotations_of, record_of
from gemini.kube.pod import PodSpec, parse_ask, parse_pod
from gemini.kube.spelling import InvalidPod
from gemini.placement.allocate import Allocator
from gemini.placement.book import Book
from gemini.placement.holding import Holding
from gemini.placement.model import Node, Placement
from tests.gemini.placement.bed import box, cards, gpu, node, pod

GIB = 2**30


def placed(spec: PodSpec, made: dict[str, Any]) -> tuple[Placement, Node]:
    where = read_node(made, "n")
    placement = Allocator(Book([where])).choose(spec.ask)
    assert placement is not None
    return placement, where


def written(spec: PodSpec, made: dict[str, Any]) -> dict[str, str]:
    placement, where = placed(spec, made)
    result = annotations_of(placement, spec, where, 1234)
    found = record_of(spec.name, "n1", result)
    assert found is not None
    read = found[0]
    for ended in (False, True):
        held, again = Holding(placement, ended).devices(), Holding(read, ended).devices()
        assert {at: h.total() for at, h in held.items()} == {at: h.total() for at, h in again.items()}
    return result


def test_B9_two_whole_cards() -> None:
    said = written(parse_ask("p", None, {"nvidia.com/gpu": 2}), cards("n1", 2, "16Gi"))
    amounts = {"gemini.io/gpu-core": 100, "gemini.io/gpu-memory": 16 * GIB, "gemini.io/gpu-memory-ratio": 100}
    assert json.loads(said["gemini.io/allocation"]) == {
        "gpu": [{"minor": m, "uuid": f"GPU-{m}", "resources": amounts} for m in (0, 1)]
    }
    assert (said["gemini.io/assume-time"], said["gemini.io/assigned"]) == ("1234", "false")


def test_A9_gpushares_own_annotations_are_written_for_its_spelling_only() -> None:
    said = written(parse_ask("p", None, {"aliyun.com/gpu-mem": 1024}), cards("n1", 2, "16276Mi"))
    assert {k: v for k, v in said.items() if k.startswith("ALIYUN")} == {
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "1024",
        "ALIYUN_COM_GPU_MEM_DEV": "16276",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1234",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
    }
    assert not any(k.startswith("ALIYUN") for k in written(parse_ask("p", None, {"nvidia.com/gpu": 1}), cards("n1", 1)))


def test_several_tenants_and_types_survive() -> None:
    manifest = pod("p", box("a", gpu=30), box("b", gpu=20, rdma=50), init=[box("i", gpu=60), box("s", True, gpu=10)])
    made = node("n1", gpu(0), {"type": "rdma", "minor": 0})
    record = json.loads(written(parse_pod(manifest["manifest"]), made)["gemini.io/allocation"])
    assert [(e["containers"], e.get("role")) for e in record["gpu"]] == [
        (["i"], "init"),
        (["s"], None),
        (["a"], "app"),
        (["b"], "app"),
    ]
    assert record["rdma"][0]["resources"] == {"gemini.io/rdma": 50}


def test_no_record_is_no_placement() -> None:
    assert record_of("p", "n1", {}) is None


ENTRY = {"minor": 0, "resources": {"gemini.io/gpu-core": 50}}


@pytest.mark.parametrize(
    "record",
    ["", "{", "[]", "5", None, {"gpu": 5}, {"gpu": [5]}, {"gpu": [{}]}, {"gpu": [{**ENTRY, "minor": -1}]},
     {"gpu": [{**ENTRY, "minor": True}]}, {"gpu": [{**ENTRY, "role": "boss"}]}, {"gpu": [{**ENTRY, "role": []}]},
     {"gpu": [{**ENTRY, "resources": {"gemini.io/gpu-core": 101}}]}, {"rdma": [ENTRY]}],
)  # fmt: skip
def test_what_is_no_record_is_refused(record: Any) -> None:
    text = json.dumps(record) if isinstance(record, dict) else record
    annotations = {"gemini.io/allocation": 7 if text is None else text}
    with pytest.raises(InvalidPod, match=r"^gemini.io/allocation: .*; delete the pod"):
        record_of("p", "n1", annotations)
