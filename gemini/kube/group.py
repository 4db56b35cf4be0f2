"""The group of a pod: which pods are placed together, how many, and within which part of the cluster.

Pure; what a pod says in, or an InvalidPod out. What a group is given is the allocator's matter (placement/domain.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from gemini.kube import names, quantity
from gemini.kube.quantity import shown
from gemini.kube.spelling import InvalidPod, read
from gemini.placement.model import NODE_LEVEL, Ask
from gemini.units import BadValue

LONGEST_GROUP = 253  # characters of a name, as of most names in Kubernetes
_LABEL = re.compile(r"(?=.{1,316}$)[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")


class Group(NamedTuple):
    """As the last fields of an Ask: name (None: the pod is alone), size, and the levels that it is held to."""

    name: str | None
    size: int
    required: str
    preferred: str | None


def group_of(on_pod: Mapping[str, object], labels: Mapping[str, object]) -> Group:
    """A pod's group, by our annotations or KubeShare's labels. Raises InvalidPod."""
    name, size = _named(on_pod, labels)
    return Group(name, size, *_topology(on_pod, name))


def differing(ask: Ask, other: Ask) -> tuple[str, object, object] | None:
    """What two members of a group say differently: the key, and what each says; None: they agree."""
    said = (
        (names.POD_GROUP_SIZE, ask.group_size, other.group_size),
        (names.GROUP_REQUIRED, ask.required, other.required),
        (names.GROUP_PREFERRED, ask.preferred or "nothing", other.preferred or "nothing"),
    )
    return next(((key, mine, theirs) for key, mine, theirs in said if mine != theirs), None)


def domain(node: str, labels: Mapping[str, object], level: str) -> str:
    """The domain of a node, by its label for that level. A node without the label is a domain of its own."""
    if level == names.LEVEL_CLUSTER:
        return ""
    value = labels.get(names.LEVEL_LABELS.get(level, level))
    return value if isinstance(value, str) and value and level != names.LEVEL_NODE else f"/{node}"


def _named(on_pod: Mapping[str, object], labels: Mapping[str, object]) -> tuple[str | None, int]:
    """The group's name and how many must be placed together."""
    name, size = on_pod.get(names.POD_GROUP), on_pod.get(names.POD_GROUP_SIZE)
    if name is None and size is None:
        return _kubeshare_group(labels)
    if name is None:
        raise InvalidPod(names.POD_GROUP_SIZE, f"{shown(size)} is said without {names.POD_GROUP}; add the group's name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidPod(names.POD_GROUP, f"{shown(name)} is not a name; write the group's name")
    if size is None:
        raise InvalidPod(names.POD_GROUP, f"{shown(name)} has no size; add {names.POD_GROUP_SIZE}")
    if len(name) > LONGEST_GROUP:
        problem = f"{shown(name)} has {len(name)} characters, which is more than {LONGEST_GROUP}; write a shorter name"
        raise InvalidPod(names.POD_GROUP, problem)
    return name.strip(), read(names.POD_GROUP_SIZE, size, lambda v: quantity.parse_whole(v, 1))


def _topology(on_pod: Mapping[str, object], group: str | None) -> tuple[str, str | None]:
    """The level of the cluster that the group is held to, and the one where it is better off."""
    said: dict[str, str] = {}
    for key in (names.GROUP_REQUIRED, names.GROUP_PREFERRED):
        if (value := on_pod.get(key)) is None:
            continue
        if group is None:
            raise InvalidPod(key, f"{shown(value)} is said without {names.POD_GROUP}; add the group's name and size")
        if not isinstance(value, str) or not (value in names.LEVELS or _LABEL.fullmatch(value)):
            problem = f"write {', '.join(names.LEVELS)}, or a label of nodes such as {names.LEVEL_LABELS['zone']}"
            raise InvalidPod(key, f"{shown(value)} is no level of a cluster; {problem}")
        said[key] = value
    preferred = said.get(names.GROUP_PREFERRED)
    return said.get(names.GROUP_REQUIRED, NODE_LEVEL if preferred is None else names.LEVEL_CLUSTER), preferred


def _kubeshare_group(labels: Mapping[str, object]) -> tuple[str | None, int]:
    """KubeShare's group: at least floor(threshold x headcount + 0.5) of its pods start together."""
    name = labels.get(names.SHARED_GROUP)
    if name is None:
        return None, 1
    if not isinstance(name, str) or not name.strip():
        raise InvalidPod(names.SHARED_GROUP, f"{shown(name)} is not a name; write the group's name")
    count = labels.get(names.SHARED_HEADCOUNT)
    if count is None:
        raise InvalidPod(names.SHARED_GROUP, f"{shown(name)} has no size; add {names.SHARED_HEADCOUNT}")
    heads = read(names.SHARED_HEADCOUNT, count, lambda v: quantity.parse_whole(v, 1))
    threshold = Fraction(1)
    if names.SHARED_THRESHOLD in labels:
        value = labels[names.SHARED_THRESHOLD]
        hint = "write a part of the group such as 1.0 or 0.5"
        try:
            threshold = quantity.parse_decimal(value, hint)
        except BadValue as error:
            raise InvalidPod(names.SHARED_THRESHOLD, str(error)) from None
        if not 0 < threshold <= 1:
            raise InvalidPod(names.SHARED_THRESHOLD, f"{shown(value)} is not above 0 and at most 1; {hint}")
    return name.strip(), max(1, int(threshold * heads + Fraction(1, 2)))
