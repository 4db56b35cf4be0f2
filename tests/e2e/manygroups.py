"""Random groups of pods on the real control plane, whose extender is killed now and then: how long is one in part?

    python -m tests.e2e.manygroups --groups 500 [--seed 1]      # by hand; the tests play some

Real API server, scheduler and extender, kwok's nodes. Groups of 1 to 16 pods on 1 to 4 nodes come one after another. Of
some a member asks for a node or cards that are not there, or stands behind a gate for a while. Some nodes bear a taint,
all have processors for a part of their cards. A group that runs ends after some seconds, one that can go nowhere is
given up. What runs is seen by a watch of the test's own. In the end it says how long a group ran in part at most, and
how long groups took from when the last of their pods could be placed, while there were others in the way.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gemini.kube import names
from tests.e2e.api import ApiError, Object
from tests.e2e.build import Builder
from tests.e2e.plane import Plane
from tests.e2e.process import Process, until
from tests.e2e.test_extender import BASE, HOOK_USER, USER, gemini, nodes_with_cards, sharepod

LIMIT_S = 30.0  # as docs/cluster.md has it
NODES, CARDS, CPUS = 8, 8, 64
ZONE = names.LEVEL_LABELS["zone"]
AT_ONCE = 12  # groups that are there, or wait
GIVEN_UP_S = 60.0
RUNS_S = (0.5, 4.0)
EVERY_S = (8.0, 20.0)  # from when it serves again to the next kill
READY_S = 120.0


@dataclass
class Group:
    name: str
    size: int
    level: str
    flaw: str  # what keeps it from running
    ready: float = 0.0  # when the last of its pods could be placed
    bound: dict[str, str] = field(default_factory=dict)  # pod -> node
    in_part: float | None = None  # since when
    longest: float = 0.0
    placed: float | None = None
    ends: float = 0.0


@dataclass(frozen=True)
class System:
    """How a group is said to who places it: its so-manieth pod, with so many cards, and what comes and goes with it."""

    pod: Callable[[Group, int, int], Object]
    begin: Callable[[Group], object]
    end: Callable[[Group], object]


def _our_pod(group: Group, number: int, cards: int) -> Object:
    says = {"pod_group": group.name, "pod_group_size": str(group.size), "pod_group_required_topology": group.level}
    if cards > 1:
        says["gpu_count"] = str(cards)
    return sharepod(f"{group.name}-{number}", gpu_request="1", **says)


OURS = System(_our_pod, begin=lambda group: None, end=lambda group: None)


@dataclass
class Outcome:
    groups: list[Group] = field(default_factory=list)
    kills: int = 0
    wrong: list[str] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        placed = sorted(one.placed - one.ready for one in self.groups if one.placed is not None)
        return {
            "groups": len(self.groups), "pods": sum(one.size for one in self.groups), "ran": len(placed),
            "kills": self.kills, "longest in part, s": round(max(one.longest for one in self.groups), 2),
            "in part for more than a second": sum(one.longest > 1 for one in self.groups),
            "until placed, s": {"median": round(statistics.median(placed), 2),
                                "90th percentile": round(placed[len(placed) * 9 // 10], 2),
                                "most": round(placed[-1], 2)},
            "in part": {one.name: round(one.longest, 2) for one in self.groups if one.longest > 1},
            "wrong": self.wrong[:20],
        }  # fmt: skip


class Game:
    def __init__(self, plane: Plane, namespace: str, nodes: list[str], seed: int, system: System) -> None:
        self.plane, self.path, self.nodes, self.system = plane, f"/api/v1/namespaces/{namespace}/pods", nodes, system
        self.seed, self.random, self.outcome = seed, random.Random(seed), Outcome()
        self.here: dict[str, Group] = {}
        self.over, self.lock = threading.Event(), threading.Lock()

    # ---- what comes

    def make(self, number: int) -> None:
        pick = self.random
        size, level = pick.randint(1, 16), pick.choice(["node", "zone", "zone", "cluster"])
        flaw = pick.choice(["", "", "", "", "", "cpu", "node", "cards", "gate"])
        cpu, tolerant = pick.choice(["1", "2", "8"]), pick.random() < 0.5
        group = Group(f"g{number}", size, level, flaw)
        if size > {"node": 1, "zone": 2, "cluster": NODES}[level] * min(CARDS, CPUS // int(cpu)) or size > 16:
            group.flaw = "size"
        gated: list[str] = []
        with self.lock:
            self.here[group.name] = group
            self.outcome.groups.append(group)
        self.system.begin(group)
        for i in range(size):
            pod = self.system.pod(group, i, CARDS + 1 if flaw == "cards" and i == 0 else 1)
            asked = str(CPUS + 1) if flaw == "cpu" and i == 0 else cpu
            pod["spec"]["containers"][0].setdefault("resources", {})["requests"] = {"cpu": asked}
            if tolerant:
                pod["spec"]["tolerations"] = [{"key": "team", "operator": "Exists"}]
            if flaw == "node" and i == 0:
                pod["spec"]["nodeSelector"] = {"name": "nowhere"}
            if flaw == "gate" and pick.random() < 0.5:
                pod["spec"]["schedulingGates"] = [{"name": "example.com/queue"}]
                gated.append(pod["metadata"]["name"])
            self.plane.api.post(self.path, pod)
        group.ready = time.monotonic()
        if gated:
            threading.Timer(pick.uniform(0.5, 4), self.open, (group, gated)).start()

    def open(self, group: Group, gated: list[str]) -> None:
        for name in gated:
            until(partial(self._opens, name), f"the gate of {name} is open")
        group.ready = time.monotonic()

    def _opens(self, name: str) -> bool:
        try:
            self.plane.api.patch(f"{self.path}/{name}", {"spec": {"schedulingGates": None}})
        except ApiError as error:
            return error.status == 404
        return True

    # ---- what is seen

    def follow(self) -> None:
        version = ""
        while not self.over.is_set():
            try:
                for event in self.plane.api.events(self.path, 5.0, version):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self.see(event["object"], event["type"] == "DELETED")
            except (OSError, ApiError):
                version = ""

    def see(self, pod: Object, gone: bool) -> None:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        with self.lock:
            group = self.here.get(name.rpartition("-")[0])
            if group is None or gone or not node or name in group.bound:
                return
            now = time.monotonic()
            group.bound[name] = node
            if len(group.bound) < group.size:
                group.in_part = group.in_part or now
                return
            if group.in_part is not None:
                group.longest = max(group.longest, now - group.in_part)
            group.in_part, group.placed = None, now
            group.ends = now + random.Random(f"{self.seed} {group.name}").uniform(*RUNS_S)
            self.together(group)

    def together(self, group: Group) -> None:
        at = {node: i for i, node in enumerate(self.nodes)}
        domains = {
            node if group.level == "node" else at[node] // 2 if group.level == "zone" else 0
            for node in group.bound.values()
        }
        if len(domains) > 1:
            self.outcome.wrong.append(f"{group.name} of one {group.level} is on {sorted(set(group.bound.values()))}")

    # ---- what ends

    def sweep(self) -> None:
        now = time.monotonic()
        with self.lock:
            for one in self.here.values():
                if one.in_part is not None:
                    one.longest = max(one.longest, now - one.in_part)
                    if one.longest > LIMIT_S:
                        self.outcome.wrong.append(f"{one.name}: {len(one.bound)} of {one.size} for {one.longest:.1f} s")
            done = [
                one for one in self.here.values()
                if (one.placed is not None and one.ends <= now)
                or (one.flaw not in ("", "gate") and not one.bound and now - one.ready > GIVEN_UP_S / 4)
            ]  # fmt: skip
            for one in done:
                del self.here[one.name]
            late = [one for one in self.here.values() if one.ready and now - one.ready > 10 * GIVEN_UP_S]
            for one in late:  # the others go on
                del self.here[one.name]
        for one in late:
            text = f"{one.name} of {one.size} ({one.level}, {one.flaw or 'no flaw'}) waits for ever"
            self.outcome.wrong.append(f"{text}; {len(one.bound)} run: {self._says(one)}")
        done += late
        for one in done:
            for i in range(one.size):
                with contextlib.suppress(ApiError):
                    self.plane.api.delete(f"{self.path}/{one.name}-{i}", 0)
            self.system.end(one)

    def _says(self, group: Group) -> str:
        """kube-scheduler, of the first of the group's pods that waits."""
        for i in range(group.size):
            with contextlib.suppress(ApiError):
                pod = self.plane.api.get(f"{self.path}/{group.name}-{i}")
                said = [one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
                if said and not pod["spec"].get("nodeName"):
                    return str(said[0].get("message"))[:400]
        return ""

    def play(self, many: int) -> None:
        watching = threading.Thread(target=self.follow)
        watching.start()
        try:
            for number in range(many):
                while len(self.here) >= AT_ONCE:
                    self.sweep()
                    time.sleep(0.05)
                self.make(number)
            while self.here:
                self.sweep()
                time.sleep(0.05)
        finally:
            self.over.set()
            watching.join()


@contextlib.contextmanager
def killed(plane: Plane, url: str, game: Game) -> Iterator[None]:
    """The extender is killed now and then, and begins anew."""
    pick, port = random.Random(7), url.rpartition(":")[2]
    state: dict[str, Process] = {"now": next(one for one in plane._started if one.name == "extender")}
    kubeconfig = str(plane.kubeconfig(USER))
    command = [sys.executable, "-m", "gemini", "extender", "--kubeconfig", kubeconfig, "--port", port, "--policies", ""]

    def kill() -> None:
        while not game.over.wait(pick.uniform(*EVERY_S)):
            state["now"].kill()
            plane.stop_process(state["now"])
            state["now"] = plane.run("extender", command)
            game.outcome.kills += 1
            state["now"].wait_http(f"{url}/readyz", seconds=READY_S)  # on a slow machine it would never serve otherwise

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        game.over.set()
        killer.join()
        plane.stop_process(state["now"])


def arrange(plane: Plane, nodes: list[str]) -> None:
    """Two nodes to a zone, and a taint on every fourth."""
    for i, node in enumerate(nodes):
        change: Object = {"metadata": {"labels": {ZONE: f"z{i // 2}"}}}
        if i % 4 == 3:
            change["spec"] = {"taints": [{"key": "team", "effect": "NoSchedule"}]}
        plane.api.patch(f"/api/v1/nodes/{node}", change)


def play(plane: Plane, many: int, seed: int = 1, kills: bool = True) -> Outcome:
    """The kinds and roles of the extender are there."""
    with plane.namespace("groups") as namespace, nodes_with_cards(plane, NODES, CARDS, prefix="gang") as nodes:
        arrange(plane, nodes)
        with gemini(plane) as url:
            game = Game(plane, namespace, nodes, seed, OURS)
            with (
                killed(plane, url, game) if kills else contextlib.nullcontext(),
                contextlib.suppress(KeyboardInterrupt),  # what was played so far is told
            ):
                game.play(many)
    return game.outcome


@contextlib.contextmanager
def cluster(plane: Plane) -> Iterator[None]:
    """What the tests' fixture `crd` is to them."""
    kinds = (
        "customresourcedefinition-device", "customresourcedefinition-resize", "deviceclass", "clusterrole-extender",
        "clusterrole-extender-leases", "clusterrole-webhook",
    )  # fmt: skip
    for kind in kinds:
        plane.kubectl("apply", "-f", str(BASE / f"{kind}.yaml"))
    for kind in ("devices", "resizes"):
        plane.kubectl("wait", "--for=condition=Established", f"crd/{kind}.gemini.io", "--timeout=120s")
    for user in (USER, HOOK_USER):
        plane.kubectl("create", "clusterrolebinding", user, f"--clusterrole={user}", f"--user={user}")
    leases = ("-n", "kube-system", "rolebinding", f"{USER}-leases")
    plane.kubectl("create", *leases, f"--clusterrole={USER}-leases", f"--user={USER}")
    yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-kills", action="store_true")
    parser.add_argument("--logs", type=Path, default=Path("out/e2e/groups"))
    args = parser.parse_args()
    with (
        Plane(Builder().controlplane(), args.logs, flags=["--enable-aggregator-routing=true"]) as plane,
        cluster(plane),
    ):
        outcome = play(plane, args.groups, args.seed, not args.no_kills)
    print(json.dumps(outcome.told(), indent=1))
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
