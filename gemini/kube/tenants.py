"""From the containers of a pod to its tenants: who said whose share, and what each tenant wants.

Pure, as pod.py, which reads the containers and asks this.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gemini.kube import names, quantity
from gemini.kube.quantity import shown
from gemini.kube.spelling import (
    S2_DOMAINS,
    InvalidPod,
    Said,
    annotation_share,
    cards,
    first_share_resource,
    label_share,
    read,
    resource_share,
)
from gemini.placement.model import GPU, WHOLE, Role, Tenant, Want

MOST_NAMES = 256  # in one list: each is compared with each card


@dataclass(frozen=True, slots=True)
class Share:
    """What the runtime must know of a tenant beyond its cards. Percent of a card's time."""

    request: int
    limit: int
    tenant_class: str | None
    spelling: str  # the domain whose language the pod spoke


@dataclass
class Source:
    """One container as it stands in the pod."""

    name: str
    path: str
    role: Role
    resources: dict[str, object]
    marked: bool = False  # an earlier pass of admission gave it its share
    own: dict[str, object] = field(default_factory=dict)  # `<key>.<container>` annotations, by key


class Builder:
    """Finds for each container who said its share, and makes the tenants in the order in which they are placed."""

    def __init__(
        self,
        on_pod: dict[str, object],
        labels: dict[str, object],
        sources: list[Source],
        types: Collection[str],
        unit: str,
        aside: Collection[str] = (),
    ) -> None:
        self.on_pod = on_pod
        self.unit = unit
        self.labels = labels
        self.sources = sources
        self.types = types
        self.users = self._users(aside)  # containers that a share of the whole pod means
        self.annotated: set[str] = set()  # containers whose share stands in annotations or labels

    def _users(self, aside: Collection[str]) -> frozenset[str]:
        """All; once admission has given some their slots, these: what another webhook added since has none."""
        given = frozenset(s.name for s in self.sources if s.marked and names.RESOURCE_CORE in s.resources)
        return given or frozenset(s.name for s in self.sources if s.name not in aside)

    def tenants(self) -> tuple[list[Tenant], list[Share]]:
        pod_says = any(key in self.on_pod for key in names.SHARE_KEYS)
        labels_say = any(key in self.labels for key in names.SHARED_SHARE_KEYS)
        if pod_says and labels_say:
            key = next(k for k in names.SHARED_SHARE_KEYS if k in self.labels)
            raise InvalidPod(key, f"the share is said in {names.DOMAIN} annotations too; keep one of the two")
        common: list[str] = []
        built: list[tuple[Tenant, Share]] = []
        for source in self.sources:
            own = any(key in source.own for key in names.SHARE_KEYS)
            meant = source.name in self.users
            annotated = own or ((pod_says or labels_say) and meant)
            # Ours beside annotations are allowed as what admission made of them; pod.py looks at that.
            ours = S2_DOMAINS[0] + "/gpu"
            asked = {k: v for k, v in source.resources.items() if not (annotated and k.startswith(ours))}
            said = resource_share(asked, self.unit)
            if said is not None and annotated:
                spoken = "labels" if labels_say and not own else "annotations"
                problem = f"the share of container {source.name} is said in {spoken} too; keep one of the two"
                raise InvalidPod(first_share_resource(source.resources), problem)
            if own and labels_say:
                key = next(k for k in names.SHARE_KEYS if k in source.own)
                problem = "KubeShare's labels speak of all containers; keep one of the two"
                raise InvalidPod(f"{key}.{source.name}", problem)
            if own:
                said = annotation_share({**_inherited(self.on_pod, source.own), **source.own})
            if annotated:
                self.annotated.add(source.name)
            if said is None and (pod_says or labels_say) and meant:
                self._no_choice_of_its_own(source)
                common.append(source.name)
            extra = self._other_devices(source, self._joint_of(source) if said or annotated else ())
            if said is not None:
                built.append(self._tenant((source.name,), source, source.role, said, extra))
            elif extra:
                plain = Share(0, WHOLE, None, names.DOMAIN)
                built.append((Tenant((source.name,), source.role, extra), plain))
        sharing = {c for tenant, _ in built if any(w.type == GPU for w in tenant.wants) for c in tenant.containers}
        self._no_choice_without_a_card(sharing | set(common))
        if not built and not common and names.POD_GROUP in self.on_pod:
            mend = f"add {names.GPU_REQUEST}, or leave the pod out of the group"
            value = shown(self.on_pod[names.POD_GROUP])
            raise InvalidPod(names.POD_GROUP, f"{value} is said of a pod that wants no device; {mend}")
        if common:
            said = annotation_share(self.on_pod) if pod_says else label_share(self.labels)
            first = next(s for s in self.sources if s.name == common[0])
            shared = self._tenant(tuple(common), first, Role.ALWAYS, said, ())
            built.insert(0, shared)
        return [tenant for tenant, _ in built], [share for _, share in built]

    def _no_choice_without_a_card(self, sharing: Collection[str]) -> None:
        """What is said of the cards of somebody who wants none would be admitted in silence, and mean nothing."""
        for key in (*names.CHOICE_KEYS, names.CPU_BIND):
            if key in self.on_pod and not sharing:
                value = shown(self.on_pod[key])
                raise InvalidPod(key, f"{value} is said of cards, but the pod wants none; add {names.GPU_REQUEST}")
            for source in self.sources:
                if key in source.own and source.name not in sharing:
                    mend = f"add {names.GPU_REQUEST}.{source.name}, or remove it"
                    problem = f"{shown(source.own[key])} is said of cards, but the container wants none"
                    raise InvalidPod(f"{key}.{source.name}", f"{problem}; {mend}")

    def _no_choice_of_its_own(self, source: Source) -> None:
        for key in names.CHOICE_KEYS:
            if key in source.own:
                mend = f"write {key} for the pod, or give the container a share of its own"
                raise InvalidPod(f"{key}.{source.name}", f"the container uses the pod's share; {mend}")

    def _choices(self, source: Source, single: bool) -> dict[str, object]:
        own = source.own if single else {}
        return {key: own.get(key, self.on_pod.get(key)) for key in names.CHOICE_KEYS}

    def _joint_of(self, source: Source) -> frozenset[str]:
        return names_in(source.own.get(names.JOINT, self.on_pod.get(names.JOINT)), names.JOINT)

    def _tenant(
        self, containers: tuple[str, ...], source: Source, role: Role, said: Said, extra: tuple[Want, ...]
    ) -> tuple[Tenant, Share]:
        single = role is not Role.ALWAYS or len(containers) == 1
        choices = self._choices(source, single)
        uuids = names_in(choices[names.GPU_UUID], names.GPU_UUID)
        excluded = names_in(choices[names.GPU_UUID_EXCLUDE], names.GPU_UUID_EXCLUDE)
        if both := sorted(uuids & excluded):
            raise InvalidPod(names.GPU_UUID_EXCLUDE, f"{shown(both[0])} is wanted by {names.GPU_UUID} too; keep one")
        models = names_in(choices[names.GPU_MODEL], names.GPU_MODEL)
        if said.spelling == names.KUBESHARE and names.SHARED_MODEL in self.labels:
            if models:
                raise InvalidPod(names.SHARED_MODEL, f"the model is said in {names.GPU_MODEL} too; keep one of the two")
            models = names_in(self.labels[names.SHARED_MODEL], names.SHARED_MODEL)
        scope = one_of(choices[names.GPU_TOPOLOGY], names.GPU_TOPOLOGY, names.SCOPES)
        tenant_class = one_of(choices[names.GPU_CLASS], names.GPU_CLASS, names.POLICY_CLASSES)
        users = [s for s in self.sources if s.name in containers]
        want = said.want
        if uuids and want.count > len(uuids):
            named = f"{shown(choices[names.GPU_UUID])} names {len(uuids)} of the {want.count} cards that are asked for"
            raise InvalidPod(names.GPU_UUID, f"{named}; name as many at least, or ask for fewer")
        gpu = Want(
            GPU, want.count, want.core, want.memory, want.ratio, want.follows, want.by_memory,
            models, uuids, excluded, scope, self._joint(choices[names.JOINT], users),
        )  # fmt: skip
        own_policies = policies(source.own.get(names.GPU_POLICY), names.GPU_POLICY) if single else None
        tenant = Tenant(containers, role, (gpu, *extra), own_policies)
        return tenant, Share(gpu.core, said.limit, tenant_class, said.spelling)

    def _joint(self, value: object, users: Sequence[Source]) -> tuple[tuple[str, int], ...]:
        result = []
        for device in sorted(names_in(value, names.JOINT)):
            if device == GPU or device not in self.types:
                known = ", ".join(sorted(self.types))
                raise InvalidPod(names.JOINT, f"{shown(device)} is no device type beside gpu; use one of {known}")
            core = 0
            for source in users:
                for key, amount in _of_type(source.resources, device):
                    core = max(core, read(key, amount, quantity.parse_whole))
                    if core > WHOLE:
                        problem = f"{shown(amount)} is above {WHOLE}, one device of each switch; write at most {WHOLE}"
                        raise InvalidPod(key, problem)
            result.append((device, core or WHOLE))
        return tuple(result)

    def _other_devices(self, source: Source, claimed: Collection[str]) -> tuple[Want, ...]:
        wants = []
        for device in sorted(self.types):
            said = _of_type(source.resources, device)
            if len(said) > 1:
                raise InvalidPod(said[1][0], f"{said[0][0]} says the same; keep one of the two")
            if said and device not in claimed:
                count, core = cards(*said[0])
                if core:
                    wants.append(Want(device, count, core))
        return tuple(wants)


