"""What pods count with besides their record, because another share was wished for them. Pure.

A Resize goes with its pod, and may go before it: then the pod counts with what it was given, by what was seen of the
Resize here or by what the lease of its node says. The pods are those of the cluster (state.py), which looks at a pod
anew wherever one of the changes here names it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from functools import reduce

from gemini.extender.podview import PodView
from gemini.kube.resize import Amounts, Resize


class Resized:
    """By the full names of pods."""

    def __init__(self, pods: Mapping[str, PodView]) -> None:
        self._pods = pods
        self.by_pod: dict[str, Resize] = {}
        self.asked: dict[str, None] = {}  # those that wait for an answer, and whose pod is known; oldest first
        self._own: dict[str, str] = {}  # uid of the Resize itself -> its pod
        self._left: dict[str, Resize] = {}  # those that went before their pods, as they were
        self._grown: dict[str, Amounts] = {}  # what pods were given at most, by the leases of their nodes

    def put(self, own: str, resize: Resize | None) -> set[str]:
        """A Resize (its uid is `own`) is so now, or gone (None). The uids of the pods that may count anew."""
        before = self._own.pop(own, None)
        known = None if before is None else self.by_pod.get(before)
        if known is not None and known.own == own:
            del self.by_pod[known.pod]
            if resize is None:
                self._keep(known)
        if resize is not None:
            self._own[own] = resize.pod
            self.by_pod[resize.pod] = resize
        return {one.uid for one in (known, resize) if one is not None}

    def grow(self, grown: Mapping[str, Amounts], ended: Container[str]) -> list[str]:
        """A node's lease says so much of pods, by their full names. The uids of those that may count anew."""
        changed = []
        for name, amounts in grown.items():
            uid, before = name.rpartition("/")[2], self._grown.get(name)
            if uid not in ended and before != amounts:
                self._grown[name] = amounts if before is None else before.most(amounts)
                changed.append(uid)
        return changed

    def of(self, pod: PodView) -> Resize | None:
        """What the pod counts by, besides its record."""
        now, left = self.by_pod.get(pod.full_name), self._left.get(pod.full_name)
        if left is None and (grown := self._grown.get(pod.full_name)) is not None:
            if now is None:
                return Resize(pod.uid, pod.namespace, pod.name, 0, grown, 0, "", None, grown, False, "", "", {})
            return replace(now, enforced=grown) if now.booked is None and now.enforced is None else now
        if now is None or left is None:
            return now or left
        return now if now.enforced is not None else replace(now, enforced=left.enforced)

    def note(self, pod: PodView) -> None:
        """The pod is so now: whether it has a wish that waits."""
        if pod.resize is not None and pod.resize.waiting:
            self.asked[pod.full_name] = None
        else:
            self.asked.pop(pod.full_name, None)

    def drop(self, pod: PodView) -> None:
        """The pod is gone."""
        for kept in (self.asked, self._left, self._grown):
            kept.pop(pod.full_name, None)

    def _keep(self, known: Resize) -> None:
        """Who deletes a pod in the foreground has its Resize go at once, and the pod when its programs have ended, as
        late as the pod says: until then it counts with what it was given."""
        pod, counted = self._pods.get(known.uid), self._amounts_left(known)
        if counted is not None and pod is not None and not pod.gone and pod.full_name == known.pod:
            self._left[known.pod] = replace(known, answered=known.generation, enforced=counted)

    def _amounts_left(self, known: Resize) -> Amounts | None:
        left = self._left.get(known.pod)
        before = None if left is None else left.enforced
        said = [one for one in (known.booked, known.enforced, before) if one is not None]
        return reduce(Amounts.most, said) if said else None
