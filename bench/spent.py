"""What each tenant took of the card, by the card's own record: its work, and the switches between its own processes.

The token goes to a tenant, and where several of its processes have work the card goes to and fro between them, idle for
a moment each time: up to 5 % of what the tenant held, which no other tenant could have had. Who is judged by its work
alone seems to lack that, and the others to have been given it. A switch from one tenant to another is nobody's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from bench.bed import Bed
from libhook.observer import Segment

SWITCH_NS = 50_000  # the longest that the simulated card idles at a switch (docs/simulator.md)


def spent(segments: Iterable[Segment], tenant_of: Mapping[int, str], start_ns: int, end_ns: int) -> dict[str, int]:
    """Nanoseconds by tenant between start and end; processes of nobody are left out."""
    total: dict[str, int] = dict.fromkeys(tenant_of.values(), 0)
    before: Segment | None = None
    for segment in sorted(segments, key=lambda one: one.start_ns):
        name = tenant_of.get(segment.pid)
        if name is not None:
            begin_ns = segment.start_ns
            among = before is not None and before.pid != segment.pid and tenant_of.get(before.pid) == name
            if among and before and 0 < begin_ns - before.end_ns <= SWITCH_NS:
                begin_ns = before.end_ns
            total[name] += max(0, min(segment.end_ns, end_ns) - max(begin_ns, start_ns))
        before = segment
    return total


def watch(bed: Bed, seconds: float, device: int = 0) -> dict[str, float]:
    """Which part of the next `seconds` each tenant of this bed takes."""
    sequence = bed.timeline.segments(device)[0]
    lost = bed.timeline.lost
    start_ns = time.monotonic_ns()
    time.sleep(seconds)
    end_ns = time.monotonic_ns()
    segments = bed.timeline.segments(device, sequence)[1]
    if bed.timeline.lost != lost:
        raise OverflowError(f"the card's record of {seconds} s does not fit into its log")
    tenant_of = {pid: name for pid, (name, _child) in bed.children.items()}
    found = spent(segments, tenant_of, start_ns, end_ns)
    return {name: taken_ns / (end_ns - start_ns) for name, taken_ns in found.items()}
