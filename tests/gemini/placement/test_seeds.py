"""The worked examples and tables of the founding documents, by their ids; docs/placement.md lists them.

A: gpushare's design and blog. B: the fine-grained device proposal. D: the Gaia paper. Only what is pure stands here.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from gemini.cli.scenario import Scenario
from gemini.kube.pod import parse_ask, parse_pod
from gemini.placement.book import Book
from gemini.placement.model import Want
from tests.gemini.placement.bed import (
    GIB,
    MIB,
    answer,
    answers,
    ask,
    cards,
    fine,
    gpu,
    held,
    minors,
    node,
    reason,
    where,
    whole,
)

CARD = "16276Mi"
ALIYUN = {"policies": ["binpack", "minor"]}


def mem(pod: str, mebibytes: int) -> dict[str, Any]:
    return {"pod": pod, "resources": {"aliyun.com/gpu-mem": mebibytes}}


# ---- A: sharing the memory of one card


def test_A1_gpu_mem_is_in_mebibytes_and_gpu_count_in_cards() -> None:
    want = parse_ask("p", resources={"aliyun.com/gpu-mem": "16276"}).ask.tenants[0].wants[0]
    assert (want.memory, want.count) == (16276 * MIB, 1)
    spread = parse_ask("p", resources={"aliyun.com/gpu-mem": 16276, "aliyun.com/gpu-count": 2}).ask.tenants[0].wants[0]
    assert (spread.memory, spread.count) == (8138 * MIB, 2)


def test_A4_a_request_may_not_exceed_one_card_though_the_node_has_more() -> None:
    nodes = [cards("n1", 2, CARD)]
    refused = answer(nodes, mem("p", 16277))
    assert reason(refused, "n1") == "InsufficientMemory"
    assert set(refused["refused"]["n1"]["devices"]) == {"0", "1"}
    assert where(answer(nodes, mem("p", 16276))) == ("n1", [0])


def test_A6_a_card_decides_not_the_total_of_the_node() -> None:
    placed = [held("a", "n1", (0, 60, "9766Mi"), (1, 60, "9766Mi"))]
    assert reason(answer([cards("n1", 2, CARD)], mem("p", 8138), placed=placed), "n1") == "InsufficientMemory"


def test_A7_the_filter_passes_only_the_node_whose_room_is_on_one_card() -> None:
    nodes = [cards(name, 2, CARD) for name in ("N1", "N2", "N3")]
    placed = [
        held("a", "N1", (0, 100, "16276Mi"), (1, 75, "12207Mi")),
        held("b", "N2", (0, 75, "12207Mi"), (1, 75, "12207Mi")),
        held("c", "N3", (0, 50, "8138Mi"), (1, 100, "16276Mi")),
    ]
    assert where(answer(nodes, mem("p", 8138), placed=placed)) == ("N3", [0])
    refused = answer(nodes, mem("p", 8138), mem("q", 8138), placed=placed)
    for name in ("N1", "N2", "N3"):
        assert reason(refused, name) == "InsufficientMemory"
        assert set(refused["refused"][name]["devices"]) == {"0", "1"}
    assert "4069Mi free of 16276Mi, 8138Mi asked" in refused["refused"]["N2"]["devices"]["0"]


def test_A8_binpack_takes_the_least_free_card_that_fits_exactly_included() -> None:
    free = [12207, 8138, 4069, 16276]
    used = [(m, (16276 - f) * 100 // 16276, f"{16276 - f}Mi") for m, f in enumerate(free) if f < 16276]
    scenario = {"placed": [held("a", "n1", *used)], **ALIYUN}
    nodes = [cards("n1", 4, CARD)]
    assert where(answer(nodes, mem("p", 8138), **scenario)) == ("n1", [1])
    # GPU1 is full now; the next goes to the next fullest that fits.
    assert where(answer(nodes, mem("p", 8138), mem("q", 8138), **scenario)) == ("n1", [0])


def test_A10_where_no_card_fits_nothing_is_bound_and_the_reason_is_said() -> None:
    """The blog ends without an error; corrected: an error is answered (cluster.md 1.E.6)."""
    refused = answer([cards("n1", 1, CARD)], mem("p", 8138), mem("q", 8139))
    assert "node" not in refused
    assert reason(refused, "n1") == "InsufficientMemory"


def test_A11_the_accounts_are_what_the_placed_pods_say() -> None:
    placed = [held("a", "n1", (0, 50, "8138Mi"))]
    again = answer([cards("n1", 1, CARD)], mem("p", 8139), placed=placed)
    assert reason(again, "n1") == "InsufficientMemory"
    assert where(answer([cards("n1", 1, CARD)], mem("p", 8138), placed=placed)) == ("n1", [0])


def test_A15_memory_of_a_card_is_never_promised_twice() -> None:
    nodes = [cards("n1", 2, CARD)]
    placements = answers(nodes, *(mem(f"p{i}", 4069) for i in range(9)), **ALIYUN)
    assert Counter(minors(p)[0] for p in placements[:8]) == {0: 4, 1: 4}
    assert reason(placements[8], "n1") == "InsufficientMemory"


def test_A17_the_demo_deployment_runs() -> None:
    container = {"name": "binpack-1", "image": "player", "resources": {"limits": {"aliyun.com/gpu-mem": 1024}}}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "binpack-1"},
        "spec": {"replicas": 1, "template": {"metadata": {}, "spec": {"containers": [container]}}},
    }
    placed = answer([cards("n1", 1, CARD)], {"manifest": manifest})
    assert (placed["pod"], placed["devices"][0]["memory"]) == ("binpack-1", 1024 * MIB)


def test_A18_compute_goes_with_memory() -> None:
    placements = answers([cards("n1", 1, CARD)], mem("p", 4069), mem("q", 8138))
    assert [p["devices"][0]["core"] for p in placements] == [25, 50]
    # Parts are rounded down, so thirds of a card still fit three times.
    thirds = answers([cards("n1", 1, "3000Mi")], *(mem(f"t{i}", 1000) for i in range(3)))
    assert [p["devices"][0]["core"] for p in thirds] == [33, 33, 33]


# ---- B: fine-grained devices


def test_B1_core_memory_ratio_and_gpu_are_read() -> None:
    for domain in ("kubernetes.io", "koordinator.sh", "gemini.io"):
        want = (
            parse_ask("p", resources={f"{domain}/gpu-core": 50, f"{domain}/gpu-memory": "4Gi"}).ask.tenants[0].wants[0]
        )
        assert (want.core, want.memory, want.count) == (50, 4 * GIB, 1)


def test_B3_nvidia_gpu_2_is_two_whole_cards() -> None:
    placed = answer(
        [cards("n1", 4, "8Gi")], {"pod": "p", "resources": {"nvidia.com/gpu": "2", "cpu": "4", "memory": "8Gi"}}
    )
    assert [(d["core"], d["memory"]) for d in placed["devices"]] == [(100, 8 * GIB), (100, 8 * GIB)]


def test_B4_gpu_50_is_half_of_the_time_and_of_the_memory() -> None:
    placed = answer([cards("n1", 4, "8Gi")], {"pod": "p", "resources": {"kubernetes.io/gpu": "50"}})
    assert [(d["core"], d["memory"]) for d in placed["devices"]] == [(50, 4 * GIB)]


@pytest.mark.parametrize(
    ("resources", "core", "memory"),
    [
        ({"gpu-core": 50, "gpu-memory-ratio": 60}, 50, 8 * GIB * 60 // 100),
        ({"gpu-core": 60, "gpu-memory": "4Gi"}, 60, 4 * GIB),
    ],
)
def test_B5_core_and_memory_are_independent(resources: dict[str, Any], core: int, memory: int) -> None:
    asked = {f"kubernetes.io/{k}": v for k, v in resources.items()}
    device = answer([cards("n1", 1, "8Gi")], {"pod": "p", "resources": asked})["devices"][0]
    assert (device["core"], device["memory"]) == (core, memory)


def test_B5_rdma_alone_is_placed() -> None:
    nodes = [node("n1", gpu(0), {"type": "rdma", "minor": 0}, {"type": "fpga", "minor": 0})]
    placed = answer(nodes, {"pod": "p", "resources": {"kubernetes.io/rdma": 100, "kubernetes.io/fpga": 100}})
    assert [(d["type"], d["core"]) for d in placed["devices"]] == [("fpga", 100), ("rdma", 100)]


def test_B6_a_ratio_is_bytes_of_the_card_that_is_taken() -> None:
    nodes = [node("n1", gpu(0, "8Gi"), gpu(1, "16276Mi"), gpu(2, 1001))]
    half = {"resources": {"kubernetes.io/gpu": 50}}
    for minor, memory in ((0, 4 * GIB), (1, 8138 * MIB), (2, 500)):
        device = answer(nodes, {"pod": "p", "annotations": {"gemini.io/gpu-uuid": f"GPU-{minor}"}, **half})["devices"][
            0
        ]
        assert (device["minor"], device["memory"]) == (minor, memory)


def test_B7_every_chosen_card_must_have_the_ratio_free() -> None:
    placed = [held("a", "n1", (0, 10, "2Gi"))]
    two = {"pod": "p", "resources": {"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-memory-ratio": 160}}
    assert where(answer([cards("n1", 3, "8Gi")], two, placed=placed)) == ("n1", [1, 2])
    assert reason(answer([cards("n1", 2, "8Gi")], two, placed=placed), "n1") == "InsufficientMemory"


@pytest.mark.parametrize("key", ["gpu", "gpu-core", "gpu-memory-ratio"])
@pytest.mark.parametrize("domain", ["kubernetes.io", "gemini.io"])
def test_B8_more_than_a_card_is_a_multiple_of_100(domain: str, key: str) -> None:
    for value in (101, 150):
        refused = answer([cards("n1", 4)], {"pod": "p", "resources": {f"{domain}/{key}": value}})
        assert refused["refused"]["*"]["message"].startswith(f"{domain}/{key}: {value} is above 100 and no multiple")
    assert minors(answer([cards("n1", 4)], {"pod": "p", "resources": {f"{domain}/{key}": 200}})) == [0, 1]


def test_B9_the_allocation_names_minor_and_amounts_of_each_card() -> None:
    placed = answer([cards("n1", 2, "16Gi")], {"pod": "p", "resources": {"nvidia.com/gpu": 2}})
    assert placed["devices"] == [
        {"type": "gpu", "minor": m, "uuid": f"GPU-{m}", "core": 100, "memory": 16 * GIB} for m in (0, 1)
    ]


def test_B10_what_was_reserved_can_be_given_back() -> None:
    whole = {"resources": {"nvidia.com/gpu": 1}}
    placements = answers(
        [cards("n1", 1)], {"pod": "p", **whole}, {"pod": "q", **whole}, {"release": "p"}, {"pod": "r", **whole}
    )
    assert [("node" in p) for p in placements] == [True, False, True]


def test_B11_cards_are_chosen_in_the_order_of_their_minors() -> None:
    nodes = [node("n1", gpu(3), gpu(1), gpu(2))]
    placements = answers(
        nodes, *({"pod": f"p{i}", "resources": {"nvidia.com/gpu": 1}} for i in range(3)), policies=["minor"]
    )
    assert [minors(p) for p in placements] == [[1], [2], [3]]


def test_B13_a_new_type_of_device_needs_configuration_only() -> None:
    nodes = [node("n1", {"type": "npu", "minor": 0}, {"type": "npu", "minor": 1, "health": False}), cards("n2", 1)]
    placements = answers(
        nodes,
        fine("p", npu=60),
        fine("q", npu=50),
        fine("r", npu=200),
        fine("s", gpu=50, npu=40),
    )
    assert placements[0]["devices"] == [{"type": "npu", "minor": 0, "uuid": "", "core": 60, "memory": 0}]
    assert placements[1]["refused"]["n1"]["devices"] == {
        "npu/0": "core: 40 free of 100, 50 asked",
        "npu/1": "unhealthy",
    }
    assert placements[1]["refused"]["n2"]["reason"] == "InsufficientDevices"
    assert {r["reason"] for r in placements[2]["refused"].values()} == {"InsufficientCore", "InsufficientDevices"}
    assert "node" not in placements[3]  # no node has both


def test_B15_a_card_of_the_example_resource_has_15472384_kibibytes() -> None:
    uuid = "GPU-98583a5c-c155-9cf6-f955-03c189d3dbfb"
    nodes = [node("node-1", gpu(0, "15472384Ki", uuid=uuid), gpu(1, "15472384Ki"))]
    placed = answer(nodes, {"pod": "p", "resources": {"kubernetes.io/gpu": 100}})
    assert placed["devices"][0] == {"type": "gpu", "minor": 0, "uuid": uuid, "core": 100, "memory": 15_843_721_216}


def test_B24_several_cards_of_one_pod_are_the_best_connected() -> None:
    links = [["0", "1", "PHB"], ["0", "2", "NVLINK", 1], ["1", "3", "NVLINK", 2], ["2", "3", "PHB"]]
    nodes = [cards("n1", 4, links=links)]
    two = {"pod": "p", "resources": {"nvidia.com/gpu": 2}}
    assert minors(answer(nodes, two, policies=["best-link"])) == [1, 3]


def test_B24_a_group_of_pods_is_placed_together_on_the_best_cards_of_one_node() -> None:
    links = [[str(a), str(b), "NVLINK", 2] for a in (2, 3, 4, 5) for b in (2, 3, 4, 5) if a < b]
    nodes = [cards("n1", 4), cards("n2", 6, links=links), cards("n3", 3)]
    members = [ask(f"p{i}", gpu_request="1", pod_group="g", pod_group_size="4") for i in range(4)]
    assert [where(p) for p in answers(nodes, *members)] == [("n2", [m]) for m in (2, 3, 4, 5)]


def test_B25_binpack_and_spread() -> None:
    nodes = [cards("n1", 2)]
    shares = [ask(f"p{i}", gpu_request="0.3") for i in range(2)]
    assert [minors(p) for p in answers(nodes, *shares, policies=["binpack"])] == [[0], [0]]
    assert [minors(p) for p in answers(nodes, *shares, policies=["spread"])] == [[0], [1]]


# ---- D: Gaia

GAIA = {"policies": ["fragment", "singular", "link"]}
# The pair gpu2, gpu3 is cheaper than gpu0, gpu1: the only reading that agrees with Tables I, III and IV (D16).
TREE = {
    "mode": "SOC",
    "cost": 4,
    "children": [
        {"mode": "PHB", "cost": 2, "children": ["n1/0", "n1/1"]},
        {"mode": "PIX", "cost": 1, "children": ["n1/2", "n1/3"]},
    ],
}
TIMES = 500


def gaia(*asks: dict[str, Any], **scenario: Any) -> list[dict[str, Any]]:
    """Table runs start from an equal state each time, with the node's cards listed in any order."""
    devices = [gpu(m, "8Gi") for m in range(4)]
    random.shuffle(devices)
    return answers([node("n1", *devices)], *asks, tree=TREE, **GAIA, **scenario)


