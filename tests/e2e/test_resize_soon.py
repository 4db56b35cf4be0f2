"""How soon a busy tenant's share on the card follows what is written in the API server: the whole way, as one measure.

Real API server, extender, device plugin and daemon, a simulated card, two busy programs. One of them is given another
share again and again: by its Resize, and, for comparison in the same run, by the daemon's own word. Judged by the
device's own record alone. `GEMINI_RESIZINGS=100` for more; `-s` shows the figures.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gemini.kube.resize import Amounts
from libhook.observer import Segment, Timeline
from tests.e2e.api import Object
from tests.e2e.plane import Plane
from tests.e2e.process import until
from tests.e2e.resizing import Stage, loads, staged
from tests.e2e.test_extender import GIB
from tests.e2e.test_extender import crd as crd
from tests.e2e.test_plugin import role as role
from tests.e2e.test_resize import RESIZES, resize

PAIRS = int(os.environ.get("GEMINI_RESIZINGS", "10")) // 2  # of a growth and a shrinking, each of the two ways
LOW, HIGH, OTHER = 10, 70, 30  # percent: of the one that changes, and of the one beside it
MEMORY = 8 * GIB
CALM_S = 1.0  # before a change and, from AFTER_S on, behind it: what the share was, and became
AFTER_S, WINDOW_S = 0.1, 0.3
SECOND = 10**9


def busy(segments: list[Segment], pid: int, begin: int, end: int) -> int:
    """Nanoseconds of the card that it had in between."""
    return sum(max(0, min(one.end_ns, end) - max(one.start_ns, begin)) for one in segments if one.pid == pid)


class Watched:
    """The card's record over a change, and when each step of the way was seen."""

    def __init__(self, card: Timeline, pids: dict[str, int], wanted: tuple[float, float], since: int) -> None:
        """`since`: where the one before ended (`next`)."""
        self._card, self._pids, self.old, self.new = card, pids, *wanted
        self._since = self.next = since
        self.segments: list[Segment] = []
        self.at = 0

    def change(self, do: Callable[[], object]) -> None:
        time.sleep(CALM_S)
        self.at = time.monotonic_ns()
        do()
        time.sleep(max(0.0, (self.at - time.monotonic_ns()) / SECOND + AFTER_S + WINDOW_S + CALM_S))
        self.next, self.segments = self._card.segments(0, self._since)

    def part(self, begin_s: float, seconds: float) -> float:
        """Its part of what both had, from so long after the change was wished."""
        begin = self.at + round(begin_s * SECOND)
        had = {
            name: busy(self.segments, pid, begin, begin + round(seconds * SECOND)) for name, pid in self._pids.items()
        }
        return had["a"] / max(1, sum(had.values()))

    def moved_s(self) -> float:
        """When the share moved, as if it had done so at once: by how much of the old one it had since the wish."""
        horizon = AFTER_S + WINDOW_S + CALM_S
        before, behind = self.part(-CALM_S, CALM_S), self.part(horizon - CALM_S, CALM_S)
        return horizon * (self.part(0, horizon) - behind) / (before - behind)

    def nearer(self) -> bool:
        """Whether it had the new share rather than the old one, from a tenth of a second after the wish on."""
        had = self.part(AFTER_S, WINDOW_S)
        return abs(had - self.new) < abs(had - self.old)


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
        status = one.get("status") or {}
        in_force = (status.get("enforced") or {}).get("request", 0) if status.get("settled") else 0
        self.seen.append((time.monotonic_ns(), (status.get("booked") or {}).get("request", 0), in_force))

    def after_s(self, at: int, percent: int, which: int) -> float:
        return next((one[0] - at) / SECOND for one in self.seen if one[0] > at and one[which] == percent)


def told(stage: Stage, name: str, percent: int) -> None:
    """The daemon is told at once, as its device plugin does."""
    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(stage.state / "control.sock"))
    body = json.dumps({"request": percent / 100, "holding": True})
    connection.request("PATCH", f"/tenants/{name}", body, {"Content-Type": "application/json"})
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("role")
def test_a_busy_tenant_has_its_new_share_a_tenth_of_a_second_after_it_was_wished(
    plane: Plane, namespace: str, crd: None, machine: str, tmp_path: Path
) -> None:
    path = RESIZES.format(namespace)
    shares = {
        name: {"gpu_request": f"{percent}%", "gpu_limit": "1.0", "gpu_memory": "8Gi"}
        for name, percent in (("a", LOW), ("b", OTHER))
    }
    found: dict[str, list[Watched]] = {"by its Resize": [], "by the daemon's own word": []}
    way: dict[str, list[float]] = {"booked": [], "in force": []}
    with (
        staged(plane, namespace, machine, tmp_path, shares) as (_, stage, card),
        loads(stage, ["a", "b"], "--kernel-us", "500") as pids,
        Steps(plane, path) as steps,
    ):
        pod = plane.api.get(f"/api/v1/namespaces/{namespace}/pods/a")
        plane.api.post(path, resize(pod, Amounts(LOW, 100, MEMORY)))
        plane.api.wait_one(f"{path}/a", lambda one: (one.get("status") or {}).get("settled"))
        tenant = next(name for name in stage.names() if "-" in name and name.rpartition("-")[0].endswith(".a"))
        until(lambda: set(card.busy(0)[1]) >= set(pids.values()), "both work")
        since = card.segments(0)[0]
        for _ in range(PAIRS):
            for how, records in found.items():
                for old, new in ((LOW, HIGH), (HIGH, LOW)):
                    one = Watched(card, pids, (old / (old + OTHER), new / (new + OTHER)), since)
                    if how == "by its Resize":
                        one.change(lambda new=new: plane.api.patch(f"{path}/a", {"spec": {"request": new}}))  # type: ignore[misc]
                        plane.api.wait_one(
                            f"{path}/a",
                            lambda given, new=new: (given["status"].get("enforced") or {}).get("request") == new,  # type: ignore[misc]
                        )
                        way["booked"].append(steps.after_s(one.at, new, 1))
                        way["in force"].append(steps.after_s(one.at, new, 2))
                    else:
                        one.change(lambda new=new: told(stage, tenant, new))  # type: ignore[misc]
                    records.append(one)
                    since = one.next
        assert card.lost == 0, "the card's record was overwritten before it was read"
    for how, records in found.items():
        for what, which in (("more", lambda r: r.new > r.old), ("less", lambda r: r.new < r.old)):
            here = [one for one in records if which(one)]
            low, middle, high = statistics.quantiles((one.moved_s() * 1000 for one in here), n=4)
            print(
                f"{what} {how}: moved after {middle:.0f} ms (median; half of them {low:.0f} to {high:.0f}), "
                f"nearer the new share in {sum(one.nearer() for one in here)} of {len(here)}"
            )
    for what, seconds in way.items():
        print(f"{what} after {statistics.median(seconds) * 1000:.0f} ms (median), {max(seconds) * 1000:.0f} at most")
    by_resize, by_word = (sum(one.nearer() for one in records) for records in found.values())
    assert by_word > len(found["by its Resize"]) / 2, "programs that are not kept from working move at once"
    assert by_resize >= 0.8 * by_word
