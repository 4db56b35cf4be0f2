"""Shares in the languages of HAMi, Volcano's vGPU and KAI, said again in our own annotations.

Pure. A pod in, the pod out with annotations that mean the same in place of what they were made from. What their keys
mean, in percent, MiB and cards, is docs/migrating.md. What we cannot keep is refused with what to write instead; a pod
that says nothing in these languages is given back as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gemini.kube import names, quantity
from gemini.kube.parts import LISTS, Object, amounts_of, containers_of, mapping
from gemini.kube.pod import marked
from gemini.kube.quantity import shown
from gemini.kube.spelling import InvalidPod, read
from gemini.placement.model import WHOLE
from gemini.units import BadValue

HAMI, VOLCANO, KAI = "hami", "volcano.sh", "kai"
VGPU_SPELLINGS = (HAMI, VOLCANO, KAI)
TITLES = {HAMI: "HAMi", VOLCANO: "Volcano", KAI: "KAI"}


@dataclass(frozen=True)
class Keys:
    """The resources by which a container asks for parts of so many cards. `number` alone may be another's word too."""

    number: str
    memory: str
    percentage: str
    cores: str
    others: tuple[str, ...] = ()  # known, and not kept

    @property
    def all(self) -> tuple[str, ...]:
        return (self.number, self.memory, self.percentage, self.cores, *self.others)


PRIORITY = "nvidia.com/priority"
RESOURCES = {
    HAMI: Keys(names.NVIDIA_GPU, "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores",
               (PRIORITY,)),
    VOLCANO: Keys("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-memory-percentage",
                  "volcano.sh/vgpu-cores", ("volcano.sh/gpu-memory", "volcano.sh/gpu-number")),
}  # fmt: skip
ONLY_HAMI = frozenset(RESOURCES[HAMI].all) - {names.NVIDIA_GPU}  # NVIDIA's plugin knows nothing of these
CONVERTED = frozenset(RESOURCES[HAMI].all + RESOURCES[VOLCANO].all)
# HAMi's and Volcano's annotations, and what they become: (our key, their values in ours; None: as it is).
_POLICIES = {"binpack": "binpack", "spread": "spread", "topology-aware": "best-link"}
USE_UUID, NO_UUID = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"
USE_TYPE, NO_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
NUMA, MODES = "nvidia.com/numa-bind", ("nvidia.com/vgpu-mode", "volcano.sh/vgpu-mode")
NODE_POLICY, GPU_POLICY = "hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy"
CARDS_BY = ("nvidia.com/use-", "nvidia.com/nouse-")  # how HAMi's keys begin that say which cards
UUIDS = {USE_UUID: names.GPU_UUID, NO_UUID: names.GPU_UUID_EXCLUDE}
VOLCANO_UUIDS = {"volcano.sh/vgpu-use-gpuuuid": names.GPU_UUID, "volcano.sh/vgpu-nouse-gpuuuid": names.GPU_UUID_EXCLUDE}
CHOICES = (*UUIDS, USE_TYPE, NO_TYPE, NUMA, NODE_POLICY, GPU_POLICY)
# Known annotations of HAMi's and Volcano's that are not kept, and what to do instead.
CHOICES_LEFT = {
    "hami.io/vulkan": "only CUDA is counted and shared, so leave such a pod to HAMi, or remove it",
    "hami.io/device-scoring-weights": f"{names.GPU_POLICY} says which card is better, so remove it",
    "volcano.sh/vgpu-podgroup-policy": f"write {names.GPU_POLICY}: spread, which prefers the card that has more free",
}
FRACTION, MEMORY = "gpu-fraction", "gpu-memory"
DEVICES, CONTAINER = "gpu-fraction-num-devices", "gpu-fraction-container-name"
KAI_KEYS = (FRACTION, MEMORY, DEVICES, CONTAINER)
KAI_LEFT = {
    "gpu-fraction.limit": "memory is limited to what is promised, so promise that",
    "gpu-memory.limit": "memory is limited to what is promised, so promise that",
    "gpu-sm-cores": f"write {names.GPU_REQUEST} with the part of the card's time",
    "mps": "time is shared by Gemini",
}


