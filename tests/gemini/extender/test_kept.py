"""What the extender keeps of a pod: all that it looks at, and nothing of which a pod may have any amount."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import orjson
import pytest

from gemini.extender.kept import MOST_AMOUNTS, MOST_LABELS, kept
from gemini.extender.state import BUDGET, POD, Cluster
from gemini.kube import names

MIB = 1 << 20
MANY = 13_000  # variables of an environment: 1.2 MB of JSON, of the 1.5 that the API server stores


def large(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}


ENV = [{"name": f"A{i}", "value": "v" * 60} for i in range(MANY)]
AMOUNTS = {f"example.com/r{i}": "1" for i in range(MANY)}
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
    ],
    ids=["environment", "environment-of-a-share", "volumes", "containers", "amounts", "tolerations", "labels"],
)
def test_large_pods_take_little_memory(pod: dict[str, Any]) -> None:
    """A hundred pods of 1.4 MB, which wanted no card and were never placed, took 497 MB of each replica."""
    cluster, text, ten = Cluster([]), orjson.dumps(pod), 10
    tracemalloc.start()
    try:
        for i in range(ten):
            given = orjson.loads(text)
            given["metadata"] |= {"uid": f"u{i}", "resourceVersion": str(i + 1)}
            cluster.apply(POD, "ADDED", given)
        del given
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cluster.pods) == ten
    assert held < ten * MIB / 8


def test_a_share_is_read_from_what_is_kept_as_from_all_of_it() -> None:
    resources = {"limits": AMOUNTS | SHARE, "requests": {"cpu": "1", **SHARE}, "claims": [{"name": "x"}]}
    marked = {"name": names.ENV_SOCKET, "value": "x"}
    container = {"name": "a", "image": "i", "env": [*ENV, marked], "resources": resources}
    labels = {f"l{i}": "x" for i in range(MANY)}
    pod = {"metadata": {"name": "p", "annotations": {"a": "b"}, "labels": labels}, "spec": {"containers": [container]}}
    assert kept(pod, True)["spec"]["containers"] == [
        {"name": "a", "env": [marked], "resources": {"limits": SHARE, "requests": {"cpu": "1", **SHARE}}}
    ]
    assert len(kept(pod, True)["metadata"]["labels"]) == MOST_LABELS
    assert kept(pod, True)["metadata"]["annotations"] == {"a": "b"}
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
