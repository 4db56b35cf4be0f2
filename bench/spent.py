"""What each tenant took of the card, by the card's own record: its work, and the switches between its own processes.

The token goes to a tenant. Where several of its processes have work the card goes to and fro between them, idle for a
moment each time: up to 5 % of what the tenant held, which no other tenant could have had. A tenant that is judged by
its work alone seems to lack that, and the others to have been given it. A switch from one tenant to another is
nobody's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from bench.bed import Bed, Record
from libhook.observer import Segment

SWITCH_NS = 50_000  # the longest that the simulated card idles at a switch (docs/simulator.md)
LOOK_SECONDS = 2.0


class Taken(NamedTuple):
    """A tenant had the card from then to then."""

    name: str
    start_ns: int
    end_ns: int


def taken(segments: Iterable[Segment], tenant_of: Mapping[int, str]) -> Iterator[Taken]:
    """Who had the card when, in the order of time; processes of nobody are left out."""
    before: Segment | None = None
    for segment in sorted(segments, key=lambda one: one.start_ns):
        name = tenant_of.get(segment.pid)
        if name is not None:
            begin_ns = segment.start_ns
            among = before is not None and before.pid != segment.pid and tenant_of.get(before.pid) == name
            if among and before and 0 < begin_ns - before.end_ns <= SWITCH_NS:
                begin_ns = before.end_ns
            yield Taken(name, begin_ns, segment.end_ns)
        before = segment


def spent(segments: Iterable[Segment], tenant_of: Mapping[int, str], start_ns: int, end_ns: int) -> dict[str, int]:
    """Nanoseconds by tenant between start and end."""
    total: dict[str, int] = dict.fromkeys(tenant_of.values(), 0)
    for name, begin_ns, stop_ns in taken(segments, tenant_of):
        total[name] += max(0, min(stop_ns, end_ns) - max(begin_ns, start_ns))
    return total


def recorded(segments: Iterable[Segment], tenant_of: Mapping[int, str], start_ns: int, end_ns: int) -> Record:
    """The same as a record, exact at each moment at which anybody's work began or ended."""
    names = list(dict.fromkeys(tenant_of.values()))
    edges: dict[str, list[int]] = {name: [start_ns] for name in names}
    totals: dict[str, list[int]] = {name: [0] for name in names}
    for name, begin_ns, stop_ns in taken(segments, tenant_of):
        begin_ns, stop_ns = max(begin_ns, edges[name][-1]), min(stop_ns, end_ns)
        if begin_ns < stop_ns:
            edges[name] += [begin_ns, stop_ns]
            totals[name] += [totals[name][-1], totals[name][-1] + stop_ns - begin_ns]
    at_ns = np.unique(np.array([start_ns, end_ns, *(edge for name in names for edge in edges[name])], dtype=np.int64))
    columns = [np.interp(at_ns, edges[name], totals[name]) for name in names]
    return Record(names, at_ns, np.rint(np.stack(columns, axis=1)).astype(np.int64))


def _look(bed: Bed, seconds: float, device: int) -> tuple[list[Segment], dict[int, str], int, int]:
    """What the card did in the next `seconds`, whose each process is, and from when to when that was."""
    sequence = bed.timeline.segments(device)[0]
    lost = bed.timeline.lost
    segments: list[Segment] = []
    start_ns = end_ns = time.monotonic_ns()
    while (left_s := seconds - (end_ns - start_ns) / 1e9) > 0:  # in parts, for the card's log is a ring
        time.sleep(min(left_s, LOOK_SECONDS))
        end_ns = time.monotonic_ns()
        sequence, more = bed.timeline.segments(device, sequence)
        segments += more
    if bed.timeline.lost != lost:
        raise OverflowError(f"the card's record of {seconds} s does not fit into its log")
    return segments, {pid: name for pid, (name, _child) in bed.children.items()}, start_ns, end_ns


def watch(bed: Bed, seconds: float, device: int = 0) -> dict[str, float]:
    """Which part of the next `seconds` each tenant of this bed takes."""
    segments, tenant_of, start_ns, end_ns = _look(bed, seconds, device)
    found = spent(segments, tenant_of, start_ns, end_ns)
    return {name: taken_ns / (end_ns - start_ns) for name, taken_ns in found.items()}


def watch_all(bed: Bed, seconds: float, device: int = 0) -> Record:
    """What each tenant of this bed has taken, all through the next `seconds`."""
    return recorded(*_look(bed, seconds, device))
