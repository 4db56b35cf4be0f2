"""Admission reviews (admission.k8s.io/v1): a request in, the answer with patch or refusal out.

Pure. `mutate` turns every spelling of a share but gpushare's into our annotations and resources (a pod's resources
cannot change later), names the scheduler, and puts library and socket into the environment. `validate` refuses what the
allocator or the runtime could not keep, naming field, value and mend. `validate_binding` keeps others from binding
sharepods. A request that makes no sense is refused, never an exception. Pods that want no device pass untouched, and
so does anything that is no pod.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemini.kube import names
from gemini.kube.escapes import (
    NO_CARD,
    added,
    admission_fault,
    ephemeral_fault,
    may_name_cards,
    sharing_containers,
    wants_of_others,
)
from gemini.kube.pod import PodSpec, injected, parse_pod
from gemini.kube.quantity import shown
from gemini.kube.spelling import MEBI, S2_ALIASES, S2_DOMAINS, S2_KEYS, InvalidPod
from gemini.placement.model import GPU, Want
from gemini.placement.policies import POLICIES, unknown

DEFAULT_SCHEDULER = "default-scheduler"
REFUSED = 422  # HTTP status of a refusal: the object makes no sense as it is
FORBIDDEN = 403


@dataclass(frozen=True)
class Settings:
    """`scheduler`: the name that sharepods get; None: the extender stands behind the default scheduler."""

    scheduler: str | None = None
    types: frozenset[str] = names.DEVICE_TYPES
    library: str = names.LIBRARY_PATH
    socket: str = names.SOCKET_PATH
    binders: frozenset[str] = frozenset()  # user names that may bind sharepods
    gpushare_unit: str = MEBI  # of one aliyun.com/gpu-mem, where the pod does not say
    allowed: frozenset[str] = frozenset()  # of escapes.ALLOWANCES
    by_cdi: bool = False  # cards come as CDI devices, whatever the environment says


def mutate(review: object, settings: Settings) -> dict[str, Any]:
    """The answer to /mutate, with a JSONPatch where the pod is a sharepod."""
    request = _request(review)
    if not _is_pod(request):
        return _answer(request)
    if _is_ephemeral(request):
        return _mutate_ephemeral(request, settings)
    if request.get("operation") != "CREATE":
        return _answer(request)
    try:
        pod, spec = _read(request, settings)
    except InvalidPod as error:
        return _answer(request, str(error))
    if not spec.wanted:
        return _answer(request)
    patch = _Patch(pod, spec, settings).operations()
    return _answer(request, patch=patch, warnings=_warnings(pod, spec))


def _is_ephemeral(request: dict[str, Any]) -> bool:
    return request.get("subResource") == "ephemeralcontainers"


def _mutate_ephemeral(request: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Containers that are added to a sharepod have no card, also where their image says all: no device plugin is asked
    about them."""
    patch = []
    if not _has_share(request.get("object"), settings):
        return _answer(request)
    try:
        _read_ephemeral(request, settings)
        for path, container in added(request.get("object"), request.get("oldObject")):
            if (env := _without_card(container)) is not None:
                at = path.replace("[", "/").replace("]", "").replace(".", "/")
                patch.append({"op": "add", "path": f"/{at}/env", "value": env})
    except InvalidPod as error:
        return _answer(request, str(error))
    return _answer(request, patch=patch)


def _has_share(pod: object, settings: Settings) -> bool:
    try:
        return parse_pod(pod, settings.types).wanted
    except InvalidPod:
        return True  # it speaks our language, if badly


def _read_ephemeral(request: dict[str, Any], settings: Settings) -> None:
    if fault := ephemeral_fault(request.get("object"), request.get("oldObject"), settings.allowed):
        raise fault


