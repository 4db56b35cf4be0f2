"""Shares of pods that HAMi's, Volcano's or KAI's scheduler placed, and which we hold to their time.

Pure. Such a container asks for `gemini.io/placed: 1` beside the resources of its own scheduler, whose device plugin
gives it the card. How much of the card's time it is promised stands in those resources, which nobody can change once
the pod exists. KAI's pods say it in annotations, which an editor of the pod can change. So admission writes what it
read of them into the container's environment, and that counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemini.kube import names, quantity
from gemini.kube.parts import Object, amounts_of, containers_of, mapping
from gemini.kube.quantity import shown
from gemini.kube.spelling import InvalidPod, read
from gemini.kube.vgpu import FRACTION, KAI, MEMORY, RESOURCES, TITLES, kai_share, unbounded
from gemini.placement.model import WHOLE


@dataclass(frozen=True, slots=True)
class Share:
    """One container's. `resource`: by which its own device plugin was asked for so many cards; of KAI's none was, and
    it is empty. Request, limit and ratio are percent of each card's time and memory, memory is bytes of each: what is 0
    is not said."""

    resource: str
    count: int
    request: int
    limit: int
    memory: int = 0
    ratio: int = 0


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
    if (written := written_share(container)) is not None:
        if asks_for_others(container):
            first = TITLES[KAI]
            raise InvalidPod(names.ENV_PLACED, f"container {name} asks {first} and another plugin; keep one of the two")
        return _kai_share(written)
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


def kai_shares(pod: object) -> dict[str, str]:
    """What admission writes for the container that KAI's annotations mean, by its name. Raises InvalidPod."""
    given = mapping(pod)
    annotations, spec = mapping(mapping(given.get("metadata")).get("annotations")), mapping(given.get("spec"))
    if FRACTION not in annotations and MEMORY not in annotations:
        return {}
    said = {key.partition(".io/")[2]: value for key, value in kai_share(annotations, spec).items()}
    (name,) = {key.partition(".")[2] for key in said}
    amounts = {key.partition(".")[0]: value for key, value in said.items()}
    return {name: f"{amounts.get('gpu-memory', amounts['gpu-request'])},{amounts.get('gpu-count', '1')}"}


def written_share(container: Object) -> str | None:
    """What admission wrote of KAI's annotations. Of several with that name the last one counts, as for the kubelet."""
    env = container.get("env")
    told = [mapping(one) for one in (env if isinstance(env, list) else ())]
    return next((str(one.get("value")) for one in reversed(told) if one.get("name") == names.ENV_PLACED), None)


def _kai_share(written: str) -> Share:
    """A part of the time and memory of cards, or memory alone, for which KAI promises no time."""
    amount, _, count = written.partition(",")
    many = read(names.ENV_PLACED, count, lambda v: quantity.parse_whole(v, 1))
    if amount.endswith("%"):
        part = read(names.ENV_PLACED, amount, quantity.parse_share)
        return Share("", many, part, WHOLE, ratio=part)
    return Share("", many, 0, WHOLE, memory=read(names.ENV_PLACED, amount, quantity.parse_bytes))


def _asked(container: Object) -> Mapping[str, object]:
    """What it asks for, without what it asks none of."""
    return {key: amount for key, amount in amounts_of(container).items() if str(amount) != "0"}
