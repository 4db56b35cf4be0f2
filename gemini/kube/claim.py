"""ResourceClaims of our driver (resource.k8s.io/v1): what was allocated, and whether the extender stands by it.

Pure. kube-scheduler allocates a claim by itself, from the ResourceSlices, which may be behind. Therefore each of our
devices carries a binding condition: the scheduler binds no pod before `gemini.io/promised` is True for every device
that was allocated, and gives the allocation up when `gemini.io/refused` is. The extender sets one of the two. A claim
whose devices do not ask for it (another version made the slice) was given without asking, and counts as promised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemini.kube import names, quantity
from gemini.placement.model import GPU, WHOLE, Device, Grant, Node
from gemini.units import BadValue

PREFIX = "claim/"  # of a claim's key in the book, where pods go by their uid


@dataclass(frozen=True)
class Share:
    """One result of an allocation. `device` is the name in the slice."""

    device: str
    core: int
    memory: int


@dataclass(frozen=True)
class Claim:
    """A claim that holds, or is to hold, devices of ours. `key` is that of this allocation: another one of the same
    claim has another. `admin`: some of it is administrators' access, which takes nothing of a card."""

    uid: str
    namespace: str
    name: str
    node: str
    key: str
    shares: tuple[Share, ...]
    promised: bool
    refused: bool
    object: dict[str, Any]
    admin: bool = False

    @property
    def waits(self) -> bool:
        return not self.promised and not self.refused


def read_claim(given: Mapping[str, Any]) -> Claim | None:
    """None where nothing of ours is allocated, or what is there makes no sense: such a claim is never promised."""
    metadata, status = _mapping(given.get("metadata")), _mapping(given.get("status"))
    allocation = _mapping(status.get("allocation"))
    results = _results(status)
    pools = {str(result.get("pool", "")) for result in results}
    if len(pools) != 1:  # a pool is a node
        return None
    try:
        shares = tuple(_share(result) for result in results if not _is_admins(result))
    except (BadValue, ValueError):
        return None
    marks = [_marks(status, result) for result in results]
    uid = str(metadata.get("uid", ""))
    stamp = next((str(r["shareID"]) for r in results if r.get("shareID")), allocation.get("allocationTimestamp", ""))
    return Claim(
        uid=uid,
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata.get("name", "")),
        node=pools.pop(),
        key=f"{PREFIX}{uid}/{stamp}",
        shares=shares,
        promised=all(promised for promised, _ in marks) and not any(refused for _, refused in marks),
        refused=any(refused for _, refused in marks),
        object=dict(given),
        admin=any(map(_is_admins, results)),
    )


def slim_claim(given: Mapping[str, Any]) -> dict[str, Any]:
    """A claim with what our driver was allocated of it, and whether it was promised: all of the cluster are kept, and
    who may make one makes it as large as the API server stores it. One of which nothing is allocated says no more than
    that it is there. From what is kept none can be written again."""
    metadata, status = _mapping(given.get("metadata")), _mapping(given.get("status"))
    kept: dict[str, Any] = {"metadata": _some(metadata, ("name", "namespace", "uid", "resourceVersion"))}
    if not (allocation := _mapping(status.get("allocation"))):
        return kept
    results = [_some(result, _KEPT) for result in _results(status)[:MOST_RESULTS]]
    entries = [one for one in (_entry(status, result) for result in results) if one]
    devices = [{**_some(one, _SAME), "conditions": _conditions(one)} for one in entries]
    stamp = _some(allocation, ("allocationTimestamp",))
    return {**kept, "status": {"allocation": {**stamp, "devices": {"results": results}}, "devices": devices}}


def _conditions(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_some(_mapping(one), ("type", "status")) for one in _list(entry.get("conditions"))]


