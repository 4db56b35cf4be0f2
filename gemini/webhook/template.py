"""A Job's template is given at admission what its pods would be given, so that a queue can count it. Pure.

Kueue counts a Job before there is a pod of it, by the resources of the template. Annotations there count nothing, and a
LimitRange's defaults count in their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TEMPLATE = "/spec/template"


def is_job(request: Mapping[str, Any]) -> bool:
    kind = request.get("kind")
    return isinstance(kind, dict) and kind.get("group") == "batch" and kind.get("kind") == "Job"


def of_template(request: Mapping[str, Any]) -> dict[str, Any]:
    """The review of a Job as one of the pod that its template makes; one that makes no sense stays so."""
    job = request.get("object")
    spec = job.get("spec") if isinstance(job, dict) else None
    template = spec.get("template") if isinstance(spec, dict) else None
    pod = {**template, "kind": "Pod"} if isinstance(template, dict) else template
    return {**request, "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod}


def below_template(pod: Mapping[str, Any], operations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A patch of that pod as one of the Job."""
    below = [{**one, "path": TEMPLATE + one["path"]} for one in operations]
    if below and not isinstance(pod.get("metadata"), dict):
        below.insert(0, {"op": "add", "path": f"{TEMPLATE}/metadata", "value": {}})
    return below
