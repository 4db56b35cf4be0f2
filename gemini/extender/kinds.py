"""The kinds of objects that the extender watches, and what tells the objects of a kind apart. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemini.extender.podview import mapping
from gemini.kube import names
from gemini.kube.quantity import version_number

NODE, DEVICE, POD, CLAIM, BUDGET = "Node", "Device", "Pod", "ResourceClaim", "PodDisruptionBudget"
RESIZE = names.RESIZE_KIND
KINDS = (NODE, DEVICE, RESIZE, POD, CLAIM, BUDGET)
UID_KINDS = (POD, CLAIM, RESIZE)  # told apart by uid, for names come again


def key_of(kind: str, given: object) -> str | None:
    """What tells objects of a kind apart: pods and claims by uid, for names come again; None where there is none."""
    metadata = mapping(mapping(given).get("metadata"))
    key = metadata.get("uid" if kind in UID_KINDS else "name")
    if not isinstance(key, str) or not key:
        return None
    return f"{metadata.get('namespace', '')}/{key}" if kind == BUDGET else key


def version_of(given: Mapping[str, Any]) -> int:
    """The resourceVersion as a number; 0: there is none to compare."""
    return version_number(mapping(given.get("metadata")).get("resourceVersion"))


def full_name_of(given: Mapping[str, Any]) -> tuple[str, str]:
    metadata = mapping(given.get("metadata"))
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))
