"""Groups by the templates of objects that make pods: what the samples of deploy/samples say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gemini.kube.pod import PodSpec, parse_pod
from gemini.kube.workloads import TEMPLATES, kind_of, with_pods

SAMPLES = Path(__file__).resolve().parents[3] / "deploy/samples"
# Each sample has the name of its group: how many pods of it have a share, by what its controller makes of replicas.
GROUPS = {"group": 4, "group-nodes": 16, "jobset": 4, "rayjob": 2, "pytorchjob": 4, "mpijob": 2}


def shares(given: dict[str, Any]) -> list[PodSpec]:
    """Of the templates, those with a share."""
    found: list[PodSpec] = []

    def note(pod: dict[str, Any]) -> dict[str, Any]:
        spec = parse_pod({"metadata": {"name": "p", **pod.get("metadata", {})}, "spec": pod["spec"]})
        found.extend([spec] if spec.shares else [])
        return pod

    for path in TEMPLATES[kind_of(given)]:
        assert with_pods(given, path, note) is given
    return found


@pytest.mark.parametrize(("name", "size"), GROUPS.items())
def test_a_sample_says_one_group_as_large_as_its_pods_with_a_share(name: str, size: int) -> None:
    asks = [one.ask for one in shares(yaml.safe_load((SAMPLES / f"{name}.yaml").read_text()))]
    assert {(ask.group, ask.group_size) for ask in asks} == {(name, size)}
