"""A replica of the extender that hangs: what that costs the scheduler that asks it, and everybody else."""

from __future__ import annotations

import signal
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.api import Object
from tests.e2e.plane import Plane
from tests.e2e.process import until
from tests.e2e.replicas import hold, replicated
from tests.e2e.test_extender import CORE, SECOND, USER, crd, gemini, nodes_with_cards, record, sharepod

__all__ = ["crd"]
PODS, AT_ONCE = 40, 8
# One whose connection the replica had, one more that was kept open, and one on a connection that was made before the
# replica was left out.
MOST_CALLS = 3


def late(log: Path) -> int:
    """How many calls, one after another, the scheduler waited for in vain: while it does it looks at no other pod."""
    lines = log.read_text().splitlines() if log.exists() else []
    return sum('"Error selecting node for pod"' in line and "deadline exceeded" in line for line in lines)


def bound(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("second", [True, False], ids=["a scheduler of our own", "the cluster's scheduler"])
def test_a_replica_that_hangs_is_left_out_and_pods_go_on_by_the_other(
    plane: Plane, namespace: str, crd: None, second: bool
) -> None:
    """Those of a scheduler that does not ask the extender do not notice."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    waits: dict[str, list[float]] = defaultdict(list)

    def one(kind: str, number: int) -> Object:
        pod = sharepod(f"{kind}-{number}", **({} if kind == "plain" else {"gpu_request": "0.1"}))
        began = time.monotonic()
        plane.api.post(path, pod)
        found = plane.api.wait_one(f"{path}/{kind}-{number}", bound, seconds=300)
        waits[kind].append(time.monotonic() - began)
        return found

    with (
        nodes_with_cards(plane, 4, 8), replicated(plane, USER) as service,
        gemini(plane, installed=True, second=second, service=service), ThreadPoolExecutor(2 * AT_ONCE) as pool,
    ):  # fmt: skip
        list(pool.map(one, ["before"] * AT_ONCE, range(AT_ONCE)))  # so the scheduler has connections to both
        assert all(service.connections)
        logs = {name: plane.logs / f"{name}.log" for name in ("kube-scheduler", SECOND)}
        before = {name: late(log) for name, log in logs.items()}
        asks, other = (SECOND, "kube-scheduler") if second else ("kube-scheduler", SECOND)
        hold(service, 0)
        coming = [pool.submit(one, kind, number) for number in range(PODS) for kind in ("share", "plain")]
        until(lambda: not service.ready[0], "the replica to be left out")
        given, lost = service.connections[0], late(logs[asks]) - before[asks]
        assert lost <= 1, "calls were given to the replica after one of them was lost"
        for pod in coming:
            pod.result()
        one("after", 0)
        assert service.connections[0] == given
        print({kind: [round(wait, 2) for wait in taken] for kind, taken in waits.items()})
        after = {name: late(log) - before[name] for name, log in logs.items()}
        assert after[asks] <= MOST_CALLS
        assert after[other] == 0
        placed = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in plane.api.get(path)["items"]}
        service.replicas[0].signal(signal.SIGCONT)  # it answers what it was asked meanwhile
        until(lambda: service.ready[0], "the replica to be Ready again")
        pods = plane.api.get(path)["items"]
        assert {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods} == placed
        held = Counter[tuple[str, str]]()
        for pod in pods:
            if "gemini.io/allocation" in pod["metadata"].get("annotations", {}):
                (card,) = record(pod)
                held[pod["spec"]["nodeName"], card["uuid"]] += card["resources"][CORE]
        assert sum(held.values()) == 10 * (AT_ONCE + PODS + 1)
        assert max(held.values()) <= 100
