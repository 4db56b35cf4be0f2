"""The parts of a pod that several readers look at: whatever it is that stands there, nothing of it raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]
LISTS = ("initContainers", "containers")


def mapping(value: object) -> Object:
    """An object; of anything else an empty one."""
    return value if isinstance(value, dict) else {}


def containers_of(spec: Object) -> list[Object]:
    """All containers of a pod's spec, those that come first first."""
    listed = [spec.get(key) for key in LISTS]
    return [one for entries in listed if isinstance(entries, list) for one in entries if isinstance(one, dict)]


def amounts_of(container: Object) -> dict[str, Any]:
    """What a container asks for; its limit where it says both."""
    resources = mapping(container.get("resources"))
    return {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
