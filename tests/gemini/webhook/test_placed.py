"""Admission of pods that another scheduler places, in a namespace where their time is enforced."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gemini.kube import names
from gemini.webhook.review import mutate, mutate_placed, validate, validate_placed
from gemini.webhook.settings import Settings
from tests.gemini.webhook.test_review import applied, box, pod, review
from tests.gemini.webhook.test_scope import DEFAULT, OPTED_IN, PASSED, bound

HAMI = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
VOLCANO = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-cores": 30}
PRELOAD = {"name": "LD_PRELOAD", "value": names.LIBRARY_PATH}
LAST = [
    {"name": "GEMINI_SOCKET", "value": f"ipc://{names.SOCKET_PATH}"},
    {"name": "CUDA_DISABLE_CONTROL", "value": "true"},
]
PLACED = {**HAMI, names.RESOURCE_PLACED: 1}
Pod = dict[str, Any]


def placed(made: Pod, here: Settings = DEFAULT) -> Pod:
    """The pod as admission makes it there."""
    return applied(made, mutate_placed(review(made), here)["response"])


def refusal(made: Pod, here: Settings = DEFAULT) -> str:
    answer = validate(review(made), here)["response"]
    assert not answer["allowed"]
    text = answer["status"]["message"]
    assert "\n" not in text
    return str(text)


def by(name: str, *groups: str) -> dict[str, Any]:
    return {"userInfo": {"username": name, "groups": list(groups)}, "namespace": "team"}


@pytest.mark.parametrize("asked", [HAMI, VOLCANO, {"nvidia.com/gpucores": 30}], ids=["hami", "volcano", "cores alone"])
def test_each_container_that_asks_for_others_cards_comes_to_our_plugin_and_keeps_the_rest(
    asked: dict[str, int],
) -> None:
    made = pod(box("a", **asked), {"name": "b"})
    made["spec"]["schedulerName"] = "theirs"
    is_ = placed(made)
    first, second = is_["spec"]["containers"]
    assert first["resources"]["limits"] == {
        **made["spec"]["containers"][0]["resources"]["limits"],
        names.RESOURCE_PLACED: "1",
    }
    assert first["env"] == [PRELOAD, *LAST]
    assert second == {"name": "b"}
    assert is_["spec"]["schedulerName"] == "theirs"
    assert is_["metadata"] == made["metadata"]
    assert validate(review(is_), DEFAULT)["response"] == PASSED


def test_a_second_pass_changes_nothing_and_a_pod_of_nobody_elses_is_left() -> None:
    once = placed(pod(box("a", **HAMI)))
    assert "patch" not in mutate_placed(review(once), DEFAULT)["response"]
    for other in (pod({"name": "a"}), pod(box("a", **{"gemini.io/gpu-core": 30})), pod(box("a", cpu=1))):
        assert mutate_placed(review(other), DEFAULT)["response"] == PASSED


def test_what_would_undo_the_plugins_environment_is_put_behind_or_taken_away() -> None:
    made = pod(box("a", **HAMI))
    made["spec"]["containers"][0]["env"] = [
        {"name": "LD_PRELOAD", "value": "/mine.so"}, {"name": "GEMINI_SOCKET", "value": "ipc:///tmp/x"},
        {"name": "CUDA_DISABLE_CONTROL", "value": "false"}, {"name": "A", "value": "b"},
    ]  # fmt: skip
    (container,) = placed(made)["spec"]["containers"]
    preload = {"name": "LD_PRELOAD", "value": f"{names.LIBRARY_PATH}:/mine.so"}
    assert container["env"] == [{"name": "A", "value": "b"}, preload, *LAST]


def test_no_configmap_says_another_socket_and_no_other_source_another_library() -> None:
    """What stands in env itself counts more than envFrom; and with another socket the library would find no daemon."""
    made = pod(box("a", **HAMI))
    made["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "x"}, "prefix": "GEMINI_"}]
    assert placed(made)["spec"]["containers"][0]["env"] == [PRELOAD, *LAST]
    source = {"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}
    made["spec"]["containers"][0]["env"] = [source]
    assert "valueFrom cannot be put behind Gemini's library" in refusal(placed(made))


def test_a_container_that_is_added_to_a_placed_pod_has_no_card() -> None:
    old = placed(pod(box("a", **HAMI)))
    now = {**old, "spec": {**old["spec"], "ephemeralContainers": [{"name": "debug", "image": "cuda"}]}}
    given = review(now, "UPDATE", oldObject=old, subResource="ephemeralcontainers")
    assert "patch" in mutate(given, DEFAULT)["response"]
    now["spec"]["ephemeralContainers"][0]["securityContext"] = {"privileged": True}
    assert not validate(given, DEFAULT)["response"]["allowed"]


def test_their_scheduler_may_bind_it() -> None:
    made = placed(pod(box("a", **HAMI)))
    assert bound(made, DEFAULT) == PASSED


@pytest.mark.parametrize("here", [DEFAULT, OPTED_IN], ids=["default", "all spellings are read"])
def test_a_placed_pod_is_no_sharepod_wherever_it_is_read(here: Settings) -> None:
    is_ = placed(pod(box("a", **HAMI)))
    assert mutate(review(is_), here)["response"] == PASSED
    assert validate(review(is_), here)["response"] == PASSED
    changed = copy.deepcopy(is_)
    changed["metadata"].setdefault("annotations", {})["hami.io/vgpu-node"] = "n"  # by HAMi's scheduler
    theirs = by("system:serviceaccount:kube-system:hami-scheduler")
    assert validate(review(changed, "UPDATE", oldObject=is_, **theirs), here)["response"] == PASSED


def with_spec(made: Pod, **more: Any) -> Pod:
    return {**made, "spec": {**made["spec"], **more}}


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (pod(box("a", **{names.RESOURCE_PLACED: 1})), "asks no other plugin for a card; add nvidia.com/gpu"),
        (pod(box("a", **{**PLACED, names.RESOURCE_PLACED: 2})), "2: a container has one share of its cards; write 1"),
        (pod(box("a", **{**PLACED, "nvidia.com/gpucores": 101})), "101 is above 100 percent of each card; lower it"),
        (pod(box("a", **PLACED), box("b", **{"gemini.io/gpu-core": 30})), "make two pods of it"),
        (with_spec(pod(box("a", **PLACED)), hostPID=True), "spec.hostPID: true is not allowed with a share"),
        (with_spec(pod(box("a", **PLACED)), nodeName="n"), "spec.nodeName: n is preset"),
        (
            pod({**box("a", **PLACED), "securityContext": {"privileged": True}}),
            "securityContext.privileged: true is not allowed with a share",
        ),
        (
            pod({**box("a", **PLACED), "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}),
            "NVIDIA_VISIBLE_DEVICES]: all goes round the share",
        ),
    ],
)
def test_what_makes_no_sense_or_goes_round_the_share_is_refused_with_the_mend(made: Pod, told: str) -> None:
    assert told in refusal(made)


def test_no_nonsense_makes_it_raise() -> None:
    odd: list[Any] = [None, 1, "x", [], {}, [1], {"containers": 1}, {"containers": [1, None, {"resources": 1}]}]
    for spec in odd:
        for given in ({"spec": spec}, {"metadata": 1, "spec": spec}):
            mutate_placed(review(given), DEFAULT)
            validate(review(given), DEFAULT)
    for given in odd:
        mutate_placed(given, DEFAULT)
    strange = pod({"name": "a", "resources": {"limits": {"nvidia.com/gpu": []}}, "env": 1})
    assert placed(strange)["spec"]["containers"][0]["env"] == [PRELOAD, *LAST]


def kai(**annotations: str) -> Pod:
    made = pod({"name": "a"}, {"name": "b"})
    made["metadata"]["annotations"] = {key.replace("_", "-"): value for key, value in annotations.items()}
    return made


def test_what_kais_annotations_say_is_written_where_nobody_can_change_it() -> None:
    once = placed(kai(gpu_fraction="0.5"))
    first, second = once["spec"]["containers"]
    assert first["resources"]["limits"] == {names.RESOURCE_PLACED: "1"}
    assert first["env"] == [PRELOAD, LAST[0], {"name": "GEMINI_PLACED", "value": "50%,1"}]
    assert second == {"name": "b"}
    assert "patch" not in mutate_placed(review(once), DEFAULT)["response"]
    assert validate(review(once), DEFAULT)["response"] == PASSED
    # What KAI's own admission adds: the card comes by its ConfigMap, over which our device plugin's word counts.
    first["env"].append({"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}})
    first["envFrom"] = [{"configMapRef": {"name": "x"}}]
    assert validate(review(once), DEFAULT)["response"] == PASSED
    second["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    assert "this container has no share" in refusal(once)


def test_kais_annotations_stay_as_they_were_read() -> None:
    was = placed(kai(gpu_fraction="0.5"))
    now = copy.deepcopy(was)
    now["metadata"]["annotations"] |= {"received-resource-type": "Fraction"}  # by KAI
    now["metadata"]["labels"] = {"runai-gpu-group": "g"}
    binder = by("system:serviceaccount:kai-scheduler:binder")
    assert validate(review(now, "UPDATE", oldObject=was, **binder), DEFAULT)["response"] == PASSED
    now["metadata"]["annotations"]["gpu-fraction"] = "0.1"
    answer = validate(review(now, "UPDATE", oldObject=was), DEFAULT)["response"]
    assert "gpu-fraction: 0.1 instead of 0.5 in a pod that exists" in answer["status"]["message"]


def test_a_share_that_somebody_else_wrote_is_refused() -> None:
    made = placed(kai(gpu_fraction="0.1"))
    env = made["spec"]["containers"][0]["env"]
    env[-1] = {"name": "GEMINI_PLACED", "value": "90%,1"}
    assert "90%,1 in env, 10%,1 by KAI's annotations; leave it out, admission writes it" in refusal(made)
    env.insert(-1, {"name": "GEMINI_PLACED", "value": "10%,1"})  # the kubelet goes by the last one
    assert "90%,1 in env, 10%,1 by KAI's annotations" in refusal(made)
    del made["metadata"]["annotations"]["gpu-fraction"]
    assert "90%,1 in env, nothing by KAI's annotations" in refusal(made)


def test_where_kais_words_are_read_as_our_own_the_pod_is_converted_alone() -> None:
    made = kai(gpu_fraction="0.5")
    converted = applied(made, mutate(review(made), OPTED_IN)["response"])
    assert placed(converted, OPTED_IN) == converted
    assert validate(review(converted), OPTED_IN)["response"] == PASSED


def test_what_kai_says_and_cannot_be_kept_is_refused() -> None:
    answer = mutate_placed(review(kai(gpu_fraction="0.5", gpu_memory="2000")), DEFAULT)["response"]
    assert "keep one of the two" in answer["status"]["message"]


RECORD = {
    "hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA,81920,30:;", "hami.io/bind-phase": "allocating",
    "volcano.sh/devices-to-allocate": "GPU-a,NVIDIA,9,9:", "volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,9,9:",
}  # fmt: skip


@pytest.mark.parametrize("key", RECORD)
def test_what_another_scheduler_tells_its_plugin_no_editor_of_the_namespace_rewrites(key: str) -> None:
    """Between binding and start it says how much memory the container gets, and of which card."""
    was = placed(pod(box("a", **HAMI)))
    was["metadata"]["annotations"] = {key: "GPU-a,NVIDIA,3000,30:;"}
    now = copy.deepcopy(was)
    now["metadata"]["annotations"][key] = RECORD[key]
    for editor in (by("jane"), by("system:serviceaccount:team:default"), by(""), {}):
        answer = validate(review(now, "UPDATE", oldObject=was, **editor), DEFAULT)["response"]
        assert "in a pod that exists; leave it to the scheduler, which writes it" in answer["status"]["message"]
    for part in (by("system:serviceaccount:kube-system:hami"), by("system:node:n"), by("root", "system:masters")):
        assert validate(review(now, "UPDATE", oldObject=was, **part), DEFAULT)["response"] == PASSED
    others = pod(box("a", **HAMI))
    others["metadata"]["annotations"] = now["metadata"]["annotations"]
    free = review(others, "UPDATE", oldObject=pod(box("a", **HAMI)), **by("jane"))
    assert validate(free, DEFAULT)["response"] == PASSED


@pytest.mark.parametrize("key", RECORD)
def test_nor_does_a_pod_bring_it(key: str) -> None:
    made = placed(pod(box("a", **HAMI)))
    made["metadata"]["annotations"] = {key: RECORD[key]}
    assert "is written by the scheduler alone; remove it" in refusal(made)


def test_the_group_of_a_pod_of_kais_is_its_schedulers_word() -> None:
    made = placed(kai(gpu_fraction="0.5"))
    bound_ = copy.deepcopy(made)
    bound_["metadata"]["labels"] = {"runai-gpu-group": "g1"}
    assert "is written by the scheduler alone" in refusal(bound_)
    binder = by("system:serviceaccount:kai-scheduler:binder")
    assert validate(review(bound_, "UPDATE", oldObject=made, **binder), DEFAULT)["response"] == PASSED
    moved = copy.deepcopy(bound_)
    moved["metadata"]["labels"]["runai-gpu-group"] = "g2"
    answer = validate(review(moved, "UPDATE", oldObject=bound_, **by("jane")), DEFAULT)["response"]
    assert "runai-gpu-group: g2 instead of g1 in a pod that exists" in answer["status"]["message"]


@pytest.mark.parametrize(
    "made", [pod({"name": "a"}, box("late", **HAMI)), kai(gpu_memory="2000")], ids=["resources", "annotations"]
)
def test_where_time_is_enforced_no_container_runs_free_that_asked_behind_our_back(made: Pod) -> None:
    answer = validate_placed(review(made), DEFAULT)["response"]
    assert "asks for another plugin's card, and this was not written beside it; let the" in answer["status"]["message"]
    assert validate_placed(review(placed(made)), DEFAULT)["response"] == PASSED
    assert validate_placed(review(made, "UPDATE", oldObject=made), DEFAULT)["response"] == PASSED


def test_there_the_rest_is_judged_as_elsewhere() -> None:
    assert validate_placed(review(pod({"name": "a"})), DEFAULT)["response"] == PASSED
    made = placed(pod(box("a", **HAMI)))
    made["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert not validate_placed(review(made), DEFAULT)["response"]["allowed"]
    converted = applied(kai(gpu_fraction="0.5"), mutate(review(kai(gpu_fraction="0.5")), OPTED_IN)["response"])
    assert validate_placed(review(converted), DEFAULT)["response"] == PASSED
    for nonsense in (None, 7, {"request": 3}, review("x"), review({"metadata": {"labels": []}, "spec": 1})):
        validate_placed(nonsense, DEFAULT)
