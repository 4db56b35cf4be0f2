"""A pod as the extender sees it: what it asks for, what its record says it holds, and whether it still does.

Pure; one object in, one view out. What a cluster of them adds up to is state.py's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemini.extender.kept import DOMAINS, kept, slim
from gemini.extender.needs import FEW, Amounts, many_of, needs_of, said_of
from gemini.extender.reserve import GroupKey
from gemini.kube import names
from gemini.kube.allocation import located, record_of
from gemini.kube.covered import Asked, asked_by
from gemini.kube.device import Reported
from gemini.kube.life import begins_anew, gone, initialized
from gemini.kube.pod import PodSpec, parse_pod
from gemini.kube.quantity import Kept
from gemini.kube.resize import Resize, full_name, held
from gemini.kube.spelling import InvalidPod
from gemini.placement.model import GPU, Placement, Role

NOTHING = Asked()
SOON_SECONDS = 600  # of grace: who makes a pod may give it years to end
PREEMPTED = ("DisruptionTarget", "PreemptionByScheduler")  # type and reason of a condition
_NEEDS = "needs"  # beside what is kept of a pod: worked out once
_LABELS = (f"{names.DOMAIN}/", f"{names.KUBESHARE}/", names.ALIYUN_GPU_COUNT)  # that a share is read from


@dataclass(frozen=True)
class PodView:
    """A pod as the extender sees it. `spec` is None for pods that want no device, and for those with a `fault`."""

    uid: str
    namespace: str
    name: str
    node: str | None
    gone: bool  # its containers have ended
    terminating: bool
    initialized: bool  # its init containers have ended, for good
    placement: Placement | None  # what it counts with: `base`, or more or less where it has another share by now
    spec: PodSpec | None
    fault: str | None
    object: dict[str, Any]  # what of it is looked at (kept.py)
    vendor: frozenset[str] = frozenset()  # containers whose cards are another device plugin's choice
    recorded: tuple[Placement, tuple[str, ...]] | None = None  # the record itself, with the cards' uuids
    asked: Asked = NOTHING
    exchanges: bool = False  # it is being given another's cards for its own, and holds both meanwhile
    prefers: bool = False  # it says that some nodes are better than others, by what other pods or labels are there
    base: Placement | None = None  # from its record as far as it is covered, by the minors that the cards have now
    covered: bool = False  # whether that is the record as it stands
    resize: Resize | None = None

    def on(self, reported: Reported | None, resize: Resize | None) -> PodView:
        """The pod with its cards as its node has them, and another share than its record's; None: not known."""
        base, covered = self._held(reported)
        placement = base
        if base is not None and covered and resize is not None and not self.exchanges:
            placement = held(base, resize.booked, resize.enforced)
        now = (placement, base, covered, resize)
        if now == (self.placement, self.base, self.covered, self.resize):
            return self
        return replace(self, placement=placement, base=base, covered=covered, resize=resize)

    def _held(self, reported: Reported | None) -> tuple[Placement | None, bool]:
        """And whether that is what the record says."""
        placement = None if self.recorded is None else self.recorded[0]
        if self.node is None or self.gone or self.vendor:
            return placement, False
        if placement is not None and reported is not None:
            placement = located(placement, self.recorded[1], reported.node)  # type: ignore[index]
        if placement is not None:
            cards = [grant for grant in placement.grants if grant.type == GPU]
            devices = () if reported is None else reported.node.devices
            sizes = {device.minor: device.memory for device in devices if device.type == GPU}
            times = (1, 2) if self.exchanges else (1,)
            if any(self.asked.covers(cards, sizes, many) for many in times):
                return placement, True
        if reported is None or not self.asked.cards:
            return None, False
        if placement is None and any(uid == self.uid for uid, _ in reported.foreign):
            return None, False  # its node tells of it
        return Placement(self.uid, self.node, self.asked.everywhere(reported.node.devices)), False

    @property
    def full_name(self) -> str:
        return full_name(self.namespace, self.name, self.uid)

    @property
    def needs(self) -> Amounts:
        """What it needs of its node besides cards."""
        if _NEEDS not in self.object:
            self.object[_NEEDS] = needs_of(self.object)
        found: Amounts = self.object[_NEEDS]
        return found

    @property
    def ends_soon(self) -> bool:
        """Whether it is being deleted, and has no more than a while for that."""
        grace = mapping(self.object.get("metadata")).get("deletionGracePeriodSeconds")
        return self.terminating and not (isinstance(grace, int) and grace > SOON_SECONDS)

    @property
    def preempted(self) -> bool:
        """Whether kube-scheduler has evicted it for another pod."""
        listed = mapping(self.object.get("status")).get("conditions")
        said = [mapping(one) for one in (listed if isinstance(listed, list) else [])]
        return any((one.get("type"), one.get("reason")) == PREEMPTED for one in said)

    @property
    def runs(self) -> bool:
        """Whether a container has begun, by its kubelet's word."""
        return mapping(self.object.get("status")).get("phase") == "Running"

    @property
    def holds(self) -> bool:
        return self.node is not None and not self.gone and self.placement is not None

    @property
    def waits(self) -> bool:
        return self.spec is not None and self.node is None and not self.gone and not self.terminating

    @property
    def gated(self) -> bool:
        """Whether kube-scheduler leaves the pod alone until somebody (Kueue, Argo) takes its gates away."""
        return bool(mapping(self.object.get("spec")).get("schedulingGates"))

    @property
    def scheduler_says(self) -> str:
        """Why kube-scheduler could not place the pod when it last tried; empty: it did not say."""
        listed = mapping(self.object.get("status")).get("conditions")
        for one in listed if isinstance(listed, list) else ():
            said = mapping(one)
            if said.get("type") == "PodScheduled" and said.get("status") == "False":
                return " ".join(str(said.get("message") or said.get("reason") or "").split())
        return ""

    @property
    def group(self) -> GroupKey | None:
        group = self.spec.ask.group if self.spec else None
        return (self.namespace, group) if group is not None else None

    @property
    def priority(self) -> int:
        value = mapping(self.object.get("spec")).get("priority")
        return value if isinstance(value, int) else 0

    @property
    def nominated(self) -> str | None:
        """The node that the scheduler has made room on for this pod, by preemption."""
        node = mapping(self.object.get("status")).get("nominatedNodeName")
        return node if isinstance(node, str) and node and self.waits else None

    @property
    def order(self) -> tuple[str, str, str]:
        """Oldest first."""
        created = mapping(self.object.get("metadata")).get("creationTimestamp")
        return (created if isinstance(created, str) else "", self.name, self.uid)


