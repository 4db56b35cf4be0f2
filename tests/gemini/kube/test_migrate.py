"""Manifests of other projects, rewritten for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gemini.kube import names
from gemini.kube.migrate import RAY_SCHEDULER, rewritten
from gemini.kube.pod import parse_pod
from gemini.kube.spelling import InvalidPod
from gemini.kube.vgpu import HAMI, KAI, VOLCANO, translated
from gemini.kube.workloads import EACH, TEMPLATES

Object = dict[str, Any]


def pod(amounts: Object | None = None, annotations: Object | None = None, **spec: Any) -> Object:
    container: Object = {"name": "main", "image": "x", "resources": {"limits": {"cpu": "1", **(amounts or {})}}}
    metadata = {"name": "p", "labels": {"kai.scheduler/queue": "q"}, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


CASES: list[tuple[str, Object, Object]] = [  # spelling, pod, annotations that it becomes
    (HAMI, pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30},
               schedulerName="hami-scheduler"),
     {"gpu-request.main": "30%", "gpu-limit.main": "30%", "gpu-memory.main": "3000Mi", "gpu-count.main": "2"}),
    (HAMI, pod({"nvidia.com/gpu": "1"}), {"gpu-request.main": "100%"}),
    (HAMI, pod({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 50}, {"hami.io/gpu-scheduler-policy": "spread"}),
     {"gpu-request.main": "50%", "gpu-limit.main": "50%", "gpu-memory-ratio.main": "100", "gpu-policy": "spread"}),
    (VOLCANO, pod({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 1024}, schedulerName="volcano"),
     {"gpu-request.main": "0%", "gpu-memory.main": "1024Mi"}),
    (KAI, pod(annotations={"gpu-fraction": "0.5"}, schedulerName="kai-scheduler"), {"gpu-request.main": "50%"}),
    (KAI, pod(annotations={"gpu-memory": "2000"}), {"gpu-request.main": "0%", "gpu-memory.main": "2000Mi"}),
]  # fmt: skip


@pytest.mark.parametrize(("spelling", "given", "becomes"), CASES)
def test_a_share_is_said_in_ours_and_nothing_of_the_other_is_left(
    spelling: str, given: Object, becomes: Object
) -> None:
    made = rewritten(given, spelling)
    assert made["metadata"]["annotations"] == {f"{names.DOMAIN}/{key}": value for key, value in becomes.items()}
    assert made["metadata"]["labels"] == given["metadata"]["labels"]
    assert "schedulerName" not in made["spec"]
    assert made["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert rewritten(made, spelling) is made
    if given["spec"]["containers"][0]["resources"]["limits"] != {"cpu": "1", "nvidia.com/gpu": "1"}:
        assert parse_pod(made).ask == parse_pod(translated(given, (HAMI, VOLCANO, KAI))).ask  # as admission reads it


def around(below: Any, path: tuple[str, ...], many: Callable[[str], Any]) -> Any:
    """An object with `below` at that path. `many`: what stands around those of a list or map."""
    for key in reversed(path):
        below = many(below) if key == EACH else {key: below, "other": 1}
    return below


@pytest.mark.parametrize(
    "many", [lambda one: [{}, one], lambda one: {"Worker": one, "Master": {}}], ids=["list", "map"]
)
@pytest.mark.parametrize("kind", [kind for kind in TEMPLATES if kind[1] != "Pod"], ids="-".join)
def test_the_pods_of_a_workload_are_rewritten_where_they_stand(
    kind: tuple[str, str], many: Callable[[Any], Any]
) -> None:
    template = {key: value for key, value in pod({"nvidia.com/gpumem": 1000}).items() if key in ("metadata", "spec")}
    whole = rewritten({"apiVersion": "v1", "kind": "Pod", **template}, HAMI)
    becomes = {key: value for key, value in whole.items() if key in template}
    head = {"apiVersion": f"{kind[0]}/v1".lstrip("/"), "kind": kind[1], "metadata": {"name": "w"}}
    for path in TEMPLATES[kind]:
        given = {**head, **around(template, path, many)}
        assert rewritten(given, HAMI) == {**head, **around(becomes, path, many)}
        assert f"{names.GPU_MEMORY}.main" in becomes["metadata"]["annotations"]
    assert rewritten({**head, "spec": {"other": [template, 1]}}, HAMI)["spec"] == {"other": [template, 1]}


def test_a_kind_of_the_same_name_is_another_one() -> None:
    """Volcano's own Job has its pods elsewhere."""
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"}}
    job["spec"] = {"tasks": [{"template": pod({"volcano.sh/vgpu-memory": 1})}]}
    with pytest.raises(InvalidPod, match=r"'?batch.volcano.sh/v1alpha1 Job'?, whose pods are not known"):
        rewritten(job, VOLCANO)


