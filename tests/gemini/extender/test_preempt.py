"""Victims: only on the card that frees it, the least important ones, budgets respected where there is a choice."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from gemini.extender.codec import PreemptRequest, Victims
from gemini.extender.kinds import BUDGET, DEVICE, NODE, POD
from gemini.extender.needs import needs_of
from gemini.extender.podview import PodView, view_of
from gemini.extender.preempt import selects, victims_on
from gemini.extender.state import Cluster
from gemini.kube.device import write_device
from gemini.kube.pod import MOST_CONTAINERS
from gemini.kube.quantity import BILLION
from tests.gemini.ends import ends
from tests.gemini.extender.world import GIB, Replica, World, cards, node_object, pod_object


def held(name: str, minor: int, core: int, priority: int = 0, **labels: str) -> dict[str, Any]:
    pod = pod_object(name, priority=priority, gpu_request=f"{core}%", gpu_memory="1Gi")
    resources = {"gemini.io/gpu-core": core, "gemini.io/gpu-memory": GIB}
    entry = {"minor": minor, "uuid": f"GPU-n1-{minor}", "resources": resources}
    pod["metadata"]["annotations"]["gemini.io/allocation"] = json.dumps({"gpu": [entry]})
    pod["metadata"]["labels"] = labels
    pod["spec"]["nodeName"] = "n1"
    pod["status"]["phase"] = "Running"
    return pod


def cluster(*pods: dict[str, Any]) -> Cluster:
    made = Cluster()
    made.apply(NODE, "ADDED", node_object("n1"))
    made.apply(DEVICE, "ADDED", write_device(cards("n1")))
    for pod in pods:
        made.apply(POD, "ADDED", pod)
    return made


def preemptor(made: Cluster, request: str, **annotations: str) -> PodView:
    return made.view(pod_object("high", priority=100, gpu_request=request, gpu_memory="1Gi", **annotations))


def chosen(made: Cluster, pod: PodView, *proposed: str) -> set[str]:
    before = made.book.snapshot()
    found = victims_on(made, pod, "n1", Victims(proposed))
    made.book.check()
    assert made.book.snapshot() == before  # only asked
    return {uid.removeprefix("uid-") for uid in found.uids} if found else set()


def test_victims_stand_on_one_card_whatever_the_scheduler_proposed() -> None:
    """The sum of the node would be free with a and c gone; neither card would."""
    made = cluster(held("a", 0, 50), held("b", 0, 50), held("c", 1, 50), held("d", 1, 50, priority=5))
    assert chosen(made, preemptor(made, "100%"), "uid-a", "uid-c") == {"a", "b"}


def test_no_more_victims_than_the_card_needs() -> None:
    made = cluster(held("a", 0, 30), held("b", 0, 70, priority=1), held("c", 1, 100, priority=7))
    assert chosen(made, preemptor(made, "30%"), "uid-c") == {"a"}


def test_a_group_goes_whole_or_stays_whole() -> None:
    def member(name: str, minor: int, core: int, priority: int = 0) -> dict[str, Any]:
        pod = held(name, minor, core, priority)
        pod["metadata"]["annotations"] |= {"gemini.io/pod-group": "g", "gemini.io/pod-group-size": "2"}
        return pod

    made = cluster(member("a", 0, 60), member("b", 1, 20), held("c", 1, 80))
    assert chosen(made, preemptor(made, "50%"), "uid-a") == {"c"}  # one victim, not the two of the group
    made = cluster(member("a", 0, 60), member("b", 1, 20), held("c", 1, 80, priority=1))
    assert chosen(made, preemptor(made, "50%"), "uid-a") == {"a", "b"}
    # One of the group is above the preemptor: so is all of it.
    made = cluster(member("a", 0, 60), member("b", 1, 20, priority=100), held("c", 1, 80, priority=1))
    assert chosen(made, preemptor(made, "50%"), "uid-a") == {"c"}
    made = cluster(member("a", 0, 60), member("b", 1, 90, priority=100))
    assert chosen(made, preemptor(made, "50%"), "uid-a") == set()


def test_a_group_on_several_nodes_stays() -> None:
    """kube-scheduler evicts the pods of one node: the others would run on."""
    said = {"gemini.io/pod-group": "g", "gemini.io/pod-group-size": "2"}
    said["gemini.io/pod-group-required-topology"] = "cluster"
    here, there = held("a", 0, 60), held("b", 0, 60)
    for pod in (here, there):
        pod["metadata"]["annotations"] |= said
    there["spec"]["nodeName"] = "n2"
    made = cluster(here, there, held("c", 1, 80, priority=1))
    assert chosen(made, preemptor(made, "50%"), "uid-a") == {"c"}


def test_least_important_victims_are_taken() -> None:
    made = cluster(held("a", 0, 100, priority=50), held("b", 1, 100, priority=10))
    assert chosen(made, preemptor(made, "50%"), "uid-a") == {"b"}


def test_equal_or_higher_priority_daemon_sets_and_mirror_pods_are_never_victims() -> None:
    equal, daemon, mirror = held("a", 0, 50, priority=100), held("b", 0, 50), held("c", 1, 100)
    daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet"}]
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"
    made = cluster(equal, daemon, mirror)
    assert chosen(made, preemptor(made, "100%"), "uid-c") == set()


def budget(allowed: int, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "b", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }


def test_disruption_budget_is_respected_where_there_is_another_way() -> None:
    made = cluster(held("a", 0, 100, app="x"), held("b", 1, 100, priority=9))
    made.apply(BUDGET, "ADDED", budget(0, app="x"))
    assert chosen(made, preemptor(made, "50%"), "uid-a") == {"b"}
    made.apply(BUDGET, "MODIFIED", budget(1, app="x"))
    assert chosen(made, preemptor(made, "50%"), "uid-a") == {"a"}


def test_broken_budgets_are_counted_and_never_below_the_schedulers_count() -> None:
    made = cluster(held("a", 0, 100, app="x"))
    made.apply(BUDGET, "ADDED", budget(0, app="x"))
    pod = preemptor(made, "50%", gpu_uuid="GPU-n1-0")
    found = victims_on(made, pod, "n1", Victims(("uid-a",)))
    assert found == Victims(("uid-a",), 1)
    assert victims_on(made, pod, "n1", Victims(("uid-a",), 3)) == Victims(("uid-a",), 3)


def test_victims_without_cards_are_kept_and_what_cpu_needs_is_kept_evicted() -> None:
    plain, hog = pod_object("plain"), held("hog", 1, 10)
    plain["spec"]["nodeName"] = hog["spec"]["nodeName"] = "n1"
    hog["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "60"}}
    made = cluster(plain, hog, held("a", 0, 100), held("b", 1, 90, priority=200))
    pod = pod_object("high", priority=100, gpu_request="50%", gpu_memory="1Gi")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10"}}
    assert chosen(made, made.view(pod), "uid-plain") == {"plain", "hog", "a"}


def test_what_pods_ask_for_as_a_whole_counts_in_place_of_their_containers() -> None:
    """Nobody had to go for the processors of such a pod, or nobody could who had them, and the pod waited for ever."""
    hog, pod = held("hog", 1, 10), pod_object("high", priority=100, gpu_request="50%", gpu_memory="1Gi")
    hog["spec"]["resources"], pod["spec"]["resources"] = ({"requests": {"cpu": cpu}} for cpu in ("60", "10"))
    made = cluster(hog, held("b", 0, 90, priority=200))
    assert chosen(made, made.view(pod), "uid-hog") == {"hog"}
    spec = {"containers": [{"resources": {"requests": {"cpu": "8", "x/y": "1"}}}], "overhead": {"cpu": "500m"}}
    spec |= {"resources": {"requests": {"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "4Mi"}}}
    assert {key: amount / BILLION for key, amount in needs_of({"spec": spec}).items()} == {
        "cpu": 2.5, "memory": 2**30, "hugepages-2Mi": 2**22, "x/y": 1, "pods": 1,
    }  # fmt: skip


def test_node_where_nobody_need_go_is_left_out() -> None:
    made = cluster(held("a", 0, 10))
    assert chosen(made, preemptor(made, "50%"), "uid-a") == set()


def test_requests_are_sidecars_and_the_larger_of_apps_and_init() -> None:
    def container(cpu: str, **more: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [container("4"), container("1", restartPolicy="Always"), container("6")],
        "containers": [container("2"), container("3")],
        "overhead": {"cpu": "500m"},
    }
    assert needs_of({"spec": spec})["cpu"] / BILLION == 7.5


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, True),
        ({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Like"}]}, False),
        ({}, False),
        (None, False),
    ],
)
def test_selector_selects_as_kubernetes_does(selector: object, selected: bool) -> None:
    assert selects(selector, {"a": "1"}) is selected


def budget_of(name: str, namespace: str, *values: str) -> dict[str, Any]:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": [*values, "a"]}]}
    metadata = {"name": name, "namespace": namespace}
    return {"metadata": metadata, "spec": {"selector": selector}, "status": {"disruptionsAllowed": 1}}


@pytest.mark.parametrize(
    ("namespace", "many", "values", "allowed"),
    [("stranger", 50_000, 0, True), ("ns", 2_000, 2_000, False), ("ns", 2_000, 0, False), ("ns", 10, 2_000, True)],
)
def test_an_editors_budgets_hold_nobody_up(namespace: str, many: int, values: int, allowed: bool) -> None:
    """Those of other namespaces are not looked at; of more than can be looked at an eviction counts as forbidden."""
    made = cluster(*(held(f"p{i}", i % 2, 2, app="a") for i in range(80)))
    listed = [str(i) for i in range(values)]
    for i in range(many):
        made.apply(BUDGET, "ADDED", budget_of(f"b{i}", namespace, *listed))
    with ends():
        found = victims_on(made, preemptor(made, "100%"), "n1", Victims(()))
    assert found is not None
    least = 0 if namespace == "stranger" else len(found.uids) - 1
    assert found.violations == (least if allowed else len(found.uids))


def crowded(name: str, **amounts: str) -> dict[str, Any]:
    """A pod that wants no card, of as many containers as a pod may have with a share."""
    containers = [{"name": f"c{i}", "resources": {"requests": amounts}} for i in range(MOST_CONTAINERS)]
    pod = pod_object(name, priority=1_000)
    pod["spec"] |= {"nodeName": "n1", "containers": containers}
    return pod


@pytest.mark.parametrize(
    "amounts",
    [{"cpu": "0.001", "memory": "1"}, {f"example.com/r{i}": "0" for i in range(16)}],
    ids=["processors", "others"],
)
def test_pods_of_many_containers_hold_no_preemptor_up(amounts: dict[str, str]) -> None:
    """What the pods of a node need was added up anew for each set of cards that was weighed: beside a hundred pods of
    another namespace it took 6 s, and 50 where each container names sixteen resources."""
    made, node = Cluster(), node_object("n1")
    node["status"]["allocatable"]["gemini.io/gpu-core"] = "800"
    made.apply(NODE, "ADDED", node)
    made.apply(DEVICE, "ADDED", write_device(cards("n1", 8)))
    for i in range(100):
        made.apply(POD, "ADDED", crowded(f"crowd-{i}", **amounts))
    for i in range(8):
        made.apply(POD, "ADDED", held(f"p{i}", i, 100))
    pod = preemptor(made, "100%")
    for _ in range(5):
        began = time.process_time()
        assert len(chosen(made, pod, "uid-p0")) == 1
        took = time.process_time() - began
        if took < 0.1:
            break
    assert took < 0.1, "the least of five"


@pytest.mark.parametrize("by_status", [True, False])
def test_a_resize_in_place_that_no_node_has_room_for_keeps_nobody_from_preempting(by_status: bool) -> None:
    """A pod may ask for a million processors once it runs. Its kubelet refuses that for good, and kube-scheduler counts
    what it has; nobody was evicted on its node any more, by whomever."""
    huge = pod_object("huge", priority=1_000)
    huge["spec"] |= {"nodeName": "n1", "containers": [{"name": "a", "resources": {"requests": {"cpu": "1000000"}}}]}
    has = {"allocatedResources": {"cpu": "1m"}, "resources": {"requests": {"cpu": "2m"}}}
    condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible" if by_status else "Deferred"}
    huge["status"] = {"conditions": [condition], "containerStatuses": [{"name": "a", "state": {"running": {}}, **has}]}
    made = cluster(huge, held("a", 0, 100), held("b", 1, 100))
    high = pod_object("high", priority=100, gpu_request="100%", gpu_memory="1Gi")
    high["spec"]["containers"][0]["resources"] |= {"requests": {"cpu": "1"}}
    assert len(chosen(made, made.view(high), "uid-a")) == (1 if by_status else 0)


@pytest.mark.parametrize("asked", [[{"cpu": "10P"}], [{"memory": "9E"}, {"memory": "9E"}]], ids=["one", "sum"])
def test_a_pod_that_asks_for_more_than_kubernetes_can_count_keeps_nobody_from_preempting(
    asked: list[dict[str, str]],
) -> None:
    """kube-scheduler takes that for nothing, and has the pod run on any node: nobody was evicted there any more."""
    odd = pod_object("odd", priority=1_000)
    containers = [{"name": f"c{i}", "resources": {"requests": amounts}} for i, amounts in enumerate(asked)]
    odd["spec"] |= {"nodeName": "n1", "containers": containers}
    made = cluster(odd, held("a", 0, 100), held("b", 1, 100))
    high = pod_object("high", priority=100, gpu_request="100%", gpu_memory="1Gi")
    high["spec"]["containers"][0]["resources"] |= {"requests": {"cpu": "1", "memory": "1Gi"}}
    assert len(chosen(made, made.view(high), "uid-a")) == 1


@pytest.mark.parametrize("asked", [True, False])
def test_what_a_node_has_given_out_and_has_no_more_matters_to_those_alone_who_ask_for_it(asked: bool) -> None:
    """Where another device plugin of the node's rests, or a device of it is ill, nobody was evicted there any more."""
    node, other = node_object("n1"), pod_object("other", priority=1_000)
    node["status"]["allocatable"]["example.com/nic"] = "0"
    wants = {"requests": {"example.com/nic": "1"}}
    other["spec"] |= {"nodeName": "n1", "containers": [{"name": "a", "resources": wants}]}
    made = cluster(other, held("a", 0, 100), held("b", 1, 100))
    made.apply(NODE, "MODIFIED", node)
    high = pod_object("high", priority=100, gpu_request="100%", gpu_memory="1Gi")
    high["spec"]["containers"][0]["resources"] |= wants if asked else {}
    assert len(chosen(made, made.view(high), "uid-a")) == (0 if asked else 1)