TAKEN = {"placed": [held("c0", "n1", (2, 100, "8Gi"))]}  # Fig. 8(a)


def test_D2_one_request_never_mixes_models() -> None:
    nodes = [node("n1", gpu(0, model="P4"), gpu(1, model="V100"), gpu(2, model="P4"))]
    assert minors(answer(nodes, whole("p", 2))) == [0, 2]
    refused = answer(nodes, whole("p", 3))
    assert reason(refused, "n1") == "MixedModels"
    assert minors(answer(nodes, ask("p", gpu_request="0.5", gpu_model="V100"))) == [1]


def test_D4_D5_a_cards_cost_is_its_parents_and_pix_is_cheapest() -> None:
    modes = ["PIX", "PXB", "PHB", "SOC"]
    for near, far in pairwise(modes):
        tree = {
            "mode": "SOC",
            "cost": 9,
            "children": [{"mode": far, "children": ["n1/0", "n1/1"]}, {"mode": near, "children": ["n1/2", "n1/3"]}],
        }
        assert minors(answer([cards("n1", 4)], whole("p", 2), tree=tree, **GAIA)) == [2, 3]


def test_D6_more_than_one_card_must_be_whole_cards() -> None:
    labels = {"sharedgpu/gpu_request": "1.5", "sharedgpu/gpu_limit": "1.5"}
    assert "must be whole" in answer([cards("n1", 4)], {"pod": "p", "labels": labels})["refused"]["*"]["message"]
    refused = answer([cards("n1", 4)], ask("p", gpu_request="1.5"))
    assert refused["refused"]["*"]["message"].startswith("gemini.io/gpu-request: 1.5 is above 1; ")