def test_ray_may_not_be_left_with_another_scheduler() -> None:
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"labels": {RAY_SCHEDULER: "volcano"}}}
    plain = {**cluster, "spec": {"headGroupSpec": {"template": pod()}}}
    assert rewritten(plain, VOLCANO) is plain
    with pytest.raises(InvalidPod, match=f"{RAY_SCHEDULER}: '?volcano.*take it out"):
        rewritten({**cluster, "spec": {"headGroupSpec": {"template": pod({"volcano.sh/vgpu-memory": 1})}}}, VOLCANO)


def test_what_has_no_share_stays_the_same_object() -> None:
    service = {"kind": "Service", "spec": {"ports": []}}
    plain = pod(schedulerName="volcano")
    listed = {"kind": "List", "items": [service, plain]}
    for given in (None, [], "text", service, plain, listed):
        assert rewritten(given, VOLCANO) is given
    both = {"kind": "List", "items": [service, pod({"volcano.sh/vgpu-memory": 1})]}
    made = rewritten(both, VOLCANO)
    assert made["items"][0] is service
    assert made["items"][1] is not both["items"][1]


@pytest.mark.parametrize(
    ("spelling", "given", "said"),
    [
        (HAMI, pod({"nvidia.com/gpumem": 1, "nvidia.com/mig-1g.5gb": 1}), "nvidia.com/mig-1g.5gb.*use one of"),
        (HAMI, pod({"nvidia.com/gpumem": 1}, {"hami.io/new-key": "x"}), "hami.io/new-key.*or remove it"),
        (
            HAMI,
            pod({"nvidia.com/gpumem": 1, "nvidia.com/priority": 1}),
            "nvidia.com/priority.*write gemini.io/gpu-class",
        ),
        (HAMI, pod({"nvidia.com/gpumem": 1}, {"gpu-fraction": "0.5"}), "gpu-fraction.*KAI.*keep one"),
        (HAMI, pod({"nvidia.com/gpumem": 1}, schedulerName="mine"), "spec.schedulerName.*'?mine"),
        (HAMI, pod({"nvidia.com/gpumem": 1}, {names.GPU_REQUEST: "0.5"}), "keep one of the two"),
        (VOLCANO, pod({"volcano.sh/vgpu-new": 1}), "volcano.sh/vgpu-new.*use one of"),
        (
            VOLCANO,
            pod({"volcano.sh/vgpu-memory": 1}, {"scheduling.k8s.io/group-name": "g"}),
            "group-name.*pod-group-size",
        ),
        (VOLCANO, {"kind": "PyTorchJob", "spec": {"a": [pod({"volcano.sh/vgpu-memory": 1})]}}, "PyTorchJob.*by hand"),
        (KAI, pod(annotations={"gpu-fraction": "0.505"}), "gpu-fraction"),
        (KAI, pod(annotations={"gpu-fraction.new": "1"}), "gpu-fraction.new.*or remove it"),
        (KAI, pod(annotations={"gpu-fraction": "0.5", "gpu-memory": "1"}), "keep one of the two"),
    ],
)
def test_what_cannot_be_kept_is_one_line_with_the_mend(spelling: str, given: Object, said: str) -> None:
    with pytest.raises(InvalidPod, match=said) as refused:
        rewritten(given, spelling)
    assert "\n" not in str(refused.value)
