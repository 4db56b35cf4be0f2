"""A pod, in whatever spelling, to one spec of exact integers.

Pure: a dict of JSON in, a PodSpec or an InvalidPod out; nothing that JSON can hold makes it raise anything else.
Reads metadata.{name,annotations,labels} and spec.{containers,initContainers}; docs/placement.md has the rules.

A container's share comes from exactly one spelling: our annotations (keys said for the container go before keys said
for the pod), our resources, or those of gpushare, Koordinator (kubernetes.io/, koordinator.sh/), NVIDIA or KubeShare.
One exception: resources of our own beside annotations are accepted where they are just what `injected` makes of the
annotations, for that is how a pod looks after admission.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gemini.kube import names, quantity
from gemini.kube.quantity import shown
from gemini.kube.spelling import (
    GPUSHARE_UNITS,
    MEBI,
    S2_ALIASES,
    S2_DOMAINS,
    S2_KEYS,
    InvalidPod,
    Said,
    annotation_share,
    cards,
    first_share_resource,
    label_share,
    read,
    resource_share,
)
from gemini.placement.model import GPU, WHOLE, Ask, Role, Tenant, Want
from gemini.units import BadValue

_WORKLOADS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController")


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    role: Role
    cpu_bind: int = 0  # cores nearest to the card; 0: not bound


@dataclass(frozen=True, slots=True)
class Share:
    """What the runtime must know of a tenant beyond its cards. Percent of a card's time."""

    request: int
    limit: int
    tenant_class: str | None
    spelling: str  # the domain whose language the pod spoke


@dataclass(frozen=True, slots=True)
class PodSpec:
    """A parsed pod; `shares[i]` belongs to `ask.tenants[i]`."""

    name: str
    containers: tuple[Container, ...]
    ask: Ask
    shares: tuple[Share, ...]
    unit: str = MEBI  # of one aliyun.com/gpu-mem

    @property
    def wanted(self) -> bool:
        """Whether the pod wants any device at all."""
        return bool(self.ask.tenants)


@dataclass
class _Source:
    """One container as it stands in the pod."""

    name: str
    path: str
    role: Role
    resources: dict[str, object]
    own: dict[str, object] = field(default_factory=dict)  # `<key>.<container>` annotations, by key


def parse_pod(pod: object, types: Collection[str] = names.DEVICE_TYPES, name: str | None = None) -> PodSpec:
    """The spec of a pod, or of the pods that a Deployment, Job and the like would make.

    `types` are the device types known besides "gpu". Raises InvalidPod.
    """
    manifest = _mapping(pod, "manifest")
    metadata = _mapping(manifest.get("metadata"), "metadata")
    spec = _mapping(manifest.get("spec"), "spec")
    if manifest.get("kind") in _WORKLOADS:
        template = _mapping(spec.get("template"), "spec.template")
        metadata = {"name": metadata.get("name"), **_mapping(template.get("metadata"), "spec.template.metadata")}
        spec = _mapping(template.get("spec"), "spec.template.spec")
    if name is None:
        given = metadata.get("name")
        name = given if isinstance(given, str) else ""
    sources = []
    for key in ("initContainers", "containers"):
        listed = spec.get(key)
        if listed is None:
            listed = []
        if not isinstance(listed, list):
            raise InvalidPod(f"spec.{key}", f"{shown(listed)} is not a list; write a list of containers")
        sources += [_source(entry, f"spec.{key}[{i}]", key == "initContainers") for i, entry in enumerate(listed)]
    if not any(s.role is Role.APP for s in sources):
        raise InvalidPod("spec.containers", "the pod has no container; add one")
    seen: set[str] = set()
    for source in sources:
        if source.name in seen:
            raise InvalidPod(f"{source.path}.name", f"{source.name} is used twice; give each container its own name")
        seen.add(source.name)
    return _parse(name, metadata.get("annotations"), metadata.get("labels"), sources, types)


