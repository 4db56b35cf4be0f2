"""What the extender keeps of a pod: all that it looks at, and nothing of which a pod may have any amount."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from typing import Any

import orjson
import pytest

from gemini.extender.kept import MOST_AMOUNTS, MOST_LABELS, kept, kept_budget
from gemini.extender.kinds import BUDGET, CLAIM, POD
from gemini.extender.podview import slimmed, view_of
from gemini.extender.state import Cluster
from gemini.kube import names
from gemini.kube.claim import slim_claim
from tests.gemini.extender.weighed import TEN, weighed

MIB = 1 << 20
MANY = 13_000  # variables of an environment: 1.2 MB of JSON, of the 1.5 that the API server stores


def large(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}


ENV = [{"name": f"A{i}", "value": "v" * 60} for i in range(MANY)]
AMOUNTS = {f"example.com/r{i}": "1" for i in range(MANY)}
NOTES = {names.GPU_REQUEST: "0.5", "example.com/long": "x" * 200_000, f"{names.KUEUE}long": "x" * 50_000}
SHARE = {names.RESOURCE_CORE: "50"}


@pytest.mark.parametrize(
    "pod",
    [
        large(containers=[{"name": "a", "env": ENV}]),
        large(containers=[{"name": "a", "env": ENV, "resources": {"limits": SHARE}}]),
        large(containers=[{"name": "a", "args": ["x" * 60] * MANY}], volumes=[{"name": f"v{i}"} for i in range(MANY)]),
        large(containers=[{"name": f"c{i}", "image": "x"} for i in range(MANY)]),
        large(containers=[{"name": "a", "resources": {"limits": AMOUNTS | SHARE, "requests": AMOUNTS}}]),
        large(containers=[{"name": "a"}], tolerations=[{"key": f"k{i}"} for i in range(MANY)]),
        {"metadata": {"name": "p", "uid": "u", "labels": {f"l{i}": "x" * 60 for i in range(MANY)}}, "spec": {}},
        {"metadata": {"name": "p", "uid": "u", "annotations": NOTES}, "spec": {"containers": [{"name": "a"}]}},
    ],
    ids=["environment", "environment-of-a-share", "volumes", "containers", "amounts", "tolerations", "labels", "notes"],
)
@pytest.mark.parametrize("in_a_list", [False, True])
def test_large_pods_take_little_memory(pod: dict[str, Any], in_a_list: bool) -> None:
    """A hundred pods of 1.4 MB, which wanted no card and were never placed, took 497 MB of each replica."""
    cluster, held = weighed(POD, pod, slimmed if in_a_list else None)
    assert len(cluster.pods) == TEN
    assert held < TEN * MIB / 8


def test_a_share_is_read_from_what_is_kept_as_from_all_of_it() -> None:
    resources = {"limits": AMOUNTS | SHARE, "requests": {"cpu": "1", **SHARE}, "claims": [{"name": "x"}]}
    marked = {"name": names.ENV_SOCKET, "value": "x"}
    container = {"name": "a", "image": "i", "env": [*ENV, marked], "resources": resources}
    labels = {f"l{i}": "x" for i in range(MANY)}
    ours = {names.GPU_REQUEST: "0.5", names.ALIYUN_INDEX: "0"}
    notes = {"a": "b", f"{names.KUEUE}a": "long", f"{names.KUEUE}b": "long", **ours}
    pod = {"metadata": {"name": "p", "annotations": notes, "labels": labels}, "spec": {"containers": [container]}}
    assert kept(pod, True)["spec"]["containers"] == [
        {"name": "a", "env": [marked], "resources": {"limits": SHARE, "requests": {"cpu": "1", **SHARE}}}
    ]
    assert len(kept(pod, True)["metadata"]["labels"]) == MOST_LABELS
    assert kept(pod, True)["metadata"]["annotations"] == {**ours, f"{names.KUEUE}a": ""}
    assert kept(pod, False)["metadata"]["annotations"] == {}


def test_a_few_amounts_are_all_kept_for_they_count_when_room_is_made() -> None:
    few = {f"example.com/r{i}": "1" for i in range(MOST_AMOUNTS)}
    pod = large(containers=[{"name": "a", "resources": {"requests": few}}], overhead={"cpu": "1"}, priority=5)
    spec = {"containers": [{"name": "a", "resources": {"requests": few}}], "overhead": {"cpu": "1"}, "priority": 5}
    assert kept(pod, False)["spec"] == spec


@pytest.mark.parametrize("pod", [{}, {"spec": 3, "metadata": [], "status": "x"}, {"spec": {"containers": [3, None]}}])
def test_what_makes_no_sense_is_no_exception(pod: dict[str, Any]) -> None:
    assert kept(pod, False)["metadata"] == {}
    assert kept(pod, True)["status"] == {}


VALUES = [f"v{i:06d}" for i in range(100_000)]
MUCH = {f"k{i}": "x" * 60 for i in range(MANY)}


@pytest.mark.parametrize(
    ("selector", "more"),
    [
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": VALUES}]}, {}),
        ({"matchLabels": MUCH}, {}),
        ({"matchLabels": {"app": "a"}}, {"annotations": MUCH}),
    ],
    ids=["values", "labels", "annotations"],
)
def test_large_budgets_take_little_memory(selector: dict[str, Any], more: dict[str, Any]) -> None:
    """A hundred PodDisruptionBudgets of 1.2 MB, which any editor of a namespace may make, took 737 MB."""
    budget = {"metadata": {"name": "b", "namespace": "ns", **more}, "spec": {"selector": selector}}
    cluster, text, ten = Cluster([]), orjson.dumps(budget), 10
    tracemalloc.start()
    try:
        for i in range(ten):
            given = orjson.loads(text)
            given["metadata"] |= {"name": f"b{i}", "resourceVersion": str(i + 1)}
            cluster.apply(BUDGET, "ADDED", given)
        del given
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cluster.budgets["ns"]) == ten
    assert held < ten * MIB / 8


SPREADS = {"topologySpreadConstraints": [{"maxSkew": 1}] * 500}
LIKES = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}] * 500}}}


@pytest.mark.parametrize("extra", [{}, SPREADS, LIKES, {"nodeName": "n1"}, {"schedulingGates": [{"name": "g"}] * 9}])
@pytest.mark.parametrize("share", [{}, SHARE, {"nvidia.com/gpu": "1"}, {names.RESOURCE_CORE: "-1"}])
def test_a_pod_of_a_list_is_seen_as_one_of_a_watch(extra: dict[str, Any], share: dict[str, str]) -> None:
    pod = large(containers=[{"name": "a", "env": ENV, "resources": {"limits": share}}], **extra)
    pod["metadata"] |= {"annotations": {"a": "b"}, "labels": {"l": "x"}, "resourceVersion": "3"}
    seen, short = view_of(pod, {}, names.DEVICE_TYPES), view_of(slimmed(pod), {}, names.DEVICE_TYPES)
    assert replace(seen, object={}) == replace(short, object={})
    assert seen.prefers == bool(extra.keys() & {"affinity", "topologySpreadConstraints"})


def test_a_budget_of_a_list_is_kept_as_one_of_a_watch() -> None:
    for values in (3, 100_000):
        rules = [{"key": "a", "operator": "In", "values": ["x"] * values}]
        budget = {"metadata": {"name": "b", "namespace": "ns"}, "spec": {"selector": {"matchExpressions": rules}}}
        assert kept_budget(kept_budget(budget)) == kept_budget(budget)


def test_a_claim_of_a_list_of_which_nothing_is_allocated_is_small() -> None:
    claim = {
        "metadata": {
            "name": "c",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "3",
            "annotations": {"a": "x" * MIB},
        }
    }
    assert slim_claim({**claim, "spec": {"devices": {"config": ["x" * MIB]}}}) == {
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "3"}
    }


@pytest.mark.parametrize("in_a_list", [False, True])
def test_large_claims_take_little_memory(in_a_list: bool) -> None:
    """A hundred of 0.9 MB that were allocated a byte of a card each were kept whole by each replica. Whoever may make
    claims in a namespace may write as much into one's configuration and annotations."""
    parameters = [{"requests": ["r"], "opaque": {"driver": "other.io", "parameters": {"a": "x" * 10_000}}}] * 30
    result = {
        "driver": names.DRIVER, "pool": "n1", "device": "gpu-n1-0", "shareID": "s", "request": "r",
        "consumedCapacity": {"core": "0", "memory": "1"}, "bindingConditions": [names.CLAIM_PROMISED],
    }  # fmt: skip
    allocation = {"devices": {"results": [result], "config": parameters}}
    claim = {
        "metadata": {"name": "c", "namespace": "ns", "annotations": {"a": "x" * 250_000}},
        "spec": {"devices": {"requests": [{"name": "r"}], "config": parameters}},
        "status": {"allocation": allocation},
    }
    cluster, held = weighed(CLAIM, claim, slim_claim if in_a_list else None)
    assert len(cluster.claims) == TEN
    assert held < TEN * MIB / 16
