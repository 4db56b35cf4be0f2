"""What a LimitRange's defaults put into a pod's resources under our domain, before admission came to us.

Pure. The API server writes down which resources of which containers it filled in, in an annotation of the pod. A pod
that says its share in annotations has said what it wants, so those are no word of its own; a pod that says nothing is
given what the defaults say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemini.kube import names

ANNOTATION = "kubernetes.io/limit-ranger"
LONGEST = 256 << 10  # of a pod's annotations in sum; admission sees them before that is checked


def defaulted(pod: object) -> dict[str, frozenset[tuple[str, str]]]:
    """(requests or limits, resource of ours) by container; nothing where the pod says no share in annotations."""
    metadata = _map(_map(pod).get("metadata"))
    annotations, labels = _map(metadata.get("annotations")), _map(metadata.get("labels"))
    told = annotations.get(ANNOTATION)
    said = any(key == of or str(key).startswith(f"{of}.") for key in annotations for of in names.SHARE_KEYS)
    if not isinstance(told, str) or not (said or any(key in labels for key in names.SHARED_SHARE_KEYS)):
        return {}
    found: dict[str, set[tuple[str, str]]] = {}
    for entry in told.partition(":")[2].split(";") if len(told) <= LONGEST else ():
        keys, part, name = _parted(entry)
        ours = {key.strip() for key in keys.split(",") if key.strip().startswith(f"{names.DOMAIN}/")}
        found.setdefault(name, set()).update((f"{part}s", key) for key in ours)
    return {name: frozenset(keys) for name, keys in found.items() if keys}


def _parted(entry: str) -> tuple[str, str, str]:
    """`cpu, memory request for [init ]container NAME` as ("cpu, memory", "request", "NAME"); no keys: it is no such."""
    for part in ("request", "limit"):
        keys, found, name = entry.partition(f" {part} for ")
        name = name.removeprefix("init ")
        if found and name.startswith("container "):
            return keys, part, name.removeprefix("container ").strip()
    return "", "", ""


def without_defaults(pod: object) -> object:
    """The pod without those; the same object where there are none."""
    filled, spec = defaulted(pod), _map(_map(pod).get("spec"))
    if not filled or not isinstance(pod, dict):
        return pod
    lists = {
        key: [_without(one, filled) for one in spec[key]]
        for key in ("initContainers", "containers")
        if isinstance(spec.get(key), list)
    }
    return {**pod, "spec": {**spec, **lists}}


def _without(container: object, filled: Mapping[str, frozenset[tuple[str, str]]]) -> object:
    keys = filled.get(str(_map(container).get("name")))
    resources = _map(container).get("resources")
    if not keys or not isinstance(container, dict) or not isinstance(resources, dict):
        return container
    parts = {
        part: {key: value for key, value in amounts.items() if (part, key) not in keys}
        if isinstance(amounts, dict)
        else amounts
        for part, amounts in resources.items()
    }
    return {**container, "resources": parts}


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