def parse_ask(
    name: str,
    annotations: object = None,
    resources: object = None,
    labels: object = None,
    types: Collection[str] = names.DEVICE_TYPES,
) -> PodSpec:
    """The spec of a pod with one container, given as annotations and resources alone. Raises InvalidPod."""
    source = _Source("main", "", Role.APP, _resources(resources, "resources"))
    return _parse(name, annotations, labels, [source], types)


def injected(spec: PodSpec) -> dict[str, dict[str, int]]:
    """The resources of our domain that admission writes for shares said in annotations, by container.

    Each container of a tenant asks at least one slot of each card, for only then does the kubelet call the device
    plugin for it; the first carries the rest, so that the sum over the pod is what the tenant was promised.
    """
    result: dict[str, dict[str, int]] = {}
    for tenant, share in zip(spec.ask.tenants, spec.shares, strict=True):
        gpu = next((want for want in tenant.wants if want.type == GPU), None)
        if gpu is None or share.spelling not in (names.DOMAIN, names.KUBESHARE):
            continue
        others = len(tenant.containers) - 1
        for i, container in enumerate(tenant.containers):
            asked = result.setdefault(container, {})
            if i:
                asked[names.RESOURCE_CORE] = gpu.count
                continue
            asked[names.RESOURCE_CORE] = max(gpu.count, (gpu.core - others) * gpu.count)
            if gpu.memory is not None:
                asked[names.RESOURCE_MEMORY] = gpu.memory * gpu.count
            elif gpu.ratio:
                asked[names.RESOURCE_RATIO] = gpu.ratio * gpu.count
    return result


def admission_fault(pod: object, spec: PodSpec) -> InvalidPod | None:
    """What makes a well-formed sharepod inadmissible: that it escapes the scheduler or the library in front."""
    if not spec.wanted:
        return None
    manifest = _mapping(pod, "manifest")
    body = _mapping(manifest.get("spec"), "spec")
    if manifest.get("kind") in _WORKLOADS:
        body = _mapping(_mapping(body.get("template"), "spec.template").get("spec"), "spec.template.spec")
    if body.get("nodeName"):
        mend = "remove it, the scheduler chooses the node and the card (use nodeSelector to narrow its choice)"
        return InvalidPod("spec.nodeName", f"{shown(body['nodeName'])} is preset; {mend}")
    for key in ("initContainers", "containers"):
        entries = body.get(key)
        for i, entry in enumerate(entries if isinstance(entries, list) else []):
            path = f"spec.{key}[{i}]"
            security = entry.get("securityContext") if isinstance(entry, dict) else None
            if isinstance(security, dict) and security.get("privileged") is True:
                mend = "remove it, a privileged container sees every card of the node"
                return InvalidPod(f"{path}.securityContext.privileged", f"true is not allowed with a share; {mend}")
            env = entry.get("env") if isinstance(entry, dict) else None
            for variable in env if isinstance(env, list) else []:
                if isinstance(variable, dict) and variable.get("name") == names.ENV_VISIBLE_DEVICES:
                    value = shown(variable.get("value", "(from elsewhere)"))
                    problem = f"{value} goes round the share; remove it, the device plugin sets it to the pod's card"
                    return InvalidPod(f"{path}.env[{names.ENV_VISIBLE_DEVICES}]", problem)
    return None


# ---- the parts of a pod


def _mapping(value: object, where: str) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidPod(where, f"{shown(value)} is not an object; write a mapping")
    return value


def _source(entry: object, path: str, init: bool) -> _Source:
    container = _mapping(entry, path)
    name = container.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidPod(f"{path}.name", f"{shown(name)} is not a name; give the container a name")
    role = Role.APP
    if init:
        role = Role.ALWAYS if container.get("restartPolicy") == "Always" else Role.INIT
    return _Source(name, path, role, _resources(container.get("resources"), f"{path}.resources"))


