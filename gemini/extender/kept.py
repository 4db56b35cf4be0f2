"""What is kept of a pod and of a PodDisruptionBudget: the parts that the extender looks at.

Pure. All of the cluster are kept, pods that want no card too, and who may make one may make it as large as the
API server stores it, 1.5 MB of text, which is several times that as objects. So nothing is kept of which there may
be any amount: of commands, environments, volumes and the like nothing, of lists a bounded number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemini.kube import names
from gemini.kube.pod import MOST_CONTAINERS
from gemini.kube.spelling import S2_DOMAINS

MOST_LABELS, MOST_OWNERS, MOST_AMOUNTS = 256, 16, 64  # a pod has some ten, one, and some five for a container
DOMAINS = tuple(f"{d}/" for d in (*S2_DOMAINS, names.ALIYUN, names.NVIDIA))  # of resources that ask for cards
MOST_SELECTED = 4_000  # keys and values of a budget's selector, and evictions under way
MIRROR = "kubernetes.io/config.mirror"
_NOTES = (f"{names.DOMAIN}/", "ALIYUN_COM_GPU_MEM_")  # begin annotations that are looked at
_METADATA = (
    "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds",
)  # fmt: skip
_SPEC = ("nodeName", "priority", "priorityClassName", "overhead", "restartPolicy")
_GATES = "schedulingGates"  # of which the first says that there are some
_STATUS = ("phase", "nominatedNodeName", "conditions")
_LISTS = ("containers", "initContainers")
_RULES = "restartPolicyRules"  # of which one says that there are some
_CONTAINER = ("name", "restartPolicy", "resources", _RULES)
_AMOUNTS = ("requests", "limits")
_STATUSES = ("containerStatuses", "initContainerStatuses")
OF_PODS = ("cpu", "memory")  # what a pod may ask for as a whole, and what may be resized in place


def kept(pod: Mapping[str, Any], speaks: bool) -> dict[str, Any]:
    """`speaks`: it says something in one of our languages. Then all containers are kept, as admission has counted
    them."""
    metadata, spec, status = (_mapping(pod.get(key)) for key in ("metadata", "spec", "status"))
    result: dict[str, Any] = {"metadata": _some(metadata, _METADATA)}
    annotations, labels = metadata.get("annotations"), metadata.get("labels")
    if isinstance(annotations, dict):
        result["metadata"]["annotations"] = _noted(annotations, speaks)
    if isinstance(labels, dict):
        few = len(labels) <= MOST_LABELS
        result["metadata"]["labels"] = labels if few else dict(list(labels.items())[:MOST_LABELS])
    owners = metadata.get("ownerReferences")
    if isinstance(owners, list):
        result["metadata"]["ownerReferences"] = owners[:MOST_OWNERS]
    result["spec"] = _some(spec, _SPEC)
    if isinstance(whole := spec.get("resources"), dict):
        result["spec"]["resources"] = {part: _amounts(whole[part]) for part in _AMOUNTS if part in whole}
    if gates := _listed(spec.get(_GATES)):
        result["spec"][_GATES] = gates[:1]
    many = sum(len(_listed(spec.get(key))) for key in _LISTS)
    for key in _LISTS:
        if key in spec and (speaks or many <= MOST_CONTAINERS):
            listed = spec[key]
            result["spec"][key] = [_container(one) for one in listed] if isinstance(listed, list) else listed
    result["status"] = _some(status, _STATUS)
    if "resources" in result["spec"]:
        result["status"] |= _given(status)
    asked = _requests(result["spec"]) if any(key in status for key in _STATUSES) else {}
    for key in _STATUSES:
        if key in status:
            result["status"][key] = [_state(one, asked) for one in _listed(status[key])[:MOST_CONTAINERS]]
    return result


def slim(pod: dict[str, Any], speaks: bool, prefers: bool) -> dict[str, Any]:
    """A pod of which the same is read as of all of it: what is kept, and that it prefers some nodes."""
    result = kept(pod, speaks)
    if prefers:
        result["spec"]["topologySpreadConstraints"] = [{}]
    return result


def kept_budget(budget: Mapping[str, Any]) -> dict[str, Any]:
    """With `endless` in its spec where its selector is too large to be kept."""
    metadata, spec, status = (_mapping(budget.get(key)) for key in ("metadata", "spec", "status"))
    selector, disrupted = spec.get("selector"), _mapping(status.get("disruptedPods"))
    endless = spec.get("endless") is True or _size(selector) > MOST_SELECTED
    selected = {"endless": True} if endless else {"selector": selector}
    under_way = dict.fromkeys(list(disrupted)[:MOST_SELECTED], "")
    allowed = {"disruptionsAllowed": status.get("disruptionsAllowed"), "disruptedPods": under_way}
    return {"metadata": _some(metadata, _METADATA), "spec": selected, "status": allowed}


def _size(selector: object) -> int:
    """How many keys and values it compares."""
    given = _mapping(selector)
    values = [_listed(_mapping(rule).get("values")) for rule in _listed(given.get("matchExpressions"))]
    return len(_mapping(given.get("matchLabels"))) + sum(1 + len(one) for one in values)


def _noted(annotations: Mapping[str, Any], speaks: bool) -> dict[str, Any]:
    """Ours and those of records; of a queue's that there is one. The API server lets a pod have 256 KiB of others."""
    result = {k: v for k, v in annotations.items() if k == MIRROR or (speaks and k.startswith(_NOTES))}
    queued = next((key for key in annotations if speaks and key.startswith(names.KUEUE)), None)
    return result if queued is None else {**result, queued: ""}


