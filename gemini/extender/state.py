"""The cluster as watched: nodes, Device objects and pods in, the book of shares out.

Pure: no clock, no I/O. What the book holds is a function of the objects as they are now, not of how they came to be so.
That is why a restarted extender, which lists them, has the book of one that never restarted (the property test says
so). Events may come late or twice, and older than what a consistent read has shown already: an object older than the
one known is passed over (its resourceVersion; the API server's are comparable).

A pod holds its devices from the moment it is bound with our record until its containers are gone. A pod that is being
deleted still holds them; one that ended (Succeeded, Failed) holds them only while a container is still said to run.
Cards that other device plugins gave out are foreign.py's, those of ResourceClaims allocated.py's, other shares of pods
that run resized.py's. A node without a Device object, or a Device without its node, takes nobody. A pod with a Resize
counts with the larger of what is booked for it and what its node enforces (gemini/kube/resize.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from gemini.extender.allocated import Allocated
from gemini.extender.foreign import ForeignCards, discard
from gemini.extender.kept import kept_budget
from gemini.extender.kinds import BUDGET, CLAIM, DEVICE, NODE, POD, RESIZE, UID_KINDS, full_name_of, key_of, version_of
from gemini.extender.members import MemberIndex
from gemini.extender.podview import PodView, mapping, view_of
from gemini.extender.reserve import GroupKey, Reservations
from gemini.extender.resized import Resized
from gemini.kube import names
from gemini.kube.claim import PREFIX, Claim, read_claim, slim_claim
from gemini.kube.device import Reported, cordoned, read_device
from gemini.kube.group import domain
from gemini.kube.resize import Amounts, Resize, pod_of, read_resize, uid_of
from gemini.placement.allocate import Allocator
from gemini.placement.book import Book
from gemini.placement.model import Placement
from gemini.placement.standing import Standings

DELETED = "DELETED"
ENDED = 20_000  # deleted pods, and allocations of claims that are over, that are remembered


class Cluster:
    """All that is known of the cluster, with the book that follows from it and the reservations on top."""

    def __init__(self, policies: Sequence[str] = (), types: frozenset[str] = names.DEVICE_TYPES) -> None:
        self.types = types
        self.book = Book()
        self.allocator = Allocator(self.book, policies)
        self.standings = Standings(self.allocator)
        self.reservations = Reservations(self.book)
        self.nodes: dict[str, dict[str, Any]] = {}
        self.discouraged: set[str] = set()  # nodes that bear a taint PreferNoSchedule
        self.devices: dict[str, Reported] = {}
        self.pods: dict[str, PodView] = {}
        self.foreign = ForeignCards(self.book, self.devices, self.pods)
        self.budgets: dict[str, dict[str, dict[str, Any]]] = {}  # by namespace and name
        self.on_node: dict[str, set[str]] = defaultdict(set)  # uids of all pods that are bound and not gone
        self.nominated: set[str] = set()  # uids of waiting pods that preempted
        self.groups = MemberIndex()
        self._stirs = self._shifts = 0
        self._versions: dict[tuple[str, str], int] = {}
        self._come: dict[str, int] = defaultdict(int)  # how far the watch of each kind has come, as a resourceVersion
        self._allocated = Allocated(self.book, self.reservations, self.devices)
        self.claims: Mapping[str, Claim] = self._allocated.claims
        self._resized = Resized(self.pods)
        self.resizes: Mapping[str, Resize] = self._resized.by_pod
        self._releases = 0
        self.on_settled: Callable[[str], None] = lambda uid: None  # told of pods that are seen bound, or gone
        self._ended: dict[str, None] = {}  # uids of deleted pods, oldest first: a read may still show one of them

    # ---- events

    def apply(self, kind: str, event: str, given: object) -> None:
        """One watch event. What is no such object is passed over."""
        self._enter_object(kind, event, given)
        self._come[kind] = max(self._come[kind], version_of(mapping(given)))

    def note(self, kind: str, given: object) -> None:
        """An object as another read has shown it, before or after the watch."""
        self._enter_object(kind, "MODIFIED", given)

    def _enter_object(self, kind: str, event: str, given: object) -> None:
        key = key_of(kind, given)
        if key is None or not isinstance(given, dict):
            return
        version = version_of(given)
        known = self._versions.get((kind, key), 0)
        if kind in UID_KINDS and key in self._ended:
            return
        if event == DELETED:
            if version >= known or not version:
                self._versions.pop((kind, key), None)
                self._forget(kind, key)
        elif not version or version >= known:
            self._versions[kind, key] = version
            self._take(kind, key, given)

    def replace(self, kind: str, objects: Iterable[object], version: int = 0) -> None:
        """A list of all objects of a kind, read at `version`: what is not in it is gone."""
        listed = {key: item for item in objects if (key := key_of(kind, item)) is not None}
        for known in [key for of, key in self._versions if of == kind]:
            newer = bool(version) and self._versions[kind, known] > version  # seen by a later read
            if known not in listed and not newer:
                del self._versions[kind, known]
                self._forget(kind, known)
        for item in listed.values():
            self.apply(kind, "ADDED", item)
        self._come[kind] = max(self._come[kind], version)

    def _take(self, kind: str, key: str, given: dict[str, Any]) -> None:
        if kind == NODE:
            before = self._offered(key)
            self._shifts += _labels(self.nodes.get(key)) != _labels(given)
            self.nodes[key] = given
            self._put_node(key)
            if set(before or ()) != set(self._offered(key) or ()):
                for uid in sorted(self.on_node.get(key, ())):
                    self._put_pod(self.view(self.pods[uid].object))
        elif kind == DEVICE:
            self.devices[key] = read_device(given)
            self._put_device(key)
        elif kind == POD:
            self._put_pod(self.view(given))
        elif kind == CLAIM:
            self._put_claim(key, read_claim(slim_claim(given)))
        elif kind == RESIZE:
            self._put_resize(key, read_resize(given))
        elif kind == BUDGET:
            namespace, name = full_name_of(given)
            self.budgets.setdefault(namespace, {})[name] = kept_budget(given)

    def _forget(self, kind: str, key: str) -> None:
        if kind == NODE:
            self.nodes.pop(key, None)
            self._put_node(key)
        elif kind == DEVICE:
            self.devices.pop(key, None)
            self._put_device(key)
        elif kind == POD:
            self._drop_pod(key)
            self._end(key)
        elif kind == CLAIM:
            self._put_claim(key, None)
            self._end(key)
        elif kind == RESIZE:
            self._put_resize(key, None)
        elif kind == BUDGET:
            namespace, _, name = key.partition("/")
            here = self.budgets.get(namespace, {})
            here.pop(name, None)
            if not here:
                self.budgets.pop(namespace, None)

    def _put_claim(self, uid: str, claim: Claim | None) -> None:
        over, released = self._allocated.put(uid, claim)
        self._releases += released
        if over is not None:
            self._end(over)

    @property
    def releases(self) -> int:
        """Grows whenever something was given back, a node has become another, or a group has another member: who waits
        may have room now."""
        return self._releases + self._stirs + self.reservations.releases + self.foreign.releases

    @property
    def chances(self) -> int:
        """Grows whenever a group that was refused could be placed now, though its members are the same."""
        return self.releases - self._stirs + self._shifts

    def stir(self) -> None:
        """Has those who wait asked about again, though nothing was given back."""
        self._stirs += 1

    def _end(self, key: str) -> None:
        self._ended[key] = None
        if len(self._ended) > ENDED:
            del self._ended[next(iter(self._ended))]

    # ---- nodes

    def _put_node(self, name: str) -> None:
        node, reported = self.nodes.get(name), self.devices.get(name)
        taints = mapping((node or {}).get("spec")).get("taints")
        soft = isinstance(taints, list) and any(mapping(t).get("effect") == "PreferNoSchedule" for t in taints)
        (self.discouraged.add if soft else self.discouraged.discard)(name)
        if node is None or reported is None:
            self.book.drop_node(name)
            return
        annotations = mapping(mapping(node.get("metadata")).get("annotations"))
        said = annotations.get(names.NODE_CORDON)
        uuids = frozenset(u.strip() for u in said.split(",") if u.strip()) if isinstance(said, str) else frozenset()
        fresh = cordoned(reported.node, uuids)
        if self.book.node(name) != fresh:
            self._releases += 1  # another card, or one in service again
        self.book.put_node(fresh)

    def _put_device(self, node: str) -> None:
        """The node's cards may have other minors now, or others their minors."""
        self._put_node(node)
        for uid in sorted(self.on_node.get(node, ())):
            self._look_again(uid)
        self.foreign.report(node)
        self._releases += self._allocated.look_again(node)

    # ---- pods

    def view(self, given: dict[str, Any]) -> PodView:
        """A pod object as we see it."""
        node = mapping(given.get("spec")).get("nodeName")
        seen = view_of(given, self.pods, self.types, self._offered(node) if isinstance(node, str) else None)
        return seen.on(self._reported(seen.node), self._resized.of(seen))

    def _offered(self, node: str) -> Mapping[str, Any] | None:
        """The resources that the node has, or had since its kubelet began; None: not known."""
        capacity = mapping(self.nodes.get(node, {}).get("status")).get("capacity")
        return capacity if isinstance(capacity, dict) else None

    def _reported(self, node: str | None) -> Reported | None:
        return self.devices.get(node or "")

    def _look_again(self, uid: str) -> None:
        """A pod may count with other amounts now, or hold other minors."""
        if (pod := self.pods.get(uid)) is not None:
            fresh = pod.on(self._reported(pod.node), self._resized.of(pod))
            if fresh is not pod:
                self._put_pod(fresh)

    def _put_resize(self, own: str, resize: Resize | None) -> None:
        """`own`: the uid of the object itself."""
        for uid in self._resized.put(own, resize):
            self._look_again(uid)
        if resize is not None and not resize.waiting:
            self.reservations.settle(resize.key)  # it stands in what the pod holds by now, or came to nothing

    def note_grown(self, grown: Mapping[str, Amounts]) -> None:
        """What the lease of a node says that pods were given at most: it counts where a pod's Resize has gone before
        it, and nobody here has seen it."""
        for uid in self._resized.grow(grown, self._ended):
            self._look_again(uid)

    def unbooked(self) -> list[Resize]:
        """Those whose wish has not been answered, oldest first. Of pods that are not there anybody may make ever so
        many: those are never looked at."""
        return [self.resizes[name] for name in self._resized.asked]

    @property
    def asking(self) -> Container[str]:
        """The same by the full names of their pods."""
        return self._resized.asked

    def _put_pod(self, pod: PodView) -> None:
        known = self.pods.get(pod.uid)
        self._shifts += known is not None and known.nominated not in (None, pod.nominated)
        self._unlink(pod.uid)
        self.pods[pod.uid] = pod
        self._resized.note(pod)
        if pod.node is not None or pod.gone:
            self.reservations.settle(pod.uid, pod.placement if pod.holds else None)
            self.on_settled(pod.uid)
        if pod.node is not None and not pod.gone:
            self.on_node[pod.node].add(pod.uid)
        self.groups.become(known, pod)
        if pod.group is not None:
            counts = pod.waits and not pod.gated
            self._releases += counts and (known is None or known.gated)  # the others may have waited for this one
        if pod.nominated is not None:
            self.nominated.add(pod.uid)
        self._enter(pod)

    def _enter(self, pod: PodView) -> None:
        """Brings the pod's holding in the book up to date."""
        held = self.book.holdings.get(pod.uid)
        if pod.uid not in self.reservations:
            wanted = pod.placement if pod.holds else None
            if held is not None and (held.placement != wanted or held.initialized != pod.initialized):
                self._releases += self.book.release(pod.uid)
                held = None
            if wanted is not None and held is None:
                self.book.place(wanted, strict=False, initialized=pod.initialized)
        if pod.node is not None:
            self.foreign.settle(pod.node, pod.uid)

    def _drop_pod(self, uid: str) -> None:
        self.reservations.settle(uid)
        self.on_settled(uid)
        self._releases += self.book.release(uid)
        pod = self.pods.get(uid)
        if pod is not None and pod.resize is not None:
            self.reservations.settle(pod.resize.key)
        self._unlink(uid)
        self.pods.pop(uid, None)
        self.groups.become(pod, None)
        self._shifts += pod is not None and pod.nominated is not None
        if pod is not None:
            self._resized.drop(pod)
        if pod is not None and pod.node is not None:
            self.foreign.settle(pod.node, uid)  # what was reported counts until the reporter takes it back

    def _unlink(self, uid: str) -> None:
        old = self.pods.get(uid)
        if old is None:
            return
        self.nominated.discard(uid)
        if old.node is not None:
            discard(self.on_node, old.node, uid)

    def answered(self, key: str) -> bool:
        """Whether it is known what became of an allocation, by its claim's key: promised, refused, or over; and of a
        Resize's promise: its wish has been answered, or its pod has gone."""
        if (pod := pod_of(key)) is not None:
            resize, generation = self.resizes.get(pod), key.rpartition("/")[2]
            return uid_of(key) in self._ended or (resize is not None and resize.answered >= int(generation))
        uid = key.removeprefix(PREFIX).partition("/")[0]
        if key in self._ended or uid in self._ended:
            return True
        claim = self.claims.get(uid)
        return claim is not None and claim.key == key and not claim.waits

    # ---- what is asked of it

    @property
    def unanswered(self) -> Set[str]:
        """The uids of claims that wait for our word."""
        return self._allocated.unanswered

    def members(self, group: GroupKey) -> tuple[list[PodView], list[Placement]]:
        """A group's waiting pods that kube-scheduler may place, oldest first, and what those that run (or are being
        bound) hold. One whose cards are held for the group as a whole waits: they may be given back yet."""
        waiting: list[PodView] = []
        running: list[PodView] = []
        for uid in self.groups.uids(group):
            pod = self.pods[uid]
            if uid in self.book.holdings and self._runs(uid):
                running.append(pod)
            elif pod.waits and not pod.gated:
                waiting.append(pod)
        running.sort(key=lambda p: p.order)
        waiting.sort(key=lambda p: p.order)
        held = [self.book.holdings[pod.uid].placement for pod in running]
        return waiting, held

    def _runs(self, uid: str) -> bool:
        """Whether a member is bound, or being bound."""
        reserved = self.reservations.of(uid)
        return self.pods[uid].node is not None or (reserved is not None and reserved.group is None)

    def spread(self, group: GroupKey) -> bool:
        """Whether a group's pods hold cards on several nodes."""
        holding = (self.book.holdings.get(uid) for uid in self.groups.uids(group) if self._runs(uid))
        return len({held.placement.node for held in holding if held is not None}) > 1

    def domain_of(self, node: str, level: str) -> str:
        """The domain of that level that a node is in."""
        return domain(node, mapping(_labels(self.nodes.get(node))), level)

    def gated(self, group: GroupKey) -> list[str]:
        """The names of a group's pods that are behind a scheduling gate."""
        pods = (self.pods[uid] for uid in self.groups.uids(group))
        return sorted(pod.name for pod in pods if pod.waits and pod.gated)

    def has_vendor(self, node: str) -> bool:
        """Whether the node offers cards by another device plugin as well."""
        offered = self._offered(node) or {}
        return any(str(offered.get(name, "0")) != "0" for name in names.VENDOR_RESOURCES)

    def gone(self, key: str, version: int) -> bool:
        """Whether a pod (its uid), or the allocation of a claim (its key), that was there when the API server's objects
        of the kind had that version is known not to be there any more; 0: of no version."""
        key = uid_of(key) or key
        if not key.startswith(PREFIX):  # one that was shown, though it could not be read, is there
            return 0 < version <= self._come[POD] and (POD, key) not in self._versions
        claim = self.claims.get(key.removeprefix(PREFIX).partition("/")[0])
        return 0 < version <= self._come[CLAIM] and (claim is None or claim.key != key)

    def ended(self, uid: str) -> bool:
        """Whether the pod is known to have been deleted."""
        return uid in self._ended

    def picture(self) -> dict[str, Any]:
        """All that follows from the objects, for comparing two extenders; reservations are apart."""
        ours = (*self.pods, *self.foreign.keys(), *(claim.key for claim in self.claims.values()))
        holdings = {
            key: self.book.holdings[key] for key in ours if key in self.book.holdings and key not in self.reservations
        }
        groups = dict(self.groups.items())
        on_node = {name: frozenset(uids) for name, uids in self.on_node.items() if uids}
        pods = {uid: replace(pod, object={}) for uid, pod in self.pods.items()}
        nodes = {node.name: node for node in self.book.nodes()}  # with health and cordons
        return {
            "cards": self.book.snapshot(), "holdings": holdings, "groups": groups, "on_node": on_node, "pods": pods,
            "nodes": nodes, "budgets": self.budgets, "nominated": self.nominated,
        }  # fmt: skip


def _labels(node: Mapping[str, Any] | None) -> Any:
    return mapping(mapping(node).get("metadata")).get("labels")