def _resources(value: object, path: str) -> dict[str, object]:
    """Requests and limits as one map; an extended resource must say the same in both."""
    given = _mapping(value, path)
    if not any(isinstance(given.get(part), dict) for part in ("requests", "limits")):
        return {k: v for k, v in given.items() if isinstance(k, str) and k not in ("requests", "limits", "claims")}
    merged: dict[str, object] = {}
    for part in ("limits", "requests"):
        for key, amount in _mapping(given.get(part), f"{path}.{part}").items():
            if key in merged and "/" in key and not _same_amount(merged[key], amount):
                problem = f"{shown(amount)} requested and {shown(merged[key])} as limit; write the same in both"
                raise InvalidPod(f"{path}.{part}[{shown(key)}]", problem)
            merged[key] = amount
    return merged


def _same_amount(a: object, b: object) -> bool:
    try:
        return quantity.parse_quantity(a) == quantity.parse_quantity(b)
    except BadValue:
        return a == b


def _parse(name: str, annotations: object, labels: object, sources: list[_Source], types: Collection[str]) -> PodSpec:
    on_pod = _read_annotations(_mapping(annotations, "metadata.annotations"), sources)
    tags = _mapping(labels, "metadata.labels")
    for key in tags:
        if key.startswith(f"{names.DOMAIN}/"):
            raise InvalidPod(shown(key), "is read as an annotation, not as a label; move it to metadata.annotations")
    for source in sources:
        _check_resource_names(source, types)
        if names.ALIYUN_GPU_MEM in source.resources and names.ALIYUN_GPU_COUNT in tags:
            source.resources.setdefault(names.ALIYUN_GPU_COUNT, tags[names.ALIYUN_GPU_COUNT])  # ACK says it in a label
    pod_policies = _policies(on_pod.get(names.GPU_POLICY), names.GPU_POLICY)
    unit = _one_of(on_pod.get(names.GPUSHARE_UNIT), names.GPUSHARE_UNIT, tuple(GPUSHARE_UNITS)) or MEBI
    builder = _Builder(on_pod, tags, sources, types, unit)
    tenants, shares = builder.tenants()
    group, size = _group(on_pod, tags)
    binds = [_cpu_bind(source, on_pod) for source in sources]
    containers = tuple(Container(s.name, s.role, bind) for s, bind in zip(sources, binds, strict=True))
    ask = Ask(name, tuple(tenants), pod_policies, group, size)
    spec = PodSpec(name, containers, ask, tuple(shares), unit)
    builder.check_injected(spec)
    return spec


def _read_annotations(given: dict[str, object], sources: list[_Source]) -> dict[str, object]:
    """Ours, by key: those of the pod; those of a container go to its source."""
    on_pod: dict[str, object] = {}
    by_name = {source.name: source for source in sources}
    for key, value in given.items():
        if not isinstance(key, str) or not key.startswith(f"{names.DOMAIN}/"):
            continue
        rest = key[len(names.DOMAIN) + 1 :]
        stem, dot, container = rest.partition(".")
        base = f"{names.DOMAIN}/{stem}"
        if base not in names.ANNOTATION_KEYS:
            known = ", ".join(k.split("/")[1] for k in names.ANNOTATION_KEYS if k not in names.WRITTEN_KEYS)
            raise InvalidPod(shown(key), f"is no annotation of {names.DOMAIN}; use one of {known}")
        if base in names.WRITTEN_KEYS:
            continue
        if not dot:
            on_pod[base] = value
        elif base in names.POD_KEYS:
            raise InvalidPod(shown(key), f"speaks of the whole pod; write {base} without a container")
        elif container not in by_name:
            has = ", ".join(shown(n) for n in list(by_name)[:8])
            raise InvalidPod(shown(key), f"the pod has no container {shown(container)}; it has {has}")
        else:
            by_name[container].own[base] = value
    return on_pod


