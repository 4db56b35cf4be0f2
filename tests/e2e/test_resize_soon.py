"""How soon a busy tenant's share on the card follows what is written in the API server: the whole way, as one measure.

Real API server, extender, device plugin and daemon, a simulated card, two busy programs. One of them is given another
share again and again by its Resize. When its share moved is judged by the device's own record alone (judged.py). The
daemon's trace says when it took the new one, on the clock of that record: from then on each has a tenth of a second.
`GEMINI_RESIZINGS=100` for more; `-s` shows the figures, and those of the whole way from the wish.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from pathlib import Path

import pytest

from gemini.kube.resize import Amounts
from libhook.observer import Segment
from scheduler_backend.core.events import TenantChanged
from scheduler_backend.trace import read_joined
from tests.e2e.api import Object
from tests.e2e.judged import HELD_NS, SECOND, moved_s, resolution_s
from tests.e2e.plane import Plane
from tests.e2e.process import until
from tests.e2e.resizing import loads, staged
from tests.e2e.test_extender import GIB
from tests.e2e.test_extender import crd as crd
from tests.e2e.test_plugin import role as role
from tests.e2e.test_resize import RESIZES, resize

RESIZINGS = int(os.environ.get("GEMINI_RESIZINGS", "20"))  # half of them more, half of them less
# Percent, of the one that changes and of the one beside it: far apart, for the resolution is two turns over the change.
LOW, HIGH, OTHER = 1, 90, 10
PARTS = {LOW: LOW / (LOW + OTHER), HIGH: HIGH / (HIGH + OTHER)}
MEMORY = 8 * GIB
WITHIN_S = 0.1
CALM_S = 0.5  # before a change and, beyond what is judged, behind it; and up to a third more, by chance


class Steps:
    """When the Resize was seen booked and in force, by a watch of its own."""

    def __init__(self, plane: Plane, path: str) -> None:
        self._plane, self._path, self._over = plane, path, threading.Event()
        self.seen: list[tuple[int, int, int]] = []  # ns, percent booked, percent in force (0: not settled)
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> Steps:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        version = ""
        while not self._over.is_set():
            for event in self._plane.api.events(self._path, 1.0, version):
                version = event["object"]["metadata"]["resourceVersion"]
                self._see(event["object"])

    def _see(self, one: Object) -> None:
        booked = ((one.get("status") or {}).get("booked") or {}).get("request", 0)
        self.seen.append((time.monotonic_ns(), booked, _in_force(one)))

    def after_s(self, at: int, percent: int, which: int) -> float:
        return next((one[0] - at) / SECOND for one in self.seen if one[0] > at and one[which] == percent)


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("role")
def test_each_time_a_busy_tenant_has_its_new_share_within_a_tenth_of_a_second(
    plane: Plane, namespace: str, crd: None, machine: str, tmp_path: Path
) -> None:
    path, chance = RESIZES.format(namespace), random.Random(27)
    shares = {
        name: {"gpu_request": f"{percent}%", "gpu_limit": "1.0", "gpu_memory": "8Gi"}
        for name, percent in (("a", LOW), ("b", OTHER))
    }
    wished: list[tuple[int, int]] = []  # percent, moment
    record: list[Segment] = []
    with (
        staged(plane, namespace, machine, tmp_path, shares, trace=True) as (_, stage, card),
        loads(stage, ["a", "b"], "--kernel-us", "500") as pids,
        Steps(plane, path) as steps,
    ):
        pod = plane.api.get(f"/api/v1/namespaces/{namespace}/pods/a")
        plane.api.post(path, resize(pod, Amounts(LOW, 100, MEMORY)))
        plane.api.wait_one(f"{path}/a", _in_force)
        tenant = next(name for name in stage.names() if "-" in name and name.rpartition("-")[0].endswith(".a"))
        until(lambda: set(card.busy(0)[1]) >= set(pids.values()), "both work")
        sequence = card.segments(0)[0]
        for percent in (HIGH, LOW) * (RESIZINGS // 2):
            time.sleep(CALM_S * (1 + chance.random() / 3))
            wished.append((percent, time.monotonic_ns()))
            plane.api.patch(f"{path}/a", {"spec": {"request": percent}})
            plane.api.wait_one(f"{path}/a", lambda one, now=percent: _in_force(one) == now)  # type: ignore[misc]
            time.sleep(2 * WITHIN_S + HELD_NS / SECOND)  # it is in force: what follows is all that is judged
            sequence, segments = card.segments(0, sequence)
            record.extend(segments)
        assert card.lost == 0, "the card's record was overwritten before it was read"
        taken = _taken(stage.state / "trace.jsonl", tenant)
    late = []
    for percent in (HIGH, LOW):
        columns: list[list[float]] = [[], [], [], [], []]
        for at in (moment for given, moment in wished if given == percent):
            took = next(now for now, given in taken if now > at and given == percent)
            since_then = moved_s(record, pids["a"], pids["b"], took, PARTS[percent])
            since_wish = moved_s(record, pids["a"], pids["b"], at, PARTS[percent])
            way = (steps.after_s(at, percent, 1), (took - at) / SECOND, steps.after_s(at, percent, 2))
            for column, value in zip(columns, (since_then, *way, since_wish), strict=True):
                column.append(value * 1000)
            if since_then > WITHIN_S:
                late.append((percent, since_then, (took - at) / SECOND))
        words = ("the share moved", "from the wish: seen booked", "taken", "seen in force", "the share moved")
        for what, column in zip(words, columns, strict=True):
            print(
                f"to {percent} %: {what} after {statistics.median(column):.0f} ms (median), {max(column):.0f} at most"
            )
    print(f"a move is told to {1000 * resolution_s(*PARTS.values()):.0f} ms")
    assert late == []


def _in_force(one: Object) -> int:
    """Percent; 0: not settled."""
    status = one.get("status") or {}
    return int((status.get("enforced") or {}).get("request", 0)) if status.get("settled") else 0


def _taken(trace: Path, tenant: str) -> list[tuple[int, int]]:
    """When the daemon took another request for the tenant, and which, in percent."""
    entries = list(read_joined(trace)[1])
    changed = [(one.now_ns, one.event.spec) for one in entries if isinstance(one.event, TenantChanged)]
    return [(now_ns, round(spec.request_ppm / 10_000)) for now_ns, spec in changed if spec.name == tenant]
