# ruff: noqa: E501 - a case of a table is one line
"""Pods in every spelling: what they mean, and what is refused with field, value and mend."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemini.kube import names
from gemini.kube.escapes import admission_fault
from gemini.kube.pod import PodSpec, injected, parse_ask, parse_pod
from gemini.kube.spelling import InvalidPod
from gemini.placement.model import Want
from tests.gemini.kube.pods import container, pod, says

GIB, MIB = 2**30, 2**20


def the_want(spec: PodSpec) -> Want:
    (tenant,) = spec.ask.tenants
    (want,) = tenant.wants
    return want


@pytest.mark.parametrize(
    ("annotations", "want", "limit"),
    [
        (says(gpu_request="0.3"), Want(core=30, ratio=30, follows=True), 100),
        (says(gpu_request="30%", gpu_limit="0.6"), Want(core=30, ratio=30, follows=True), 60),
        (says(gpu_limit="0.6"), Want(core=60, ratio=60, follows=True), 60),
        (says(gpu_request="0", gpu_memory="4Gi"), Want(core=0, memory=4 * GIB), 100),
        (says(gpu_request="0"), Want(core=0, ratio=0, follows=True), 100),
        (says(gpu_memory="4GiB"), Want(core=0, memory=4 * GIB), 100),
        (says(gpu_memory_ratio="25"), Want(core=0, ratio=25), 100),
        (says(gpu_request="0.5", gpu_memory_ratio="60%"), Want(core=50, ratio=60), 100),
        (says(gpu_count="2"), Want(count=2, core=100, ratio=100, follows=True), 100),
        (says(gpu_count="2", gpu_request="0.5"), Want(count=2, core=50, ratio=50, follows=True), 100),
        (says(gpu_count=2, gpu_memory="4Gi"), Want(count=2, core=0, memory=4 * GIB), 100),
        (says(gpu_request="0.5", gpu_model="A100, V100"),
         Want(core=50, ratio=50, follows=True, models=frozenset({"A100", "V100"})), 100),
        (says(gpu_request="0.5", gpu_topology="pcie"), Want(core=50, ratio=50, follows=True, scope="pcie"), 100),
        (says(gpu_request="0.5", joint="rdma"), Want(core=50, ratio=50, follows=True, joint=(("rdma", 100),)), 100),
    ],
)  # fmt: skip
def test_annotations(annotations: dict[str, Any], want: Want, limit: int) -> None:
    spec = parse_ask("p", annotations)
    assert the_want(spec) == want
    assert spec.shares[0].limit == limit


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({"nvidia.com/gpu": 2}, Want(count=2, core=100, ratio=100, follows=True)),
        ({"kubernetes.io/gpu": 50}, Want(core=50, ratio=50, follows=True)),
        ({"kubernetes.io/gpu-core": 50, "kubernetes.io/gpu-memory-ratio": 60}, Want(core=50, ratio=60)),
        ({"kubernetes.io/gpu-core": 60, "kubernetes.io/gpu-memory": "4Gi"}, Want(core=60, memory=4 * GIB)),
        ({"kubernetes.io/gpu-core": 60, "kubernetes.io/gpu-mem": "4Gi"}, Want(core=60, memory=4 * GIB)),
        ({"gemini.io/gpu-core": 40}, Want(core=40, ratio=40, follows=True)),
        ({"gemini.io/gpu-memory": 4096}, Want(core=0, memory=4096)),
        ({"gemini.io/gpu-core": 200, "gemini.io/gpu-memory": "16Gi"}, Want(count=2, core=100, memory=8 * GIB)),
        ({"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory": "16Gi"}, Want(count=2, core=100, memory=8 * GIB)),
        ({"koordinator.sh/gpu-memory-ratio": 50}, Want(core=0, ratio=50)),
        ({"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 60},
         Want(count=2, core=50, ratio=30)),
        ({"koordinator.sh/gpu.shared": 3, "koordinator.sh/gpu-memory": 100}, Want(count=3, core=0, memory=33)),
        ({"aliyun.com/gpu-mem": 1024}, Want(memory=1024 * MIB, by_memory=True)),
        ({"aliyun.com/gpu-mem": 8, "aliyun.com/gpu-count": 2}, Want(count=2, memory=4 * MIB, by_memory=True)),
        ({"aliyun.com/gpu-count": 2}, Want(count=2, core=100, ratio=100, follows=True)),
        ({"requests": {"nvidia.com/gpu": 1}}, Want(core=100, ratio=100, follows=True)),
        ({"nvidia.com/gpu": 0, "gemini.io/gpu": 10}, Want(core=10, ratio=10, follows=True)),
        ({"gemini.io/rdma": 200}, Want(type="rdma", count=2, core=100)),
        ({"koordinator.sh/fpga": 50}, Want(type="fpga", core=50)),
    ],
)  # fmt: skip
def test_resources(resources: dict[str, Any], want: Want) -> None:
    assert the_want(parse_ask("p", None, resources)) == want


@pytest.mark.parametrize(
    ("labels", "want", "limit"),
    [
        ({"gpu_request": "0.5", "gpu_limit": "1.0"}, Want(core=50, ratio=50, follows=True), 100),
        ({"gpu_request": "0.5", "gpu_limit": "0.7", "gpu_mem": str(GIB)}, Want(core=50, memory=GIB), 70),
        ({"gpu_limit": "0.7"}, Want(core=70, ratio=70, follows=True), 70),
        ({"gpu_request": "2", "gpu_limit": "2"}, Want(count=2, core=100, ratio=100, follows=True), 100),
        ({"gpu_request": "10", "gpu_limit": "10"}, Want(count=10, core=100, ratio=100, follows=True), 100),
        ({"gpu_request": "0.5", "gpu_limit": "1", "gpu_model": "A100"},
         Want(core=50, ratio=50, follows=True, models=frozenset({"A100"})), 100),
    ],
)  # fmt: skip
def test_kubeshare_labels(labels: dict[str, str], want: Want, limit: int) -> None:
    spec = parse_ask("p", labels={f"sharedgpu/{k}": v for k, v in labels.items()})
    assert the_want(spec) == want
    assert spec.shares[0].limit == limit


@pytest.mark.parametrize(("threshold", "size"), [(None, 5), ("1.0", 5), ("0.5", 3), ("0.3", 2), ("0.01", 1)])
def test_kubeshare_groups_need_the_threshold_of_their_heads(threshold: str | None, size: int) -> None:
    labels = {"sharedgpu/gpu_limit": "1", "sharedgpu/group_name": "g", "sharedgpu/group_headcount": "5"}
    if threshold:
        labels["sharedgpu/group_threshold"] = threshold
    assert (parse_ask("p", labels=labels).ask.group, parse_ask("p", labels=labels).ask.group_size) == ("g", size)


BAD_ANNOTATIONS = [
    (says(gpu_request="1.5"), "gemini.io/gpu-request: 1.5 is above 1"),
    (says(gpu_request="-0.1"), "gemini.io/gpu-request: -0.1 is below 0"),
    (says(gpu_request="NaN"), "gemini.io/gpu-request: NaN is not a number"),
    (says(gpu_request="0.8", gpu_limit="0.5"), "gemini.io/gpu-request: 0.8 is above gemini.io/gpu-limit 0.5"),
    (says(gpu_limit="0"), "gemini.io/gpu-limit: 0 lets nothing run"),
    (says(gpu_request="0.5", gpu_memory="4Gi", gpu_memory_ratio="50"), "gemini.io/gpu-memory-ratio: 50 beside"),
    (says(gpu_request="0.5", gpu_memory="4Quarts"), "gemini.io/gpu-memory: 4Quarts is not a quantity"),
    (says(gpu_request="0.5", gpu_memory="0"), "gemini.io/gpu-memory: 0 is not a size above 0"),
    (says(gpu_memory_ratio="120"), "gemini.io/gpu-memory-ratio: 120 is above 100"),
    (says(gpu_count="0"), "gemini.io/gpu-count: 0 is below 1"),
    (says(gpu_count="-1"), "gemini.io/gpu-count: -1 is below 1"),
    (says(gpu_request="0.5", gpu_cout="2"), "gemini.io/gpu-cout: is no annotation of gemini.io"),
    (says(gpu_request="0.5", gpu_class="fast"), "gemini.io/gpu-class: fast is not known; use one of latency, batch"),
    (says(gpu_request="0.5", gpu_topology="rack"), "gemini.io/gpu-topology: rack is not known"),
    (says(gpu_request="0.5", gpu_uuid="a,b", gpu_uuid_exclude="b"), "gemini.io/gpu-uuid-exclude: b is wanted by"),
    (says(gpu_request="0.5", gpu_model="A100,,V100"), "gemini.io/gpu-model: A100,,V100 has an empty name"),
    (says(gpu_request="0.5", joint="nic"), "gemini.io/joint: nic is no device type"),
    (says(joint="rdma"), "gemini.io/joint: rdma is said of cards"),
    (says(gpu_class="latency"), "gemini.io/gpu-class: latency is said of cards, but the pod wants none; add gemini.io"),
    (says(gpu_model="H200"), "gemini.io/gpu-model: H200 is said of cards"),
    (says(gpu_uuid="GPU-1"), "gemini.io/gpu-uuid: GPU-1 is said of cards"),
    (
        says(gpu_request="0.5", gpu_count="2", gpu_uuid="GPU-1"),
        "gemini.io/gpu-uuid: GPU-1 names 1 of the 2 cards that are asked for",
    ),
    (says(gpu_policy="binpack"), "gemini.io/gpu-policy: binpack is said of cards"),
    (says(cpu_bind="2"), "gemini.io/cpu-bind: 2 is said of cards"),
    (says(**{"gpu_class.main": "latency"}), "gemini.io/gpu-class.main: latency is said of cards, but the container"),
    (says(pod_group="g", pod_group_size="2"), "gemini.io/pod-group: g is said of a pod that wants no device; add gem"),
    (says(gpu_request="0.5", cpu_bind="0"), "gemini.io/cpu-bind: 0 is below 1"),
    (says(gpu_request="0.5", pod_group="g"), "gemini.io/pod-group: g has no size"),
    (says(gpu_request="0.5", pod_group_size="2"), "gemini.io/pod-group-size: 2 is said without"),
    (says(gpu_request="0.5", pod_group="g", pod_group_size="0"), "gemini.io/pod-group-size: 0 is below 1"),
    ({"gemini.io/gpu-request.other": "0.5"}, "gemini.io/gpu-request.other: the pod has no container other"),
    ({"gemini.io/gpu-request.": "0.5"}, "gemini.io/gpu-request.: the pod has no container"),
    (
        says(gpu_request="0.5", pod_group_required_topology="zone"),
        "gemini.io/pod-group-required-topology: zone is said without gemini.io/pod-group; add the group's name and size",
    ),
    *(
        (
            says(gpu_request="0.5", pod_group="g", pod_group_size="2", pod_group_preferred_topology=level),
            f"gemini.io/pod-group-preferred-topology: {level} is no level of a cluster; write node, nvlink, rack, zone, cl",
        )
        for level in ("Zone", "a/b/c", "region", "-a/b")
    ),
    ({"gemini.io/pod-group.main": "g"}, "gemini.io/pod-group.main: speaks of the whole pod"),
    (
        says(gpu_request="0.5", gpu_policy=",".join(["link", "fragment"] * 10_000)),
        "gemini.io/gpu-policy: link,fragment,",
    ),
    (says(gpu_request="0.5", gpu_policy=","), "gemini.io/gpu-policy: , has an empty name"),
    (says(gpu_request=["0.5"]), "gemini.io/gpu-request: ['0.5'] is not text"),
    ("text", "metadata.annotations: text is not an object"),
]


@pytest.mark.parametrize(
    ("annotations", "problem"), [case for case in BAD_ANNOTATIONS if case[0] != says(gpu_request=None)]
)
def test_bad_annotations_are_refused(annotations: Any, problem: str) -> None:
    with pytest.raises(InvalidPod) as caught:
        parse_ask("p", annotations)
    assert str(caught.value).startswith(problem)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ({"gemini.io/gpu-cores": 50}, "gemini.io/gpu-cores: is no resource of gemini.io"),
        ({"koordinator.sh/gpu-cores": 50}, "koordinator.sh/gpu-cores: is not known"),
        ({"aliyun.com/gpu-memory": 50}, "aliyun.com/gpu-memory: is not known"),
        ({"kubernetes.io/gpu": 101}, "kubernetes.io/gpu: 101 is above 100 and no multiple of it; write 100 or 200"),
        ({"gemini.io/gpu": 50, "gemini.io/gpu-core": 50}, "gemini.io/gpu: 50 stands alone"),
        ({"koordinator.sh/gpu-core": 50}, "koordinator.sh/gpu-core: 50 needs memory beside it"),
        ({"koordinator.sh/gpu.shared": 2}, "koordinator.sh/gpu.shared: 2 needs memory beside it"),
        ({"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu": 50}, "koordinator.sh/gpu: 50 stands alone"),
        (
            {"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-memory-ratio": 101},
            "koordinator.sh/gpu-memory-ratio: 101",
        ),
        (
            {"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-memory-ratio": 202},
            "koordinator.sh/gpu-memory-ratio: 202",
        ),
        ({"gemini.io/gpu-memory": "4Gi", "gemini.io/gpu-memory-ratio": 50}, "gemini.io/gpu-memory-ratio: 50 beside"),
        (
            {"gemini.io/gpu-core": 200, "gemini.io/gpu-memory-ratio": 100},
            "gemini.io/gpu-memory-ratio: 100 means 1 cards",
        ),
        ({"gemini.io/gpu-core": -1}, "gemini.io/gpu-core: -1 is below 0"),
        ({"gemini.io/gpu-core": "1.5"}, "gemini.io/gpu-core: 1.5 is not a whole number"),
        (
            {"nvidia.com/gpu": 1, "kubernetes.io/gpu": 50},
            "nvidia.com/gpu: the share is said in resources of kubernetes",
        ),
        ({"aliyun.com/gpu-mem": 5, "aliyun.com/gpu-count": 2}, "aliyun.com/gpu-mem: 5 MiB cannot be spread over 2"),
        ({"aliyun.com/gpu-mem": 5, "aliyun.com/gpu-count": 0}, "aliyun.com/gpu-count: 0 is below 1"),
        ({"aliyun.com/gpu-mem": 2**50}, "aliyun.com/gpu-mem: 1125899906842624 MiB is more than any card"),
        ({"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}, "resources.requests[nvidia.com/gpu]: 1"),
        ({"gemini.io/rdma": 50, "koordinator.sh/rdma": 50}, "koordinator.sh/rdma: gemini.io/rdma says the same"),
        ([1], "resources: [1] is not an object"),
    ],
)
def test_bad_resources_are_refused(resources: Any, problem: str) -> None:
    with pytest.raises(InvalidPod) as caught:
        parse_ask("p", None, resources)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (
            {"sharedgpu/gpu_request": "0.8", "sharedgpu/gpu_limit": "0.5"},
            "sharedgpu/gpu_request: 0.8 is above the limit",
        ),
        (
            {"sharedgpu/gpu_request": "1.5", "sharedgpu/gpu_limit": "1.5"},
            "sharedgpu/gpu_limit: 1.5 is above 1, so it must",
        ),
        ({"sharedgpu/gpu_request": "1", "sharedgpu/gpu_limit": "2"}, "sharedgpu/gpu_limit: 2 is above 1, so it must"),
        ({"sharedgpu/gpu_limit": "0"}, "sharedgpu/gpu_limit: 0 lets nothing run"),
        ({"sharedgpu/gpu_limit": "0.333"}, "sharedgpu/gpu_limit: 0.333 is finer than one percent"),
        ({"sharedgpu/gpu_limit": "1", "sharedgpu/priority": "101"}, "sharedgpu/priority: 101 is above 100"),
        ({"sharedgpu/gpu_limit": "1", "sharedgpu/group_name": "g"}, "sharedgpu/group_name: g has no size"),
        ({"gemini.io/gpu-request": "0.5"}, "gemini.io/gpu-request: is read as an annotation"),
    ],
)
def test_bad_labels_are_refused(labels: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidPod) as caught:
        parse_ask("p", labels=labels)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    "annotations",
    [
        says(gpu_request="0.4"),
        says(gpu_request="0", gpu_memory="4Gi"),
        says(gpu_request="0.5", gpu_count="3"),
        {"gemini.io/gpu-request.a": "0.5", "gemini.io/gpu-memory-ratio.b": "20"},
        says(gpu_request="0.01"),
    ],
)
def test_what_admission_injects_parses_to_the_same_pod(annotations: dict[str, Any]) -> None:
    before = parse_pod(pod(container("a"), container("b"), annotations=annotations))
    extra = injected(before)
    assert all(resources[names.RESOURCE_CORE] >= 1 for resources in extra.values())
    boxes = [container(n, resources={"limits": extra.get(n, {}), "requests": extra.get(n, {})}) for n in "ab"]
    assert parse_pod(pod(*boxes, annotations=annotations)) == before


def test_the_slots_of_a_pods_share_add_up_to_the_share() -> None:
    spec = parse_pod(pod(container("a"), container("b"), container("c"), annotations=says(gpu_request="0.4")))
    assert [injected(spec)[n][names.RESOURCE_CORE] for n in "abc"] == [38, 1, 1]


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (None, "spec.containers: the pod has no container"),
        ([], "manifest: [] is not an object"),
        ({"spec": {"containers": "x"}}, "spec.containers: x is not a list"),
        ({"spec": {"containers": [1]}}, "spec.containers[0]: 1 is not an object"),
        ({"spec": {"containers": [{}]}}, "spec.containers[0].name: None is not a name"),
        ({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}, "spec.containers[1].name: a is used twice"),
        ({"spec": {"containers": [{"name": "a", "resources": 5}]}}, "spec.containers[0].resources: 5 is not an object"),
        ({"metadata": 3, "spec": {}}, "metadata: 3 is not an object"),
    ],
)
def test_what_is_no_pod_is_refused(manifest: Any, problem: str) -> None:
    with pytest.raises(InvalidPod) as caught:
        parse_pod(manifest)
    assert str(caught.value).startswith(problem)


def test_a_pod_with_100_containers_is_read() -> None:
    boxes = [container(f"c{i}", resources={"limits": {"koordinator.sh/gpu": 1}}) for i in range(100)]
    assert len(parse_pod(pod(*boxes)).ask.tenants) == 100


KEYS = [
    f"gemini.io/{k}" for k in ("gpu-request", "gpu-limit", "gpu-memory", "gpu-count", "gpu-request.a", "joint", "x")
]
KEYS += [
    *names.ANNOTATION_KEYS,
    "koordinator.sh/gpu",
    "koordinator.sh/gpu.shared",
    "aliyun.com/gpu-mem",
    "nvidia.com/gpu",
]
KEYS += [*names.SHARED_SHARE_KEYS, names.SHARED_GROUP, "metadata", "spec", "containers", "name", "resources", "limits"]
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.sampled_from(["1", "0.5", "a"])
)
JSON: Any = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


def test_a_pod_of_very_many_shares_is_refused() -> None:
    """Each of 1,500 containers with a share of its own cost the extender milliseconds for each node, in one call."""

    def many(count: int, **more: str) -> dict[str, Any]:
        own = {f"gemini.io/gpu-request.c{i}": "0.01" for i in range(count)}
        return pod(*(container(f"c{i}") for i in range(count)), annotations=more or own)

    assert len(parse_pod(many(100)).ask.tenants) == 100
    assert len(parse_pod(many(500, **says(gpu_request="0.5"))).ask.tenants) == 1
    with pytest.raises(
        InvalidPod, match="101 of them have a share of their own, which is more than 100; let some use one"
    ):
        parse_pod(many(101))
    with pytest.raises(InvalidPod, match=r"spec\.containers: 501 are more than 500; make several pods of them"):
        parse_pod(many(501, **says(gpu_request="0.5")))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            says(gpu_request="1", gpu_model=",".join(f"m{i}" for i in range(257))),
            "has 257 names, which is more than 256",
        ),
        (
            says(gpu_request="1", gpu_uuid=",".join(f"u{i}" for i in range(257))),
            "has 257 names, which is more than 256",
        ),
        (says(gpu_request="1", pod_group="g" * 254, pod_group_size="2"), "has 254 characters, which is more than 253"),
    ],
    ids=["models", "uuids", "group"],
)
def test_what_each_node_would_have_to_repeat_is_bounded(said: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidPod, match=told) as refused:
        parse_pod(pod(container("a"), annotations=said))
    assert len(str(refused.value)) < 300


@settings(max_examples=400, deadline=None)
@given(JSON, JSON, JSON)
def test_no_json_makes_it_raise_anything_but_a_refusal(annotations: Any, resources: Any, labels: Any) -> None:
    manifest = {
        "metadata": {"annotations": annotations, "labels": labels},
        "spec": {
            "containers": [{"name": "a", "resources": resources}, {"name": "b", "resources": {"limits": resources}}]
        },
    }
    for parse in (
        lambda: parse_ask("p", annotations, resources, labels),
        lambda: parse_pod(manifest),
        lambda: parse_pod(annotations),
        lambda: admission_fault(resources, parse_ask("p", says(gpu_request="1"))),
    ):
        with suppress(InvalidPod):
            parse()
