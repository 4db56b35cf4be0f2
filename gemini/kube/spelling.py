"""The languages in which a share can be said, each read into one wish of exact integers.

Pure. annotation_share reads our own annotations, label_share KubeShare's labels, resource_share the resources of a
container: ours and the fine-grained ones of the proposal (S2) under three domains, gpushare's, and NVIDIA's. Which of
them a container may use, and for whom it speaks, is tenants.py's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from gemini.kube import names, quantity
from gemini.kube.quantity import shown
from gemini.placement.model import WHOLE, Want
from gemini.units import BadValue

S2_KEYS = {"gpu": "gpu", "gpu-core": "core", "gpu-memory": "memory", "gpu-memory-ratio": "ratio"}
S2_DOMAINS = (names.DOMAIN, names.KUBERNETES, names.KOORDINATOR)
# The proposal itself says gpu-mem in one place and gpu-memory in another (cluster.md 1.E.3).
S2_ALIASES = {"gpu-mem": "memory", "gpu-mem-ratio": "ratio"}


MEBI = "MiB"
GPUSHARE_UNITS = {MEBI: 2**20, "GiB": 2**30}


class InvalidPod(ValueError):
    """A pod that cannot be taken as it is. The text is one line: field, value, what is wrong; how to mend it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


@dataclass(frozen=True)
class Said:
    """A share as one spelling says it: the wish, its limit, and whose language it was."""

    want: Want
    limit: int
    spelling: str


def read(key: str, value: object, parse: Callable[[object], int]) -> int:
    """A value by its parser, its error with the key in front."""
    try:
        return parse(value)
    except BadValue as error:
        raise InvalidPod(key, str(error)) from None


def annotation_share(said: Mapping[str, object]) -> Said:
    """A share in our annotations: request, limit, memory or ratio, count."""
    get = said.get
    request, limit = get(names.GPU_REQUEST), get(names.GPU_LIMIT)
    memory, ratio, count = get(names.GPU_MEMORY), get(names.GPU_MEMORY_RATIO), get(names.GPU_COUNT)
    cards = 1 if count is None else read(names.GPU_COUNT, count, lambda v: quantity.parse_whole(v, 1))
    ceiling = WHOLE if limit is None else read(names.GPU_LIMIT, limit, quantity.parse_share)
    if ceiling == 0:
        raise InvalidPod(names.GPU_LIMIT, f"{shown(limit)} lets nothing run; write a limit above 0")
    if request is not None:
        core = read(names.GPU_REQUEST, request, quantity.parse_share)
    else:
        core = 0 if limit is None else ceiling
    if core > ceiling:
        problem = f"{shown(request)} is above {names.GPU_LIMIT} {shown(limit)}; lower the request or raise the limit"
        raise InvalidPod(names.GPU_REQUEST, problem)
    if memory is not None and ratio is not None:
        problem = f"{shown(ratio)} beside {names.GPU_MEMORY} {shown(memory)}; keep one of the two"
        raise InvalidPod(names.GPU_MEMORY_RATIO, problem)
    if memory is not None:
        want = Want(count=cards, core=core, memory=read(names.GPU_MEMORY, memory, quantity.parse_bytes))
    elif ratio is not None:
        want = Want(count=cards, core=core, ratio=read(names.GPU_MEMORY_RATIO, ratio, quantity.parse_ratio))
    elif request is None and limit is None:
        want = Want(count=cards, core=WHOLE, ratio=100, follows=True)  # gpu-count alone: whole cards
    else:
        want = Want(count=cards, core=core, ratio=core, follows=True)
    return Said(want, ceiling, names.DOMAIN)


