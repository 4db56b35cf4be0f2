"""Short ways to write a scenario, ask, and look at the answer."""

from __future__ import annotations

from typing import Any

from gemini.cli.scenario import Scenario

MIB, GIB = 2**20, 2**30


def gpu(minor: int, memory: str | int = "16Gi", **traits: Any) -> dict[str, Any]:
    return {"type": "gpu", "minor": minor, "uuid": f"GPU-{minor}", "memory": memory, **traits}


def node(name: str, *devices: dict[str, Any], **traits: Any) -> dict[str, Any]:
    return {"name": name, "devices": list(devices), **traits}


def cards(name: str, count: int, memory: str | int = "16Gi", **traits: Any) -> dict[str, Any]:
    return node(name, *(gpu(m, memory) for m in range(count)), **traits)


def held(pod: str, where: str, *devices: tuple[int, int, str | int]) -> dict[str, Any]:
    """A placed pod that holds (minor, core, memory) of each device."""
    parts = [{"minor": m, "core": core, "memory": memory} for m, core, memory in devices]
    return {"pod": pod, "node": where, "devices": parts}


def ask(pod: str, **says: Any) -> dict[str, Any]:
    """An ask in our annotations, `gpu_request="0.4"`; `resources` stay resources."""
    resources = says.pop("resources", {})
    return {
        "pod": pod,
        "annotations": {f"gemini.io/{k.replace('_', '-')}": v for k, v in says.items()},
        "resources": resources,
    }


def fine(pod: str, domain: str = "gemini.io", **resources: Any) -> dict[str, Any]:
    """An ask in resources of a domain, `gpu_core=50`."""
    return {"pod": pod, "resources": {f"{domain}/{k.replace('_', '-')}": v for k, v in resources.items()}}


def whole(pod: str, count: int = 1) -> dict[str, Any]:
    return {"pod": pod, "resources": {"nvidia.com/gpu": count}}


def pod(
    name: str, *containers: dict[str, Any], init: list[dict[str, Any]] | None = None, **says: Any
) -> dict[str, Any]:
    """A manifest as an ask."""
    annotations = {f"gemini.io/{k.replace('_', '-')}": v for k, v in says.items()}
    manifest = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"initContainers": init or [], "containers": list(containers)},
    }
    return {"pod": name, "manifest": manifest}


def box(name: str, sidecar: bool = False, **resources: Any) -> dict[str, Any]:
    """A container with resources of the proposal, `gpu=50`."""
    limits = {f"koordinator.sh/{k.replace('_', '-')}": v for k, v in resources.items()}
    made: dict[str, Any] = {"name": name, "resources": {"limits": limits}}
    return {**made, "restartPolicy": "Always"} if sidecar else made


def answers(nodes: list[dict[str, Any]], *asks: dict[str, Any], **scenario: Any) -> list[dict[str, Any]]:
    run = Scenario({"nodes": nodes, "asks": list(asks), **scenario})
    result: list[dict[str, Any]] = run.run()["placements"]
    run.book.check()
    for (where, kind, minor), (core, *_) in run.book.snapshot().items():
        assert core <= 100, (where, kind, minor, core)
    return result


def answer(nodes: list[dict[str, Any]], *asks: dict[str, Any], **scenario: Any) -> dict[str, Any]:
    """The answer to the last ask."""
    return answers(nodes, *asks, **scenario)[-1]


def minors(entry: dict[str, Any], kind: str = "gpu") -> list[int]:
    assert "devices" in entry, entry
    return [d["minor"] for d in entry["devices"] if d["type"] == kind]


def where(entry: dict[str, Any]) -> tuple[str, list[int]]:
    assert "node" in entry, entry
    return entry["node"], minors(entry)


def reason(entry: dict[str, Any], name: str = "*") -> str:
    assert "refused" in entry, entry
    text: str = entry["refused"][name]["reason"]
    return text
