"""What a pod with a share is turned into at admission: the operations of a JSON patch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemini.kube import names
from gemini.kube.defaults import defaulted
from gemini.kube.escapes import NO_CARD, sharing_containers, wants_of_others
from gemini.kube.parts import amounts_of, containers_of
from gemini.kube.pod import injected, parse_pod
from gemini.kube.scope import DEFAULT_SCHEDULER
from gemini.kube.spelling import MEBI, S2_ALIASES, S2_DOMAINS, S2_KEYS
from gemini.kube.vgpu import CONVERTED, HAMI, ONLY_HAMI, VOLCANO
from gemini.placement.model import GPU, Want
from gemini.webhook.quota import Resolved
from gemini.webhook.settings import Settings

GRACE = "terminationGracePeriodSeconds"


class Patch:
    """The operations that make a sharepod out of a pod."""

    def __init__(self, pod: dict[str, Any], resolved: Resolved, settings: Settings) -> None:
        self.pod, self.resolved, self.spec, self.settings = pod, resolved, resolved.spec, settings
        self.part, annotated = settings.part(pod), annotations_of(pod)
        new = {k: v for k, v in annotations_of(self.part).items() if k not in annotated and k not in resolved.dropped}
        self.said = {**new, **resolved.annotations}  # annotations to add
        self.heard = settings.reading.of(pod)
        self.defaults = defaulted(pod)  # by container
        self.sharing = sharing_containers(self.spec)
        self.aside = frozenset(one.name for one in self.spec.containers) - self.sharing

    def operations(self) -> list[dict[str, Any]]:
        """Raises InvalidPod."""
        resources = self._resources()
        if self.resolved.turned:
            plain = {**self.part, "spec": _without_shares(self.part)["spec"]}
            self.resolved.check(plain, self._all_said(), self.settings.types, self.aside)
        speaks = any(share.spelling == names.ALIYUN for share in self.spec.shares)
        if speaks and self.settings.gpushare_unit != MEBI and names.GPUSHARE_UNIT not in annotations_of(self.pod):
            self.said[names.GPUSHARE_UNIT] = self.settings.gpushare_unit
        result = [self._add("annotations", self._all_said())] if self.said else []
        if self.resolved.labels:
            result.append(self._add("labels", {**part_of(self.pod, "labels"), **self.resolved.labels}))
        if (
            self.settings.scheduler
            and (self.pod["spec"].get("schedulerName") or DEFAULT_SCHEDULER) == DEFAULT_SCHEDULER
        ):
            result.append({"op": "add", "path": "/spec/schedulerName", "value": self.settings.scheduler})
        if ends_at_once(self.pod):
            result.append(one_second())
        for key in ("initContainers", "containers"):
            for i, container in enumerate(self.pod["spec"].get(key) or []):
                path = f"/spec/{key}/{i}"
                changed = self._changed(container, resources.get(container["name"], {}))
                if changed is not None:
                    result.append({"op": "add", "path": f"{path}/resources", "value": changed})
                if container["name"] in self.sharing:
                    result.append({"op": "add", "path": f"{path}/env", "value": self._env(container)})
                    continue
                env = without_card(container) if self.sharing and not wants_of_others(container) else None
                if env is not None:
                    result.append({"op": "add", "path": f"{path}/env", "value": env})
        return result

    def _add(self, part: str, value: dict[str, Any]) -> dict[str, Any]:
        return {"op": "add", "path": f"/metadata/{part}", "value": value}

    def _resources(self) -> dict[str, dict[str, int]]:
        """Resources of our domain by container. A share said in resources is written as annotations too, since one
        slot at least is asked in the resources and the share may be less."""
        result = {name: dict(asked) for name, asked in injected(self.spec).items()}
        for tenant, share in zip(self.spec.ask.tenants, self.spec.shares, strict=True):
            for want in tenant.wants:
                if want.type == GPU and share.spelling not in (names.KUBESHARE, names.ALIYUN):
                    self._say(tenant.containers[0], want, share.spelling)
                elif want.type != GPU:
                    asked = result.setdefault(tenant.containers[0], {})
                    asked[f"{names.DOMAIN}/{want.type}"] = want.core * want.count
        converted = {t.containers[0] for t in self.spec.ask.tenants if self._by_resources(t.containers[0])}
        if converted:
            metadata = {**(self.part.get("metadata") or {}), "annotations": self._all_said()}
            plain = _without_shares({**self.part, "metadata": metadata})
            for name, asked in injected(parse_pod(plain, self.settings.types, aside=self.aside)).items():
                result[name] = {**result.get(name, {}), **asked}
        return result

    def _all_said(self) -> dict[str, Any]:
        kept = {k: v for k, v in annotations_of(self.pod).items() if k not in self.resolved.dropped}
        return {**kept, **self.said}

    def _by_resources(self, container: str) -> bool:
        return f"{names.GPU_REQUEST}.{container}" in self.said

    def _say(self, container: str, want: Want, spelling: str) -> None:
        annotations = annotations_of(self.part)
        says = any(k in annotations or f"{k}.{container}" in annotations for k in names.SHARE_KEYS)
        if spelling == names.DOMAIN and says:
            return
        self.said[f"{names.GPU_REQUEST}.{container}"] = f"{want.core}%"
        if want.count > 1:
            self.said[f"{names.GPU_COUNT}.{container}"] = str(want.count)
        if want.memory is not None:
            self.said[f"{names.GPU_MEMORY}.{container}"] = str(want.memory)
        elif want.ratio and not want.follows:
            self.said[f"{names.GPU_MEMORY_RATIO}.{container}"] = str(want.ratio)

    def _changed(self, container: dict[str, Any], ours: dict[str, int]) -> dict[str, Any] | None:
        """The container's resources with ours in place of what they were converted from; None: as they are."""
        filled = self.defaults.get(container["name"], frozenset())
        if not ours and not filled:
            return None
        given = container.get("resources")
        result: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        for part in ("limits", "requests"):
            listed = result.get(part)
            if isinstance(listed, dict):
                listed = {key: value for key, value in listed.items() if (part, key) not in filled}
            kept = (
                {self._ours(k): v for k, v in listed.items() if not self._replaced(k)}
                if isinstance(listed, dict)
                else {}
            )
            result[part] = {**kept, **{key: str(amount) for key, amount in ours.items()}}
        return result

    def _ours(self, key: str) -> str:
        """Devices of other types under our domain, which is what nodes have."""
        domain, _, kind = key.partition("/")
        ours = domain in S2_DOMAINS and domain in self.heard and kind in self.settings.types
        return f"{names.DOMAIN}/{kind}" if ours else key

    def _replaced(self, key: str) -> bool:
        if key in CONVERTED and key != names.NVIDIA_GPU:
            return (HAMI if key in ONLY_HAMI else VOLCANO) in self.heard
        return _converted(key) and key.partition("/")[0] in self.heard

    def _env(self, container: dict[str, Any]) -> list[dict[str, Any]]:
        """The container's environment with the library in front of what it preloads itself."""
        given = container.get("env")
        env = [dict(v) for v in given if isinstance(v, dict)] if isinstance(given, list) else []
        ours = {names.ENV_PRELOAD, names.ENV_SOCKET, *((names.ENV_VISIBLE_DEVICES,) if self.settings.by_cdi else ())}
        preloads = [v.get("value") for v in env if v.get("name") == names.ENV_PRELOAD][-1:]  # the last one counts
        behind = preloads[0].replace(" ", ":").split(":") if preloads and isinstance(preloads[0], str) else []
        library = self.settings.library
        return [
            *(v for v in env if v.get("name") not in ours),
            # Over what the image and envFrom say; the runtime adds CDI devices after the environment.
            *([{"name": names.ENV_VISIBLE_DEVICES, "value": NO_CARD}] if self.settings.by_cdi else []),
            {"name": names.ENV_PRELOAD, "value": ":".join([library, *(p for p in behind if p and p != library)])},
            {"name": names.ENV_SOCKET, "value": f"ipc://{self.settings.socket}"},
        ]