def label_share(labels: Mapping[str, object]) -> Said:
    """A share in KubeShare's labels. Above 1 it is that many whole cards."""
    key, hint = names.SHARED_LIMIT, "write a share such as 0.5, or a whole number of cards"

    def number(of: str) -> Fraction | None:
        if of not in labels:
            return None
        try:
            value = quantity.parse_decimal(labels[of], hint)
        except BadValue as error:
            raise InvalidPod(of, str(error)) from None
        if value < 0 or value > 10**6:
            raise InvalidPod(of, f"{shown(labels[of])} is {'below 0' if value < 0 else 'too many cards'}; {hint}")
        return value

    request, limit = number(names.SHARED_REQUEST), number(key)
    if limit is None:
        limit = request if request is not None and request > 1 else Fraction(1)
    elif request is None:
        request = limit
    request = Fraction(0) if request is None else request
    if limit == 0:
        raise InvalidPod(key, f"{shown(labels.get(key))} lets nothing run; write a limit above 0")
    if request > limit:
        problem = f"{shown(labels.get(names.SHARED_REQUEST))} is above the limit {float(limit):g}"
        raise InvalidPod(names.SHARED_REQUEST, f"{problem}; lower it or raise {key}")
    count = 1
    if limit > 1:
        if limit.denominator != 1 or request != limit:
            problem = f"{shown(labels.get(key))} is above 1, so it must be whole and equal {names.SHARED_REQUEST}"
            raise InvalidPod(key, f"{problem}; write the same whole number in both")
        count, request, limit = int(limit), Fraction(1), Fraction(1)
    for of, share in ((key, limit), (names.SHARED_REQUEST, request)):
        if (share * 100).denominator != 1:
            raise InvalidPod(of, f"{shown(labels.get(of))} is finer than one percent of a card; write two decimals")
    if names.SHARED_PRIORITY in labels:
        value = labels[names.SHARED_PRIORITY]
        if read(names.SHARED_PRIORITY, value, quantity.parse_whole) > 100:
            raise InvalidPod(names.SHARED_PRIORITY, f"{shown(value)} is above 100; write 0 to 100")
    core = int(request * 100)
    if names.SHARED_MEMORY in labels and labels[names.SHARED_MEMORY] not in ("0", 0):
        memory = read(names.SHARED_MEMORY, labels[names.SHARED_MEMORY], quantity.parse_bytes)
        want = Want(count=count, core=core, memory=memory)
    else:
        want = Want(count=count, core=core, ratio=core, follows=True)
    return Said(want, int(limit * 100), names.KUBESHARE)


def resource_share(resources: Mapping[str, object], unit: str = MEBI) -> Said | None:
    """The share that a container's resources ask for, in whichever domain; None where they ask for none. `unit`: of one
    aliyun.com/gpu-mem."""
    said: list[tuple[str, Said]] = []
    for domain in S2_DOMAINS:
        share = _fine_grained(domain, resources)
        if share is not None:
            said.append((domain, share))
    if names.ALIYUN_GPU_MEM in resources or names.ALIYUN_GPU_COUNT in resources:
        share = _gpushare(resources, unit)
        if share is not None:
            said.append((names.ALIYUN, share))
    if names.NVIDIA_GPU in resources:
        count = read(names.NVIDIA_GPU, resources[names.NVIDIA_GPU], quantity.parse_whole)
        if count:
            want = Want(count=count, core=WHOLE, ratio=100, follows=True)
            said.append((names.NVIDIA, Said(want, WHOLE, names.NVIDIA)))
    if len(said) > 1:
        problem = f"the share is said in resources of {said[0][0]} and of {said[1][0]}; keep one of the two"
        raise InvalidPod(first_share_resource(resources), problem)
    return said[0][1] if said else None


def first_share_resource(resources: Mapping[str, object]) -> str:
    for key in resources:
        domain, _, rest = key.partition("/")
        if rest.startswith("gpu") and domain in (*S2_DOMAINS, names.ALIYUN, names.NVIDIA):
            return key
    return "resources"


def cards(key: str, value: object) -> tuple[int, int]:
    """Percent that may pass 100 as (devices, percent of each): above 100 it must be a multiple of 100."""
    amount = read(key, value, quantity.parse_whole)
    if amount <= WHOLE:
        return 1, amount
    if amount % WHOLE:
        near = amount // WHOLE * WHOLE
        problem = f"{shown(value)} is above {WHOLE} and no multiple of it; write {near} or {near + WHOLE}"
        raise InvalidPod(key, problem)
    return amount // WHOLE, WHOLE


