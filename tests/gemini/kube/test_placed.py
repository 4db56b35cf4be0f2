"""Which containers another scheduler places, and how much of their cards' time they are promised."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemini.kube import names
from gemini.kube.placed import Share, asks_for_others, kai_shares, placed_shares
from gemini.kube.scope import OTHERS, Reading, read_part
from gemini.kube.spelling import InvalidPod

READING = Reading(frozenset({names.DOMAIN, *OTHERS}))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["spec", "containers", "resources", "limits", "requests", "env", "name", names.RESOURCE_PLACED,
                         "nvidia.com/gpu", "nvidia.com/gpucores", "volcano.sh/vgpu-number"]), inner, max_size=5),
    max_leaves=30,
)  # fmt: skip


def pod(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers)}}


def box(name: str, **limits: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": limits}}


@pytest.mark.parametrize(
    ("asked", "share"),
    [
        ({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}, Share("nvidia.com/gpu", 1, 30, 30)),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000}, Share("nvidia.com/gpu", 2, 0, 100)),
        ({"nvidia.com/gpumem-percentage": 50}, Share("nvidia.com/gpu", 1, 0, 100)),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "0"}, Share("nvidia.com/gpu", 1, 0, 100)),
        ({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-cores": "100"}, Share("volcano.sh/vgpu-number", 1, 100, 100)),
        ({"volcano.sh/vgpu-memory": "3000"}, Share("volcano.sh/vgpu-number", 1, 0, 100)),
    ],
)
def test_cores_are_the_promise_and_the_limit(asked: dict[str, Any], share: Share) -> None:
    assert placed_shares(pod(box("a", **asked, **{names.RESOURCE_PLACED: "1"}), box("b", **asked))) == {"a": share}
    assert asks_for_others(box("b", **asked))


def test_none_of_a_resource_is_no_word() -> None:
    assert placed_shares(pod(box("a", **{names.RESOURCE_PLACED: 0, "nvidia.com/gpu": 0}))) == {}
    assert not asks_for_others(box("a", **{"nvidia.com/gpu": "0"}))
    assert not asks_for_others(box("a", **{"nvidia.com/hostdev": "1"}))


def test_such_a_pod_is_read_in_our_own_words_alone_where_all_spellings_are() -> None:
    asked = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 30}
    part: Any = read_part(pod(box("a", **asked, **{names.RESOURCE_PLACED: 1})), READING, ("default-scheduler",))
    assert part["spec"]["containers"][0]["resources"]["limits"] == {names.RESOURCE_PLACED: 1}
    assert "annotations" not in part["metadata"]


def kai(**annotations: str) -> dict[str, Any]:
    said = {key.replace("_", "-"): value for key, value in annotations.items()}
    return {"metadata": {"name": "p", "annotations": said}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}}


@pytest.mark.parametrize(
    ("annotations", "written", "share"),
    [
        ({"gpu_fraction": "0.5"}, {"a": "50%,1"}, Share("", 1, 50, 100, ratio=50)),
        ({"gpu_fraction": "0.25", "gpu_fraction_num_devices": "2"}, {"a": "25%,2"}, Share("", 2, 25, 100, ratio=25)),
        ({"gpu_memory": "2000"}, {"a": "2000Mi,1"}, Share("", 1, 0, 100, memory=2000 << 20)),
        (
            {"gpu_fraction": "0.5", "gpu_fraction_container_name": "b"}, {"b": "50%,1"},
            Share("", 1, 50, 100, ratio=50),
        ),
    ],
)  # fmt: skip
def test_what_admission_writes_of_kais_annotations_is_the_share(
    annotations: dict[str, str], written: dict[str, str], share: Share
) -> None:
    made = kai(**annotations)
    assert kai_shares(made) == written
    ((name, text),) = written.items()
    placed = {
        "name": name,
        "env": [{"name": names.ENV_PLACED, "value": text}],
        **box(name, **{names.RESOURCE_PLACED: "1"}),
    }
    assert placed_shares({**made, "spec": {"containers": [placed]}}) == {name: share}


def test_without_kais_annotations_admission_writes_nothing_and_what_makes_no_sense_is_refused() -> None:
    assert kai_shares(pod(box("a"))) == {}
    with pytest.raises(InvalidPod, match="gpu-fraction: 2 is above 1; write a share"):
        kai_shares(kai(gpu_fraction="2"))
    for text in ("", "x", "50%", "50%,0", "50%,x", "1,1,1", "%,1", "150%,1"):
        placed = {"env": [{"name": names.ENV_PLACED, "value": text}], **box("a", **{names.RESOURCE_PLACED: "1"})}
        with pytest.raises(InvalidPod, match="GEMINI_PLACED"):
            placed_shares(pod(placed))


@given(JSON)
def test_whatever_a_pod_holds_only_InvalidPod_is_raised(given_: Any) -> None:
    with suppress(InvalidPod):
        placed_shares(given_)
    with suppress(InvalidPod):
        kai_shares(given_)
