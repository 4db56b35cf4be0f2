"""Which pods are ours to read: the spellings that a cluster reads, and whose nodes or scheduler a pod is meant for.

Pure. gemini.io is read always. Another project's spelling is read where the operator says so: in every pod, in the
namespaces that opted in, or in pods that select our nodes. A pod that speaks another's language alone and is meant for
another's nodes or scheduler is left as it is. What is not read is left out of the pod before it is parsed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from gemini.kube import names
from gemini.kube.othergroups import COSCHEDULING, GANGS, with_group
from gemini.kube.parts import LISTS, Object, containers_of, mapping
from gemini.kube.placed import marked_placed
from gemini.kube.pod import marked, parse_pod
from gemini.kube.quantity import shown
from gemini.kube.spelling import InvalidPod
from gemini.kube.vgpu import CONVERTED, HAMI, ONLY_HAMI, VGPU_SPELLINGS, spoken, translated

GROUPS = (GANGS, COSCHEDULING)  # of groups alone
OTHERS = (names.KUBERNETES, names.KOORDINATOR, names.ALIYUN, names.NVIDIA, names.KUBESHARE, *VGPU_SPELLINGS, *GROUPS)
SPELLINGS = (names.DOMAIN, *OTHERS)
DEFAULT_SCHEDULER = "default-scheduler"


@dataclass(frozen=True)
class Reading:
    """`spellings`: read in every pod. `opted`: read besides in pods that select the nodes of `pool`, labels of ours.
    HAMi's language has NVIDIA's in it."""

    spellings: frozenset[str] = frozenset({names.DOMAIN})
    opted: frozenset[str] = frozenset()
    pool: tuple[tuple[str, str], ...] = ()

    def of(self, pod: object) -> frozenset[str]:
        heard = self.spellings | self.opted if self.opted and self._selects(pod) else self.spellings
        return heard | {names.NVIDIA} if HAMI in heard else heard

    def _selects(self, pod: object) -> bool:
        selected = mapping(mapping(mapping(pod).get("spec")).get("nodeSelector"))
        return bool(self.pool) and all(selected.get(key) == value for key, value in self.pool)


def read_part(pod: object, reading: Reading, schedulers: Collection[str]) -> object:
    """The pod without what is not to be read of it, in languages that the allocator reads. `schedulers`: the names of
    those that ask our extender. Raises InvalidPod for what cannot be said in these."""
    if not isinstance(pod, dict):
        return pod
    heard = reading.of(pod)
    ours = without(pod, OTHERS)
    if any(map(marked_placed, containers_of(mapping(pod.get("spec"))))):
        return ours  # another scheduler places it, whatever is read here
    left = meant_for_others(pod, schedulers) or (HAMI not in heard and HAMI in spoken(pod))
    if left and not says(ours):
        return ours
    part = without(translated(pod, heard), [one for one in OTHERS if one not in heard])
    return with_group(part, heard) if _shares(part) else part


def conflict(pod: object, reading: Reading, sharing: Collection[str]) -> InvalidPod | None:
    """A container of ours, one of `sharing`, that asks another device plugin for a card too."""
    heard = reading.of(pod)
    for container in containers_of(mapping(mapping(pod).get("spec"))):
        for amounts in _amounts(container) if container.get("name") in sharing else ():
            for key, value in amounts.items():
                gpu = key in CONVERTED or (_spoken(key, OTHERS) and key.partition("/")[2].startswith("gpu"))
                read = HAMI in heard if key in ONLY_HAMI else _spoken(key, heard)
                if gpu and not read and str(value) != "0":
                    problem = f"container {shown(container.get('name'))} has a share of {names.DOMAIN} too"
                    return InvalidPod(shown(key), f"{problem}; keep one of the two")
    return None


def says(pod: object) -> bool:
    """Whether a pod says anything in our own spelling, or bears what admission wrote."""
    metadata, spec = mapping(mapping(pod).get("metadata")), mapping(mapping(pod).get("spec"))
    if bearers(pod) or any(_within(key, names.DOMAIN) for key in mapping(metadata.get("annotations"))):
        return True
    amounts = (part for container in containers_of(spec) for part in _amounts(container))
    return any(_within(key, names.DOMAIN) for part in amounts for key in part)


def bearers(pod: object) -> frozenset[str]:
    """The containers to which admission gave a share."""
    listed = containers_of(mapping(mapping(pod).get("spec")))
    return frozenset(str(container.get("name")) for container in listed if marked(container))


def meant_for_others(pod: Object, schedulers: Collection[str]) -> bool:
    """Whether a pod's node was chosen, or its scheduler does not ask us; or it takes its cards by itself from what
    NVIDIA's device plugin serves."""
    spec = mapping(pod.get("spec"))
    if spec.get("nodeName") or (spec.get("schedulerName") or DEFAULT_SCHEDULER) not in schedulers:
        return True
    said = (key for one in containers_of(spec) for amounts in _amounts(one) for key in amounts)
    if not any(_within(key, names.NVIDIA) for key in said):
        return False
    return any(_by_itself(container) for container in containers_of(spec))


def without(pod: Any, spellings: Collection[str]) -> Any:
    """The pod without what it says in some spellings; the same object where it says nothing in them."""
    if not spellings:
        return pod
    result = dict(pod)
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if isinstance(metadata, dict) and isinstance(labels := metadata.get("labels"), dict):
        kept = {key: value for key, value in labels.items() if not _spoken(key, spellings)}
        result["metadata"] = {**metadata, "labels": kept}
    if isinstance(spec, dict):
        lists = {
            key: [_silent(one, spellings) for one in spec[key]] for key in LISTS if isinstance(spec.get(key), list)
        }
        result["spec"] = {**spec, **lists}
    return result


# ---- the parts


def _shares(pod: Object) -> bool:
    """Whether the pod has a share that makes sense, whatever it says of a group. A group without one is another's."""
    metadata = mapping(pod.get("metadata"))
    said = {key: value for key, value in mapping(metadata.get("annotations")).items() if key not in names.GROUP_KEYS}
    try:
        return parse_pod({**pod, "metadata": {**metadata, "annotations": said}}).wanted
    except InvalidPod:
        return False


def _by_itself(container: Object) -> bool:
    if mapping(container.get("securityContext")).get("privileged") is True:
        return True
    env = container.get("env")
    return any(mapping(one).get("name") == names.ENV_VISIBLE_DEVICES for one in (env if isinstance(env, list) else ()))


def _silent(container: object, spellings: Collection[str]) -> object:
    resources = mapping(container).get("resources")
    if not isinstance(container, dict) or not isinstance(resources, dict):
        return container
    parts = {
        part: {key: value for key, value in amounts.items() if not _spoken(key, spellings)}
        if isinstance(amounts, dict)
        else amounts
        for part, amounts in resources.items()
    }
    return {**container, "resources": parts}


def _spoken(key: object, spellings: Collection[str]) -> bool:
    return isinstance(key, str) and key.partition("/")[0] in spellings and "/" in key


def _within(key: object, domain: str) -> bool:
    return isinstance(key, str) and key.startswith(f"{domain}/")


def _amounts(container: Object) -> list[Object]:
    resources = mapping(container.get("resources"))
    return [mapping(resources.get(part)) for part in ("limits", "requests")]