def spoken(pod: object) -> tuple[str, ...]:
    """Those of the three languages that a pod speaks."""
    metadata, spec = mapping(mapping(pod).get("metadata")), mapping(mapping(pod).get("spec"))
    annotations = mapping(metadata.get("annotations"))
    asked = {key for one in containers_of(spec) for key, value in amounts_of(one).items() if str(value) != "0"}
    found = []
    chosen = any(key in (*CHOICES, MODES[0]) or str(key).startswith(CARDS_BY) for key in annotations)
    if asked & ONLY_HAMI or (names.NVIDIA_GPU in asked and chosen):
        found.append(HAMI)
    if any(key in RESOURCES[VOLCANO].all for key in asked):
        found.append(VOLCANO)
    if FRACTION in annotations or MEMORY in annotations:
        found.append(KAI)
    return tuple(found)


def translated(pod: object, heard: Collection[str]) -> object:
    """The pod in our own language, of those that are `heard`; the same object where it speaks none of them. Raises
    InvalidPod."""
    said = [one for one in spoken(pod) if one in heard]
    if not said or not isinstance(pod, dict) or any(map(marked, containers_of(mapping(pod.get("spec"))))):
        return pod  # admission has been here
    if len(said) > 1:
        first, second = TITLES[said[0]], TITLES[said[1]]
        raise InvalidPod(
            _key_of(pod, said[1]), f"the share is said in {first}'s language too, this is {second}'s; keep one"
        )
    return said_again(pod, said[0])


def said_again(pod: Object, spelling: str) -> dict[str, Any]:
    """A pod that speaks that language, in ours. Raises InvalidPod."""
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    annotations = dict(mapping(metadata.get("annotations")))
    ours = kai_share(annotations, spec) if spelling == KAI else _vgpu(spelling, annotations, spec)
    _add(annotations, ours, _key_of(pod, spelling))
    keys = RESOURCES[spelling].all if spelling in RESOURCES else ()
    lists = {part: [_without(one, keys) for one in spec[part]] for part in LISTS if isinstance(spec.get(part), list)}
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": {**spec, **lists}}


def _add(annotations: dict[str, Any], ours: Mapping[str, str], spelled: str) -> None:
    """What an earlier pass added is what it would add again; anything else of ours is a second word."""
    for key, value in annotations.items():
        share = str(key).startswith(f"{names.DOMAIN}/") and str(key).partition(".io/")[2].partition(".")[0]
        if share and f"{names.DOMAIN}/{share}" in names.SHARE_KEYS and ours.get(key) != value:
            raise InvalidPod(spelled, f"the share is said in {shown(key)} too; keep one of the two")
    for key, value in ours.items():
        if annotations.get(key, value) != value:
            raise InvalidPod(
                key, f"{shown(annotations[key])} is said otherwise by {spelled} ({shown(value)}); keep one"
            )
    annotations.update(ours)


# ---- HAMi and Volcano


def _vgpu(spelling: str, annotations: Object, spec: Object) -> dict[str, str]:
    result = _choices(spelling, annotations)
    for container in containers_of(spec):
        asked = {key: value for key, value in amounts_of(container).items() if str(value) != "0"}
        if any(key in RESOURCES[spelling].all for key in asked):
            name = str(container.get("name"))
            result |= {f"{key}.{name}": value for key, value in _share(RESOURCES[spelling], asked, container)}
    return result


