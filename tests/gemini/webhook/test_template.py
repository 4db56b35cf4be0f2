"""A Job's template at admission: what its pods would be given, or the refusal that they would get."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest

from gemini.webhook.review import mutate
from tests.gemini.webhook.test_review import HERE, PODS, of, patched, pod, review

JOB = {"group": "batch", "version": "v1", "kind": "Job"}


def job(made: dict[str, Any]) -> dict[str, Any]:
    template = {key: made[key] for key in ("metadata", "spec") if key in made}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}


def admitted(made: dict[str, Any]) -> dict[str, Any]:
    """The Job as admission leaves it."""
    answer = mutate(review(made, kind=JOB), HERE)["response"]
    assert answer["allowed"], answer
    result: dict[str, Any] = copy.deepcopy(made)
    for operation in json.loads(base64.b64decode(answer.get("patch", "W10="))):
        *above, last = operation["path"].strip("/").split("/")
        at: Any = result
        for key in above:
            at = at[int(key)] if isinstance(at, list) else at[key]
        at[last] = operation["value"]
    return result


@pytest.mark.parametrize("made", PODS, ids=range(len(PODS)))
def test_the_template_becomes_what_the_pod_would_and_its_pod_stays_so(made: dict[str, Any]) -> None:
    template = admitted(job(made))["spec"]["template"]
    now = patched(made)
    assert template == {"metadata": now["metadata"], "spec": now["spec"]}
    again = {**made, **template}
    assert patched(again) == again


def test_a_template_without_metadata_is_given_some() -> None:
    made = pod(of("a", "gemini.io/gpu-core", 30))
    del made["metadata"]
    assert "gemini.io/gpu-request.a" in admitted(job(made))["spec"]["template"]["metadata"]["annotations"]


def test_what_would_be_refused_of_the_pod_is_refused_of_the_job() -> None:
    answer = mutate(review(job(pod({"name": "a"}, gpu_request="1.5")), kind=JOB), HERE)["response"]
    assert not answer["allowed"]
    assert "gemini.io/gpu-request: 1.5 is above 1" in answer["status"]["message"]


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
def test_a_job_that_is_there_is_left_alone(operation: str) -> None:
    answer = mutate(review(job(pod({"name": "a"}, gpu_request="0.5")), operation, kind=JOB), HERE)["response"]
    assert answer["allowed"]
    assert "patch" not in answer


def test_a_job_without_a_share_is_left_alone() -> None:
    made = job(pod({"name": "a"}))
    assert admitted(made) == made


@pytest.mark.parametrize(
    "made", [None, 7, {}, {"spec": None}, {"spec": {"template": None}}, {"spec": {"template": []}},
             {"spec": {"template": {"metadata": 3, "spec": {}}}}],
)  # fmt: skip
def test_a_job_that_makes_no_sense_is_refused_in_a_line(made: Any) -> None:
    answer = mutate(review(made, kind=JOB), HERE)["response"]
    assert not answer["allowed"]
    assert "\n" not in answer["status"]["message"]


def test_of_another_groups_jobs_nothing_is_known() -> None:
    made = job(pod({"name": "a"}, gpu_request="0.5"))
    kind = {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}
    answer = mutate(review(made, kind=kind), HERE)["response"]
    assert answer["allowed"]
    assert "patch" not in answer
