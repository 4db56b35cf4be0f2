"""What a pod needs of a node besides cards, as kube-scheduler adds it up: exactly, in billionths, the finest that
Kubernetes knows.

Pure. Of a container that is being resized in place the most counts that it asks for, has been let have or has. Where
its kubelet has refused the resize for good, what it has counts, for it may ask for more than any node has. What is more
than Kubernetes can count is what it becomes there: such a pod is on a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gemini.extender.kept import OF_PODS
from gemini.kube import names
from gemini.kube.parts import mapping
from gemini.kube.quantity import BILLION, MAX_QUANTITY, Kept, billionths

HUGE = "hugepages-"  # begin resources that a pod may ask for as a whole, as those of OF_PODS
# Amounts of a pod. Of one with more those of FIRST alone count: who makes pods may name a thousand resources in each,
# and others wait while they are added up.
MOST_SUMMED = 2_000
FIRST = (*OF_PODS, "ephemeral-storage")
FEW = 64  # amounts; those of a pod with more are added up when it is seen, and not when somebody needs to know
INFEASIBLE = ("PodResizePending", "Infeasible")  # type and reason of a condition
Amounts = Mapping[str, int]  # resource -> billionths
Read = Callable[[object], int]


def needs_of(pod: Mapping[str, Any]) -> dict[str, int]:
    """Sidecars + max(sum of containers, largest init container), or what the pod asks for as a whole; overhead, and
    itself as one pod."""
    total = _added_up(pod, billionths)
    if any(amount > MAX_QUANTITY * _unit(key) for key, amount in total.items()):
        kept = _added_up(pod, Kept.read)
        total = {
            key: amount.counted(key == "cpu") * _unit(key) for key, amount in kept.items() if isinstance(amount, Kept)
        }
    total["pods"] = BILLION
    # Not counted by the scheduler (ignoredByScheduler); the cards themselves say it better.
    for key in (names.RESOURCE_MEMORY, names.RESOURCE_RATIO):
        total.pop(key, None)
    return total


def _unit(key: str) -> int:
    """In which Kubernetes counts a resource."""
    return BILLION // 1000 if key == "cpu" else BILLION


def _added_up(pod: Mapping[str, Any], read: Read) -> dict[str, int]:
    spec, status = mapping(pod.get("spec")), mapping(pod.get("status"))
    all_of_them, had = many_of(pod) <= MOST_SUMMED, {name: one for name, one in _had(status) if name}
    refused = _refused(status)

    def asked(container: Mapping[str, Any]) -> dict[str, int]:
        resources = mapping(container.get("resources"))
        said = {**mapping(resources.get("limits")), **mapping(resources.get("requests"))}
        if not all_of_them:
            said = {key: said[key] for key in FIRST if key in said}
        found = {key: read(value) for key, value in said.items()}
        return _resized(found, had.get(str(container.get("name"))), refused, read)

    always, largest, total = dict[str, int](), dict[str, int](), dict[str, int]()
    for container in _listed(spec.get("initContainers")):
        amounts = asked(container)
        if container.get("restartPolicy") == "Always":
            _add(always, amounts)
            amounts = dict.fromkeys(amounts, 0)
        for key, amount in amounts.items():
            largest[key] = max(largest.get(key, 0), amount + always.get(key, 0))
    for container in _listed(spec.get("containers")):
        _add(total, asked(container))
    _add(total, always)
    total |= {key: amount for key, amount in largest.items() if amount > total.get(key, 0)}
    total |= _as_a_whole(spec, status, refused, read)
    _add(total, {key: read(value) for key, value in mapping(spec.get("overhead")).items()})
    return total


def said_of(pod: Mapping[str, Any]) -> tuple[object, ...]:
    """All that a pod's needs follow from."""
    spec, status = mapping(pod.get("spec")), mapping(pod.get("status"))
    parts = (spec.get(key) for key in ("containers", "initContainers", "resources", "overhead"))
    return *parts, list(_had(status)), _refused(status)


def many_of(pod: Mapping[str, Any]) -> int:
    """How many amounts its containers name."""
    spec = mapping(pod.get("spec"))
    every = (one for key in ("initContainers", "containers") for one in _listed(spec.get(key)))
    parts = (mapping(one.get("resources")).get(part) for one in every for part in ("limits", "requests"))
    return sum(len(mapping(part)) for part in parts)


def _as_a_whole(spec: Mapping[str, Any], status: Mapping[str, Any], refused: bool, read: Read) -> dict[str, int]:
    whole = mapping(mapping(spec.get("resources")).get("requests")).items()
    found = {key: read(value) for key, value in whole if key in OF_PODS or key.startswith(HUGE)}
    return _resized(found, _given(status), refused, read) if found else {}


def _resized(asked: dict[str, int], had: list[Mapping[str, Any]] | None, refused: bool, read: Read) -> dict[str, int]:
    """`had`: what it was let have and what it has, where that is known to be something else than it asks for."""
    for key in OF_PODS if had else ():
        amounts = [read(one[key]) for one in had or () if key in one]
        if amounts:
            asked[key] = max(amounts) if refused else max(asked.get(key, 0), *amounts)
    return asked


def _had(status: Mapping[str, Any]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    for key in ("initContainerStatuses", "containerStatuses"):
        for one in _listed(status.get(key)):
            if "name" in one and (given := _given(one)):
                yield str(one["name"]), given


def _given(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Of a container's status, or a pod's."""
    both = (status.get("allocatedResources"), mapping(status.get("resources")).get("requests"))
    return [one for one in both if isinstance(one, Mapping) and one]


def _refused(status: Mapping[str, Any]) -> bool:
    return any((one.get("type"), one.get("reason")) == INFEASIBLE for one in _listed(status.get("conditions")))


def _add(total: dict[str, int], more: Amounts) -> None:
    for key, amount in more.items():
        total[key] = total.get(key, 0) + amount


def _listed(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
