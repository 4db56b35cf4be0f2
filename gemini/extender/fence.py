"""What was freed for preemptors is held for them, against pods of lower priority, until they are placed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from gemini.extender.podview import PodView
from gemini.extender.state import Cluster
from gemini.placement.model import NODE_LEVEL

MOST_FELLOWS = 32  # of a group: each is looked for with every pod that is placed meanwhile


@contextmanager
def fenced(cluster: Cluster, *pods: PodView) -> Iterator[None]:
    """The book with what was freed for preemptors of higher priority held for them, where it is free already.
    `pods`: those that are to be placed, together."""
    held: list[str] = []
    priority, placing = min(pod.priority for pod in pods), {pod.uid for pod in pods}
    try:
        for uid in sorted(cluster.nominated - placing):
            preemptor = cluster.pods[uid]
            if preemptor.priority <= priority or uid in cluster.book.holdings:
                continue
            fellows = _fellows(cluster, preemptor)
            if any(one.uid in placing for one in fellows):
                continue
            for one in (preemptor, *fellows[:MOST_FELLOWS]):
                key = f"nominated/{one.uid}"
                if one.spec is None or one.uid in cluster.book.holdings or key in held:
                    continue
                choice = cluster.allocator.choose(one.spec.ask, [preemptor.nominated or ""])
                if choice is not None:
                    held.append(key)
                    cluster.book.place(replace(choice, pod=key))
        yield
    finally:
        for key in held:
            cluster.book.release(key)


def _fellows(cluster: Cluster, pod: PodView) -> list[PodView]:
    """The others of a group that goes to one node: what was freed there for one of them is for all."""
    if pod.group is None or pod.spec is None or pod.spec.ask.required != NODE_LEVEL:
        return []
    waiting, running = cluster.members(pod.group)
    others = [one for one in waiting if one.uid != pod.uid and one.nominated in (None, pod.nominated)]
    return others[: max(0, pod.spec.ask.group_size - len(running) - 1)]