def view_of(
    given: dict[str, Any],
    known_pods: Mapping[str, PodView],
    types: frozenset[str],
    offered: Collection[str] | None = None,
) -> PodView:
    """`known_pods`, by uid: where the pod is one of these, and says the same still, it is not parsed again. `offered`:
    the resources of the node that it is bound to; None: not known."""
    favours = prefers(given)
    given = kept(given, speaks(given))
    metadata, spec, status = (mapping(given.get(key)) for key in ("metadata", "spec", "status"))
    uid = str(metadata.get("uid", ""))
    node = spec.get("nodeName")
    node = node if isinstance(node, str) and node else None
    recorded, parsed, fault, known = None, None, None, known_pods.get(uid)
    if known is not None and _NEEDS in known.object and said_of(known.object) == said_of(given):
        given[_NEEDS] = known.object[_NEEDS]
    elif many_of(given) > FEW:
        given[_NEEDS] = needs_of(given)
    try:
        if node is not None:
            recorded = record_of(uid, node, mapping(metadata.get("annotations")))
        if known is not None and known.fault is None and _says(known.object) == _says(given):
            parsed = known.spec  # most news of a pod are of its status
        elif speaks(given):
            parsed = parse_pod(given, types, name=uid)
            parsed = parsed if parsed.wanted else None
    except InvalidPod as error:
        fault = str(error)
    placement = None if recorded is None else recorded[0]
    return PodView(
        uid=uid,
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata.get("name", "")),
        node=node,
        gone=gone(status),
        terminating=metadata.get("deletionTimestamp") is not None,
        # Without init tenants it makes no difference, and need not be followed.
        initialized=placement is not None
        and any(grant.role is Role.INIT for grant in placement.grants)
        and initialized(status)
        and not begins_anew(spec),  # else what others are given meanwhile would be promised twice
        placement=placement,
        spec=parsed,
        fault=fault,
        object=given,
        vendor=_vendor(spec, offered),
        recorded=recorded,
        asked=asked_by(given, offered) if node is not None else NOTHING,
        exchanges=bool(mapping(metadata.get("annotations")).get(names.EXCHANGE)),
        prefers=favours,
    )


