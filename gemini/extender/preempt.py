"""Preemption: whom to evict on a node so that a pod of higher priority gets its cards there.

Pure. kube-scheduler's own dry run knows the sum of a node's resources, not its cards, and knows nothing of extenders:
its victims may free half of one card and half of another. Here the same question is asked of the cards: of all choices
that the node would have if every pod of lower priority were gone, which needs the fewest and least important victims?
Then as many of those as possible are let live again, those first whose eviction a PodDisruptionBudget forbids, then the
most important. The pods of a group go together or stay together, and so those of a group on several nodes stay. What
the pod needs besides cards (cpu, memory) is counted too, since replacing the scheduler's victims must not undo what
they were for; its victims without cards are kept, for we do not know all its reasons. Where the preemptor is one of a
group, preempt_group.py asks.

How often budgets are broken is counted as the scheduler does, pod by pod, and never below what it said of a victim set
that is kept unchanged. The scheduler prefers nodes with none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from gemini.extender.codec import Victims
from gemini.extender.kept import MIRROR
from gemini.extender.podview import PodView
from gemini.extender.reserve import GroupKey
from gemini.extender.room import Room
from gemini.extender.state import Cluster
from gemini.placement.book import Book
from gemini.placement.model import Ask, Placement

Ways = Callable[[Sequence[PodView]], Iterable[Sequence[Placement]]]
Over = Callable[[], bool]
CHOICES = 256  # sets of cards that are weighed on a node
CRITICAL = ("system-node-critical", "system-cluster-critical")
# Budgets are made by whoever edits a namespace. Where they are more, an eviction counts as one that they forbid.
MOST_LOOKS = 200_000  # comparisons for a node: some hundredths of a second
MOST_BUDGETS = 16  # that select one pod; Kubernetes itself evicts none that has two


@dataclass(frozen=True)
class _Plan:
    """One way: its victims, and how bad it is."""

    victims: tuple[PodView, ...]
    violations: int

    @property
    def badness(self) -> tuple[int, int, int, int, list[str]]:
        priorities = [v.priority for v in self.victims]
        return self.violations, max(priorities, default=-(2**31)), sum(priorities), len(priorities), [
            v.uid for v in self.victims
        ]  # fmt: skip


def victims_on(
    cluster: Cluster, pod: PodView, node: str, proposed: Victims, over: Over = lambda: False
) -> Victims | None:
    """Whom to evict on `node` for `pod`, where the scheduler proposed `proposed`; None: it would not help. `over`:
    whether there is no more time."""
    if pod.spec is None:
        return None
    ask = pod.spec.ask
    ways: Ways = lambda _: ((one,) for one in _choices(cluster, ask, node))  # noqa: E731
    return victims_for(cluster, (pod,), node, proposed, ways, over=over)


def victims_beside(cluster: Cluster, pod: PodView, node: str, proposed: Victims, over: Over) -> Victims | None:
    """The same for a pod that another device plugin serves. That one counts its cards as the scheduler does; and a node
    where cards are shared will do once all of those who share them have gone."""
    sharers = set(cluster.foreign.sharers(node))
    going = {one.uid for one in evictable(cluster, (pod,), node)} if sharers else set()
    staying = sharers - going
    if any(uid not in cluster.pods or not cluster.pods[uid].ends_soon for uid in staying):
        return None
    sharers -= staying
    if sharers <= set(proposed.uids):
        return proposed
    pods = [cluster.pods[uid] for uid in {*sharers, *proposed.uids} if uid in cluster.pods]
    pods.sort(key=lambda p: (-p.priority, p.order))
    unseen = (uid for uid in proposed.uids if uid not in cluster.pods)
    return Victims((*(one.uid for one in pods), *unseen), len(Budgets(cluster).breaking(pods)))


def victims_for(
    cluster: Cluster, pods: Sequence[PodView], node: str, proposed: Victims, ways: Ways, ending: Collection[str] = (),
    over: Over = lambda: False,
) -> Victims | None:  # fmt: skip
    """The same for several pods together. `ways`: given those who may go, which the book is without meanwhile, what the
    pods may hold: the best of those that there is time for counts. `ending`: uids of pods that count as gone."""
    if cluster.book.node(node) is None:
        return None
    lower = evictable(cluster, pods, node)
    kept_victims = [p for p in lower if p.uid in proposed.uids and p.placement is None]
    budgets, plans = Budgets(cluster), []
    room = Room(cluster, node, _others(cluster, node, {*ending, *(p.uid for p in lower)}), pods)
    with Lifted(cluster.book) as away:
        for one in (*(p for p in pods if p.uid in cluster.reservations), *lower):
            away.lift(one.uid)
        for i, way in enumerate(ways(lower)):
            if i and over():
                break
            plan = _plan(cluster, room.copy(), lower, kept_victims, way, away, budgets)
            if plan is not None:
                plans.append(plan)
    plans = [plan for plan in plans if plan.victims]  # the scheduler takes an empty list for an error
    if not plans:
        return None
    best = min(plans, key=lambda plan: plan.badness)
    uids = tuple(v.uid for v in best.victims)
    same = set(uids) == set(proposed.uids)
    return Victims(uids, max(best.violations, proposed.violations) if same else best.violations)


class Lifted:
    """The book without some pods, for as long as the block runs."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._taken: dict[str, tuple[Placement, bool]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for uid in list(self._taken):
            self.put_back(uid)

    def lift(self, uid: str) -> None:
        holding = self._book.holdings.get(uid)
        if holding is not None:
            self._taken[uid] = (holding.placement, holding.initialized)
            self._book.release(uid)

    def put_back(self, uid: str) -> None:
        placement, initialized = self._taken.pop(uid)
        self._book.place(placement, strict=False, initialized=initialized)


