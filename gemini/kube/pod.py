"""A pod, in whatever spelling, to one spec of exact integers.

Pure: a dict of JSON in, a PodSpec or an InvalidPod out; nothing that JSON can hold makes it raise anything else.
Reads metadata.{name,annotations,labels} and spec.{containers,initContainers}; docs/placement.md has the rules.

A container's share comes from exactly one spelling: our annotations (keys said for the container go before keys said
for the pod), our resources, or those of gpushare, Koordinator (kubernetes.io/, koordinator.sh/), NVIDIA or KubeShare.
One exception: resources of our own beside annotations are accepted where they are just what `injected` makes of the
annotations, for that is how a pod looks after admission.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gemini.kube import names, quantity
from gemini.kube.group import group_of
from gemini.kube.parts import amounts_of
from gemini.kube.quantity import shown
from gemini.kube.spelling import GPUSHARE_UNITS, MEBI, S2_ALIASES, S2_KEYS, InvalidPod, read
from gemini.kube.tenants import Builder, Share, Source, one_of, policies
from gemini.placement.model import GPU, Ask, Role
from gemini.units import BadValue

MOST_TENANTS = 100  # of one pod: each is placed on each node that is looked at, for everybody to wait
MOST_CONTAINERS = 500  # of one pod: admission looks at each several times, and everybody's pods wait for it
_WORKLOADS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController")


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    role: Role
    cpu_bind: int = 0  # cores nearest to the card; 0: not bound


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


def parse_pod(
    pod: object,
    types: Collection[str] = names.DEVICE_TYPES,
    name: str | None = None,
    renew: Collection[str] = (),
    aside: Collection[str] = (),
) -> PodSpec:
    """The spec of a pod, or of the pods that a Deployment, Job and the like would make.

    `types` are the device types known besides "gpu". `renew`: containers whose resources beside annotations are to be
    written anew, whatever they are. `aside`: containers that a share of the whole pod does not mean. Raises InvalidPod.
    """
    metadata, spec = body_of(pod)
    if name is None:
        given = metadata.get("name")
        name = given if isinstance(given, str) else ""
    sources: list[Source] = []
    for key in ("initContainers", "containers"):
        listed = spec.get(key)
        if listed is None:
            listed = []
        if not isinstance(listed, list):
            raise InvalidPod(f"spec.{key}", f"{shown(listed)} is not a list; write a list of containers")
        if (many := len(sources) + len(listed)) > MOST_CONTAINERS:
            raise InvalidPod(f"spec.{key}", f"{many} are more than {MOST_CONTAINERS}; make several pods of them")
        sources += [_source(entry, f"spec.{key}[{i}]", key == "initContainers") for i, entry in enumerate(listed)]
    if not any(s.role is Role.APP for s in sources):
        raise InvalidPod("spec.containers", "the pod has no container; add one")
    seen: set[str] = set()
    for source in sources:
        if source.name in seen:
            raise InvalidPod(f"{source.path}.name", f"{source.name} is used twice; give each container its own name")
        seen.add(source.name)
    return _parse(name, metadata.get("annotations"), metadata.get("labels"), sources, types, renew, aside)


def body_of(pod: object) -> tuple[dict[str, object], dict[str, object]]:
    """Metadata and spec of a pod, or of the pods that a workload would make. Raises InvalidPod."""
    manifest = _mapping(pod, "manifest")
    metadata = _mapping(manifest.get("metadata"), "metadata")
    spec = _mapping(manifest.get("spec"), "spec")
    if manifest.get("kind") in _WORKLOADS:
        template = _mapping(spec.get("template"), "spec.template")
        metadata = {"name": metadata.get("name"), **_mapping(template.get("metadata"), "spec.template.metadata")}
        spec = _mapping(template.get("spec"), "spec.template.spec")
    return metadata, spec


def parse_ask(
    name: str,
    annotations: object = None,
    resources: object = None,
    labels: object = None,
    types: Collection[str] = names.DEVICE_TYPES,
) -> PodSpec:
    """The spec of a pod with one container, given as annotations and resources alone. Raises InvalidPod."""
    source = Source("main", "", Role.APP, _resources(resources, "resources"))
    return _parse(name, annotations, labels, [source], types)


def injected(spec: PodSpec) -> dict[str, dict[str, int]]:
    """The resources of our domain that admission writes for shares said in annotations, by container.

    Each container of a tenant asks at least one slot of each card, for only then does the kubelet call the device
    plugin for it. One carries the rest, so that what Kubernetes counts for the pod (quotas too) is what the tenant was
    promised: it is no init container, for of those only the one that asks most is counted.
    """
    result: dict[str, dict[str, int]] = {}
    init = {one.name for one in spec.containers if one.role is Role.INIT}
    for tenant, share in zip(spec.ask.tenants, spec.shares, strict=True):
        gpu = next((want for want in tenant.wants if want.type == GPU), None)
        if gpu is None or share.spelling not in (names.DOMAIN, names.KUBESHARE):
            continue
        counted = [name for name in tenant.containers if name not in init] or tenant.containers[:1]
        others = len(counted) - 1
        for container in tenant.containers:
            asked = result.setdefault(container, {})
            if container != counted[0]:
                asked[names.RESOURCE_CORE] = gpu.count
                continue
            asked[names.RESOURCE_CORE] = max(gpu.count, (gpu.core - others) * gpu.count)
            if gpu.memory is not None:
                asked[names.RESOURCE_MEMORY] = gpu.memory * gpu.count
            elif gpu.ratio:
                asked[names.RESOURCE_RATIO] = gpu.ratio * gpu.count
    return result


# ---- the parts of a pod


def _mapping(value: object, where: str) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidPod(where, f"{shown(value)} is not an object; write a mapping")
    return value


def _source(entry: object, path: str, init: bool) -> Source:
    container = _mapping(entry, path)
    name = container.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidPod(f"{path}.name", f"{shown(name)} is not a name; give the container a name")
    role = Role.APP
    if init:
        role = Role.ALWAYS if container.get("restartPolicy") == "Always" else Role.INIT
    return Source(name, path, role, _resources(container.get("resources"), f"{path}.resources"), marked(container))


def marked(container: Mapping[str, object]) -> bool:
    """Whether admission gave the container a share, and not another scheduler."""
    if names.RESOURCE_PLACED in amounts_of(container):
        return False
    env = container.get("env")
    return any(isinstance(one, dict) and one.get("name") == names.ENV_SOCKET for one in _listed(env))


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


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


def _parse(
    name: str, annotations: object, labels: object, sources: list[Source], types: Collection[str],
    renew: Collection[str] = (), aside: Collection[str] = (),
) -> PodSpec:  # fmt: skip
    on_pod = _read_annotations(_mapping(annotations, "metadata.annotations"), sources)
    tags = _mapping(labels, "metadata.labels")
    for key in tags:
        if key.startswith(f"{names.DOMAIN}/"):
            raise InvalidPod(shown(key), "is read as an annotation, not as a label; move it to metadata.annotations")
    for source in sources:
        _check_resource_names(source, types)
        if names.ALIYUN_GPU_MEM in source.resources and names.ALIYUN_GPU_COUNT in tags:
            source.resources.setdefault(names.ALIYUN_GPU_COUNT, tags[names.ALIYUN_GPU_COUNT])  # ACK says it in a label
    pod_policies = policies(on_pod.get(names.GPU_POLICY), names.GPU_POLICY)
    unit = one_of(on_pod.get(names.GPUSHARE_UNIT), names.GPUSHARE_UNIT, tuple(GPUSHARE_UNITS)) or MEBI
    builder = Builder(on_pod, tags, sources, types, unit, aside)
    tenants, shares = builder.tenants()
    if len(tenants) > MOST_TENANTS:
        problem = (
            f"{len(tenants)} of them have a share of their own, which is more than {MOST_TENANTS}; let some use one"
        )
        raise InvalidPod("spec.containers", problem)
    group = group_of(on_pod, tags)
    binds = [_cpu_bind(source, on_pod) for source in sources]
    containers = tuple(Container(s.name, s.role, bind) for s, bind in zip(sources, binds, strict=True))
    ask = Ask(name, tuple(tenants), pod_policies, *group)
    spec = PodSpec(name, containers, ask, tuple(shares), unit)
    _check_injected(spec, sources, builder.annotated.difference(renew))
    return spec


def _read_annotations(given: dict[str, object], sources: list[Source]) -> dict[str, object]:
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


def _check_resource_names(source: Source, types: Collection[str]) -> None:
    for key in source.resources:
        domain, _, rest = key.partition("/")
        kind = rest in S2_KEYS or rest in types or key == names.RESOURCE_PLACED
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


def _cpu_bind(source: Source, on_pod: Mapping[str, object]) -> int:
    value = source.own.get(names.CPU_BIND, on_pod.get(names.CPU_BIND))
    return 0 if value is None else read(names.CPU_BIND, value, lambda v: quantity.parse_whole(v, 1))


def _check_injected(spec: PodSpec, sources: list[Source], annotated: Collection[str]) -> None:
    """Resources of ours beside annotations must be what admission would write."""
    expected = injected(spec)
    for source in sources:
        if source.name not in annotated:
            continue
        for key in (names.RESOURCE_GPU, names.RESOURCE_CORE, names.RESOURCE_MEMORY, names.RESOURCE_RATIO):
            if key not in source.resources:
                continue
            amount = read(key, source.resources[key], quantity.parse_whole)
            if amount and amount != expected.get(source.name, {}).get(key):
                problem = f"the share of container {source.name} is said in annotations too; keep one of the two"
                raise InvalidPod(key, f"{amount}: {problem}")
