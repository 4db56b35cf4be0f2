"""Admission reviews (admission.k8s.io/v1): a request in, the answer with patch or refusal out.

Pure. `mutate` turns every spelling of a share but gpushare's into our annotations and resources (a pod's resources
cannot change later), names the scheduler, and puts library and socket into the environment. `validate` refuses what the
allocator or the runtime could not keep, naming field, value and mend. `validate_binding` keeps others from binding
sharepods. A request that makes no sense is refused, never an exception. Pods that want no device pass untouched, and
so does anything that is neither a pod nor, for `mutate`, a Job.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection
from typing import Any

from gemini.kube import names
from gemini.kube.defaults import without_defaults
from gemini.kube.escapes import added, admission_fault, ephemeral_fault, may_name_cards, sharing_containers
from gemini.kube.pod import PodSpec, body_of, parse_pod
from gemini.kube.quantity import shown
from gemini.kube.scope import DEFAULT_SCHEDULER, bearers, conflict
from gemini.kube.spelling import InvalidPod
from gemini.kube.vgpu import KAI_KEYS
from gemini.placement.policies import POLICIES, unknown
from gemini.webhook.patch import (
    GRACE,
    Patch,
    annotations_of,
    ends_at_once,
    has_claims,
    metadata_of,
    one_second,
    part_of,
    without_card,
)  # fmt: skip
from gemini.webhook.placed import (
    asks_placed,
    is_record,
    may_record,
    placed_fault,
    placed_patch,
    unheld_fault,
)  # fmt: skip
from gemini.webhook.quota import Known, resolve
from gemini.webhook.settings import Settings
from gemini.webhook.template import below_template, is_job, of_template

# Of a pod, objects and lists and what is in them: a large one has some thousand. Admission comes before the API server
# looks at it, and takes microseconds for each while everybody's pods wait.
MOST_VALUES = 20_000
FEW_CONTAINERS = 32
ENDLESS = f"spec: the pod has more than {MOST_VALUES} values in all; make several pods of it"
# Of a pod or a namespace: whoever reaches the webhook says what is looked up, and a path may lead elsewhere.
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
REFUSED = 422  # HTTP status of a refusal: the object makes no sense as it is
FORBIDDEN = 403


def mutate(review: object, settings: Settings, known: Known | None = None) -> dict[str, Any]:
    """The answer to /mutate, with a JSONPatch where the pod, or the pod of the Job, is a sharepod. `known`: quotas and
    cards, where somebody watches them."""
    request = _request(review)
    if of_job := is_job(request):
        request = of_template(request)
    if not _is_pod(request):
        return _answer(request)
    if _is_endless(request.get("object")):
        return _answer(request, ENDLESS)
    if _is_ephemeral(request):
        return _mutate_ephemeral(request, settings)
    if request.get("operation") != "CREATE":
        return _answer(request)
    try:
        pod, spec = _read(request, settings, anew=True)
        if not spec.wanted:
            return _answer(request) if of_job else _outlasting(request, pod)
        resolved = resolve(spec, annotations_of(settings.part(pod)), str(request.get("namespace")), known)
        patch = Patch(pod, resolved, settings).operations()
        if of_job:
            patch = below_template(pod, patch)
    except InvalidPod as error:
        return _answer(request, str(error))
    return _answer(request, patch=patch, warnings=[*_warnings(pod, spec), *resolved.turned])


def mutate_placed(review: object, settings: Settings) -> dict[str, Any]:
    """The answer to /mutate/placed, with a JSONPatch where another scheduler chooses cards of the pod."""
    request = _request(review)
    pod = request.get("object")
    if not _is_pod(request) or request.get("operation") != "CREATE" or not isinstance(pod, dict):
        return _answer(request)
    if _is_endless(pod):
        return _answer(request, ENDLESS)
    try:
        body_of(pod)
        return _answer(request, patch=placed_patch(pod, settings))
    except InvalidPod as error:
        return _answer(request, str(error))


def validate_placed(review: object, settings: Settings) -> dict[str, Any]:
    """The answer to /validate/placed, of namespaces where others' pods are held to their time: none runs free there."""
    request = _request(review)
    answer = validate(review, settings)
    pod = request.get("object")
    if not answer["response"]["allowed"] or not _is_pod(request) or not isinstance(pod, dict):
        return answer
    if request.get("operation") == "CREATE" and (fault := unheld_fault(pod)):
        return _answer(request, str(fault))
    return answer


