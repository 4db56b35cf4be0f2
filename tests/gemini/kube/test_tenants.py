"""Whose share is whose: of a pod, of one of its containers, of two that say it."""

from __future__ import annotations

from typing import Any

import pytest

from gemini.kube.pod import parse_ask, parse_pod
from gemini.kube.spelling import InvalidPod
from gemini.placement.model import Role, Want
from tests.gemini.kube.pods import container, limits, pod, says

GIB, MIB = 2**30, 2**20


def test_a_share_on_the_pod_is_one_tenant_for_all_containers() -> None:
    spec = parse_pod(pod(container("a"), container("b"), init=[container("i")], annotations=says(gpu_request="0.5")))
    (tenant,) = spec.ask.tenants
    assert (tenant.containers, tenant.role) == (("i", "a", "b"), Role.ALWAYS)


def test_a_share_on_a_container_is_a_tenant_of_its_own() -> None:
    annotations = {
        "gemini.io/gpu-request.a": "0.5",
        "gemini.io/gpu-request.b": "0.2",
        "gemini.io/gpu-class.b": "latency",
    }
    spec = parse_pod(pod(container("a"), container("b"), container("c"), annotations=annotations))
    assert [(t.containers, t.role, t.wants[0].core) for t in spec.ask.tenants] == [
        (("a",), Role.APP, 50),
        (("b",), Role.APP, 20),
    ]
    assert [s.tenant_class for s in spec.shares] == [None, "latency"]


def test_keys_said_for_a_container_go_before_those_of_the_pod() -> None:
    annotations = says(gpu_request="0.5", gpu_memory_ratio="20") | {"gemini.io/gpu-memory.b": "1Gi"}
    spec = parse_pod(pod(container("a"), container("b"), annotations=annotations))
    assert [(t.containers, t.wants[0]) for t in spec.ask.tenants] == [
        (("a",), Want(core=50, ratio=20)),
        (("b",), Want(core=50, memory=GIB)),
    ]


def test_init_containers_and_sidecars_have_their_roles() -> None:
    init = [
        container("i", **limits(nvidia_com__gpu=1)) | {"resources": {"limits": {"nvidia.com/gpu": 1}}},
        container("s", restartPolicy="Always", resources={"limits": {"koordinator.sh/gpu": 10}}),
    ]
    spec = parse_pod(pod(container("a", resources={"limits": {"koordinator.sh/gpu": 20}}), init=init))
    assert [(t.containers[0], t.role) for t in spec.ask.tenants] == [
        ("i", Role.INIT),
        ("s", Role.ALWAYS),
        ("a", Role.APP),
    ]


@pytest.mark.parametrize(
    "resources",
    [{"nvidia.com/gpu": 1}, {"koordinator.sh/gpu": 50}, {"aliyun.com/gpu-mem": 1}, {"gemini.io/gpu-core": 41}],
)
def test_a_share_in_two_spellings_is_refused(resources: dict[str, Any]) -> None:
    with pytest.raises(InvalidPod, match="keep one of the two"):
        parse_ask("p", says(gpu_request="0.4"), resources)


def test_labels_and_annotations_are_two_spellings() -> None:
    with pytest.raises(InvalidPod, match="keep one of the two"):
        parse_ask("p", says(gpu_request="0.4"), labels={"sharedgpu/gpu_limit": "1"})


def test_choices_of_a_container_without_a_share_of_its_own_are_refused() -> None:
    with pytest.raises(InvalidPod, match=r"gemini.io/gpu-model.a: the container uses the pod's share"):
        parse_pod(pod(container("a"), annotations=says(gpu_request="0.5") | {"gemini.io/gpu-model.a": "A100"}))
