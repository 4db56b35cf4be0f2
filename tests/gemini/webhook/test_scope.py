"""Beside other projects: whose pods admission reads, and that it leaves all others as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gemini.kube.scope import OTHERS, Reading
from gemini.webhook.review import mutate, validate, validate_binding
from gemini.webhook.settings import Settings
from tests.gemini.webhook.test_review import BINDER, box, of, patched, pod, review

DEFAULT = Settings(
    scheduler="gemini-scheduler", binders=frozenset({BINDER}),
    reading=Reading(opted=frozenset(OTHERS), pool=(("gemini.io/gpu", "true"),)),
)  # fmt: skip
OPTED_IN = DEFAULT.opted_in()
PASSED = {"uid": "u1", "allowed": True}

FOREIGN = {
    "nvidia": pod(of("a", "nvidia.com/gpu", 1)),
    "kubernetes": pod(of("a", "kubernetes.io/gpu", 50)),
    "koordinator": pod(box("a", **{"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 50})),
    "koordinator's rdma": pod(of("a", "koordinator.sh/rdma", 100)),
    "gpushare": pod(of("a", "aliyun.com/gpu-mem", 1024)),
    "kubeshare": pod({"name": "a"}, labels={"sharedgpu/gpu_request": "0.4"}),
    "hami": pod(box("a", **{"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30})),
    "volcano": pod(box("a", **{"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000})),
    "kai": {**pod({"name": "a"}), "metadata": {"name": "p", "annotations": {"gpu-fraction": "0.5"}}},
    "nonsense": pod(of("a", "kubernetes.io/gpus", 50), labels={"sharedgpu/gpu_request": "4.5"}),
}


def with_spec(made: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**made, "spec": {**made["spec"], **more}}


def bound(made: dict[str, Any], here: Settings) -> dict[str, Any]:
    """The answer to a scheduler of somebody else's that binds the pod."""
    uid = {"uid": "p1"}
    binding = review({"kind": "Binding", "metadata": uid}, userInfo={"username": "system:kube-scheduler"})
    response: dict[str, Any] = validate_binding(binding, {**made, "metadata": {**made["metadata"], **uid}}, here)[
        "response"
    ]
    return response