def _outlasting(request: dict[str, Any], pod: dict[str, Any]) -> dict[str, Any]:
    """Of a pod without a share: with a claim it is not gone at once when it is deleted or evicted, for then others have
    what the claim holds."""
    if not ends_at_once(pod) or not has_claims(pod):
        return _answer(request)
    warning = f"spec.{GRACE}: is 1 now; with 0 others would be given what its claims hold while its programs still end"
    return _answer(request, patch=[one_second()], warnings=[warning])


def _is_ephemeral(request: dict[str, Any]) -> bool:
    return request.get("subResource") == "ephemeralcontainers"


def _mutate_ephemeral(request: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Containers that are added to a sharepod have no card, also where their image says all: no device plugin is asked
    about them."""
    patch = []
    if not _is_held(request.get("object"), settings):
        return _answer(request)
    try:
        _read_ephemeral(request, settings)
        for path, container in added(request.get("object"), request.get("oldObject")):
            if (env := without_card(container)) is not None:
                at = path.replace("[", "/").replace("]", "").replace(".", "/")
                patch.append({"op": "add", "path": f"/{at}/env", "value": env})
    except InvalidPod as error:
        return _answer(request, str(error))
    return _answer(request, patch=patch)


def _has_share(pod: object, settings: Settings) -> bool:
    if bearers(pod):
        return True
    try:
        return parse_pod(settings.part(pod), settings.types).wanted
    except InvalidPod:
        return True  # it speaks our language, if badly


def _is_held(pod: object, settings: Settings) -> bool:
    """Whether we hold it to its share, whoever placed it."""
    return asks_placed(pod) or _has_share(pod, settings)


def _read_ephemeral(request: dict[str, Any], settings: Settings) -> None:
    if fault := ephemeral_fault(request.get("object"), request.get("oldObject"), settings.allowed):
        raise fault


def _warnings(pod: dict[str, Any], spec: PodSpec) -> list[str]:
    """What is not as somebody may think it is, though the pod is admitted."""
    sharing, told = sharing_containers(spec), []
    if ends_at_once(pod):
        told.append(f"spec.{GRACE}: is 1 now; with 0 its card would be promised to others while its programs still end")
    for key in ("initContainers", "containers"):
        for i, container in enumerate(pod["spec"].get(key) or []):
            sources = container.get("envFrom")
            sources = sources if isinstance(sources, list) and container["name"] in sharing else []
            if any(may_name_cards(source) for source in sources if isinstance(source, dict)):
                told.append(f"spec.{key}[{i}].envFrom: {names.ENV_PRELOAD} from it is not used; write it under env")
    return told


def validate(review: object, settings: Settings, known: Known | None = None) -> dict[str, Any]:
    """The answer to /validate for pods that are created or changed; `known` as for mutate."""
    request = _request(review)
    operation = request.get("operation")
    if operation not in ("CREATE", "UPDATE") or not _is_pod(request):
        return _answer(request)
    if operation == "CREATE" and _is_endless(request.get("object")):
        return _answer(request, ENDLESS)
    try:
        if _is_ephemeral(request):
            if _is_held(request.get("object"), settings):
                _read_ephemeral(request, settings)
        elif operation == "UPDATE":
            _check_unchanged(request, settings)
        else:
            pod, spec = _read(request, settings)
            if asks_placed(pod) and (fault := placed_fault(pod, spec.wanted, settings)):
                raise fault
            _check_scheduler(pod, spec, settings.schedulers[:1])  # by now it is the one that a pass of ours has written
            if (
                spec.wanted
                and resolve(spec, annotations_of(settings.part(pod)), str(request.get("namespace")), known).turned
            ):
                problem = "the namespace's quota counts bytes, and the pod came past what writes them; create it anew"
                raise InvalidPod(names.GPU_MEMORY, problem)
    except InvalidPod as error:
        return _answer(request, str(error))
    return _answer(request)


def binds_by_uid(request: dict[str, Any], settings: Settings) -> bool:
    """Whether what becomes of a binding depends on the pod."""
    user = request.get("userInfo")
    who = user.get("username") if isinstance(user, dict) else None
    named = all(_NAME.fullmatch(str(request.get(key, ""))) for key in ("namespace", "name"))
    return named and who not in settings.binders and bool(metadata_of(request.get("object")).get("uid"))


def validate_binding(review: object, pod: object, settings: Settings) -> dict[str, Any]:
    """The answer for a pod's binding; `pod` is the pod it binds, None where there is none.

    Whoever reaches the webhook can send a review, so one tells of a pod only who knows its uid, and with it knows the
    pod. Schedulers name the uid; a Binding that names another is refused by the API server itself."""
    request = _request(review)
    user = request.get("userInfo")
    who = user.get("username") if isinstance(user, dict) else None
    if who in settings.binders:
        return _answer(request)
    named = metadata_of(request.get("object")).get("uid")
    if not isinstance(named, str) or not named:
        return _answer(request, "metadata.uid: the Binding has none; name the pod's", code=FORBIDDEN)
    if pod is None or (pod and metadata_of(pod).get("uid") != named):
        return _answer(request)
    if not _has_share(pod, settings):
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


def takes_long(given: object) -> bool:
    """Whether the pod has so many containers that others should not wait for it; each takes 0.1 ms."""
    request = _request(given)
    pod = (of_template(request) if is_job(request) else request).get("object")
    spec = pod.get("spec") if isinstance(pod, dict) else None
    listed = [spec.get(key) for key in ("containers", "initContainers")] if isinstance(spec, dict) else []
    return sum(len(one) for one in listed if isinstance(one, list)) > FEW_CONTAINERS


def _is_endless(pod: object) -> bool:
    """Whether there is more in it than MOST_VALUES."""
    left, many = [pod], 0
    while left and many <= MOST_VALUES:
        one = left.pop()
        if isinstance(one, (dict, list)):
            many += len(one)
            left += (one.values() if isinstance(one, dict) else one) if many <= MOST_VALUES else ()
    return many > MOST_VALUES


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


def _read(request: dict[str, Any], settings: Settings, anew: bool = False) -> tuple[dict[str, Any], PodSpec]:
    """`anew`: what an earlier pass of admission wrote is written again, whatever others made of the pod since."""
    pod = request.get("object")
    if not isinstance(pod, dict):
        raise InvalidPod("request.object", f"{shown(pod)} is not an object; send the pod")
    part = settings.part(pod)
    if anew:
        part = without_defaults(part)
        spec = parse_pod(part, settings.types, renew=bearers(part), aside=settings.sidecars)
    else:
        spec = parse_pod(part, settings.types)
    for given in (spec.ask.policies, *(t.policies for t in spec.ask.tenants)):
        wrong = unknown(given or ())
        if wrong is not None:
            raise InvalidPod(names.GPU_POLICY, f"{shown(wrong)} is no policy; use some of {', '.join(POLICIES)}")
    annotations = annotations_of(pod)
    for key in names.RECORD_KEYS:
        if key in annotations:
            raise InvalidPod(key, f"{shown(annotations[key])} is written by the scheduler alone; remove it")
    if fault := conflict(pod, settings.reading, sharing_containers(spec)):
        raise fault
    if fault := admission_fault(pod, spec, settings.allowed, settings.by_cdi):
        raise fault
    _check_scheduler(pod, spec, settings.schedulers)
    return pod, spec


def _check_scheduler(pod: dict[str, Any], spec: PodSpec, known: Collection[str]) -> None:
    scheduler, first = pod.get("spec", {}).get("schedulerName") or DEFAULT_SCHEDULER, next(iter(known))
    if spec.wanted and scheduler not in known:
        raise InvalidPod("spec.schedulerName", f"{shown(scheduler)} knows nothing of shares; remove it, or use {first}")


def _check_unchanged(request: dict[str, Any], settings: Settings) -> None:
    """What a pod was placed by cannot change under the scheduler's feet."""
    was, now = request.get("oldObject"), request.get("object")
    heard, placed = settings.reading.of(was), asks_placed(was)
    writes = may_record(request.get("userInfo"), request.get("namespace"))
    for part in ("annotations", "labels"):
        old, new = part_of(was, part), part_of(now, part)
        for key in sorted({*old, *new}):
            if old.get(key) == new.get(key):
                continue
            problem = f"{shown(new.get(key))} instead of {shown(old.get(key))} in a pod that exists"
            if _fixed(part, key, heard) or (part == "annotations" and key in KAI_KEYS and placed):
                raise InvalidPod(key, f"{problem}; create the pod anew")
            if placed and not writes and is_record(part, key):
                raise InvalidPod(shown(key), f"{problem}; leave it to the scheduler, which writes it")


def _fixed(part: str, key: str, heard: Collection[str]) -> bool:
    """Whether it is one that a share is read from."""
    if part == "labels":
        domain = key.partition("/")[0]
        return domain in heard and (domain == names.KUBESHARE or key == names.ALIYUN_GPU_COUNT)
    stem = key.removeprefix(f"{names.DOMAIN}/").partition(".")[0]
    return key.startswith(f"{names.DOMAIN}/") and f"{names.DOMAIN}/{stem}" not in names.WRITTEN_KEYS
