"""Manifests in the languages of HAMi, Volcano's vGPU or KAI, rewritten in ours: `gemini migrate`.

Pure: an object in, the object out; the same one where nothing of it is to be rewritten. What admission says again
in memory (vgpu.py) is written here for good: the other project's keys and its scheduler's name go. What we do not know
of its keys, or cannot keep, is refused with what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemini.kube import names
from gemini.kube.parts import Object, amounts_of, containers_of, mapping
from gemini.kube.pod import parse_pod
from gemini.kube.quantity import shown
from gemini.kube.scope import DEFAULT_SCHEDULER
from gemini.kube.spelling import InvalidPod
from gemini.kube.vgpu import (
    CHOICES,
    CHOICES_LEFT,
    HAMI,
    KAI,
    KAI_KEYS,
    KAI_LEFT,
    MODES,
    RESOURCES,
    TITLES,
    VOLCANO,
    VOLCANO_UUIDS,
    said_again,
    spoken,
)
from gemini.kube.workloads import TEMPLATES, kind_of, with_pods

# What a pod may name; the default scheduler's name says no more than none does.
SCHEDULERS = {one: (name, DEFAULT_SCHEDULER) for one, name in
              ((HAMI, "hami-scheduler"), (VOLCANO, "volcano"), (KAI, "kai-scheduler"))}  # fmt: skip
# What is taken out of annotations once it is said in ours; and the domains of all keys of the language.
_TAKEN = {
    HAMI: (*CHOICES, *CHOICES_LEFT, *MODES), VOLCANO: (*CHOICES, *CHOICES_LEFT, *VOLCANO_UUIDS, *MODES),
    KAI: (*KAI_KEYS, *KAI_LEFT),
}  # fmt: skip
_ANNOTATIONS = {
    HAMI: ("hami.io/", "nvidia.com/"),
    VOLCANO: ("volcano.sh/", "hami.io/", "nvidia.com/", "scheduling.k8s.io/"),
    KAI: ("kai.scheduler/", "gpu-fraction", "gpu-memory"),
}
_AMOUNTS = {HAMI: ("nvidia.com/", "hami.io/"), VOLCANO: ("volcano.sh/",), KAI: ()}
_NAMES = {kind for _, kind in TEMPLATES}
RAY_SCHEDULER = "ray.io/scheduler-name"  # a label of Ray's objects
_GROUP = f"write {names.POD_GROUP} and {names.POD_GROUP_SIZE}"
_MENDS = {"scheduling.k8s.io/group-name": _GROUP, "kai.scheduler/batch-min-member": _GROUP}
_MIG = "nvidia.com/mig-"  # slices, by size, which HAMi's device plugin serves as NVIDIA's does
_REMOVE = "say in keys of gemini.io what it is for, or remove it"


def rewritten(given: Any, spelling: str) -> Any:
    """An object of a manifest, whatever its kind. Raises InvalidPod."""
    if not isinstance(given, dict):
        return given
    kind = str(given.get("kind"))
    if kind == "List" and isinstance(given.get("items"), list):
        items = [rewritten(item, spelling) for item in given["items"]]
        same = all(new is old for new, old in zip(items, given["items"], strict=True))
        return given if same else {**given, "items": items}
    paths = TEMPLATES.get(kind_of(given))
    if paths is None:
        for key in _keys(given):
            if key in _shares(spelling):
                what = f"{given.get('apiVersion')} {kind}" if kind in _NAMES else kind
                raise InvalidPod(key, f"stands in a {shown(what)}, whose pods are not known; rewrite that by hand")
        return given
    fresh = given
    for path in paths:
        fresh = with_pods(fresh, path, lambda pod: _pod(pod, spelling))
    scheduler = mapping(mapping(given.get("metadata")).get("labels")).get(RAY_SCHEDULER)
    if fresh is not given and scheduler is not None:
        problem = f"{shown(scheduler)} has another scheduler place all of its pods; take it out"
        raise InvalidPod(RAY_SCHEDULER, problem)
    return fresh


def _pod(pod: dict[str, Any], spelling: str) -> dict[str, Any]:
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    annotations = mapping(metadata.get("annotations"))
    amounts = [key for one in containers_of(spec) for key in amounts_of(one)]
    others = [other for other in spoken(pod) if other != spelling and not (spelling == VOLCANO and other == HAMI)]
    speaks = spelling in spoken(pod) or (spelling in RESOURCES and RESOURCES[spelling].number in amounts)
    if speaks and others:
        title = f"is {TITLES[others[0]]}'s, beside {TITLES[spelling]}'s"
        raise InvalidPod(
            next(key for key in (*amounts, *annotations) if key in _shares(others[0])), f"{title}; keep one"
        )
    fresh = said_again(pod, spelling) if speaks else pod  # which knows more to say of a key than that it is not known
    _check(annotations, amounts, spelling, speaks)
    if not speaks:
        return pod
    notes = {key: value for key, value in fresh["metadata"]["annotations"].items() if key not in _TAKEN[spelling]}
    body = {key: value for key, value in fresh["spec"].items() if key != "schedulerName"}
    scheduler = spec.get("schedulerName")
    if scheduler is not None and scheduler not in SCHEDULERS[spelling]:
        problem = (
            f"{shown(scheduler)} is another scheduler than {TITLES[spelling]}'s; take it out, or leave the pod to it"
        )
        raise InvalidPod("spec.schedulerName", problem)
    for part in ("initContainers", "containers"):
        if isinstance(body.get(part), list):
            body[part] = [_tidy(one) for one in body[part]]
    result = {**fresh, "metadata": {**fresh["metadata"], "annotations": notes}, "spec": body}
    parse_pod({"metadata": result["metadata"], "spec": body})
    return result


def _check(annotations: Object, amounts: list[str], spelling: str, speaks: bool) -> None:
    """Keys of the language that we do not know. In a pod without a share, only those that would be one."""
    for key in annotations:
        known = key in _TAKEN[spelling] or not (speaks or (spelling == KAI and "/" not in str(key)))
        if not known and str(key).startswith(_ANNOTATIONS[spelling]):
            problem = f"is no key of {TITLES[spelling]}'s that is known; {_MENDS.get(key, _REMOVE)}"
            raise InvalidPod(shown(key), problem)
    if spelling == HAMI and not speaks and (mig := next((key for key in amounts if key.startswith(_MIG)), None)):
        keys = f"{names.GPU_REQUEST} and {names.GPU_MEMORY}"
        raise InvalidPod(
            shown(mig), f"is a slice that MIG cut, no share; write {keys}, or leave it to its device plugin"
        )
    known_amounts = RESOURCES[spelling].all if spelling in RESOURCES else ()
    for key in amounts if speaks or spelling == VOLCANO else ():
        if key not in known_amounts and _AMOUNTS[spelling] and key.startswith(_AMOUNTS[spelling]):
            problem = (
                f"is no resource of {TITLES[spelling]}'s shares that is known; use one of {', '.join(known_amounts)}"
            )
            raise InvalidPod(shown(key), problem)


def _shares(spelling: str) -> tuple[str, ...]:
    return RESOURCES[spelling].all if spelling in RESOURCES else KAI_KEYS


def _tidy(container: Any) -> Any:
    """Without what was left empty."""
    if not isinstance(container, dict) or not isinstance(container.get("resources"), dict):
        return container
    parts = {
        part: amounts for part, amounts in container["resources"].items() if amounts or not isinstance(amounts, dict)
    }
    if parts:
        return {**container, "resources": parts}
    return {key: value for key, value in container.items() if key != "resources"}


def _keys(given: Any) -> Iterator[str]:
    """All keys of an object, and of what is in it."""
    left = [given]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield from (str(key) for key in one)
            left += one.values()
        elif isinstance(one, list):
            left += one