def _share(keys: Keys, asked: Object, container: Object) -> Iterator[tuple[str, str]]:
    """A container's share: memory and cores are of each card; without memory it is all of it."""
    given = amounts_of(container)
    for key in keys.others:
        if key in asked or (key == PRIORITY and key in given):  # of which 0 is the highest, not none
            raise InvalidPod(key, f"{shown(given[key])} is not kept; {_instead(key)}")
    count = read(keys.number, asked.get(keys.number, 1), lambda v: quantity.parse_whole(v, 1))
    cores = read(keys.cores, asked.get(keys.cores, 0), quantity.parse_whole)
    if cores > WHOLE:
        raise InvalidPod(keys.cores, f"{shown(asked[keys.cores])} is above {WHOLE} percent of each card; lower it")
    if keys.memory in asked and keys.percentage in asked:
        problem = f"{shown(asked[keys.percentage])} beside {keys.memory} {shown(asked[keys.memory])}"
        raise InvalidPod(keys.percentage, f"{problem}; keep one of the two")
    part = read(keys.percentage, asked.get(keys.percentage, WHOLE), quantity.parse_whole)
    if part > WHOLE:
        raise InvalidPod(keys.percentage, f"{shown(asked[keys.percentage])} is above {WHOLE} percent; lower it")
    alone = keys.memory not in asked and part == WHOLE and cores in (0, WHOLE)
    if alone:  # all memory of a card: nobody else has room there
        yield names.GPU_REQUEST, f"{WHOLE}%"
    else:
        yield names.GPU_REQUEST, f"{cores}%"
        if cores and not unbounded(container):
            yield names.GPU_LIMIT, f"{cores}%"
        if keys.memory in asked:
            yield names.GPU_MEMORY, f"{read(keys.memory, asked[keys.memory], quantity.parse_whole)}Mi"
        else:
            yield names.GPU_MEMORY_RATIO, str(part)
    if count > 1:
        yield names.GPU_COUNT, str(count)


def unbounded(container: Object) -> bool:
    """Whether HAMi's own library was told to hold nobody to his cores."""
    env = container.get("env")
    told = [one for one in (env if isinstance(env, list) else ()) if isinstance(one, dict)]
    return any(one.get("name") == names.HAMI_CORE_POLICY and one.get("value") == "disable" for one in told)


def _instead(key: str) -> str:
    return {
        PRIORITY: f"write {names.GPU_CLASS}: latency for 0, batch for 1",
        "volcano.sh/gpu-memory": "write volcano.sh/vgpu-memory, of each of volcano.sh/vgpu-number cards",
        "volcano.sh/gpu-number": "write volcano.sh/vgpu-number",
    }[key]


def _choices(spelling: str, annotations: Object) -> dict[str, str]:
    """Which cards: HAMi's annotations, which Volcano reads too in part."""
    result: dict[str, str] = {}
    for key, value in annotations.items():
        if str(key).startswith(CARDS_BY) and key not in CHOICES:  # by number of late
            uuids = f"{names.GPU_UUID} or {names.GPU_UUID_EXCLUDE}"
            raise InvalidPod(str(key), f"{shown(value)} chooses cards in a way that is not kept; write {uuids}")
    for key in (USE_TYPE, NO_TYPE):
        if key in annotations:
            mend = f"write {names.GPU_MODEL} with whole names, as the nodes' label {names.NODE_MODEL_LABEL} has them"
            raise InvalidPod(key, f"{shown(annotations[key])} is looked for within names of models there; {mend}")
    for key, instead in CHOICES_LEFT.items():
        if key in annotations and str(annotations[key]).lower() != "false":
            raise InvalidPod(key, f"{shown(annotations[key])} is not kept; {instead}")
    for key, ours in (UUIDS | (VOLCANO_UUIDS if spelling == VOLCANO else {})).items():
        if key in annotations:
            listed = ",".join(part.strip() for part in str(annotations[key]).split(",") if part.strip())
            if result.setdefault(ours, listed) != listed:
                raise InvalidPod(key, f"{shown(annotations[key])} is said otherwise in HAMi's key; keep one of the two")
    for key in MODES:
        if key in annotations and annotations[key] != "hami-core":
            raise InvalidPod(key, f"{shown(annotations[key])} is no way of Gemini's to share a card; remove it")
    if str(annotations.get(NUMA, "false")).lower() == "true":
        result[names.GPU_TOPOLOGY] = "numa"
    policies = []
    for key, prefix in ((NODE_POLICY, "node-"), (GPU_POLICY, "")):
        known = {word: prefix + policy for word, policy in _POLICIES.items() if not prefix or word == policy}
        if key in annotations:
            if annotations[key] not in known:
                raise InvalidPod(key, f"{shown(annotations[key])} is not known; use one of {', '.join(known)}")
            policies.append(known[annotations[key]])
    if policies:
        result[names.GPU_POLICY] = ",".join(policies)
    return result