def test_D7_the_three_policies_are_the_dispatch() -> None:
    placements = gaia(whole("a", 2), ask("b", gpu_request="0.5"), ask("c", gpu_request="0.4"), whole("d", 1))
    assert [minors(p) for p in placements] == [[2, 3], [0], [0], [1]]


def test_D8_fragment_takes_the_fullest_that_fits_else_the_cheapest_idle_card() -> None:
    placed = [held("a", "n1", (0, 50, 0), (1, 30, 0))]
    for share, minor in (("0.5", 0), ("0.6", 1), ("0.7", 1), ("0.8", 2)):
        assert minors(gaia(ask("p", gpu_request=share, gpu_memory="1Gi"), placed=placed)[0]) == [minor]


def test_D9_singular_takes_the_sibling_of_a_card_that_is_taken() -> None:
    """Fig. 5: with one of a pair taken the next single card is its sibling, though others are cheaper."""
    tree = {
        "mode": "SOC",
        "cost": 9,
        "children": [
            {"mode": "PIX", "cost": 1, "children": ["n1/0", "n1/1"]},
            {"mode": "PXB", "cost": 2, "children": ["n1/2", "n1/3"]},
            {"mode": "PHB", "cost": 3, "children": ["n1/4", "n1/5"]},
        ],
    }
    nodes = [cards("n1", 6)]
    placed = [held("a", "n1", (4, 100, "16Gi"))]
    assert minors(answer(nodes, whole("p", 1), tree=tree, placed=placed, **GAIA)) == [5]
    assert minors(answer(nodes, whole("p", 1), tree=tree, **GAIA)) == [0]


