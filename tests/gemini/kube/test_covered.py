"""What the unchangeable part of a pod covers of its record, in each spelling, as admission leaves it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemini.kube import names
from gemini.kube.covered import Asked, asked_by
from gemini.kube.pod import parse_pod
from gemini.kube.scope import SPELLINGS, Reading
from gemini.placement.allocate import Allocator
from gemini.placement.book import Book
from gemini.placement.model import Device, Grant, Node
from gemini.webhook.settings import Settings
from tests.gemini.webhook.test_review import box, of, patched, pod

GIB = 2**30
NODE = Node("n", tuple(Device(m, uuid=f"GPU-{m}", memory=16 * GIB) for m in range(4)))
SIZES = {device.minor: device.memory for device in NODE.devices}
HERE = Settings(allowed=frozenset({"gpu-memory"}), reading=Reading(frozenset(SPELLINGS)))
PODS = {
    "share": pod(box("a"), gpu_request="0.3"),
    "share and bytes": pod(box("a"), gpu_request="0.3", gpu_memory="2Gi"),
    "share and ratio": pod(box("a"), gpu_request="0.3", gpu_memory_ratio="60"),
    "best effort": pod(box("a"), gpu_request="0"),
    "several cards": pod(box("a"), gpu_request="0.7", gpu_count="3"),
    "one share for all": pod(box("a"), box("b"), init=[box("i")], gpu_request="0.01", gpu_count="2"),
    "one share each": pod(
        box("a"), box("b"), init=[box("i")],
        **{"gpu_request.a": "0.3", "gpu_request.b": "0.2", "gpu_request.i": "0.9"},
    ),
    "ours": pod(box("a", **{names.RESOURCE_CORE: "30", names.RESOURCE_MEMORY: str(GIB)})),
    "S2": pod(of("a", "kubernetes.io/gpu", "50")),
    "NVIDIA": pod(of("a", "nvidia.com/gpu", "2")),
    "gpushare": pod(of("a", "aliyun.com/gpu-mem", "4096")),
    "KubeShare": pod(box("a"), labels={names.SHARED_REQUEST: "0.4", names.SHARED_LIMIT: "0.5"}),
}  # fmt: skip


@pytest.mark.parametrize("spelling", PODS)
def test_what_the_extender_writes_is_covered_and_nothing_else(spelling: str) -> None:
    made = patched(PODS[spelling], HERE)
    spec = parse_pod(made)
    placement = Allocator(Book([NODE])).choose(spec.ask)
    assert placement is not None
    asked, grants = asked_by(made), placement.grants
    assert asked.covers(grants, SIZES)
    assert asked.cards
    assert not asked.covers((), SIZES)
    assert not asked.covers((*grants, Grant("gpu", 3, 20, 2 * GIB)), SIZES)
    assert (
        not asked.covers([replace(one, core=min(100, one.core + 5)) for one in grants], SIZES) or spelling == "NVIDIA"
    )
    assert not asked.covers([replace(one, memory=16 * GIB - 1) for one in grants], SIZES) or spelling == "NVIDIA"
    for held in asked.everywhere(NODE.devices):
        mine = [one for one in grants if one.minor == held.minor]
        assert held.core >= max((one.core for one in mine), default=0)
        assert held.memory >= max((one.memory for one in mine), default=0)


def test_a_pod_that_asks_for_nothing_is_covered_for_nothing() -> None:
    asked = asked_by(pod(of("a", "cpu", "1"), gpu_request="0.5"))
    assert asked == Asked()
    assert asked.covers((), SIZES)
    assert not asked.covers((Grant("gpu", 0, 1, 0),), SIZES)
    assert asked.everywhere(NODE.devices) == ()


def test_a_ratio_stands_though_a_newer_driver_says_another_size() -> None:
    asked = Asked(core=50, ratio=50, spare=1)
    grants = [Grant("gpu", 0, 50, 8 * GIB)]
    assert asked.covers(grants, {0: 17 * GIB})
    assert not asked.covers(grants, {0: 24 * GIB})
    assert asked.covers(grants, {})  # nobody knows how large it is