# ---- KAI


def kai_share(annotations: Object, spec: Object) -> dict[str, str]:
    """The share in our own annotations, those of its container. Raises InvalidPod."""
    for key, mend in KAI_LEFT.items():
        if key in annotations and str(annotations[key]).lower() != "false":
            raise InvalidPod(key, f"{shown(annotations[key])} is not kept; {mend}")
    listed = spec.get("containers")
    known = [str(mapping(one).get("name")) for one in (listed if isinstance(listed, list) else ())]
    name = str(annotations.get(CONTAINER, known[0] if known else ""))
    if name not in [str(one.get("name")) for one in containers_of(spec)]:
        raise InvalidPod(
            CONTAINER, f"the pod has no container {shown(name)}; it has {', '.join(map(shown, known[:8]))}"
        )
    if FRACTION in annotations and MEMORY in annotations:
        problem = f"{shown(annotations[MEMORY])} beside {FRACTION} {shown(annotations[FRACTION])}; keep one of the two"
        raise InvalidPod(MEMORY, problem)
    for container in containers_of(spec):
        if str(amounts_of(container).get(names.NVIDIA_GPU, "0")) != "0":
            key = FRACTION if FRACTION in annotations else MEMORY
            beside = f"{names.NVIDIA_GPU} of container {shown(container.get('name'))}"
            raise InvalidPod(key, f"{shown(annotations[key])} beside {beside}; keep one of the two")
    result = {}
    if FRACTION in annotations:
        part = read(FRACTION, annotations[FRACTION], _fraction)
        result[names.GPU_REQUEST] = f"{part}%"
    else:
        amount = read(MEMORY, annotations[MEMORY], lambda v: quantity.parse_whole(v, 1))
        result |= {names.GPU_REQUEST: "0%", names.GPU_MEMORY: f"{amount}Mi"}
    count = read(DEVICES, annotations.get(DEVICES, 1), lambda v: quantity.parse_whole(v, 1))
    if count > 1:
        result[names.GPU_COUNT] = str(count)
    return {f"{key}.{name}": value for key, value in result.items()}


def _fraction(value: object) -> int:
    part = quantity.parse_share(value)
    if not 0 < part < WHOLE:
        raise BadValue(f"{shown(value)} is not between 0 and 1; write a part of a card such as 0.5")
    return part


# ---- the parts


def _key_of(pod: Object, spelling: str) -> str:
    """A key by which the pod speaks that language."""
    annotations = mapping(mapping(pod.get("metadata")).get("annotations"))
    if spelling == KAI:
        return next(key for key in KAI_KEYS if key in annotations)
    keys = RESOURCES[spelling].all
    listed = [key for one in containers_of(mapping(pod.get("spec"))) for key in amounts_of(one)]
    said = [key for key in listed if key in keys]
    return next((key for key in said if key != names.NVIDIA_GPU), said[0] if said else keys[0])


def _without(container: object, keys: Collection[str]) -> object:
    resources = mapping(container).get("resources")
    if not isinstance(container, dict) or not isinstance(resources, dict) or not keys:
        return container
    parts = {
        part: {k: v for k, v in amounts.items() if k not in keys} if isinstance(amounts, dict) else amounts
        for part, amounts in resources.items()
    }
    return {**container, "resources": parts}
