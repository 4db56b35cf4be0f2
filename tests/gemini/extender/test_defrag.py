"""Which evictions free a whole card."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from gemini.cli.kubectl_defrag import lines
from gemini.extender.defrag import Plan, may_go, plan
from gemini.extender.kinds import BUDGET, DEVICE, NODE, POD, RESIZE
from gemini.extender.state import Cluster
from gemini.kube.device import write_device
from gemini.placement.model import GPU
from tests.gemini.extender.test_state import bound
from tests.gemini.extender.world import cards, node_object

Object = dict[str, Any]
MAKER = [{"kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}]


def tenant(name: str, node: str, minor: int = 0, core: int = 30, **spec: Any) -> Object:
    pod = bound(name, node, minor=minor, core=core)
    pod["metadata"]["ownerReferences"] = copy.deepcopy(MAKER)
    pod["spec"] |= spec
    return pod


def planned(*pods: Object, budgets: tuple[Object, ...] = (), nodes: dict[str, Object] | None = None) -> Plan:
    made = Cluster()
    for name in ("n1", "n2"):
        node = node_object(name)
        node["status"]["allocatable"]["gemini.io/gpu-core"] = "200"
        made.apply(NODE, "ADDED", {**node, **((nodes or {}).get(name) or {})})
        made.apply(DEVICE, "ADDED", write_device(cards(name)))
    for budget in budgets:
        made.apply(BUDGET, "ADDED", budget)
    for pod in pods:
        made.apply(POD, "ADDED", pod)
    before, held = made.book.snapshot(), dict(made.book.holdings)
    found = plan(made, {pod["metadata"]["uid"]: pod for pod in pods})
    assert made.book.snapshot() == before  # only asked
    assert made.book.holdings == held
    made.book.check()
    return found


def moves(found: Plan) -> dict[tuple[str, int], list[tuple[str, str, int]]]:
    return {
        freed.card: [(pod.name, place.node, place.grants[0].minor) for pod, place in freed.moves]
        for freed in found.freed
    }


def test_the_least_used_card_is_freed_onto_one_that_is_in_use() -> None:
    found = planned(tenant("a", "n1", core=30), tenant("b", "n2", core=60))
    assert moves(found) == {("n1", 0): [("a", "n2", 0)]}
    assert found.stays == {("n2", 0): "takes in what is moved"}
    assert list(lines(found)) == [
        "n1 gpu/0: evict ns/a (to n2 gpu/0)", "n2 gpu/0: stays, takes in what is moved",
        "1 card can be freed by 1 eviction",
    ]  # fmt: skip


def test_what_finds_no_place_on_a_card_in_use_stays() -> None:
    found = planned(tenant("a", "n1", core=50), tenant("b", "n2", core=60))
    assert found.freed == ()
    assert found.stays[("n1", 0)] == "no other card in use has room for ns/a"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda pod: pod["metadata"].pop("ownerReferences"), "is made anew by nothing"),
        (lambda pod: pod["metadata"]["ownerReferences"][0].update(kind="DaemonSet"), "is a DaemonSet's"),
        (lambda pod: pod["spec"].update(affinity={"nodeAffinity": {}}), "says where it may run by affinity or spread"),
        (lambda pod: pod["spec"].update(priorityClassName="system-node-critical"), "is critical"),
        (lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"), "is ending"),
        (
            lambda pod: pod["metadata"]["annotations"].update(
                {"gemini.io/pod-group": "g", "gemini.io/pod-group-size": "1"}
            ),
            "is one of a group",
        ),
        (
            lambda pod: pod["metadata"]["annotations"].update(
                {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
            ),
            "says cluster-autoscaler.kubernetes.io/safe-to-evict: false",
        ),
    ],
)
def test_who_may_not_be_evicted_keeps_the_card(change: Any, why: str) -> None:
    pod = tenant("a", "n1", core=30)
    change(pod)
    other = tenant("b", "n2", core=60, affinity={"nodeAffinity": {}})
    assert planned(pod, other).stays[("n1", 0)] == f"ns/a {why}"


def test_a_pod_that_has_another_share_by_now_stays_for_it_would_come_back_with_less() -> None:
    """Its Resize goes with it. In the place that was found for it it would have what it was made with."""
    made, pods = Cluster(), (tenant("a", "n1", core=30), tenant("b", "n2", core=60, affinity={"nodeAffinity": {}}))
    for name in ("n1", "n2"):
        made.apply(NODE, "ADDED", node_object(name))
        made.apply(DEVICE, "ADDED", write_device(cards(name)))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-a"}
    metadata = {"name": "a", "namespace": "ns", "uid": "r", "generation": 1, "ownerReferences": [owner]}
    amounts = {"request": 35, "limit": 100, "memory": 2**30}
    for status in ({}, {"pod": "uid-a", "node": "n1", "answered": 1, "booked": amounts}):
        made.apply(RESIZE, "ADDED", {"metadata": metadata, "spec": amounts, "status": status})
        for pod in pods:
            made.apply(POD, "ADDED", pod)
        found = plan(made, {pod["metadata"]["uid"]: pod for pod in pods})
        assert (len(found.freed) == 1) == (not status)
    assert found.stays[("n1", 0)] == "ns/a has another share than it would be made anew with"


def test_budgets_are_counted_over_all_evictions() -> None:
    budget = {
        "metadata": {"name": "b", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}}, "status": {"disruptionsAllowed": 1},
    }  # fmt: skip
    pods = [tenant("a", "n1", 0, 20), tenant("b", "n1", 1, 21), tenant("c", "n2", 0, 50)]
    for pod in pods:
        pod["metadata"]["labels"] = {"app": "x"}
    found = planned(*pods, budgets=(budget,))
    assert moves(found) == {("n1", 0): [("a", "n2", 0)]}
    assert found.stays[("n1", 1)] == "a PodDisruptionBudget forbids that ns/b be evicted"


def test_nodes_where_a_pod_may_not_run_are_none_for_it() -> None:
    pods = (tenant("a", "n1", core=30), tenant("b", "n2", core=60))
    taint = {"spec": {"taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]}}
    assert planned(*pods, nodes={"n2": taint}).stays[("n1", 0)] == "no other card in use has room for ns/a"
    red = {"tolerations": [{"key": "team", "value": "red"}]}
    assert may_go({"spec": red}, taint)
    assert may_go({"spec": {"tolerations": [{"operator": "Exists"}]}}, taint)
    assert not may_go({"spec": {"tolerations": [{"key": "team", "value": "blue"}]}}, taint)
    assert not may_go({"spec": {}}, {"spec": {"unschedulable": True}})
    assert not may_go({"spec": {"nodeSelector": {"a": "b"}}}, {"metadata": {"labels": {"a": "c"}}})


@pytest.mark.parametrize("seed", range(30))
def test_a_plan_that_is_carried_out_frees_what_it_says(seed: int) -> None:
    """Carried out on paper: each move fits when it is made, no card is beyond what it has, and the cards are free."""
    pick = random.Random(seed)
    left = {(node, minor): 100 for node in ("n1", "n2") for minor in (0, 1)}
    pods = []
    for i in range(pick.randint(1, 12)):
        at, core = pick.choice(sorted(left)), pick.choice([10, 20, 30, 60])
        if left[at] >= core:
            left[at] -= core
            pods.append(tenant(f"p{i}", *at, core))
    found = planned(*pods)
    where = {pod["metadata"]["name"]: (pod["spec"]["nodeName"]) for pod in pods}
    used = {at: 100 - free for at, free in left.items()}
    for freed in found.freed:
        for pod, place in freed.moves:
            assert where[pod.name] == freed.card[0]
            (grant,) = (one for one in place.grants if one.type == GPU)
            used[freed.card] -= grant.core
            assert used[place.node, grant.minor] > 0
            used[place.node, grant.minor] += grant.core
    assert all(core <= 100 for core in used.values())
    assert all(used[freed.card] == 0 for freed in found.freed)