def _choices(cluster: Cluster, ask: Ask, node: str) -> list[Placement]:
    found = [choice.placement for choice in cluster.allocator.choices(ask, node)]
    return found[:CHOICES]


def _plan(
    cluster: Cluster,
    room: Room,
    lower: Sequence[PodView],
    kept_victims: Sequence[PodView],
    way: Sequence[Placement],
    away: Lifted,
    budgets: Budgets,
) -> _Plan | None:
    """The victims of one choice of cards. The book has none of `lower` in it, before and after; nor has `room`."""
    book = cluster.book
    for placement in way:
        book.place(placement)
    reprieved: list[PodView] = []
    try:
        if not room.fits():
            return None
        forced = {p.uid for p in kept_victims}
        breaking = budgets.breaking(lower)
        victims: list[PodView] = []
        for unit in sorted(_units(lower), key=lambda unit: min(_importance(one, breaking) for one in unit)):
            stay: list[PodView] = []
            for one in unit:
                if one.uid in forced or not room.fits(one) or not _fits_beside(cluster, one, away):
                    break
                room.add(one)
                stay.append(one)
                reprieved.append(one)
            if len(stay) < len(unit):
                for one in stay:
                    room.take_back(one)
                    reprieved.remove(one)
                    away.lift(one.uid)
                victims += unit
    finally:
        for one in reprieved:
            away.lift(one.uid)
        for placement in way:
            book.release(placement.pod)
    ordered = sorted(victims, key=lambda p: (-p.priority, p.order))
    return _Plan(tuple(ordered), len(budgets.breaking(ordered)))


def _fits_beside(cluster: Cluster, one: PodView, away: Lifted) -> bool:
    """Whether a lifted pod's cards still have room for it; if so it is back in the book."""
    if one.placement is None or not one.holds:
        return True
    before = _crowded(cluster, one)
    away.put_back(one.uid)
    if not before and _crowded(cluster, one):
        away.lift(one.uid)
        return False
    return True


def _crowded(cluster: Cluster, one: PodView) -> bool:
    """Whether a card of the pod's is promised beyond what it has."""
    assert one.placement is not None
    for kind, minor in {(g.type, g.minor) for g in one.placement.grants}:
        at = cluster.book.row(one.placement.node, kind)
        if at is None or minor not in at[0].shape.minors:
            continue
        block, row = at
        column = block.shape.minors.index(minor)
        if (block.used[:, row, column] > block.shape.total[:, column]).any():
            return True
    return False


def _may_go(one: PodView, priority: int, group: GroupKey | None) -> bool:
    """Those of lower priority, save what the node itself runs, what is critical, what is being deleted anyway, and
    members of the preemptor's own group."""
    if one.priority >= priority or one.terminating or one.gone:
        return False
    metadata, spec = one.object.get("metadata") or {}, one.object.get("spec") or {}
    if MIRROR in (metadata.get("annotations") or {}) or spec.get("priorityClassName") in CRITICAL:
        return False
    if any(isinstance(o, dict) and o.get("kind") == "DaemonSet" for o in metadata.get("ownerReferences") or ()):
        return False
    return group is None or one.group != group