def test_of_a_container_that_is_being_resized_the_most_counts_that_it_has_or_asks_for() -> None:
    def asked(cpu: str, allocated: str, actual: str, *conditions: dict[str, str]) -> float:
        has = {"allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}}}
        status = {"conditions": list(conditions), "containerStatuses": [{"name": "a", "state": {}, **has}]}
        spec = {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}
        view = view_of({"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": status}, {}, frozenset())
        assert view.needs["memory"] == 2**30 * BILLION
        again = view_of(view.object, {}, frozenset())
        assert again.needs == view.needs, "by what is kept as by all of it"
        return view.needs["cpu"] / BILLION

    refused = {"type": "PodResizePending", "reason": "Infeasible"}
    assert asked("2", "2", "2") == 2
    assert asked("4", "2", "2") == 4, "its kubelet has not looked at it yet"
    assert asked("1", "1", "2") == 2, "it has more still"
    assert asked("1", "2", "2") == 2
    assert asked("1000", "2", "3", refused) == 3
    assert asked("1000", "2", "3", {"type": "Ready", "reason": "Infeasible"}) == 1000


def test_what_a_pod_as_a_whole_has_counts_where_its_resize_is_refused() -> None:
    spec = {"resources": {"requests": {"cpu": "1000", "hugepages-2Mi": "4Mi"}}, "containers": [{"name": "a"}]}
    refused = {"type": "PodResizePending", "reason": "Infeasible"}
    status = {"conditions": [refused], "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1500m"}}}
    pod = {"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": status}
    needs = view_of(pod, {}, frozenset()).needs
    assert (needs["cpu"] / BILLION, needs["hugepages-2Mi"] / BILLION) == (1.5, 2**22)