def answers(made: dict[str, Any], here: Settings, old: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    changed = review(made, "UPDATE", oldObject=old or made)
    return [
        mutate(review(made), here)["response"],
        validate(review(made), here)["response"],
        validate(changed, here)["response"],
        bound(made, here),
    ]


@pytest.mark.parametrize("name", FOREIGN)
def test_a_default_installation_leaves_pods_of_other_projects_as_they_are(name: str) -> None:
    assert answers(FOREIGN[name], DEFAULT) == [PASSED] * 4


def test_labels_of_a_spelling_that_is_not_read_may_change() -> None:
    old = pod({"name": "a"}, labels={"sharedgpu/gpu_request": "0.4"})
    new = pod({"name": "a"}, labels={"sharedgpu/gpu_request": "0.5"})
    changed = review(new, "UPDATE", oldObject=old)
    assert validate(changed, DEFAULT)["response"] == PASSED
    assert not validate(changed, OPTED_IN)["response"]["allowed"]


@pytest.mark.parametrize("name", [name for name in FOREIGN if name not in ("nonsense", "gpushare")])
def test_a_namespace_that_opted_in_and_a_pod_that_selects_our_nodes_are_read(name: str) -> None:
    made = FOREIGN[name]
    ours = patched(made, OPTED_IN)
    assert any(key.startswith("gemini.io/") for key in ours["spec"]["containers"][0]["resources"]["limits"])
    selecting = with_spec(made, nodeSelector={"gemini.io/gpu": "true", "zone": "a"})
    assert patched(selecting, DEFAULT)["spec"] == {**ours["spec"], "nodeSelector": selecting["spec"]["nodeSelector"]}
    assert answers(with_spec(made, nodeSelector={"gemini.io/gpu": "false"}), DEFAULT) == [PASSED] * 4


OF_OTHERS = {
    "its node is chosen": {"nodeName": "n1"},
    "Volcano schedules it": {"schedulerName": "volcano"},
    "KAI schedules it": {"schedulerName": "kai-scheduler"},
}


@pytest.mark.parametrize("why", OF_OTHERS)
@pytest.mark.parametrize("name", [name for name in FOREIGN if name != "nonsense"])
def test_a_pod_whose_node_or_scheduler_is_somebody_elses_is_never_touched(name: str, why: str) -> None:
    made = with_spec(FOREIGN[name], **OF_OTHERS[why])
    assert answers(made, OPTED_IN) == [PASSED] * 4


@pytest.mark.parametrize(
    "more",
    [
        {"securityContext": {"privileged": True}},
        {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
    ],
)
def test_a_pod_of_nvidias_that_takes_its_cards_by_itself_is_never_touched(more: dict[str, Any]) -> None:
    made = pod({**of("a", "nvidia.com/gpu", 1), **more}, {"name": "b"})
    assert answers(made, OPTED_IN) == [PASSED] * 4
    beside = pod(of("a", "nvidia.com/gpu", 1), {"name": "rdma", **more})
    assert answers(beside, OPTED_IN) == [PASSED] * 4


def test_a_share_of_our_own_is_read_and_refused_as_ever() -> None:
    for more in OF_OTHERS.values():
        made = with_spec(pod({"name": "a"}, gpu_request="0.5"), **more)
        assert not mutate(review(made), DEFAULT)["response"]["allowed"]


def test_a_container_beside_a_share_keeps_the_card_that_nvidias_plugin_gives_it() -> None:
    made = pod({"name": "a"}, of("b", "nvidia.com/gpu", 1), **{"gpu_request.a": "0.5"})
    after = patched(made, DEFAULT)
    assert after["spec"]["containers"][1] == made["spec"]["containers"][1]
    assert patched(after, DEFAULT) == after
    assert validate(review(after), DEFAULT)["response"] == PASSED


@pytest.mark.parametrize("made", [
    pod(of("a", "nvidia.com/gpu", 1), gpu_request="0.5"),
    pod(box("a", **{"nvidia.com/gpu": 1, "gemini.io/gpu-core": 50})),
])  # fmt: skip
def test_a_container_with_a_share_and_a_card_of_nvidias_plugin_is_refused(made: dict[str, Any]) -> None:
    said = mutate(review(made), DEFAULT)["response"]["status"]["message"]
    assert said == "nvidia.com/gpu: container a has a share of gemini.io too; keep one of the two"


def test_what_an_opted_in_namespace_made_a_sharepod_is_bound_by_ours_alone() -> None:
    for name in ("gpushare", "kubeshare", "nvidia"):
        made = patched(FOREIGN[name], OPTED_IN)
        assert "may not bind a pod with a share" in bound(made, DEFAULT)["status"]["message"], name


def test_some_spellings_may_be_read_in_every_pod() -> None:
    here = replace(DEFAULT, reading=Reading(frozenset({"gemini.io", "aliyun.com"})))
    assert patched(FOREIGN["gpushare"], here) != FOREIGN["gpushare"]
    assert answers(FOREIGN["nvidia"], here) == [PASSED] * 4


def test_a_pod_of_hamis_is_never_half_converted() -> None:
    here = replace(DEFAULT, reading=Reading(frozenset({"gemini.io", "nvidia.com"})))
    assert answers(FOREIGN["hami"], here) == [PASSED] * 4
    ours = patched(FOREIGN["hami"], OPTED_IN)
    assert ours["spec"]["containers"][0]["resources"]["limits"] == {
        "gemini.io/gpu-core": "30", "gemini.io/gpu-memory": str(3000 * 2**20),
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in FOREIGN if name != "nonsense"])
def test_admission_of_what_is_read_twice_is_admission_once(name: str) -> None:
    once = patched(FOREIGN[name], OPTED_IN)
    assert patched(once, OPTED_IN) == once
    assert validate(review(once), OPTED_IN)["response"] == PASSED
    assert validate(review(once), DEFAULT)["response"] == PASSED
