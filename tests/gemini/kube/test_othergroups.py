"""Groups in the words of other gang schedulers: what they mean in ours, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gemini.kube import names
from gemini.kube.othergroups import COSCHEDULING, GANG, GANGS, KAI, KEYS, KOORDINATOR, VOLCANO, with_group
from gemini.kube.scope import SPELLINGS, Reading, read_part
from gemini.kube.spelling import InvalidPod

ALL = frozenset({GANGS, COSCHEDULING, KOORDINATOR, VOLCANO, KAI})
SIZE = {names.POD_GROUP_SIZE: "4"}


def pod(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    said = {names.GPU_REQUEST: "0.5", **(annotations or {})}
    body = {"containers": [{"name": "main"}], **spec}
    return {"metadata": {"name": "p", "annotations": said, "labels": labels or {}}, "spec": body}


MEANT = {
    "kubernetes": (GANGS, pod(SIZE, schedulingGroup={"podGroupName": "g"})),
    "coscheduling": (COSCHEDULING, pod(SIZE, {"scheduling.x-k8s.io/pod-group": "g"})),
    "koordinator": (
        KOORDINATOR,
        pod({"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "4"}),
    ),
    "koordinator, labels": (
        KOORDINATOR,
        pod({}, {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "4"}),
    ),
    "koordinator, PodGroup": (KOORDINATOR, pod(SIZE, {"pod-group.scheduling.sigs.k8s.io": "g"})),
    "volcano": (
        VOLCANO, pod({"scheduling.k8s.io/group-name": "g", "scheduling.volcano.sh/group-min-member": "4"}),
    ),
    "kai": (KAI, pod({"pod-group-name": "g", "kai.scheduler/batch-min-member": "4"})),
}  # fmt: skip


@pytest.mark.parametrize("of", MEANT)
def test_the_group_is_kept_where_its_words_are_heard(of: str) -> None:
    spelling, given = MEANT[of]
    assert spelling in SPELLINGS
    made = read_part(given, Reading(frozenset({names.DOMAIN, spelling})), ("default-scheduler",))
    said = made["metadata"]["annotations"]  # type: ignore[index]
    assert (said[names.POD_GROUP], said[names.POD_GROUP_SIZE]) == ("g", "4")
    assert with_group(made, ALL) == made  # another pass says the same
    deaf = read_part(given, Reading(frozenset({names.DOMAIN})), ("default-scheduler",))
    assert names.POD_GROUP not in deaf["metadata"]["annotations"]  # type: ignore[index]


def test_a_pod_without_a_share_keeps_its_group_to_itself() -> None:
    given = pod({}, {"scheduling.x-k8s.io/pod-group": "g"})
    del given["metadata"]["annotations"][names.GPU_REQUEST]
    made = read_part(given, Reading(frozenset({names.DOMAIN, COSCHEDULING})), ("default-scheduler",))
    assert made["metadata"]["annotations"] == {}  # type: ignore[index]


COSCHEDULED = {"scheduling.x-k8s.io/pod-group": "g"}
MIN = "gang.scheduling.koordinator.sh/min-available"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (pod({}, COSCHEDULED), "scheduling.x-k8s.io/pod-group: g is a group whose size the pod does not say; add"),
        (pod({}, schedulingGroup={"podGroupName": "g"}), f"{GANG}: g is a group whose size"),
        (
            pod({"pod-group-name": "h", **SIZE}, COSCHEDULED),
            "pod-group-name: h is another group than g (scheduling.x-k8s.io/pod-group); keep one of the two",
        ),
        (
            pod({names.POD_GROUP: "h", **SIZE}, COSCHEDULED),
            "scheduling.x-k8s.io/pod-group: g is another group than h (gemini.io/pod-group); keep one of the two",
        ),
        (
            pod({"gang.scheduling.koordinator.sh/name": "g", MIN: "3", **SIZE}),
            f"{MIN}: 3 differs from 4, said before; say the same",
        ),
        (pod({"gang.scheduling.koordinator.sh/name": "g", MIN: "0"}), f"{MIN}: 0 is below 1"),
    ],
)  # fmt: skip
def test_two_words_are_refused_in_one_line(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidPod) as caught:
        with_group(given, ALL)
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)


def test_each_key_is_read_in_a_spelling_that_can_be_named() -> None:
    assert {keys.spelling for keys in KEYS} | {GANGS} <= set(SPELLINGS)