def slimmed(pod: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a pod while a list of all is read."""
    return slim(pod, speaks(pod), prefers(pod))


def speaks(pod: Mapping[str, Any]) -> bool:
    """Whether a pod says anything in one of our languages; a quick look before it is parsed."""
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    if any(key.startswith(f"{names.DOMAIN}/") for key in mapping(metadata.get("annotations"))):
        return True
    if any(key.startswith(f"{names.KUBESHARE}/") for key in mapping(metadata.get("labels"))):
        return True
    for listed in (spec.get("containers"), spec.get("initContainers")):
        for container in listed if isinstance(listed, list) else ():
            for amounts in mapping(mapping(container).get("resources")).values():
                if isinstance(amounts, dict) and any(key.startswith(DOMAINS) for key in amounts):
                    return True
    return False


def prefers(pod: Mapping[str, Any]) -> bool:
    """Whether the pod says that some nodes are better than others, by what other pods or labels are there."""
    spec = mapping(pod.get("spec"))
    soft = "preferredDuringSchedulingIgnoredDuringExecution"
    return bool(spec.get("topologySpreadConstraints")) or any(
        mapping(part).get(soft) for part in mapping(spec.get("affinity")).values()
    )


def _vendor(spec: Mapping[str, Any], offered: Collection[str] | None) -> frozenset[str]:
    """The containers that ask for what another device plugin serves; where the node offers no such thing, the kubelet
    leaves it out."""
    found: set[str] = set()
    served = names.VENDOR_RESOURCES if offered is None else names.VENDOR_RESOURCES.intersection(offered)
    for key in ("containers", "initContainers"):
        listed = spec.get(key)
        for container in listed if isinstance(listed, list) else ():
            given = mapping(container)
            for amounts in mapping(given.get("resources")).values():
                if isinstance(amounts, dict) and any(_some(amounts.get(name)) for name in served):
                    found.add(str(given.get("name", "")))
    return frozenset(found)


def _some(amount: object) -> bool:
    """Whether a kubelet takes it for any device at all; of more than it can count it gives out none."""
    return amount is not None and str(amount) != "0" and Kept.read(amount).counted() != 0


def _says(pod: Mapping[str, Any]) -> tuple[object, ...]:
    """All that a pod's share is read from."""
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    annotations, labels, ours = metadata.get("annotations"), metadata.get("labels"), f"{names.DOMAIN}/"
    if isinstance(annotations, dict):
        annotations = {k: v for k, v in annotations.items() if k.startswith(ours) and k not in names.WRITTEN_KEYS}
    if labels is None or isinstance(labels, dict):  # of the others an editor may change any at any time
        labels = {k: v for k, v in (labels or {}).items() if k.startswith(_LABELS)}
    return annotations, labels, spec.get("containers"), spec.get("initContainers")


def mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