def test_a_budget_too_large_to_be_kept_counts_as_one_that_forbids() -> None:
    made = cluster(held("p", 0, 50, app="a"), held("q", 1, 100, priority=100))
    made.apply(BUDGET, "ADDED", budget_of("b", "ns", *map(str, range(5_000))))
    assert victims_on(made, preemptor(made, "100%"), "n1", Victims(())) == Victims(("uid-p",), 1)


# ---- by a pod that another device plugin serves


def whole_card(made: World, name: str, node: str | None = None, priority: int = 0) -> dict[str, Any]:
    pod = pod_object(name, priority=priority)
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    pod["spec"] |= {"nodeName": node} if node is not None else {}
    return made.put(POD, pod)


def evicts(replica: Replica, pod: dict[str, Any], **proposed: str) -> dict[str, set[str]]:
    """Node -> names of the victims; `proposed`: node -> the scheduler's own, comma-separated."""
    replica.watch()
    named = {node: tuple(f"uid-{name}" for name in said.split(",")) for node, said in proposed.items()}
    request = PreemptRequest(pod, {node: Victims(uids, 1) for node, uids in named.items()})
    found = replica.service.preempt(request)
    assert all(victims.violations == 1 for node, victims in found.items() if set(victims.uids) == set(named[node]))
    return {node: {uid.removeprefix("uid-") for uid in victims.uids} for node, victims in found.items()}