def test_D10_link_takes_the_set_of_lowest_cost() -> None:
    """Fig. 4: of the subtrees with two cards the cheapest gives GPU0 and GPU1; corrected Algorithm 4."""
    tree = {
        "mode": "SOC",
        "cost": 4,
        "children": [
            {"mode": "PIX", "cost": 1, "children": ["n1/0", "n1/1"]},
            {"mode": "PHB", "cost": 3, "children": ["n1/2", {"mode": "PXB", "cost": 2, "children": ["n1/3", "n1/4"]}]},
        ],
    }
    assert minors(answer([cards("n1", 5)], whole("p", 2), tree=tree, **GAIA)) == [0, 1]
    assert minors(answer([cards("n1", 5)], whole("p", 3), tree=tree, **GAIA)) == [2, 3, 4]
    assert minors(answer([cards("n1", 5)], whole("a", 2), whole("p", 2), tree=tree, **GAIA)) == [3, 4]


def test_D12_table_I() -> None:
    one, two = Counter[int](), Counter[tuple[int, ...]]()
    for _ in range(TIMES):
        one[minors(gaia(whole("p", 1))[0])[0]] += 1
        two[tuple(minors(gaia(whole("p", 2))[0]))] += 1
    assert set(one) <= {2, 3}  # ties are free: ours go to the lower minor
    assert one.total() == two[2, 3] == TIMES