def _check_resource_names(source: _Source, types: Collection[str]) -> None:
    for key in source.resources:
        domain, _, rest = key.partition("/")
        kind = rest in S2_KEYS or rest in types
        if domain == names.DOMAIN and not kind:
            known = ", ".join([*S2_KEYS, *sorted(types)])
            where = f"{source.path}.resources[{shown(key)}]" if source.path else shown(key)
            raise InvalidPod(where, f"is no resource of {names.DOMAIN}; use one of {known}")
        foreign = domain in (names.KUBERNETES, names.KOORDINATOR) and rest.startswith("gpu")
        shared = key == names.KOORDINATOR_SHARED
        if foreign and not kind and not shared and rest not in S2_ALIASES:
            raise InvalidPod(shown(key), f"is not known; use {domain}/gpu, gpu-core, gpu-memory or gpu-memory-ratio")
        if domain == names.ALIYUN and rest.startswith("gpu-") and rest not in ("gpu-mem", "gpu-count"):
            raise InvalidPod(shown(key), f"is not known; use {names.ALIYUN_GPU_MEM} and {names.ALIYUN_GPU_COUNT}")


def _names(value: object, key: str) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, str):
        raise InvalidPod(key, f"{shown(value)} is not text; write names with commas between")
    items = [item.strip() for item in value.split(",")]
    if not all(items):
        raise InvalidPod(key, f"{shown(value)} has an empty name; write names with commas between")
    return frozenset(items)


def _policies(value: object, key: str) -> tuple[str, ...] | None:
    """Policy names in order. Whether they exist is for the allocator's table to say."""
    if value is None:
        return None
    _names(value, key)
    assert isinstance(value, str)
    return tuple(item.strip() for item in value.split(","))


def _cpu_bind(source: _Source, on_pod: Mapping[str, object]) -> int:
    value = source.own.get(names.CPU_BIND, on_pod.get(names.CPU_BIND))
    return 0 if value is None else read(names.CPU_BIND, value, lambda v: quantity.parse_whole(v, 1))