def test_a_pod_of_another_plugin_evicts_as_the_scheduler_says_where_nobody_shares_a_card() -> None:
    """Nodes without a Device of ours were left out: no pod of NVIDIA's plugin could preempt another there."""
    made = World()
    made.nodes("n1")
    made.put(NODE, {"metadata": {"name": "theirs", "uid": "uid-theirs"}})
    replica = Replica(made, alone=True)
    whole_card(made, "a", "theirs")
    whole_card(made, "b", "n1")
    high = whole_card(made, "high", priority=100)
    assert evicts(replica, high, theirs="a", n1="b") == {"theirs": {"a"}, "n1": {"b"}}


def test_a_pod_of_another_plugin_has_all_evicted_who_share_cards_or_nobody() -> None:
    """Filter passes it where nobody shares a card: two of three victims would have gone in vain."""
    made = World()
    made.nodes("n1", "n2")
    replica = Replica(made, alone=True)

    async def run(name: str, node: str, priority: int = 0) -> None:
        pod = made.put(POD, pod_object(name, priority=priority, gpu_request="0.3"))
        replica.watch()
        assert await replica.bind(pod, node) == ""

    for name, node, priority in (("a", "n1", 0), ("b", "n1", 1), ("c", "n2", 0), ("d", "n2", 100)):
        asyncio.run(run(name, node, priority))
    plain = pod_object("plain")
    plain["spec"]["nodeName"] = "n1"
    made.put(POD, plain)
    high = whole_card(made, "high", priority=100)
    assert evicts(replica, high, n1="a,plain", n2="c") == {"n1": {"a", "b", "plain"}}


@pytest.mark.parametrize(("grace", "found"), [(30, {"n1": {"a"}}), (10**9, {})])
def test_nobody_goes_for_a_pod_of_another_plugin_where_one_that_shares_a_card_has_years_to_end(
    grace: int, found: dict[str, set[str]]
) -> None:
    """It counted as gone, so others were evicted on that node in vain, and again and again."""
    made = World()
    made.nodes("n1")
    replica = Replica(made, alone=True)
    for name in ("a", "slow"):
        pod = made.put(POD, pod_object(name, gpu_request="0.3"))
        replica.watch()
        assert asyncio.run(replica.bind(pod, "n1")) == ""
    slow = made.pod_of("uid-slow")
    ends = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    made.put(POD, {**slow, "metadata": {**slow["metadata"], **ends}})
    assert evicts(replica, whole_card(made, "high", priority=100), n1="a") == found