def test_D13_table_II() -> None:
    second, third = Counter[int](), Counter[int]()
    for _ in range(TIMES):
        first = [held("c1", "n1", (2, 50, "4Gi"))]
        placements = gaia(ask("c2", gpu_request="0.4"), ask("c3", gpu_request="0.1"), placed=first)
        second[minors(placements[0])[0]] += 1
        third[minors(placements[1])[0]] += 1
    assert second == third == {2: TIMES}  # 1 - 0.5 - 0.4 leaves room for 0.1


def test_D14_table_III() -> None:
    taken = Counter(minors(gaia(whole("p", 1), **TAKEN)[0])[0] for _ in range(TIMES))
    assert taken == {3: TIMES}


def test_D15_table_IV() -> None:
    taken = Counter(tuple(minors(gaia(whole("p", 2), **TAKEN)[0])) for _ in range(TIMES))
    assert taken == {(0, 1): TIMES}


def test_D11_the_accounts_can_be_rebuilt_from_what_was_allocated() -> None:
    nodes = [cards("n1", 4, "8Gi")]
    run = Scenario({"nodes": nodes, "asks": [whole("a", 2), ask("b", gpu_request="0.3")], **GAIA})
    run.run()
    rebuilt = Book(run.book.nodes())
    for holding in reversed(list(run.book.holdings.values())):
        rebuilt.place(holding.placement, strict=False)
    assert rebuilt.snapshot() == run.book.snapshot()


def test_D1_cpu_bind_names_the_nearest_cores() -> None:
    manifest = {
        "metadata": {"name": "p", "annotations": {"gemini.io/gpu-request": "0.5", "gemini.io/cpu-bind": "2"}},
        "spec": {"containers": [{"name": "main"}]},
    }
    assert parse_pod(manifest).containers[0].cpu_bind == 2


def test_exact_parts_of_a_card_are_integers() -> None:
    """1.E.1: a third of a card's memory three times is no more than the card, and never a float."""
    want = Want(ratio=33)
    assert [want.memory_on(total) for total in (100, 1000, 16276 * MIB)] == [33, 330, 16276 * MIB * 33 // 100]