def _container(given: object) -> object:
    if not isinstance(given, dict):
        return given
    result = _some(given, _CONTAINER)
    if isinstance(resources := result.get("resources"), dict):
        result["resources"] = {part: _amounts(resources[part]) for part in _AMOUNTS if part in resources}
    if _RULES in result:
        result[_RULES] = [{}] if result[_RULES] else []
    # By which admission says that the container has a share.
    marks = [one for one in _listed(given.get("env")) if isinstance(one, dict) and one.get("name") == names.ENV_SOCKET]
    return {**result, "env": marks} if marks else result


def _amounts(given: object) -> object:
    if not isinstance(given, dict) or len(given) <= MOST_AMOUNTS:
        return given
    return {key: amount for key, amount in given.items() if key.startswith(DOMAINS) or "/" not in key}


def _state(given: object, asked: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """With what the container has, where that is not what it asks for."""
    status = _mapping(given)
    result: dict[str, Any] = {"state": dict.fromkeys(_mapping(status.get("state")))}
    own = asked.get(str(status.get("name")))
    if own is not None and (has := _given(status)):
        allocated, actual = has.get("allocatedResources", own), has.get("resources", {"requests": own})["requests"]
        if own not in (allocated, actual) or allocated != actual:
            result |= {"name": status["name"], **has}
    return result


def _requests(spec: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Of containers, by their names; those that may be resized."""
    every = (_mapping(one) for key in _LISTS for one in _listed(spec.get(key)))
    return {str(one.get("name")): _of_pods(_mapping(one.get("resources")).get("requests")) for one in every}


def _given(status: Mapping[str, Any]) -> dict[str, Any]:
    """What a container, or a pod as a whole, was let have and has, by its status."""
    allocated = _of_pods(status.get("allocatedResources"))
    actual = _of_pods(_mapping(status.get("resources")).get("requests"))
    result: dict[str, Any] = {"allocatedResources": allocated} if allocated else {}
    return {**result, "resources": {"requests": actual}} if actual else result


def _of_pods(given: object) -> Mapping[str, Any]:
    return _some(_mapping(given), OF_PODS)


def _some(given: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: given[key] for key in keys if key in given}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
