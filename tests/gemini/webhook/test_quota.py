"""A quota on the memory of cards counts what is asked for in every spelling."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from gemini.kube import names
from gemini.kube.device import write_device
from gemini.kube.pod import parse_pod
from gemini.kube.scope import SPELLINGS, Reading
from gemini.placement.model import Device, Node, Want
from gemini.webhook.quota import DEVICE, QUOTA, Known
from gemini.webhook.review import mutate, validate
from gemini.webhook.settings import Settings
from tests.gemini.webhook.test_review import box, of, pod, review

GIB = 2**30
HERE = Settings(allowed=frozenset({"gpu-memory"}), reading=Reading(frozenset(SPELLINGS)))
Object = dict[str, Any]


def quota(*keys: str, namespace: str = "ns", name: str = "q") -> Object:
    hard = {f"requests.{key}": "100" for key in keys}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"hard": hard}}


def known(*keys: str, sizes: tuple[int, ...] = (80,)) -> Known:
    made = Known()
    made.replace(QUOTA, [quota(*keys)])
    nodes = [
        Node(f"n{i}", (Device(0, uuid=f"GPU-{i}", model=f"M{size}", memory=size * GIB), Device(0, "rdma")))
        for i, size in enumerate(sizes)
    ]
    made.replace(DEVICE, [write_device(node) for node in nodes])
    return made


def admitted(given: Object, about: Known, namespace: str = "ns") -> Object:
    """The pod as it is stored, through both webhooks; AssertionError with what was said."""
    answer = mutate(review(given, namespace=namespace), HERE, about)["response"]
    assert answer["allowed"], answer["status"]["message"]
    result = json.loads(json.dumps(given))
    for operation in json.loads(base64.b64decode(answer.get("patch", "W10="))):
        at: Any = result
        *above, last = operation["path"].strip("/").split("/")
        for key in above:
            at = at[int(key)] if isinstance(at, list) else at[key]
        at[last] = operation["value"]
    answer = validate(review(result, namespace=namespace), HERE, about)["response"]
    assert answer["allowed"], answer["status"]["message"]
    return dict(result)


def counted(made: Object, key: str = names.RESOURCE_MEMORY) -> int:
    every = (*made["spec"]["containers"], *made["spec"].get("initContainers", ()))
    return sum(int(one.get("resources", {}).get("requests", {}).get(key, 0)) for one in every)


SPELLINGS = {
    "share alone": (pod(box("a"), gpu_request="0.5"), 40),
    "ratio": (pod(box("a"), gpu_request="0.1", gpu_memory_ratio="100"), 80),
    "bytes": (pod(box("a"), gpu_request="0.5", gpu_memory="3Gi"), 3),
    "several cards": (pod(box("a"), gpu_request="0.5", gpu_count="2"), 80),
    "of one container": (pod(box("a"), box("b"), **{"gpu_request.a": "0.5", "gpu_memory_ratio.a": "25"}), 20),
    "of each container": (pod(box("a"), box("b"), **{"gpu_request.a": "0.5", "gpu_request.b": "0.25"}), 60),
    "of all containers": (pod(box("a"), box("b"), gpu_request="0.5"), 40),
    "of all and of one": (pod(box("a"), box("b"), gpu_request="0.5", **{"gpu_request.b": "0.25"}), 60),
    "with init containers": (pod(box("a"), init=[box("i"), box("j")], gpu_request="0.5"), 40),
    "no memory": (pod(box("a"), gpu_request="0"), 0),
    "our resources": (pod(box("a", **{names.RESOURCE_CORE: "50"})), 40),
    "our ratio": (pod(box("a", **{names.RESOURCE_CORE: "50", names.RESOURCE_RATIO: "25"})), 20),
    "S2": (pod(of("a", "kubernetes.io/gpu", "50")), 40),
    "Koordinator": (pod(box("a", **{"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"})), 40),
    "NVIDIA": (pod(of("a", "nvidia.com/gpu", "2")), 160),
    "KubeShare": (pod(box("a"), labels={names.SHARED_REQUEST: "0.5", names.SHARED_LIMIT: "1"}), 40),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_counted_in_bytes(spelling: str) -> None:
    given, gibibytes = SPELLINGS[spelling]
    made = admitted(given, known(names.RESOURCE_MEMORY))
    assert (counted(made), counted(made, names.RESOURCE_RATIO)) == (gibibytes * GIB, 0)
    before, after = parse_pod(given), parse_pod(made)
    device = Device(0, memory=80 * GIB)
    for old, new in zip(before.ask.tenants, after.ask.tenants, strict=True):
        for was, now in zip(old.wants, new.wants, strict=True):
            assert (now.count, now.core, now.memory_on(device.memory)) == (
                was.count, was.core, was.memory_on(device.memory),
            )  # fmt: skip
    assert admitted(made, known(names.RESOURCE_MEMORY)) == made, "a second look changes nothing"
    assert counted(admitted(given, known(names.RESOURCE_MEMORY), "other")) in (0, 3 * GIB)


@pytest.mark.parametrize("request_", ["0.02", "0.10", "1"])
def test_init_containers_make_no_share_look_smaller_to_a_quota(request_: str) -> None:
    """Kubernetes counts the sum of the containers, or the init container that asks most."""
    init = [box(f"i{n}") for n in range(9)]
    made = admitted(pod(box("a"), init=init, gpu_request=request_), known(names.RESOURCE_MEMORY))
    core = [int(one["resources"]["requests"][names.RESOURCE_CORE]) for one in made["spec"]["containers"]]
    first = [int(one["resources"]["requests"][names.RESOURCE_CORE]) for one in made["spec"]["initContainers"]]
    assert max(sum(core), *first) == int(float(request_) * 100)
    assert counted({"spec": {"containers": made["spec"]["containers"]}}) == int(float(request_) * 100) * 80 * GIB // 100


@pytest.mark.parametrize(
    ("given", "about", "told"),
    [
        (
            pod(box("a"), gpu_request="0.5"),
            known(names.RESOURCE_MEMORY, sizes=(40, 80)),
            "cards of 40Gi, 80Gi would do",
        ),
        (pod(box("a"), gpu_request="0.5"), known(names.RESOURCE_MEMORY, sizes=()), "no card is known"),
        (pod(of("a", "aliyun.com/gpu-mem", "9")), known(names.RESOURCE_MEMORY), "quota on gemini.io/gpu-memory"),
        (pod(of("a", "aliyun.com/gpu-mem", "9")), known(names.RESOURCE_CORE), "quota on gemini.io/gpu-core"),
        (
            pod(box("a"), gpu_request="0.5", gpu_memory="1Gi"),
            known(names.RESOURCE_RATIO),
            "bytes are not counted by the namespace's quota",
        ),
        (
            pod(box("a"), box("b"), gpu_request="0.5", **{"gpu_request.b": "0"}),
            known(names.RESOURCE_MEMORY),
            "for each container",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused_with_the_mend(given: Object, about: Known, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        admitted(given, about)


def test_the_model_that_is_named_says_the_size_where_cards_differ() -> None:
    about = known(names.RESOURCE_MEMORY, sizes=(40, 80))
    assert counted(admitted(pod(box("a"), gpu_request="0.5", gpu_model="m80"), about)) == 40 * GIB
    assert counted(admitted(pod(box("a"), gpu_request="0.5", gpu_uuid="GPU-0"), about)) == 20 * GIB


def test_quotas_and_cards_that_come_and_go_are_followed() -> None:
    about = known(names.RESOURCE_MEMORY, sizes=(40, 80))
    about.apply(QUOTA, "ADDED", quota("count/pods", name="other"))
    about.apply(DEVICE, "DELETED", {"metadata": {"name": "n0"}})
    assert counted(admitted(pod(box("a"), gpu_request="0.5"), about)) == 40 * GIB
    about.apply(QUOTA, "MODIFIED", quota("gemini.io/gpu-core"))
    assert counted(admitted(pod(box("a"), gpu_request="0.5"), about)) == 0
    about.apply(QUOTA, "DELETED", quota())
    assert admitted(pod(of("a", "aliyun.com/gpu-mem", "9")), about)


def test_a_pod_that_came_past_what_writes_bytes_is_refused() -> None:
    given = review(pod(box("a"), gpu_request="0.5"), namespace="ns")
    answer = validate(given, HERE, known(names.RESOURCE_MEMORY))["response"]
    assert "counts bytes" in answer["status"]["message"]


def test_the_sizes_of_cards_are_those_that_are_there_now() -> None:
    about = known(names.RESOURCE_MEMORY, sizes=(80, 80, 40))
    assert about.sizes(Want()) == [40 * GIB, 80 * GIB]
    assert about.sizes(Want(models=frozenset({"m80", "M10"}))) == [80 * GIB]
    assert about.sizes(Want(excluded=frozenset({"GPU-2"}))) == [80 * GIB]
    assert about.sizes(Want(excluded=frozenset({"GPU-0"}))) == [40 * GIB, 80 * GIB]
    assert about.sizes(Want(uuids=frozenset({"GPU-2", "GPU-0"}), excluded=frozenset({"GPU-0"}))) == [40 * GIB]
    assert about.sizes(Want(uuids=frozenset({"GPU-7"}))) == []
    smaller = write_device(Node("n2", (Device(0, uuid="GPU-2", model="M20", memory=20 * GIB),)))
    about.apply(DEVICE, "MODIFIED", smaller)
    assert about.sizes(Want()) == [20 * GIB, 80 * GIB]
    about.apply(DEVICE, "DELETED", smaller)
    assert (about.sizes(Want()), about.sizes(Want(uuids=frozenset({"GPU-2"})))) == ([80 * GIB], [])
    about.replace(DEVICE, [smaller])
    assert about.sizes(Want()) == [20 * GIB]