def _inherited(on_pod: Mapping[str, object], own: Mapping[str, object]) -> dict[str, object]:
    """The pod's share keys that a container's own do not replace; memory and ratio are one matter."""
    memory = (names.GPU_MEMORY, names.GPU_MEMORY_RATIO)
    replaced = set(own) | (set(memory) if any(key in own for key in memory) else set())
    return {key: on_pod[key] for key in names.SHARE_KEYS if key in on_pod and key not in replaced}


def _of_type(resources: Mapping[str, object], device: str) -> list[tuple[str, object]]:
    return [(f"{d}/{device}", resources[f"{d}/{device}"]) for d in S2_DOMAINS if f"{d}/{device}" in resources]


def one_of(value: object, key: str, allowed: Sequence[str]) -> str | None:
    """An annotation that has one of some values; None where it was not said."""
    if value is None:
        return None
    if not isinstance(value, str) or value.strip() not in allowed:
        raise InvalidPod(key, f"{shown(value)} is not known; use one of {', '.join(allowed)}")
    return value.strip()


def names_in(value: object, key: str) -> frozenset[str]:
    """The names of an annotation that lists some with commas between; none where it was not said."""
    if value is None:
        return frozenset()
    if not isinstance(value, str):
        raise InvalidPod(key, f"{shown(value)} is not text; write names with commas between")
    items = [item.strip() for item in value.split(",")]
    if not all(items):
        raise InvalidPod(key, f"{shown(value)} has an empty name; write names with commas between")
    if len(items) > MOST_NAMES:
        raise InvalidPod(key, f"{shown(value)} has {len(items)} names, which is more than {MOST_NAMES}; write fewer")
    return frozenset(items)


def policies(value: object, key: str) -> tuple[str, ...] | None:
    """Policy names in order. Whether they exist is for the allocator's table to say."""
    if value is None:
        return None
    names_in(value, key)
    assert isinstance(value, str)
    listed = tuple(item.strip() for item in value.split(","))
    if len(set(listed)) < len(listed):  # each costs a look at all cards
        raise InvalidPod(key, f"{shown(value)} names a policy twice; the first place of each decides, drop the others")
    return listed
