"""Each language by itself; how a pod may mix them is in test_pod.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemini.kube.spelling import InvalidPod, annotation_share, cards, label_share, resource_share
from gemini.placement.model import Want


@given(st.integers(0, 1000))
def test_percent_above_a_card_is_whole_cards(percent: int) -> None:
    if percent > 100 and percent % 100:
        with pytest.raises(InvalidPod, match=r"no multiple of it; write \d+00 or \d+00"):
            cards("key", percent)
        return
    count, each = cards("key", percent)
    assert count * each == percent
    assert each <= 100


@given(st.integers(0, 100), st.integers(1, 100))
def test_a_request_within_its_limit_is_kept(request: int, limit: int) -> None:
    said = {"gemini.io/gpu-request": f"{request}%", "gemini.io/gpu-limit": f"{limit}%"}
    if request > limit:
        with pytest.raises(InvalidPod, match="lower the request or raise the limit"):
            annotation_share(said)
        return
    share = annotation_share(said)
    assert (share.want.core, share.limit) == (request, limit)


@given(st.integers(1, 8), st.integers(0, 300), st.integers(1, 300))
def test_a_shared_ask_is_spread_evenly_or_refused(count: int, core: int, ratio: int) -> None:
    said = {"gpu.shared": count, "gpu-core": core, "gpu-memory-ratio": ratio}
    even = core % count == 0 and ratio % count == 0 and max(core, ratio) <= 100 * count
    resources = {f"koordinator.sh/{key}": amount for key, amount in said.items()}
    if not even:
        with pytest.raises(InvalidPod, match="write a multiple of"):
            resource_share(resources)
        return
    share = resource_share(resources)
    assert share is not None
    assert share.want == Want(count=count, core=core // count, ratio=ratio // count)


def test_nothing_asked_is_no_share() -> None:
    assert resource_share({"cpu": 4, "nvidia.com/gpu": 0, "gemini.io/gpu": "0", "aliyun.com/gpu-mem": 0}) is None


def test_kubeshare_without_a_limit_may_use_the_whole_card() -> None:
    share = label_share({"sharedgpu/gpu_request": "0.25"})
    assert (share.want.core, share.limit) == (25, 100)
