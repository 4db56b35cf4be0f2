"""A pod is admitted before the API server has looked at it: nothing in it holds everybody's admission up."""

from __future__ import annotations

from typing import Any

import pytest

from gemini.kube.defaults import ANNOTATION, LONGEST, defaulted
from gemini.webhook.review import ENDLESS, MOST_VALUES, mutate, validate
from tests.gemini.ends import ends
from tests.gemini.webhook.test_review import HERE, box, pod, review

OURS = "gemini.io/gpu-core"


@pytest.mark.parametrize("text", ["a", "a request for ", "gemini.io/gpu-core request for container ", ";", " "])
@pytest.mark.parametrize("length", [LONGEST - 10, 3_000_000])
def test_a_long_word_of_a_limit_range_is_read_in_time(text: str, length: int) -> None:
    made = pod(box("main"), gpu_request="0.5")
    made["metadata"]["annotations"][ANNOTATION] = "x:" + text * (length // len(text))
    with ends():
        assert mutate(review(made), HERE)["response"]["allowed"]


def test_what_a_limit_range_filled_in_is_read_of_each_container() -> None:
    made = pod(box("a"), box("b"), init=[box("c")], gpu_request="0.5")
    told = f"cpu, {OURS} request for container a; {OURS}, memory limit for container b"
    told += f"; {OURS} limit for init container c"
    made["metadata"]["annotations"][ANNOTATION] = f"LimitRanger plugin set: {told}; memory limit for ephemeral x"
    limits = {name: frozenset({("limits", OURS)}) for name in "bc"}
    assert defaulted(made) == {"a": frozenset({("requests", OURS)}), **limits}


@pytest.mark.parametrize(
    "more",
    [
        {"volumes": [{"hostPath": {"path": "/x"}}] * MOST_VALUES},
        {"volumes": [{"hostPath": {"path": {str(i): "" for i in range(MOST_VALUES + 1)}}}]},
        {"containers": [{**box("main"), "env": [{"name": "a"}] * MOST_VALUES}]},
        {"containers": [box("main", **{f"x/{i}": "1" for i in range(MOST_VALUES)})]},
        {"nested": [[[{}] * 100] * 100] * 100},
    ],
    ids=["volumes", "keys", "env", "resources", "nested"],
)
def test_a_pod_of_ever_so_many_values_is_refused_before_it_is_read(more: dict[str, Any]) -> None:
    made = pod(box("main"), gpu_request="0.5")
    made["spec"] |= more
    for verb in (mutate, validate):
        answer = verb(review(made), HERE)["response"]
        assert not answer["allowed"]
        assert answer["status"]["message"] == ENDLESS