def evictable(cluster: Cluster, pods: Sequence[PodView], node: str) -> list[PodView]:
    """Those on the node that may go for all of `pods`, which are of one group where they are several. A group of which
    one may not stays whole, and so does one that is not all here."""
    here = [cluster.pods[uid] for uid in sorted(cluster.on_node.get(node, ()))]
    priority, own = min(pod.priority for pod in pods), pods[0].group
    may = [one for one in here if _may_go(one, priority, own)]
    going = {one.uid for one in may}
    staying = {one.group for one in here if not (one.terminating or one.gone or one.uid in going)} - {None}
    groups = {one.group for one in may} - {None}
    coming = {held.placement.pod for held in cluster.reservations.adopted()} if groups else set()
    staying |= {group for group in groups if group is not None and not _all_here(cluster, group, coming)}
    return [one for one in may if one.group not in staying]


def _all_here(cluster: Cluster, group: GroupKey, coming: Collection[str]) -> bool:
    """Whether no pod of the group runs elsewhere, for kube-scheduler evicts those of one node, nor is one of it being
    bound, which would run without the others. `coming`: pods that other replicas have promised cards."""
    unbound = (uid for uid in cluster.groups.uids(group) if cluster.pods[uid].node is None)
    return not cluster.spread(group) and not any(uid in cluster.reservations or uid in coming for uid in unbound)


def _units(pods: Iterable[PodView]) -> list[list[PodView]]:
    """What goes together: the members of a group, and every other pod by itself."""
    units: dict[object, list[PodView]] = {}
    for pod in pods:
        units.setdefault(pod.group or pod.uid, []).append(pod)
    return list(units.values())


def _importance(one: PodView, breaking: Collection[str]) -> tuple[bool, int, tuple[str, str, str]]:
    """The lower, the sooner a pod is let live."""
    return one.uid not in breaking, -one.priority, one.order


def _others(cluster: Cluster, node: str, away: Collection[str]) -> list[PodView]:
    return [cluster.pods[uid] for uid in cluster.on_node.get(node, ()) if uid not in away]


# ---- budgets


class Budgets:
    """Which PodDisruptionBudgets the pods of a node stand under, looked up once for each pod."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._left = cluster, MOST_LOOKS
        self._known: dict[str, list[tuple[str, int]] | None] = {}

    def breaking(self, victims: Iterable[PodView]) -> set[str]:
        """Those whose eviction, one after another, breaks a budget."""
        left: dict[tuple[str, str], int] = {}
        broken: set[str] = set()
        for victim in victims:
            if victim.uid not in self._known:
                self._known[victim.uid] = self._of(victim)
            budgets = self._known[victim.uid]
            for name, allowed in budgets or ():
                key = victim.namespace, name
                left[key] = left.get(key, allowed) - 1
                if left[key] < 0:
                    broken.add(victim.uid)
            if budgets is None:
                broken.add(victim.uid)
        return broken

    def _of(self, victim: PodView) -> list[tuple[str, int]] | None:
        """(budget, evictions that it allows); None: they are too many to look at."""
        labels = (victim.object.get("metadata") or {}).get("labels") or {}
        found: list[tuple[str, int]] = []
        for name, budget in self._cluster.budgets.get(victim.namespace, {}).items() if labels else ():
            spec, status = budget.get("spec") or {}, budget.get("status") or {}
            if spec.get("endless"):
                return None
            selector = spec.get("selector")
            self._left -= _looks(selector)
            if self._left < 0 or len(found) > MOST_BUDGETS:
                return None
            if victim.name not in (status.get("disruptedPods") or {}) and selects(selector, labels):
                found.append((name, int(status.get("disruptionsAllowed") or 0)))
        return found


def _looks(selector: object) -> int:
    """How much there is to compare."""
    given: Mapping[str, Any] = selector if isinstance(selector, dict) else {}
    rules = given.get("matchExpressions") or ()
    return 1 + len(given.get("matchLabels") or ()) + sum(1 + len(rule.get("values") or ()) for rule in rules)


def selects(selector: object, labels: Mapping[str, str]) -> bool:
    """A LabelSelector; an empty or absent one selects nothing here, as the scheduler has it for budgets."""
    given: Mapping[str, Any] = selector if isinstance(selector, dict) else {}
    wanted, rules = given.get("matchLabels") or {}, given.get("matchExpressions") or ()
    if not wanted and not rules:
        return False
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    for rule in rules:
        key, values = rule.get("key"), rule.get("values") or ()
        holds = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }.get(rule.get("operator"), False)
        if not holds:
            return False
    return True
