"""Pods as a person writes them, in few words."""

from __future__ import annotations

from typing import Any


def says(**keys: Any) -> dict[str, Any]:
    return {f"gemini.io/{k.replace('_', '-')}": v for k, v in keys.items()}


def container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def limits(**resources: Any) -> dict[str, Any]:
    return {"resources": {"limits": {k.replace("__", "/").replace("_", "-"): v for k, v in resources.items()}}}


def pod(*containers: dict[str, Any], init: Any = None, annotations: Any = None, **spec: Any) -> dict[str, Any]:
    body = {"containers": list(containers), **spec}
    if init is not None:
        body["initContainers"] = init
    return {"metadata": {"name": "p", "annotations": annotations or {}}, "spec": body}
