"""Shares of pods that HAMi's or Volcano's scheduler placed, and which we hold to their time.

Pure. Such a container asks for `gemini.io/placed: 1` beside the resources of its own scheduler, whose device plugin
gives it the card. How much of the card's time it is promised stands in those resources, which nobody can change once
the pod exists. Annotations, which an editor of the pod can change, decide nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemini.kube import names, quantity
from gemini.kube.parts import Object, amounts_of, containers_of, mapping
from gemini.kube.quantity import shown
from gemini.kube.spelling import InvalidPod, read
from gemini.kube.vgpu import RESOURCES, TITLES, unbounded
from gemini.placement.model import WHOLE


@dataclass(frozen=True, slots=True)
class Share:
    """One container's. `resource`: by which its own device plugin was asked for so many cards; request and limit are
    percent of each card's time."""

    resource: str
    count: int
    request: int
    limit: int


def asks_for_others(container: Object) -> bool:
    """Whether it asks for a card in HAMi's or Volcano's words."""
    asked = _asked(container)
    return any(key in asked for keys in RESOURCES.values() for key in keys.all)


def marked_placed(container: Object) -> bool:
    return names.RESOURCE_PLACED in _asked(container)


def placed_shares(pod: object) -> dict[str, Share]:
    """By container, of those that ask for `gemini.io/placed`. Raises InvalidPod."""
    spec = mapping(mapping(pod).get("spec"))
    return {str(one.get("name")): _share(one) for one in containers_of(spec) if marked_placed(one)}


def _share(container: Object) -> Share:
    asked, name = _asked(container), shown(container.get("name"))
    amount = read(names.RESOURCE_PLACED, asked[names.RESOURCE_PLACED], quantity.parse_whole)
    if amount != 1:
        raise InvalidPod(names.RESOURCE_PLACED, f"{amount}: a container has one share of its cards; write 1")
    spoken = [spelling for spelling, keys in RESOURCES.items() if any(key in asked for key in keys.all)]
    if not spoken:
        numbers = " or ".join(keys.number for keys in RESOURCES.values())
        raise InvalidPod(names.RESOURCE_PLACED, f"container {name} asks no other plugin for a card; add {numbers}")
    if len(spoken) > 1:
        first, second = (TITLES[one] for one in spoken[:2])
        raise InvalidPod(
            RESOURCES[spoken[1]].number, f"container {name} asks {first} and {second}; keep one of the two"
        )
    keys = RESOURCES[spoken[0]]
    count = read(keys.number, asked.get(keys.number, 1), lambda v: quantity.parse_whole(v, 1))
    cores = read(keys.cores, asked.get(keys.cores, 0), quantity.parse_whole)
    if cores > WHOLE:
        raise InvalidPod(keys.cores, f"{cores} is above {WHOLE} percent of each card; lower it")
    return Share(keys.number, count, cores, cores if cores and not unbounded(container) else WHOLE)


def _asked(container: Object) -> Mapping[str, object]:
    """What it asks for, without what it asks none of."""
    return {key: amount for key, amount in amounts_of(container).items() if str(amount) != "0"}