def _fine_grained(domain: str, resources: Mapping[str, object]) -> Said | None:
    """The proposal's four resources (S2), and Koordinator's gpu.shared."""
    given: dict[str, str] = {}
    spellings = {**S2_KEYS, **(S2_ALIASES if domain == names.KUBERNETES else {})}
    for rest, meaning in spellings.items():
        key = f"{domain}/{rest}"
        if key not in resources or not read(key, resources[key], quantity.parse_whole):
            continue  # a zero asks for nothing
        if meaning in given:
            raise InvalidPod(key, f"{given[meaning]} says the same; keep one of the two")
        given[meaning] = key
    shared = 0
    if domain == names.KOORDINATOR and names.KOORDINATOR_SHARED in resources:
        shared = read(names.KOORDINATOR_SHARED, resources[names.KOORDINATOR_SHARED], quantity.parse_whole)
    if not given and not shared:
        return None
    value = {meaning: resources[key] for meaning, key in given.items()}
    if "gpu" in given:
        if len(given) > 1 or shared:
            others = [names.KOORDINATOR_SHARED] if shared else [k for m, k in given.items() if m != "gpu"]
            problem = f"{shown(value['gpu'])} stands alone, core and memory at once; drop {others[0]}"
            raise InvalidPod(given["gpu"], problem)
        count, core = cards(given["gpu"], value["gpu"])
        return Said(Want(count=count, core=core, ratio=core, follows=True), WHOLE, domain)
    if "memory" in given and "ratio" in given:
        problem = f"{shown(value['ratio'])} beside {given['memory']} {shown(value['memory'])}; keep one of the two"
        raise InvalidPod(given["ratio"], problem)
    if domain == names.KOORDINATOR and "memory" not in given and "ratio" not in given:
        key = names.KOORDINATOR_SHARED if shared else given["core"]
        mend = f"add {domain}/gpu-memory-ratio or {domain}/gpu-memory"
        raise InvalidPod(key, f"{shown(resources[key])} needs memory beside it; {mend}")
    split = _spread(shared, given, value) if shared else _whole_cards(given, value)
    count, core, ratio = split
    limit = WHOLE
    if "memory" in given:
        each = read(given["memory"], value["memory"], quantity.parse_bytes) // count
        if not each:
            problem = f"{shown(value['memory'])} is less than a byte for each card; ask for more"
            raise InvalidPod(given["memory"], problem)
        return Said(Want(count=count, core=core, memory=each), limit, domain)
    follows = ratio is None
    return Said(Want(count=count, core=core, ratio=core if ratio is None else ratio, follows=follows), limit, domain)


def _whole_cards(given: Mapping[str, str], value: Mapping[str, object]) -> tuple[int, int, int | None]:
    """(cards, core of each, ratio of each or None) where amounts above 100 mean several cards."""
    core_cards, core = cards(given["core"], value["core"]) if "core" in given else (0, 0)
    ratio_cards, ratio = cards(given["ratio"], value["ratio"]) if "ratio" in given else (0, 0)
    if core_cards and ratio_cards and core_cards != ratio_cards:
        problem = f"{shown(value['ratio'])} means {ratio_cards} cards, but {given['core']} {shown(value['core'])}"
        raise InvalidPod(given["ratio"], f"{problem} means {core_cards}; make both the same number of cards")
    return core_cards or ratio_cards or 1, core, ratio if "ratio" in given else None


def _spread(shared: int, given: Mapping[str, str], value: Mapping[str, object]) -> tuple[int, int, int | None]:
    """The same for gpu.shared: the amounts are spread evenly over so many cards."""
    parts: dict[str, int] = {}
    for meaning in ("core", "ratio"):
        if meaning not in given:
            continue
        amount = read(given[meaning], value[meaning], quantity.parse_whole)
        if amount % shared or amount > WHOLE * shared:
            wrong = f"no multiple of {shared}" if amount % shared else f"above {WHOLE * shared}"
            mend = f"write a multiple of {shared}, at most {WHOLE * shared}"
            raise InvalidPod(given[meaning], f"{shown(value[meaning])} on {shared} cards is {wrong}; {mend}")
        parts[meaning] = amount // shared
    return shared, parts.get("core", 0), parts.get("ratio")


def _gpushare(resources: Mapping[str, object], unit: str) -> Said | None:
    """gpushare: MiB (or GiB) of one card, or spread evenly over gpu-count cards; compute goes with memory."""
    count, key = 1, names.ALIYUN_GPU_COUNT
    if key in resources:
        count = read(key, resources[key], lambda v: quantity.parse_whole(v, 1))
    amount = 0
    if names.ALIYUN_GPU_MEM in resources:
        value = resources[names.ALIYUN_GPU_MEM]
        amount = read(names.ALIYUN_GPU_MEM, value, quantity.parse_whole)
        if amount * GPUSHARE_UNITS[unit] > 2**60:
            raise InvalidPod(names.ALIYUN_GPU_MEM, f"{shown(value)} {unit} is more than any card; the unit is {unit}")
    if not amount:
        if key not in resources:
            return None
        return Said(Want(count=count, core=WHOLE, ratio=100, follows=True), WHOLE, names.ALIYUN)
    if amount % count:
        problem = f"{amount} {unit} cannot be spread over {count} cards; write a multiple of {count}"
        raise InvalidPod(names.ALIYUN_GPU_MEM, problem)
    want = Want(count=count, memory=amount // count * GPUSHARE_UNITS[unit], by_memory=True)
    return Said(want, WHOLE, names.ALIYUN)