def _without_card(container: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Its environment with no card in it, over what its image and envFrom say; None: it says so already."""
    given = container.get("env")
    env = [dict(v) for v in given if isinstance(v, dict)] if isinstance(given, list) else []
    if any(variable.get("name") == names.ENV_VISIBLE_DEVICES for variable in env):
        return None
    return [*env, {"name": names.ENV_VISIBLE_DEVICES, "value": NO_CARD}]


def _warnings(pod: dict[str, Any], spec: PodSpec) -> list[str]:
    """What is not as somebody may think it is, though the pod is admitted."""
    sharing, told = sharing_containers(spec), []
    for key in ("initContainers", "containers"):
        for i, container in enumerate(pod["spec"].get(key) or []):
            sources = container.get("envFrom")
            sources = sources if isinstance(sources, list) and container["name"] in sharing else []
            if any(may_name_cards(source) for source in sources if isinstance(source, dict)):
                told.append(f"spec.{key}[{i}].envFrom: {names.ENV_PRELOAD} from it is not used; write it under env")
    return told


def validate(review: object, settings: Settings) -> dict[str, Any]:
    """The answer to /validate for pods that are created or changed."""
    request = _request(review)
    operation = request.get("operation")
    if operation not in ("CREATE", "UPDATE") or not _is_pod(request):
        return _answer(request)
    try:
        if _is_ephemeral(request):
            if _has_share(request.get("object"), settings):
                _read_ephemeral(request, settings)
        elif operation == "UPDATE":
            _check_unchanged(request)
        else:
            _read(request, settings)
    except InvalidPod as error:
        return _answer(request, str(error))
    return _answer(request)


def validate_binding(review: object, pod: object, settings: Settings) -> dict[str, Any]:
    """The answer for a pod's binding; `pod` is the pod it binds, None where there is none."""
    request = _request(review)
    user = request.get("userInfo")
    who = user.get("username") if isinstance(user, dict) else None
    if who in settings.binders or pod is None:
        return _answer(request)
    try:
        wanted = parse_pod(pod, settings.types).wanted
    except InvalidPod:
        wanted = True  # it speaks our language, if badly
    if not wanted:
        return _answer(request)
    mend = "leave spec.nodeName to the scheduler with the Gemini extender"
    return _answer(request, f"binding: {shown(who)} may not bind a pod with a share of a card; {mend}", code=FORBIDDEN)


# ---- requests and answers


def _request(review: object) -> dict[str, Any]:
    request = review.get("request") if isinstance(review, dict) else None
    return request if isinstance(request, dict) else {}


def _is_pod(request: dict[str, Any]) -> bool:
    kind, pod = request.get("kind"), request.get("object")
    said = kind.get("kind", "Pod") if isinstance(kind, dict) else "Pod"
    return said == "Pod" and (not isinstance(pod, dict) or pod.get("kind", "Pod") == "Pod")


def _answer(
    request: dict[str, Any], refusal: str | None = None, patch: list[dict[str, Any]] | None = None, code: int = REFUSED,
    warnings: list[str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        uid, refusal = "", refusal or "request.uid: there is none; send an AdmissionReview of admission.k8s.io/v1"
    response: dict[str, Any] = {"uid": uid, "allowed": refusal is None}
    if refusal is not None:
        response["status"] = {
            "code": code,
            "reason": "Forbidden" if code == FORBIDDEN else "Invalid",
            "message": refusal,
        }
    elif patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(patch, separators=(",", ":")).encode()).decode()
    if warnings and refusal is None:
        response["warnings"] = warnings
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _read(request: dict[str, Any], settings: Settings) -> tuple[dict[str, Any], PodSpec]:
    pod = request.get("object")
    if not isinstance(pod, dict):
        raise InvalidPod("request.object", f"{shown(pod)} is not an object; send the pod")
    spec = parse_pod(pod, settings.types)
    for given in (spec.ask.policies, *(t.policies for t in spec.ask.tenants)):
        wrong = unknown(given or ())
        if wrong is not None:
            raise InvalidPod(names.GPU_POLICY, f"{shown(wrong)} is no policy; use some of {', '.join(POLICIES)}")
    annotations = _annotations(pod)
    for key in names.RECORD_KEYS:
        if key in annotations:
            raise InvalidPod(key, f"{shown(annotations[key])} is written by the scheduler alone; remove it")
    if fault := admission_fault(pod, spec, settings.allowed, settings.by_cdi):
        raise fault
    scheduler = pod.get("spec", {}).get("schedulerName") or DEFAULT_SCHEDULER
    ours = (settings.scheduler or DEFAULT_SCHEDULER, DEFAULT_SCHEDULER)
    if spec.wanted and scheduler not in ours:
        problem = f"{shown(scheduler)} knows nothing of shares; remove it, or use {ours[0]}"
        raise InvalidPod("spec.schedulerName", problem)
    return pod, spec


def _annotations(pod: object) -> dict[str, Any]:
    return _metadata(pod, "annotations")


def _metadata(pod: object, part: str) -> dict[str, Any]:
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    found = metadata.get(part) if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


def _check_unchanged(request: dict[str, Any]) -> None:
    """What a pod was placed by cannot change under the scheduler's feet."""
    was, now = request.get("oldObject"), request.get("object")
    for part in ("annotations", "labels"):
        old, new = _metadata(was, part), _metadata(now, part)
        for key in sorted({*old, *new}):
            if _fixed(part, key) and old.get(key) != new.get(key):
                problem = f"{shown(new.get(key))} instead of {shown(old.get(key))} in a pod that exists"
                raise InvalidPod(key, f"{problem}; create the pod anew")


def _fixed(part: str, key: str) -> bool:
    """Whether it is one that a share is read from."""
    if part == "labels":
        return key.startswith(f"{names.KUBESHARE}/") or key == names.ALIYUN_GPU_COUNT
    stem = key.removeprefix(f"{names.DOMAIN}/").partition(".")[0]
    return key.startswith(f"{names.DOMAIN}/") and f"{names.DOMAIN}/{stem}" not in names.WRITTEN_KEYS


# ---- the patch


class _Patch:
    """The operations that make a sharepod out of a pod."""

    def __init__(self, pod: dict[str, Any], spec: PodSpec, settings: Settings) -> None:
        self.pod, self.spec, self.settings = pod, spec, settings
        self.said: dict[str, str] = {}  # annotations to add
        self.sharing = sharing_containers(spec)

    def operations(self) -> list[dict[str, Any]]:
        resources = self._resources()
        speaks = any(share.spelling == names.ALIYUN for share in self.spec.shares)
        if speaks and self.settings.gpushare_unit != MEBI and names.GPUSHARE_UNIT not in _annotations(self.pod):
            self.said[names.GPUSHARE_UNIT] = self.settings.gpushare_unit
        result = [self._add_annotations()] if self.said else []
        if (
            self.settings.scheduler
            and (self.pod["spec"].get("schedulerName") or DEFAULT_SCHEDULER) == DEFAULT_SCHEDULER
        ):
            result.append({"op": "add", "path": "/spec/schedulerName", "value": self.settings.scheduler})
        for key in ("initContainers", "containers"):
            for i, container in enumerate(self.pod["spec"].get(key) or []):
                path = f"/spec/{key}/{i}"
                changed = self._changed(container, resources.get(container["name"], {}))
                if changed is not None:
                    result.append({"op": "add", "path": f"{path}/resources", "value": changed})
                if container["name"] in self.sharing:
                    result.append({"op": "add", "path": f"{path}/env", "value": self._env(container)})
                    continue
                env = _without_card(container) if self.sharing and not wants_of_others(container) else None
                if env is not None:
                    result.append({"op": "add", "path": f"{path}/env", "value": env})
        return result

    def _add_annotations(self) -> dict[str, Any]:
        return {"op": "add", "path": "/metadata/annotations", "value": {**_annotations(self.pod), **self.said}}

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
            annotated = {**self.pod, "metadata": {**(self.pod.get("metadata") or {}), "annotations": self._all_said()}}
            plain = _without_shares(annotated)
            for name, asked in injected(parse_pod(plain, self.settings.types)).items():
                result[name] = {**result.get(name, {}), **asked}
        return result

    def _all_said(self) -> dict[str, Any]:
        return {**_annotations(self.pod), **self.said}

    def _by_resources(self, container: str) -> bool:
        return f"{names.GPU_REQUEST}.{container}" in self.said

    def _say(self, container: str, want: Want, spelling: str) -> None:
        annotations = _annotations(self.pod)
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
        if not ours:
            return None
        given = container.get("resources")
        result: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        for part in ("limits", "requests"):
            listed = result.get(part)
            kept = (
                {self._ours(k): v for k, v in listed.items() if not _converted(k)} if isinstance(listed, dict) else {}
            )
            result[part] = {**kept, **{key: str(amount) for key, amount in ours.items()}}
        return result

    def _ours(self, key: str) -> str:
        """Devices of other types under our domain, which is what nodes have."""
        domain, _, kind = key.partition("/")
        return f"{names.DOMAIN}/{kind}" if domain in S2_DOMAINS and kind in self.settings.types else key

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