def _group(on_pod: Mapping[str, object], labels: Mapping[str, object]) -> tuple[str | None, int]:
    """The pod's group and how many must be placed together."""
    name, size = on_pod.get(names.POD_GROUP), on_pod.get(names.POD_GROUP_SIZE)
    if name is None and size is None:
        return _kubeshare_group(labels)
    if name is None:
        raise InvalidPod(names.POD_GROUP_SIZE, f"{shown(size)} is said without {names.POD_GROUP}; add the group's name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidPod(names.POD_GROUP, f"{shown(name)} is not a name; write the group's name")
    if size is None:
        raise InvalidPod(names.POD_GROUP, f"{shown(name)} has no size; add {names.POD_GROUP_SIZE}")
    return name.strip(), read(names.POD_GROUP_SIZE, size, lambda v: quantity.parse_whole(v, 1))


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


# ---- from containers to tenants


class _Builder:
    """Finds for each container who said its share, and makes the tenants in the order in which they are placed."""

    def __init__(
        self,
        on_pod: dict[str, object],
        labels: dict[str, object],
        sources: list[_Source],
        types: Collection[str],
        unit: str,
    ) -> None:
        self.on_pod = on_pod
        self.unit = unit
        self.labels = labels
        self.sources = sources
        self.types = types
        self.annotated: set[str] = set()  # containers whose share stands in annotations or labels

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
            annotated = own or pod_says or labels_say
            # Ours beside annotations are allowed as what admission made of them; check_injected looks at that.
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
            if said is None and (pod_says or labels_say):
                self._no_choice_of_its_own(source)
                common.append(source.name)
            extra = self._other_devices(source, self._joint_of(source) if said or annotated else ())
            if said is not None:
                built.append(self._tenant((source.name,), source, source.role, said, extra))
            elif extra:
                plain = Share(0, WHOLE, None, names.DOMAIN)
                built.append((Tenant((source.name,), source.role, extra), plain))
        for key in (names.JOINT, names.GPU_TOPOLOGY):
            if key in self.on_pod and not any(w.type == GPU for t, _ in built for w in t.wants) and not common:
                raise InvalidPod(key, f"is said of cards, but the pod wants none; add {names.GPU_REQUEST}")
        if common:
            said = annotation_share(self.on_pod) if pod_says else label_share(self.labels)
            first = next(s for s in self.sources if s.name == common[0])
            shared = self._tenant(tuple(common), first, Role.ALWAYS, said, ())
            built.insert(0, shared)
        return [tenant for tenant, _ in built], [share for _, share in built]

    def check_injected(self, spec: PodSpec) -> None:
        """Resources of ours beside annotations must be what admission would write."""
        expected = injected(spec)
        for source in self.sources:
            if source.name not in self.annotated:
                continue
            for key in (names.RESOURCE_GPU, names.RESOURCE_CORE, names.RESOURCE_MEMORY, names.RESOURCE_RATIO):
                if key not in source.resources:
                    continue
                amount = read(key, source.resources[key], quantity.parse_whole)
                if amount and amount != expected.get(source.name, {}).get(key):
                    problem = f"the share of container {source.name} is said in annotations too; keep one of the two"
                    raise InvalidPod(key, f"{amount}: {problem}")

    def _no_choice_of_its_own(self, source: _Source) -> None:
        for key in names.CHOICE_KEYS:
            if key in source.own:
                mend = f"write {key} for the pod, or give the container a share of its own"
                raise InvalidPod(f"{key}.{source.name}", f"the container uses the pod's share; {mend}")

    def _choices(self, source: _Source, single: bool) -> dict[str, object]:
        own = source.own if single else {}
        return {key: own.get(key, self.on_pod.get(key)) for key in names.CHOICE_KEYS}

    def _joint_of(self, source: _Source) -> frozenset[str]:
        return _names(source.own.get(names.JOINT, self.on_pod.get(names.JOINT)), names.JOINT)

    def _tenant(
        self, containers: tuple[str, ...], source: _Source, role: Role, said: Said, extra: tuple[Want, ...]
    ) -> tuple[Tenant, Share]:
        single = role is not Role.ALWAYS or len(containers) == 1
        choices = self._choices(source, single)
        uuids = _names(choices[names.GPU_UUID], names.GPU_UUID)
        excluded = _names(choices[names.GPU_UUID_EXCLUDE], names.GPU_UUID_EXCLUDE)
        if both := sorted(uuids & excluded):
            raise InvalidPod(names.GPU_UUID_EXCLUDE, f"{shown(both[0])} is wanted by {names.GPU_UUID} too; keep one")
        models = _names(choices[names.GPU_MODEL], names.GPU_MODEL)
        if said.spelling == names.KUBESHARE and names.SHARED_MODEL in self.labels:
            if models:
                raise InvalidPod(names.SHARED_MODEL, f"the model is said in {names.GPU_MODEL} too; keep one of the two")
            models = _names(self.labels[names.SHARED_MODEL], names.SHARED_MODEL)
        scope = _one_of(choices[names.GPU_TOPOLOGY], names.GPU_TOPOLOGY, names.SCOPES)
        tenant_class = _one_of(choices[names.GPU_CLASS], names.GPU_CLASS, names.POLICY_CLASSES)
        users = [s for s in self.sources if s.name in containers]
        want = said.want
        gpu = Want(
            GPU, want.count, want.core, want.memory, want.ratio, want.follows, want.by_memory,
            models, uuids, excluded, scope, self._joint(choices[names.JOINT], users),
        )  # fmt: skip
        own_policies = _policies(source.own.get(names.GPU_POLICY), names.GPU_POLICY) if single else None
        tenant = Tenant(containers, role, (gpu, *extra), own_policies)
        return tenant, Share(gpu.core, said.limit, tenant_class, said.spelling)

    def _joint(self, value: object, users: Sequence[_Source]) -> tuple[tuple[str, int], ...]:
        result = []
        for device in sorted(_names(value, names.JOINT)):
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

    def _other_devices(self, source: _Source, claimed: Collection[str]) -> tuple[Want, ...]:
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


def _one_of(value: object, key: str, allowed: Sequence[str]) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or value.strip() not in allowed:
        raise InvalidPod(key, f"{shown(value)} is not known; use one of {', '.join(allowed)}")
    return value.strip()
