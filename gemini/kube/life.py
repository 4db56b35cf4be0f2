"""What a pod's status says of its containers: whether they have ended, and whether its init containers have.

Pure. A pod that ended (Succeeded, Failed) holds its devices while a container of it is still said to run: a kubelet
before 1.27, and whoever else writes a phase, may write it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENDED = ("Succeeded", "Failed")  # phases


def gone(status: Mapping[str, Any]) -> bool:
    """Whether the pod's containers have ended for good."""
    return status.get("phase") in ENDED and not _running(status)


def initialized(status: Mapping[str, Any]) -> bool:
    """Whether init containers have ended."""
    return any(c.get("type") == "Initialized" and c.get("status") == "True" for c in _mappings(status, "conditions"))


def begins_anew(spec: Mapping[str, Any]) -> bool:
    """Whether init containers that have ended may run again. A kubelet begins a pod anew whose sandbox has gone, by a
    container's hand or with the node, unless the pod says never; or where a container's rules say so."""
    every = (*_mappings(spec, "containers"), *_mappings(spec, "initContainers"))
    return spec.get("restartPolicy") != "Never" or any(one.get("restartPolicyRules") for one in every)


def _running(status: Mapping[str, Any]) -> bool:
    every = (*_mappings(status, "containerStatuses"), *_mappings(status, "initContainerStatuses"))  # sidecars too
    states = (entry.get("state") for entry in every)
    return any(isinstance(state, dict) and "running" in state for state in states)


def _mappings(status: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    listed = status.get(key)
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