def one_second() -> dict[str, Any]:
    """The operation that has a pod not gone at once."""
    return {"op": "add", "path": f"/spec/{GRACE}", "value": 1}


def ends_at_once(pod: Mapping[str, Any]) -> bool:
    """Whether whoever evicts the pod has it gone at once: its card is free then, and its programs run until its kubelet
    has seen it."""
    return bool(pod["spec"].get(GRACE) == 0)


def has_claims(pod: Mapping[str, Any]) -> bool:
    """Whether it has claims, or is to get one: kube-scheduler makes it for a resource that names a class of devices."""
    asked = (key for one in containers_of(pod["spec"]) for key in amounts_of(one))
    return bool(pod["spec"].get("resourceClaims")) or any(str(key).startswith(names.BY_CLASS) for key in asked)


def _converted(key: str) -> bool:
    domain, _, rest = key.partition("/")
    share = rest in S2_KEYS or rest in S2_ALIASES or rest == "gpu.shared"
    return key == names.NVIDIA_GPU or (domain in S2_DOMAINS and share)


def _without_shares(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with no share in its resources, which its annotations say now."""
    spec = dict(pod["spec"])
    for key in ("initContainers", "containers"):
        if isinstance(spec.get(key), list):
            spec[key] = [_plain(container) for container in spec[key]]
    return {**pod, "spec": spec}


def _plain(container: dict[str, Any]) -> dict[str, Any]:
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return container
    parts = {
        part: {k: v for k, v in listed.items() if not _converted(k)}
        for part, listed in resources.items()
        if isinstance(listed, dict)
    }
    return {**container, "resources": parts}


def without_card(container: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Its environment with no card in it, over what its image and envFrom say; None: it says so already."""
    given = container.get("env")
    env = [dict(v) for v in given if isinstance(v, dict)] if isinstance(given, list) else []
    if any(variable.get("name") == names.ENV_VISIBLE_DEVICES for variable in env):
        return None
    return [*env, {"name": names.ENV_VISIBLE_DEVICES, "value": NO_CARD}]


def annotations_of(pod: object) -> dict[str, Any]:
    return part_of(pod, "annotations")


def part_of(pod: object, part: str) -> dict[str, Any]:
    found = metadata_of(pod).get(part)
    return found if isinstance(found, dict) else {}


def metadata_of(given: object) -> dict[str, Any]:
    metadata = given.get("metadata") if isinstance(given, dict) else None
    return metadata if isinstance(metadata, dict) else {}
