"""Reservations: cards held for pods whose binding is under way or awaited, or whose group is being put together.

Pure; the time is an argument. A reservation stands in the book like any placed pod, so nobody else is promised its
share. It is given back in exactly one of three ways: the pod is seen bound (its own record takes its place), its
binding failed, or its time is up. That of a group is all or none, both when it is made and when its time is up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gemini.placement.book import Book, Overbooked
from gemini.placement.model import Placement

SECOND = 10**9
BIND_NS = 60 * SECOND  # well above the time limit of a call to the API server
FRESH_NS = 45 * SECOND  # a promise that is older is bound by no more: others give it up when BIND_NS are over
GROUP_NS = 30 * SECOND
AWAITED_NS = 10 * SECOND  # kube-scheduler binds at once, unless a volume or another plugin is in the way

GroupKey = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class Reservation:
    placement: Placement
    expires_ns: int
    group: GroupKey | None = None
    awaited: bool = False  # filter named this node alone; whether the scheduler will bind the pod there is not known


class Reservations:
    """Those of one book. Pods are known by uid."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._held: dict[str, Reservation] = {}
        self.releases = 0  # grows with each that is given back, not with those that came to be
        self._adopted: dict[str, dict[str, Reservation]] = {}  # node -> key in the book -> another replica's promise

    def __contains__(self, pod: str) -> bool:
        return pod in self._held

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._held.values())

    def of(self, pod: str) -> Reservation | None:
        return self._held.get(pod)

    def put(self, placement: Placement, expires_ns: int, group: GroupKey | None = None) -> None:
        """Raises Overbooked, and reserves nothing, where there is no room."""
        self._book.place(placement)
        self._held[placement.pod] = Reservation(placement, expires_ns, group)

    def await_binding(self, placement: Placement, expires_ns: int) -> None:
        """Holds what filter chose, so that the next pods are not sent after the same cards while this one is on its way
        from filter to bind. Raises Overbooked as put does."""
        self._book.place(placement)
        self._held[placement.pod] = Reservation(placement, expires_ns, awaited=True)

    def adopt(self, node: str, promises: Iterable[Placement], expires_ns: int) -> None:
        """What other replicas have promised on a node, in place of all that they had promised there before. Taken as
        said, beside a promise of our own for the same pod, for either may become the binding; the very same cards for
        the same pod count once."""
        before = self._adopted.pop(node, {})
        for key in before:
            self._book.release(key)
        here: dict[str, Reservation] = {}
        for i, promise in enumerate(dict.fromkeys(promises)):
            own = self._held.get(promise.pod)
            if own is None or own.placement != promise:
                key = f"promise/{node}/{i}"
                self._book.place(replace(promise, pod=key), strict=False)
                here[key] = Reservation(promise, expires_ns)
        if here:
            self._adopted[node] = here
        left = {held.placement.pod for held in before.values()} - {held.placement.pod for held in here.values()}
        self.releases += any(pod not in self._held and pod not in self._book.holdings for pod in left)

    def adopted(self) -> list[Reservation]:
        return [held for here in self._adopted.values() for held in here.values()]

    def disown(self, pod: str, node: str | None = None) -> None:
        """Gives back what others promised the pod (there): it came to nothing."""
        self.releases += self._disown(pod, node)

    def _disown(self, pod: str, node: str | None = None) -> bool:
        """Forgets what others promised the pod (there), for it is in the book otherwise; whether there was anything."""
        found = False
        for name in [node] if node is not None else list(self._adopted):
            here = self._adopted.get(name, {})
            for key in [key for key, held in here.items() if held.placement.pod == pod]:
                del here[key]
                self._book.release(key)
                found = True
            if not here:
                self._adopted.pop(name, None)
        return found

    def settle(self, pod: str, record: Placement | None = None) -> None:
        """The pod is bound, or gone. What it holds in the book already, as its own record says it, stays there."""
        held = self._held.get(pod)
        if held is not None and held.placement == record:
            del self._held[pod]
        else:
            self._drop(pod)
        if self._adopted:
            self.releases += self._disown(pod) and record is None

    def take_over(self, promise: Placement, expires_ns: int, group: GroupKey | None = None) -> None:
        """Another replica's promise becomes our own as well: what a group was given."""
        self._disown(promise.pod, promise.node)
        self._book.place(promise, strict=False)
        self._held[promise.pod] = Reservation(promise, expires_ns, group)

    def put_all(self, placements: Sequence[Placement], expires_ns: int, group: GroupKey) -> None:
        """All or, with Overbooked, none."""
        done: list[str] = []
        try:
            for placement in placements:
                self.put(placement, expires_ns, group)
                done.append(placement.pod)
        except Overbooked:
            for pod in done:
                self.drop(pod)
            raise

    def extend(self, pod: str, expires_ns: int) -> None:
        """Gives a reservation more time; one that is extended is being bound, no longer awaited."""
        held = self._held.get(pod)
        if held is not None:
            self._held[pod] = Reservation(held.placement, max(held.expires_ns, expires_ns), held.group)

    def own(self, pod: str) -> None:
        """From now on a reservation is the pod's alone, whatever becomes of its group."""
        held = self._held.get(pod)
        if held is not None:
            self._held[pod] = replace(held, group=None)

    def drop(self, pod: str) -> bool:
        """Gives a reservation back; whether there was one."""
        dropped = self._drop(pod)
        self.releases += dropped
        return dropped

    def _drop(self, pod: str) -> bool:
        if self._held.pop(pod, None) is None:
            return False
        self._book.release(pod)
        return True

    def due(self, now_ns: int) -> list[Reservation]:
        """Those whose time is up. Their owner decides: a binding may have come through unseen."""
        return [held for held in self._held.values() if held.expires_ns <= now_ns]

    def due_adopted(self, now_ns: int) -> list[Reservation]:
        """The same of those that other replicas promised."""
        return [held for held in self.adopted() if held.expires_ns <= now_ns]