def answered(claim: Claim, promised: bool, message: str, stamp: str) -> dict[str, Any]:
    """The claim with our answer in its status; `stamp`: RFC 3339. Entries of other drivers stay."""
    status = _mapping(claim.object.get("status"))
    results = _results(status)
    said = [
        {"type": names.CLAIM_PROMISED, "status": "True" if promised else "False"},
        {"type": names.CLAIM_REFUSED, "status": "False" if promised else "True"},
    ]
    reason = "Promised" if promised else "NoRoom"
    fresh = [{**one, "reason": reason, "message": message[:1024], "lastTransitionTime": stamp} for one in said]
    kept = [entry for entry in map(_mapping, _list(status.get("devices"))) if entry.get("driver") != names.DRIVER]
    entries = []
    for result in results:
        known = _entry(status, result)
        conditions = [c for c in map(_mapping, _list(known.get("conditions"))) if c.get("type") not in _TYPES]
        entry: dict[str, Any] = {**known, **{key: result[key] for key in _SAME if key in result}}
        entries.append({**entry, "conditions": [*conditions, *fresh]})
    return {**claim.object, "status": {**status, "devices": [*kept, *entries]}}


_TYPES = (names.CLAIM_PROMISED, names.CLAIM_REFUSED)
_SAME = ("driver", "pool", "device", "shareID")  # what a device's status has in common with its result
_KEPT = (*_SAME, "request", "adminAccess", "consumedCapacity", "bindingConditions")
MOST_RESULTS = 64  # the API server lets in half as many


def grants_of(claim: Claim, node: Node) -> tuple[Grant, ...] | None:
    """What the claim is to hold of the node's cards; None where one of them is not there."""
    grants = grants_there(claim, node)
    return grants if len(grants) == len(claim.shares) else None


def grants_there(claim: Claim, node: Node) -> tuple[Grant, ...]:
    """What the claim holds of those of its cards that are there: one that has gone leaves it the others."""
    minors = {card_name(device): device.minor for device in node.devices if device.type == GPU}
    shares = ((i, share) for i, share in enumerate(claim.shares) if share.device in minors)
    return tuple(Grant(GPU, minors[one.device], one.core, one.memory, tenant=i) for i, one in shares)


def card_name(device: Device) -> str:
    """A card's name in slices, a DNS label: its uuid's, which stays when minors change."""
    return uuid_name(device.uuid) or f"{device.type}-{device.minor}"


def uuid_name(uuid: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in uuid.lower())[:63].strip("-")


def named_results(claim: Claim) -> list[tuple[str, str, str]]:
    """(request, device, shareID) of each result. Of a request with alternatives the one that was taken stands after a
    slash: containers, and the kubelet, name the request alone."""
    results = _results(_mapping(claim.object.get("status")))
    texts = [[str(result.get(key) or "") for key in ("request", "device", "shareID")] for result in results]
    return [(request.partition("/")[0], device, share) for request, device, share in texts]


def configuration(claim: Claim) -> list[dict[str, Any]]:
    """What was configured for our driver: the class's parameters, then the claim's own."""
    allocation = _mapping(_mapping(claim.object.get("status")).get("allocation"))
    entries = [_mapping(entry) for entry in _list(_mapping(allocation.get("devices")).get("config"))]
    ours = [entry for entry in entries if _mapping(entry.get("opaque")).get("driver") == names.DRIVER]
    ours.sort(key=lambda entry: entry.get("source") != "FromClass")
    return [_mapping(_mapping(entry["opaque"]).get("parameters")) for entry in ours]


