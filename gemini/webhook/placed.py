"""Pods that HAMi's, Volcano's or KAI's scheduler is to place, in namespaces that opted in to their time being enforced.

Pure. Each container that asks for a card in their words gets `gemini.io/placed: 1` beside it, by which the kubelet
calls our device plugin before it starts. Resources of theirs and the scheduler stay as they are. Their own library is
told to stay away, for both would stand before one driver. What KAI's annotations say is written down where nobody can
change it. What goes round a share is refused as for ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemini.kube import names
from gemini.kube.escapes import placed_pod_fault
from gemini.kube.parts import LISTS, amounts_of, containers_of, mapping
from gemini.kube.placed import asks_for_others, kai_shares, marked_placed, placed_shares, written_share
from gemini.kube.quantity import shown
from gemini.kube.scope import bearers
from gemini.kube.spelling import InvalidPod
from gemini.webhook.settings import Settings

AMOUNT = "1"
MASTERS, ACCOUNT = "system:masters", "system:serviceaccount:"
OURS = (names.ENV_PRELOAD, names.ENV_SOCKET, names.HAMI_CONTROL_OFF, names.ENV_PLACED)


def placed_patch(pod: Mapping[str, Any], settings: Settings) -> list[dict[str, Any]]:
    """The operations of a JSON patch; none: nothing of the pod is another plugin's, or all of it was written before.
    Raises InvalidPod."""
    spec = mapping(pod.get("spec"))
    kai = {} if bearers(pod) else kai_shares(pod)  # where that is read as our own, its annotations are served already
    result: list[dict[str, Any]] = []
    for key in LISTS:
        listed = spec.get(key)
        for i, container in enumerate(listed if isinstance(listed, list) else ()):
            share = kai.get(str(container.get("name"))) if isinstance(container, dict) else None
            if isinstance(container, dict) and (share is not None or asks_for_others(container)):
                path = f"/spec/{key}/{i}"
                if not marked_placed(container):
                    result.append({"op": "add", "path": f"{path}/resources", "value": _resources(container)})
                if (env := _environment(container, settings, share)) != container.get("env"):
                    result.append({"op": "add", "path": f"{path}/env", "value": env})
    return result


def placed_fault(pod: Mapping[str, Any], shares: bool, settings: Settings) -> InvalidPod | None:
    """What makes a pod with such containers inadmissible; `shares`: it has a share of ours too."""
    try:
        placed, kai = placed_shares(pod), kai_shares(pod)
        _check_written(pod, kai)
    except InvalidPod as error:
        return error
    for part in ("annotations", "labels"):
        for key, value in mapping(mapping(pod.get("metadata")).get(part)).items():
            if is_record(part, key):
                return InvalidPod(shown(key), f"{shown(value)} is written by the scheduler alone; remove it")
    if placed and shares:
        problem = f"container {shown(next(iter(placed)))} is another scheduler's, and the pod has a share of ours too"
        return InvalidPod(names.RESOURCE_PLACED, f"{problem}; make two pods of it")
    return placed_pod_fault(pod, placed.keys(), settings.allowed, settings.by_cdi, kai.keys()) if placed else None


def unheld_fault(pod: Mapping[str, Any]) -> InvalidPod | None:
    """A container that asks for a card in others' words, and that admission has not seen doing so."""
    ours = bearers(pod)
    try:
        kai = {} if ours else kai_shares(pod)
    except InvalidPod as error:
        return error
    for container in containers_of(mapping(pod.get("spec"))):
        name = str(container.get("name"))
        if (name in kai or asks_for_others(container)) and name not in ours and not marked_placed(container):
            problem = f"container {shown(name)} asks for another plugin's card, and this was not written beside it"
            mend = "let the webhook that asks for it come before Gemini's, or write it yourself"
            return InvalidPod(names.RESOURCE_PLACED, f"{problem}; {mend}")
    return None


def is_record(part: str, key: object) -> bool:
    """Whether it is one by which another scheduler says what a pod is given; `part`: annotations or labels."""
    begins = names.PLACED_RECORDS if part == "annotations" else (names.KAI_GROUP,)
    return isinstance(key, str) and key.startswith(begins)


def may_record(user: object, namespace: object) -> bool:
    """Whether it is a part of the cluster, which writes these. People are not, nor accounts of the pod's namespace."""
    said = mapping(user)
    name, groups = str(said.get("username")), said.get("groups")
    if isinstance(groups, list) and MASTERS in groups:
        return True
    return name.startswith("system:") and not name.startswith(f"{ACCOUNT}{namespace}:")


def _check_written(pod: Mapping[str, Any], kai: Mapping[str, str]) -> None:
    """Raises InvalidPod where a container has another share of KAI's than the pod's annotations say."""
    for container in containers_of(mapping(pod.get("spec"))):
        written = written_share(container) if marked_placed(container) else None
        said = kai.get(str(container.get("name")))
        if written is not None and written != said:
            problem = f"{shown(written)} in env, {shown(said) if said else 'nothing'} by KAI's annotations"
            raise InvalidPod(names.ENV_PLACED, f"{problem}; leave it out, admission writes it")


def _resources(container: Mapping[str, Any]) -> dict[str, Any]:
    given = mapping(container.get("resources"))
    ours = {names.RESOURCE_PLACED: AMOUNT}
    parts = {part: {**mapping(given.get(part)), **ours} for part in ("limits", "requests")}
    return {**given, **parts}


def _environment(container: Mapping[str, Any], settings: Settings, kai: str | None) -> list[dict[str, Any]]:
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
    theirs = {names.HAMI_CONTROL_OFF: "true"} if kai is None else {names.ENV_PLACED: kai}
    return [*kept, socket, *({"name": name, "value": value} for name, value in theirs.items())]


def asks_placed(pod: object) -> bool:
    spec = mapping(mapping(pod).get("spec"))
    listed = (one for key in LISTS if isinstance(spec.get(key), list) for one in spec[key])
    return any(isinstance(one, dict) and names.RESOURCE_PLACED in amounts_of(one) for one in listed)
