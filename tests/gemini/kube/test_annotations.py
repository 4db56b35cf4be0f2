"""Every annotation of the table is read, and the page says what it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemini.kube import names
from gemini.kube.pod import PodSpec, parse_ask

PAGE = Path(__file__).resolve().parents[3] / "docs" / "placement.md"
READ = [key for key in names.ANNOTATION_KEYS if key not in names.WRITTEN_KEYS]
HALF = {names.GPU_REQUEST: "0.5"}
GROUP = {names.POD_GROUP: "g", names.POD_GROUP_SIZE: "2"}
MEMORY = {names.ALIYUN_GPU_MEM: 1024}
# What is said, and what the same pod says without the annotation; resources stand beside both.
SAMPLES: dict[str, tuple[dict[str, str], dict[str, str], dict[str, int]]] = {
    names.GPU_REQUEST: ({names.GPU_REQUEST: "0.6"}, HALF, {}),
    names.GPU_LIMIT: ({**HALF, names.GPU_LIMIT: "0.7"}, HALF, {}),
    names.GPU_MEMORY: ({**HALF, names.GPU_MEMORY: "1Gi"}, HALF, {}),
    names.GPU_MEMORY_RATIO: ({**HALF, names.GPU_MEMORY_RATIO: "25"}, HALF, {}),
    names.GPU_COUNT: ({**HALF, names.GPU_COUNT: "2"}, HALF, {}),
    names.GPU_MODEL: ({**HALF, names.GPU_MODEL: "H200"}, HALF, {}),
    names.GPU_UUID: ({**HALF, names.GPU_UUID: "GPU-1"}, HALF, {}),
    names.GPU_UUID_EXCLUDE: ({**HALF, names.GPU_UUID_EXCLUDE: "GPU-1"}, HALF, {}),
    names.GPU_CLASS: ({**HALF, names.GPU_CLASS: "latency"}, HALF, {}),
    names.GPU_TOPOLOGY: ({**HALF, names.GPU_TOPOLOGY: "numa"}, HALF, {}),
    names.GPU_POLICY: ({**HALF, names.GPU_POLICY: "spread"}, HALF, {}),
    names.JOINT: ({**HALF, names.JOINT: "rdma"}, HALF, {}),
    names.POD_GROUP: ({**HALF, **GROUP}, HALF, {}),
    names.POD_GROUP_SIZE: ({**HALF, **GROUP, names.POD_GROUP_SIZE: "3"}, {**HALF, **GROUP}, {}),
    names.GROUP_REQUIRED: ({**HALF, **GROUP, names.GROUP_REQUIRED: "zone"}, {**HALF, **GROUP}, {}),
    names.GROUP_PREFERRED: ({**HALF, **GROUP, names.GROUP_PREFERRED: "rack"}, {**HALF, **GROUP}, {}),
    names.GPUSHARE_UNIT: ({names.GPUSHARE_UNIT: "GiB"}, {}, MEMORY),
    names.CPU_BIND: ({**HALF, names.CPU_BIND: "2"}, HALF, {}),
}


def spec(said: dict[str, str], resources: dict[str, int]) -> PodSpec:
    return parse_ask("pod", said, resources)


@pytest.mark.parametrize("key", READ)
def test_saying_it_makes_a_difference(key: str) -> None:
    assert key in SAMPLES, f"SAMPLES of {__name__} does not say {key}"
    said, without, resources = SAMPLES[key]
    assert key in said
    assert spec(said, resources) != spec(without, resources), f"nobody reads {key}"


@pytest.mark.parametrize("key", names.ANNOTATION_KEYS)
def test_the_page_says_what_it_means(key: str) -> None:
    assert f"\n| `{key}` |" in PAGE.read_text(), f"docs/placement.md has no row for {key}"