def slice_object(
    node: Node,
    taken: Mapping[int, tuple[int, int, int]],
    owner: Mapping[str, Any],
    known: Mapping[str, Any] | None,
) -> dict[str, Any] | None:
    """The ResourceSlice of a node, to be written over `known`; None: it says so already. `taken`: minor -> (core,
    memory, slots) held by others than claims, which is no capacity for these. Cards out of service are left out, and so
    are those that others hold wholly. A claim that says no amount takes the whole card."""
    devices = [
        _sliced(device, taken.get(device.minor, (0, 0, 0)))
        for device in node.devices
        if device.type == GPU and device.health and not device.cordoned
        and taken.get(device.minor, (0, 0, 0))[0] < device.core
    ]  # fmt: skip
    before = _mapping((known or {}).get("spec"))
    if known is not None and before.get("devices", []) == devices:
        return None
    metadata = _mapping(owner.get("metadata"))
    reference = {"apiVersion": "v1", "kind": "Node", "name": metadata.get("name"), "uid": metadata.get("uid")}
    kept = _mapping((known or {}).get("metadata"))
    generation = int(_mapping(before.get("pool")).get("generation", 0)) + 1
    return {
        "apiVersion": names.RESOURCE_API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {**kept, "name": slice_name(node.name), "ownerReferences": [reference]},
        "spec": {
            "driver": names.DRIVER,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def slice_name(node: str) -> str:
    return f"{node}-{names.DRIVER}"


def keeps_promises(written: Mapping[str, Any]) -> bool:
    """Whether the API server kept what makes a device shareable and its allocation wait for us: it drops fields of
    features that it does not have."""
    devices = map(_mapping, _list(_mapping(written.get("spec")).get("devices")))
    asked = ((d.get("allowMultipleAllocations"), _list(d.get("bindingConditions"))) for d in devices)
    return all(shared is True and names.CLAIM_PROMISED in conditions for shared, conditions in asked)


def _sliced(device: Device, taken: tuple[int, int, int]) -> dict[str, Any]:
    core, memory, slots = taken
    capacity = {
        "core": _capacity(device.core - core, WHOLE, {"min": "0", "step": "1"}),
        "memory": _capacity(max(device.memory - memory, 0), device.memory),
    }
    if device.slots is not None:
        left = max(device.slots - slots, 0)
        capacity["slots"] = _capacity(left, 1, {"min": "1", "max": "1"} if left else None)
    attributes: dict[str, Any] = {"minor": {"int": device.minor}}
    for key, text in (("uuid", device.uuid), ("model", device.model), ("numa", device.numa), ("pcie", device.pcie)):
        if text:
            attributes[key] = {"string": text[:64]}
    return {
        "name": card_name(device),
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": True,
        "bindsToNode": True,
        "bindingConditions": [names.CLAIM_PROMISED],
        "bindingFailureConditions": [names.CLAIM_REFUSED],
    }


def _capacity(value: int, default: int, bounds: dict[str, str] | None = None) -> dict[str, Any]:
    """`bounds`: of what a claim takes, so that kube-scheduler counts as the book does. Where it counted less it would
    give others what the book has not, again and again."""
    policy: dict[str, Any] = {"default": str(default)}
    return {"value": str(value), "requestPolicy": {**policy, "validRange": bounds} if bounds else policy}


def _results(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    devices = _mapping(_mapping(status.get("allocation")).get("devices"))
    return [result for result in map(_mapping, _list(devices.get("results"))) if _ours(result)]


def _ours(result: Mapping[str, Any]) -> bool:
    return result.get("driver") == names.DRIVER


def _is_admins(result: Mapping[str, Any]) -> bool:
    return result.get("adminAccess") is True


def _share(result: Mapping[str, Any]) -> Share:
    taken = _mapping(result.get("consumedCapacity"))
    core, memory = (_amount(taken.get(key)) for key in ("core", "memory"))
    return Share(str(result.get("device", "")), core, memory)


def _amount(value: object) -> int:
    if value is None:
        raise ValueError("an allocation without amounts")
    exact = quantity.parse_quantity(value)
    if exact < 0:
        raise ValueError("an amount below 0")
    return -int(-exact // 1)


def _marks(status: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[bool, bool]:
    """(promised, refused) of one result."""
    conditions = _list(_entry(status, result).get("conditions"))
    true = {c.get("type") for c in map(_mapping, conditions) if c.get("status") == "True"}
    asks = names.CLAIM_PROMISED in _list(result.get("bindingConditions"))
    return not asks or names.CLAIM_PROMISED in true, names.CLAIM_REFUSED in true


def _entry(status: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a result's device; {} where there is none yet."""
    for entry in map(_mapping, _list(status.get("devices"))):
        if all(entry.get(key) == result.get(key) for key in _SAME):
            return entry
    return {}


def _some(given: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: given[key] for key in keys if key in given}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
