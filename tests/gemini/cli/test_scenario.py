"""Scenarios: what makes no sense as a whole is one line; what is wrong with one ask is refused in its place."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemini.cli.scenario import Scenario
from gemini.cli.scenario_parts import BadScenario
from tests.gemini.placement.bed import (
    GIB,
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


def the_contracts_example() -> dict[str, Any]:
    card = {
        "type": "gpu",
        "minor": 0,
        "uuid": "GPU-0",
        "model": "A100",
        "memory": "16276Mi",
        "core": 100,
        "health": True,
    }
    more = [{**card, "minor": m, "uuid": f"GPU-{m}"} for m in (1, 2)]
    links = [["0", "1", "NVLINK", 2], ["0", "2", "PHB"]]
    return {
        "policies": ["binpack", "minor"],
        "nodes": [{"name": "n1", "links": links, "devices": [{**card, "numa": 0, "pcie": "0"}, *more]}],
        "tree": {"mode": "SOC", "children": [{"mode": "PIX", "cost": 1, "children": ["n1/0", "n1/1"]}]},
        "placed": [{"pod": "p0", "node": "n1", "devices": [{"minor": 0, "core": 50, "memory": "8138Mi"}]}],
        "asks": [
            {
                "pod": "p1",
                "annotations": {"gemini.io/gpu-request": "0.4", "gemini.io/gpu-memory": "4Gi"},
                "resources": {},
            },
            {"pod": "p2", "manifest": {"spec": {"containers": [{"name": "main"}]}}},
            {"release": "p1"},
            {"initialized": "p2"},
        ],
    }


def test_the_example_of_the_contract() -> None:
    first, second = Scenario(the_contracts_example()).run()["placements"]
    device = {"type": "gpu", "minor": 0, "uuid": "GPU-0", "core": 40, "memory": 4294967296}
    assert first == {"pod": "p1", "node": "n1", "devices": [device]}
    assert second["refused"]["*"]["reason"] == "Invalid"


BAD = [
    (["policies", 0], "fastest", "policies: 'fastest' is no policy; use some of binpack"),
    (["policies"], "binpack", "policies: binpack is not a list"),
    (["nodes"], {}, "nodes: {} is not a list"),
    (["nodes", 0], 1, "nodes[0]: 1 is not an object"),
    (["nodes", 0, "name"], "", "nodes[0].name: '' is not a name"),
    (["nodes", 0, "devices", 0, "minor"], -1, "nodes[0].devices[0].minor: -1 is not a whole number"),
    (["nodes", 0, "devices", 0, "minor"], True, "nodes[0].devices[0].minor: True is not a whole number"),
    (["nodes", 0, "devices", 0, "minor"], 1, "nodes[0]: two devices of type gpu have minor 1"),
    (["nodes", 0, "devices", 0, "uuid"], "GPU-1", "nodes[0]: two devices of type gpu have uuid GPU-1"),
    (["nodes", 0, "devices", 0, "memory"], "lots", "nodes[0].devices[0].memory: lots is not a quantity"),
    (["nodes", 0, "devices", 0, "memory"], -5, "nodes[0].devices[0].memory: -5 is not a size above 0"),
    (["nodes", 0, "devices", 0, "core"], 150, "nodes[0].devices[0].core: 150 is not a whole number from 1 to 100"),
    (["nodes", 0, "devices", 0, "health"], "yes", "nodes[0].devices[0].health: yes is neither true nor false"),
    (["nodes", 0, "devices", 0, "pcie"], [], "nodes[0].devices[0].pcie: [] is neither"),
    (["nodes", 0, "devices", 0, "slots"], 0, "nodes[0].devices[0].slots: 0 is not a whole number"),
    (["nodes", 0, "links", 0], ["0"], "nodes[0].links[0]: ['0'] is no link"),
    (["nodes", 0, "links", 0, 1], "9", "nodes[0].links[0]: 9 is no gpu of the node"),
    (["nodes", 0, "links", 1, 2], "WIFI", "nodes[0].links[1]: WIFI is no kind of link"),
    (["nodes", 0, "partitions"], {"policy": "maybe"}, "nodes[0].partitions.policy: maybe is not known"),
    (["nodes", 0, "partitions"], {"sets": [[0, 9]]}, "nodes[0].partitions.sets[0]: [0, 9] is not a set"),
    (["tree"], [], "tree: [] is not an object"),
    (["tree", "children", 0, "children", 0], "n1/9", "tree.children[0].children[0]: n1/9 is no gpu"),
    (["tree", "children", 0, "children", 0], "n1/1", "tree.children[0].children[1]: n1/1 stands in the tree twice"),
    (["tree", "children", 0, "cost"], -1, "tree.children[0].cost: -1 is not a number"),
    (["tree", "mode"], "RING", "tree: mode RING has no usual cost"),
    (["placed", 0, "node"], "n9", "placed[0]: there is no node n9"),
    (["placed", 0, "devices", 0, "minor"], 9, "placed[0]: node n1 has no gpu 9"),
    (["placed", 0, "devices", 0, "core"], 101, "placed[0].devices[0].core: 101 is not a whole number"),
    (["placed", 0, "devices", 0, "memory"], "1Ti", "placed[0]: gpu 0 of n1: 1099511627776 bytes of memory wanted"),
    (["placed", 0, "pod"], None, "placed[0].pod: None is not a name"),
    (["asks"], 5, "asks: 5 is not a list"),
    (["asks", 0], "p1", "asks[0]: p1 is not an object"),
    (["asks", 2, "release"], "p7", "asks[2].release: no pod p7 was placed or asked for before"),
    (["asks", 3, "initialized"], 5, "asks[3].initialized: no pod 5"),
]


@pytest.mark.parametrize(("path", "value", "problem"), BAD)
def test_a_bad_scenario_is_one_line(path: list[Any], value: Any, problem: str) -> None:
    scenario = the_contracts_example()
    at: Any = scenario
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(BadScenario) as caught:
        Scenario(scenario)
    assert str(caught.value).startswith(problem)
    assert "\n" not in str(caught.value)


def test_two_nodes_or_pods_of_one_name_are_refused() -> None:
    with pytest.raises(BadScenario, match="n1 is there twice"):
        Scenario({"nodes": [cards("n1", 1), cards("n1", 1)]})
    with pytest.raises(BadScenario, match="p is placed already"):
        Scenario({"nodes": [cards("n1", 1)], "placed": [held("p", "n1", (0, 1, 1)), held("p", "n1", (0, 1, 1))]})


def test_bad_asks_are_refused_in_their_place_and_the_others_go_on() -> None:
    bad: list[dict[str, Any]] = [
        ask("a", gpu_request="2"),
        ask("b", gpu_request="0.5", gpu_policy="fastest"),
        {"pod": "c"},
        {"pod": "d", "annotations": [], "resources": {"nvidia.com/gpu": 1}},
        {"pod": "e", "manifest": "x"},
        {"pod": "f", "manifest": {"spec": {"containers": [{"name": "m"}]}}, "resources": {"nvidia.com/gpu": 1}},
        {"annotations": {"gemini.io/gpu-request": "0.5"}},
        {"pod": 7, "resources": {"nvidia.com/gpu": 1}},
        {"pod": "p0", "resources": {"nvidia.com/gpu": 1}},
    ]
    placed = [held("p0", "n1", (0, 10, 0))]
    placements = answers([cards("n1", 2)], *bad, whole("good"), placed=placed)
    assert [reason(p) for p in placements[:-1]] == ["Invalid"] * len(bad)
    assert [list(p["refused"]) for p in placements[:-1]] == [["*"]] * len(bad)
    assert minors(placements[-1]) == [1]


def test_a_pod_may_be_asked_for_again_after_its_release() -> None:
    placements = answers([cards("n1", 1)], whole("p"), whole("p"), {"release": "p"}, {"release": "p"}, whole("p"))
    assert [("node" in p) for p in placements] == [True, False, True]


def test_nodes_without_the_device_and_no_nodes_at_all_are_said() -> None:
    assert reason(answer([cards("n1", 1)], fine("p", rdma=100)), "n1") == "InsufficientDevices"
    assert reason(answer([], whole("p"))) == "NoNodes"


def test_each_card_says_why_not() -> None:
    devices = [
        gpu(0, health=False),
        gpu(1, cordoned=True),
        gpu(2, model="V100"),
        gpu(3, model="A100"),
        gpu(4, model="A100"),
        gpu(5, model="A100", slots=1),
        gpu(6, model="A100"),
    ]
    placed = [held("a", "n1", (4, 60, "1Gi"), (5, 10, "1Gi"), (6, 10, "15Gi"))]
    asked = ask("p", gpu_request="0.5", gpu_memory="2Gi", gpu_model="A100", gpu_uuid_exclude="GPU-3")
    refused = answer([node("n1", *devices)], asked, placed=placed)["refused"]["n1"]
    assert refused["reason"] == "InsufficientMemory"
    assert refused["devices"] == {
        "0": "unhealthy",
        "1": "cordoned: takes no new tenant",
        "2": "model: V100, A100 asked",
        "3": "uuid: GPU-3 is excluded",
        "4": "core: 40 free of 100, 50 asked",
        "5": "slots: all 1 are taken",
        "6": "memory: 1Gi free of 16Gi, 2Gi asked",
    }


@pytest.mark.parametrize(
    ("says", "name"),
    [
        ({"gpu_topology": "pcie"}, "TopologyMismatch"),
        ({"gpu_topology": "nvlink"}, "TopologyMismatch"),
        ({"joint": "rdma"}, "JointUnavailable"),
        ({"gpu_policy": "unused"}, "InUse"),
    ],
)
def test_what_keeps_cards_from_being_a_set_is_said(says: dict[str, str], name: str) -> None:
    nodes = [node("n1", gpu(0, pcie="0"), gpu(1, pcie="1"), {"type": "rdma", "minor": 0, "pcie": "1"})]
    asked = ask("p", gpu_request="0.1", gpu_count="2", **says)
    assert reason(answer(nodes, asked, placed=[held("a", "n1", (0, 10, 0))]), "n1") == name


def test_scopes_joint_devices_and_partitions_are_obeyed() -> None:
    nics = [{"type": "rdma", "minor": m, "pcie": str(m)} for m in range(2)]
    made = node("n1", *(gpu(m, pcie=str(m % 2), numa=m // 2) for m in range(4)), *nics)
    two = {"gpu_request": "1", "gpu_count": "2"}
    assert minors(answer([made], ask("p", gpu_topology="pcie", **two))) == [0, 2]
    assert minors(answer([made], ask("p", gpu_topology="numa", **two))) == [0, 1]
    joint = answer([made], ask("p", joint="rdma", resources={"gemini.io/rdma": 10}, **two))
    assert [(d["type"], d["minor"], d["core"]) for d in joint["devices"]] == [
        ("gpu", 0, 100), ("gpu", 1, 100), ("rdma", 0, 10), ("rdma", 1, 10),
    ]  # fmt: skip
    sets = {"policy": "honor", "sets": [[0], [1, 3]]}
    assert minors(answer([{**made, "partitions": sets}], ask("p", **two))) == [1, 3]
    assert reason(answer([{**made, "partitions": sets}], whole("p", 3)), "n1") == "PartitionUnavailable"
    assert minors(answer([{**made, "partitions": {**sets, "policy": "prefer"}}], whole("p", 3))) == [0, 1, 2]
    assert minors(answer([{**made, "partitions": sets}], ask("p", gpu_request="0.5", gpu_count="3"))) == [0, 1, 2]


def test_best_partition_leaves_good_sets_for_later() -> None:
    """Greedy best-link takes the best pair and leaves the worst; best-partition splits all four well."""
    links = [["0", "1", "NVLINK", 4], ["0", "2", "NVLINK", 3], ["1", "3", "NVLINK", 3]]
    nodes = [cards("n1", 4, links=links)]
    for policy, pairs in (("best-link", [[0, 1], [2, 3]]), ("best-partition", [[0, 2], [1, 3]])):
        assert [minors(p) for p in answers(nodes, whole("p", 2), whole("q", 2), policies=[policy])] == pairs


def test_model_names_are_compared_as_node_labels_spell_them() -> None:
    nodes = [node("n1", gpu(0, model="NVIDIA H200"))]
    assert where(answer(nodes, ask("p", gpu_request="0.5", gpu_model="nvidia-h200"))) == ("n1", [0])
    assert reason(answer(nodes, ask("p", gpu_request="0.5", gpu_model="H200")), "n1") == "ModelMismatch"


def test_unknown_keys_of_a_scenario_are_noted() -> None:
    (note,) = Scenario({"nodes": [], "policy": ["binpack"]}).notes
    assert note == "policy is no key of a scenario, ignored; there are policies, nodes, tree, placed, asks"


@pytest.mark.parametrize(
    ("at", "part"),
    [
        (("nodes", 0), "a node"),
        (("nodes", 0, "devices", 0), "a device"),
        (("placed", 0), "a placed pod"),
        (("placed", 0, "devices", 0), "a placed device"),
        (("asks", 0), "an ask"),
    ],
)
def test_a_mistyped_key_is_named_wherever_it_stands(at: tuple[str | int, ...], part: str) -> None:
    scenario = the_contracts_example()
    assert Scenario(scenario).notes == []
    entry: Any = scenario
    for step in at:
        entry = entry[step]
    entry["cordonned"] = True
    (note,) = Scenario(scenario).notes
    assert note.startswith(f"cordonned is no key of {part}, ignored; there are ")


def test_mixed_cards_are_told_apart() -> None:
    nodes = [node("n1", gpu(0, "8Gi"), gpu(1, "80Gi"))]
    device = answer(nodes, {"pod": "p", "resources": {"aliyun.com/gpu-mem": 20 * 1024}})["devices"][0]
    assert (device["minor"], device["memory"], device["core"]) == (1, 20 * GIB, 25)


LEAVES: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 200),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["n1", "p1", "0", "gpu"]),
)
JSON: Any = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=5)  # fmt: skip  # noqa: E501


def paths(value: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [so_far, *(path for key, inner in items for path in paths(inner, (*so_far, key)))]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_json_makes_it_raise_anything_but_a_bad_scenario(data: st.DataObject) -> None:
    scenario = copy.deepcopy(the_contracts_example())
    for _ in range(data.draw(st.integers(1, 2))):
        *above, last = data.draw(st.sampled_from([p for p in paths(scenario) if p]))
        at: Any = scenario
        for key in above:
            at = at[key]
        at[last] = data.draw(JSON)
    try:
        run = Scenario(scenario)
    except BadScenario as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    run.run()
    run.book.check()
