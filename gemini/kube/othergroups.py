"""Groups of pods in the languages of other gang schedulers, said again in our own annotations.

Pure. Read of a pod that has a share, in spellings that are heard there (scope.py). A group's size often stands in
another object, a PodGroup, which is not read: it is to be said on the pod then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from gemini.kube import names, quantity
from gemini.kube.parts import mapping
from gemini.kube.quantity import shown
from gemini.kube.spelling import InvalidPod, read

GANGS, COSCHEDULING, KOORDINATOR, VOLCANO, KAI = (
    "scheduling.k8s.io", "scheduling.x-k8s.io", names.KOORDINATOR, "volcano.sh", "kai",
)  # fmt: skip


@dataclass(frozen=True)
class Keys:
    """Where a pod says its group: `part` of its metadata, and the size there, if anything says it on the pod."""

    spelling: str
    part: str
    name: str
    sizes: tuple[str, ...] = ()


KEYS = (
    Keys(COSCHEDULING, "labels", "scheduling.x-k8s.io/pod-group"),
    Keys(
        KOORDINATOR, "annotations", "gang.scheduling.koordinator.sh/name",
        ("gang.scheduling.koordinator.sh/min-available",),
    ),
    Keys(
        KOORDINATOR, "labels", "pod-group.scheduling.sigs.k8s.io/name",
        ("pod-group.scheduling.sigs.k8s.io/min-available",),
    ),
    Keys(KOORDINATOR, "labels", "pod-group.scheduling.sigs.k8s.io"),
    Keys(VOLCANO, "annotations", "scheduling.k8s.io/group-name", ("scheduling.volcano.sh/group-min-member",)),
    Keys(VOLCANO, "annotations", "scheduling.volcano.sh/group-name", ("scheduling.volcano.sh/group-min-member",)),
    Keys(KAI, "annotations", "pod-group-name", ("kai.scheduler/batch-min-member",)),
)  # fmt: skip
GANG = "spec.schedulingGroup.podGroupName"  # of Kubernetes' own gang API, from 1.36


def with_group(pod: Any, heard: Collection[str]) -> Any:
    """The pod with our annotations for a group that it names in a spelling that is heard; the same object where it
    names none. Raises InvalidPod where it names two, or nobody says the size."""
    said = list(_said(pod, heard))
    if not said:
        return pod
    metadata = mapping(pod.get("metadata"))
    annotations = mapping(metadata.get("annotations"))
    key, name, _ = said[0]
    for other, another, _ in said[1:]:
        if another != name:
            raise InvalidPod(
                other, f"{shown(another)} is another group than {shown(name)} ({key}); keep one of the two"
            )
    own = annotations.get(names.POD_GROUP, name)
    if own != name:
        raise InvalidPod(
            key, f"{shown(name)} is another group than {shown(own)} ({names.POD_GROUP}); keep one of the two"
        )
    size = annotations.get(names.POD_GROUP_SIZE)
    for spelled, value in (size_said for *_, sizes in said for size_said in sizes):
        given = read(spelled, value, lambda v: quantity.parse_whole(v, 1))
        if size is not None and str(size) != str(given):
            problem = f"{shown(value)} differs from {shown(size)}, said before; say the same, or keep one of the two"
            raise InvalidPod(spelled, problem)
        size = str(given)
    if size is None:
        mend = f"add {names.POD_GROUP_SIZE}, as the PodGroup has it"
        raise InvalidPod(key, f"{shown(name)} is a group whose size the pod does not say; {mend}")
    ours = {names.POD_GROUP: name, names.POD_GROUP_SIZE: size}
    return {**pod, "metadata": {**metadata, "annotations": {**annotations, **ours}}}


def _said(pod: Any, heard: Collection[str]) -> Iterator[tuple[str, str, list[tuple[str, object]]]]:
    """(key, group, sizes by key) for each place that names a group."""
    metadata, spec = mapping(mapping(pod).get("metadata")), mapping(mapping(pod).get("spec"))
    for keys in KEYS:
        given = mapping(metadata.get(keys.part))
        name = given.get(keys.name)
        if keys.spelling in heard and isinstance(name, str) and name.strip():
            notes = {**mapping(metadata.get("labels")), **mapping(metadata.get("annotations"))}
            yield keys.name, name.strip(), [(key, notes[key]) for key in keys.sizes if key in notes]
    gang = mapping(spec.get("schedulingGroup")).get("podGroupName")
    if GANGS in heard and isinstance(gang, str) and gang:
        yield GANG, gang, []
