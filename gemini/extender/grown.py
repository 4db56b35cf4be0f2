"""What pods that run were given beyond their records, as the leases of their nodes say it.

A pod's Resize goes with its pod. Where the pod is deleted in the foreground it goes first, and the pod when its
programs have ended: a replica that begins anew meanwhile finds nothing else that says how much the pod has. What stands
here counts in no other case; it may be more than the pod has by now, never less. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from gemini.kube import names
from gemini.kube.resize import Amounts

GROWN = f"{names.DOMAIN}/grown"


def read_grown(lease: Mapping[str, Any] | None) -> dict[str, Amounts]:
    """By the full names of pods; what is no such text says nothing."""
    text = (((lease or {}).get("metadata") or {}).get("annotations") or {}).get(GROWN, "{}")
    try:
        return {pod: Amounts(int(request), int(limit), int(memory))
                for pod, (request, limit, memory) in json.loads(text).items()}  # fmt: skip
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def write_grown(grown: Mapping[str, Amounts]) -> str:
    said = {pod: [one.request, one.limit, one.memory] for pod, one in grown.items()}
    return json.dumps(said, separators=(",", ":"))


class Grown:
    """Of one node, as one replica knows it. `news`: something is to be written."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Amounts, int]] = {}  # and a version of pods at which the pod was there
        self.news = False

    def add(self, pod: str, amounts: Amounts, version: int) -> None:
        before = self._known.get(pod)
        most = amounts if before is None else before[0].most(amounts)
        self.news = self.news or before is None or most != before[0]
        self._known[pod] = (most, version)

    def take_in(self, found: Mapping[str, Amounts], version: int) -> None:
        """What the lease says."""
        for pod, amounts in found.items():
            before = self._known.get(pod)
            self._known[pod] = (amounts if before is None else before[0].most(amounts), version)

    def left(self, gone: Callable[[str, int], bool]) -> dict[str, Amounts]:
        """Those whose pods are not known to be gone, or to have ended: anybody may leave ever so many of these, and the
        lease has room for some hundred. The others are forgotten. `gone`: by uid and version."""
        for pod in [p for p, (_, version) in self._known.items() if gone(p.rpartition("/")[2], version)]:
            del self._known[pod]
        return {pod: amounts for pod, (amounts, _) in self._known.items()}
