"""`gemini place` for every kind of ask in one scenario: where it goes, or for each card why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gemini.cli.main import main

Object = dict[str, Any]


def card(minor: int, model: str, memory: str, numa: int, pcie: str, **more: Any) -> Object:
    uuid = f"GPU-{model}-{minor}"
    return {"minor": minor, "uuid": uuid, "model": model, "memory": memory, "numa": numa, "pcie": pcie, **more}


def asks(pod: str, resources: Object | None = None, **annotations: str) -> Object:
    said = {f"gemini.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"pod": pod, "annotations": said, "resources": resources or {}}


SCENARIO: Object = {
    "policies": ["fragment", "singular", "link", "minor"],
    "nodes": [
        {
            "name": "mixed",
            "links": [["0", "1", "NVLINK", 4]],
            "devices": [
                card(0, "A100", "40Gi", 0, "0"),
                card(1, "A100", "40Gi", 0, "0"),
                card(2, "T4", "16Gi", 1, "1"),
                card(3, "T4", "16Gi", 1, "1", health=False),
            ],
        },
        {
            "name": "fabric",
            "devices": [
                card(0, "H100", "80Gi", 0, "0"),
                card(1, "H100", "80Gi", 0, "1"),
                card(2, "H100", "80Gi", 1, "2"),
                {"type": "rdma", "minor": 0, "pcie": "0"},
                {"type": "rdma", "minor": 1, "pcie": "1"},
            ],
        },
    ],
    "placed": [{"pod": "old", "node": "mixed", "devices": [{"minor": 2, "core": 30, "memory": "4Gi"}]}],
    "asks": [
        asks("ratio", gpu_request="0.2", gpu_memory_ratio="50"),
        asks("fragment", gpu_request="0.5", gpu_memory="1Gi"),
        asks("large", gpu_request="0.3", gpu_memory="60Gi"),
        asks("link", gpu_count="2", gpu_topology="nvlink"),
        asks("model", gpu_request="0.1", gpu_model="A100"),
        asks("joint", {"gemini.io/rdma": 10}, gpu_request="0.5", joint="rdma"),
        asks("scope", gpu_count="2", gpu_request="0.4", gpu_topology="pcie"),
        asks("one", gpu_request="0.3", pod_group="g", pod_group_size="2"),
        asks("two", gpu_request="0.3", pod_group="g", pod_group_size="2"),
        asks("whole", {"nvidia.com/gpu": 1}),
        asks("vast", gpu_request="0.1", gpu_memory="90Gi"),
    ],
}
GIB = 2**30
PLACED: dict[str, tuple[str, list[tuple[str, int, int, int]]]] = {  # pod -> node, (type, minor, core, bytes)
    "ratio": ("mixed", [("gpu", 2, 20, 8 * GIB)]),  # half of the small card, for that one is in use already
    "fragment": ("mixed", [("gpu", 2, 50, GIB)]),  # exactly what is left of it
    "large": ("fabric", [("gpu", 0, 30, 60 * GIB)]),
    "link": ("mixed", [("gpu", 0, 100, 40 * GIB), ("gpu", 1, 100, 40 * GIB)]),
    "joint": ("fabric", [("gpu", 1, 50, 40 * GIB), ("rdma", 1, 10, 0)]),  # the used card lacks the memory
    "one": ("fabric", [("gpu", 1, 30, 24 * GIB)]),
    "two": ("fabric", [("gpu", 2, 30, 24 * GIB)]),
}
REFUSED: dict[
    str, dict[str, tuple[str, dict[str, str]]]
] = {  # pod -> node -> reason, card -> what its text begins with
    "model": {
        "mixed": ("InsufficientCore", {"0": "core: 0 free", "1": "core: 0 free", "2": "model: T4", "3": "unhealthy"}),
        "fabric": ("ModelMismatch", {"0": "model: H100", "1": "model: H100", "2": "model: H100"}),
    },
    "scope": {
        "mixed": ("InsufficientCore", {"0": "core: 0", "1": "core: 0", "2": "core: 0", "3": "unhealthy"}),
        "fabric": ("TopologyMismatch", {"0": "memory: 20Gi free of 80Gi, 32Gi asked"}),  # the others would do alone
    },
    "whole": {
        "mixed": ("InsufficientCore", {"0": "core: 0", "1": "core: 0", "2": "core: 0", "3": "unhealthy"}),
        "fabric": ("InsufficientCore", {"0": "core: 70 free", "1": "core: 20 free", "2": "core: 70 free"}),
    },
    "vast": {
        "mixed": (
            "InsufficientMemory",
            {"0": "memory: 0 free", "1": "memory: 0", "2": "memory: 3Gi", "3": "unhealthy"},
        ),
        "fabric": ("InsufficientMemory", {"0": "memory: 20Gi", "1": "memory: 16Gi", "2": "memory: 56Gi"}),
    },
}


@pytest.fixture
def answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Object]:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(SCENARIO))
    assert main(["place", str(path), "--json"]) == 0
    return {entry["pod"]: entry for entry in json.loads(capsys.readouterr().out)["placements"]}


def test_mixed_cards_fragments_whole_cards_links_models_joint_devices_and_groups_go_where_they_should(
    answers: dict[str, Object],
) -> None:
    assert answers.keys() == PLACED.keys() | REFUSED.keys()
    found = {
        pod: (entry["node"], [(d["type"], d["minor"], d["core"], d["memory"]) for d in entry["devices"]])
        for pod, entry in answers.items()
        if "node" in entry
    }
    assert found == PLACED


@pytest.mark.parametrize("pod", REFUSED)
def test_each_card_that_cannot_take_an_ask_says_why_not(pod: str, answers: dict[str, Object]) -> None:
    refused = answers[pod]["refused"]
    assert refused.keys() == REFUSED[pod].keys()
    for node, (reason, cards) in REFUSED[pod].items():
        assert refused[node]["reason"] == reason
        texts = refused[node]["devices"]
        assert texts.keys() == cards.keys()
        assert all(texts[minor].startswith(begin) for minor, begin in cards.items()), texts
