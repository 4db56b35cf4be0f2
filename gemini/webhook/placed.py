"""Pods that HAMi's or Volcano's scheduler is to place, in namespaces that opted in to their time being enforced.

Pure. Each container that asks for a card in their words gets `gemini.io/placed: 1` beside it, by which the kubelet
calls our device plugin before it starts. Resources of theirs and the scheduler stay as they are. Their own library is
told to stay away, for both would stand before one driver. What goes round a share is refused as for ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemini.kube import names
from gemini.kube.escapes import placed_pod_fault
from gemini.kube.parts import LISTS, amounts_of, mapping
from gemini.kube.placed import asks_for_others, marked_placed, placed_shares
from gemini.kube.quantity import shown
from gemini.kube.spelling import InvalidPod
from gemini.webhook.settings import Settings

AMOUNT = "1"
OURS = (names.ENV_PRELOAD, names.ENV_SOCKET, names.HAMI_CONTROL_OFF)


def placed_patch(pod: Mapping[str, Any], settings: Settings) -> list[dict[str, Any]]:
    """The operations of a JSON patch; none: nothing of the pod is another plugin's, or all of it was written before.
    Raises InvalidPod."""
    spec = mapping(pod.get("spec"))
    result: list[dict[str, Any]] = []
    for key in LISTS:
        listed = spec.get(key)
        for i, container in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(container, dict) and asks_for_others(container):
                path = f"/spec/{key}/{i}"
                if not marked_placed(container):
                    result.append({"op": "add", "path": f"{path}/resources", "value": _resources(container)})
                if (env := _environment(container, settings)) != container.get("env"):
                    result.append({"op": "add", "path": f"{path}/env", "value": env})
    return result


def placed_fault(pod: Mapping[str, Any], shares: bool, settings: Settings) -> InvalidPod | None:
    """What makes a pod with such containers inadmissible; `shares`: it has a share of ours too."""
    try:
        placed = placed_shares(pod)
    except InvalidPod as error:
        return error
    if placed and shares:
        problem = f"container {shown(next(iter(placed)))} is another scheduler's, and the pod has a share of ours too"
        return InvalidPod(names.RESOURCE_PLACED, f"{problem}; make two pods of it")
    return placed_pod_fault(pod, placed.keys(), settings.allowed, settings.by_cdi) if placed else None


def _resources(container: Mapping[str, Any]) -> dict[str, Any]:
    given = mapping(container.get("resources"))
    ours = {names.RESOURCE_PLACED: AMOUNT}
    parts = {part: {**mapping(given.get(part)), **ours} for part in ("limits", "requests")}
    return {**given, **parts}


def _environment(container: Mapping[str, Any], settings: Settings) -> list[dict[str, Any]]:
    """The container's own, which counts more than the device plugin's, with library and socket in it. So does envFrom,
    which counts less than what stands here."""
    given = container.get("env")
    env = [dict(one) for one in (given if isinstance(given, list) else ()) if isinstance(one, dict)]
    kept = [one for one in env if one.get("name") not in OURS]
    preloads = [one for one in env if one.get("name") == names.ENV_PRELOAD]
    if any("valueFrom" in one for one in preloads):  # which is refused when the pod is validated
        kept += preloads
    else:
        behind = str(preloads[-1].get("value") or "") if preloads else ""  # the last one counts
        listed = [part for part in behind.replace(" ", ":").split(":") if part and part != settings.library]
        kept.append({"name": names.ENV_PRELOAD, "value": ":".join([settings.library, *listed])})
    socket = {"name": names.ENV_SOCKET, "value": f"ipc://{settings.socket}"}
    return [*kept, socket, {"name": names.HAMI_CONTROL_OFF, "value": "true"}]


def asks_placed(pod: object) -> bool:
    spec = mapping(mapping(pod).get("spec"))
    listed = (one for key in LISTS if isinstance(spec.get(key), list) for one in spec[key])
    return any(isinstance(one, dict) and names.RESOURCE_PLACED in amounts_of(one) for one in listed)
