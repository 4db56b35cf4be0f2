"""NVIDIA's device plugin and Gemini in one cluster: pods of each kind come and go, NVIDIA's are left alone.

    python -m tests.e2e.sidebyside --seconds 600 [--turns 4] [--rate 4] [--ways second,asked,unasked]      # by hand

Real API server, scheduler, webhook (asked as an installation has it asked) and extender. NVIDIA's own plugin, on a
fake kubelet and simulated cards, and kwok's nodes give `nvidia.com/gpu`; other nodes of kwok's have cards of ours.
Fifty pods of each kind are there at a time, some of which end as others come, so many a second. The kinds know
nothing of each other: pods come at random (`--together`: one of each at the same instant, so that they always compete).
By turns there is Gemini, in one way after another (`WAYS`), and there is not: then pods that ask for no card come in
place of ours. So long NVIDIA's wait for a node with us, and without. The tests play a minute and a half.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import statistics
import sys
import threading
import time
import urllib.request
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.api import Api, ApiError, Object
from tests.e2e.build import Builder
from tests.e2e.fake_node import FakeNode
from tests.e2e.manygroups import cluster
from tests.e2e.plane import ADMINS, Plane
from tests.e2e.process import NotReady
from tests.e2e.test_extender import CORE, gemini, nodes_with_cards, record, sharepod
from tests.e2e.vendor import RESOURCE, nvidia_plugin

EACH = 50  # pods of a kind that are there at a time
TURNS, RATE = 4, 4.0  # times with Gemini and without; pods of a kind that come in a second, at most
CARDS, NODES, THEIR_NODES = 8, 4, 6  # and one more of theirs, with the plugin
WAIT_SECONDS = 60.0
WAYS = {  # in which the scheduler of NVIDIA's pods stands to the extender; the values are of the chart
    "second": {"second": True},  # sharepods have another (scheduler.mode: second, the default), so it asks nothing
    "asked": {},  # it asks about pods of both kinds (scheduler.mode: default)
    "unasked": {"mixed": False},  # about ours alone (besides that, scheduler.mixedNodes: false)
}


@dataclass
class Outcome:
    """`waits` and `made` have, by way, NVIDIA's pods; in "alone" there is no Gemini."""

    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # and "plain", "ours": the others
    made: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # until created
    asked: dict[str, list[dict[str, int]]] = field(default_factory=lambda: defaultdict(list))  # calls of each turn
    beside: Counter[str] = field(default_factory=Counter)  # sharepods
    turns: list[dict[str, float]] = field(default_factory=list)  # medians of each
    wrong: list[str] = field(default_factory=list)
    admitted: int = 0  # by the plugin

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            kind: {"pods": len(seconds), "median ms": round(statistics.median(seconds) * 1000),
                   "99th percentile ms": round(sorted(seconds)[len(seconds) * 99 // 100] * 1000),
                   "most ms": round(max(seconds) * 1000)}
            for kind, seconds in self.waits.items() if seconds
        }  # fmt: skip
        made = {kind: round(statistics.median(seconds) * 1000, 1) for kind, seconds in self.made.items() if seconds}
        ratios = [
            {way: round(took / turn["alone"], 2) for way, took in turn.items() if way != "alone"} for turn in self.turns
        ]
        return {
            **told, "created, median ms": made, "to alone, turn by turn": ratios, "extender's calls": dict(self.asked),
            "given cards by NVIDIA's plugin": self.admitted, "wrong": self.wrong[:20],
        }  # fmt: skip


def whole(name: str, pick: random.Random) -> Object:
    """A pod of NVIDIA's, as clusters have them: plain, privileged, with the variable, or with a sidecar."""
    main: Object = {"name": "main", "image": "x", "resources": {"limits": {RESOURCE: "1"}}}
    kind = pick.choice(["plain", "privileged", "variable", "sidecar"])
    if kind == "privileged":
        main["securityContext"] = {"privileged": True}
    if kind == "variable":
        main["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    containers = [main, *([{"name": "side", "image": "x", "resources": {}}] if kind == "sidecar" else [])]
    spec = {"containers": containers, "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": name}, "spec": spec}


class Kind:
    """Pods of one kind that come and go, `EACH` at a time."""

    def __init__(self, api: Api, path: str, outcome: Outcome, seed: int) -> None:
        self.api, self.path, self.outcome, self.random = api, path, outcome, random.Random(seed)
        self.arrivals = random.Random(f"{path}, {seed}")
        self.here: list[str] = []
        self.made = 0

    def churn(self, until: float, phase: str, rate: float, together: bool) -> None:
        due = time.monotonic()
        while (now := time.monotonic()) < until:
            time.sleep(max(0.0, due - now))
            due = max(due, now) + (1 / rate if together else self.arrivals.expovariate(rate))
            while len(self.here) >= EACH or (self.here and self.random.random() < 0.3):
                name = self.here.pop(self.random.randrange(len(self.here)))
                self.api.delete(f"{self.path}/{name}", 0)
                self.api.wait_gone(f"{self.path}/{name}")
            self.one(phase)

    def one(self, phase: str) -> None:
        name = f"{phase}-{self.made}"
        self.made += 1
        if phase == "ours":
            given = sharepod(name, gpu_request=self.random.choice(["0.1", "0.3", "0.5"]))
        else:
            given = sharepod(name) if phase == "plain" else whole(name, self.random)
        began = time.monotonic()
        try:
            self.api.post(self.path, given)
            made = time.monotonic() - began
            bound = self.api.wait_one(
                f"{self.path}/{name}", lambda one: one["spec"].get("nodeName"), seconds=WAIT_SECONDS
            )
        except (ApiError, NotReady) as error:
            self.outcome.wrong.append(f"{name}: {str(error)[:400]}")
            return
        self.here.append(name)
        self.outcome.waits[phase].append(time.monotonic() - began)
        if phase not in ("ours", "plain"):
            self.outcome.made[phase].append(made)
        self.judge(given, bound, phase == "ours")

    def judge(self, given: Object, bound: Object, ours: bool) -> None:
        name = bound["metadata"]["name"]
        notes = [key for key in bound["metadata"].get("annotations") or {} if "gemini.io" in key]
        if ours:
            core = round(float(given["metadata"]["annotations"]["gemini.io/gpu-request"]) * 100)
            if [card["resources"][CORE] for card in record(bound)] != [core]:
                self.outcome.wrong.append(f"{name}: asked for {core}, given {record(bound)}")
            return
        for before, now in zip(given["spec"]["containers"], bound["spec"]["containers"], strict=True):
            same = {key: now.get(key) for key in ("env", "securityContext")} == {
                key: before.get(key) for key in ("env", "securityContext")
            }
            if not same or now["resources"].get("limits") != before.get("resources", {}).get("limits"):
                self.outcome.wrong.append(f"{name}: {before} became {now}")
        if notes or bound["spec"]["schedulerName"] != "default-scheduler":
            self.outcome.wrong.append(f"{name}: touched, {notes}")


@contextlib.contextmanager
def admitting(node: FakeNode, path: str, outcome: Outcome) -> Iterator[None]:
    """The fake kubelet lets in what is bound to it, with cards by NVIDIA's plugin, and lets go of what is deleted."""
    over = threading.Event()

    def follow() -> None:
        version = ""
        while not over.is_set():
            with contextlib.suppress(OSError):
                for event in node.plane.api.events(path, 1.0, version, fieldSelector=f"spec.nodeName={node.name}"):
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] == "DELETED":
                        node.kubelet.remove(event["object"]["metadata"]["uid"])
                    elif event["type"] == "ADDED":
                        _admit(node, event["object"], outcome)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _admit(node: FakeNode, pod: Object, outcome: Outcome) -> None:
    name = pod["metadata"]["name"]
    try:
        let = node.admit(pod)
    except ApiError as error:
        if error.status != 404:  # it was deleted meanwhile
            outcome.wrong.append(f"{name}: {error}")
        return
    if not let:
        outcome.wrong.append(f"{name}: NVIDIA's plugin gave it no card")
        return
    outcome.admitted += node.kubelet.env(pod["metadata"]["uid"], "main")["NVIDIA_VISIBLE_DEVICES"].startswith("GPU-")


def play(
    plane: Plane, vendor: Path, seconds: float, seed: int = 1, turns: int = TURNS, rate: float = RATE,
    ways: Sequence[str] = tuple(WAYS), together: bool = False,
) -> Outcome:  # fmt: skip
    """The kinds and roles of the extender are there."""
    outcome, name = Outcome(), f"e2e-{uuid.uuid4().hex[:8]}"
    machine = f"id={name},gpus={CARDS},memory=80GiB,name=NVIDIA H200"
    try:
        with (
            plane.namespace("theirs") as theirs, plane.namespace("ours") as ours,
            plane.nodes(THEIR_NODES, prefix="theirs", capacity={RESOURCE: str(CARDS)}),
            FakeNode(plane, f"theirs-{name}") as node, nvidia_plugin(node, vendor, machine),
        ):  # fmt: skip
            node.wait_capacity(RESOURCE, CARDS)
            path = f"/api/v1/namespaces/{theirs}/pods"
            their = Kind(plane.api, path, outcome, seed)
            with (
                admitting(node, path, outcome), ThreadPoolExecutor(2) as pool,
                nodes_with_cards(plane, NODES, CARDS, prefix="ours"),
            ):  # fmt: skip
                api = Api(plane.server, plane.authority.client_context("admin", ADMINS))
                other = f"/api/v1/namespaces/{ours}/pods"

                def both(phase: str, of_that: str, turn: int) -> float:
                    beside, before = Kind(api, other, outcome, seed + turn), len(outcome.waits[phase])
                    beside.made = 10**6 * turn
                    until = time.monotonic() + seconds / ((1 + len(ways)) * turns)
                    churns = (their, phase), (beside, of_that)
                    for one in [pool.submit(kind.churn, until, what, rate, together) for kind, what in churns]:
                        one.result()
                    api.delete(other, 0)
                    api.wait(other, lambda left: not left, "the end of those beside")
                    return statistics.median(outcome.waits[phase][before:] or [0.0])

                for turn in range(turns):
                    number = (1 + len(ways)) * turn
                    with plane.scheduler():
                        medians = {"alone": both("alone", "plain", number)}
                    for way in ways if turn % 2 == 0 else reversed(ways):
                        number += 1
                        with gemini(plane, installed=True, **WAYS[way]) as url:
                            before = len(outcome.waits["ours"])
                            medians[way] = both(way, "ours", number)
                            outcome.beside[way] += len(outcome.waits["ours"]) - before
                            outcome.asked[way].append(_calls(url))
                            _events(plane, theirs, outcome)
                    outcome.turns.append(medians)
    finally:
        for left in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
            left.unlink()
    return outcome


def _calls(url: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
        text = reply.read().decode()
    found = re.findall(r'^gemini_extender_calls_total\{result="ok",verb="([a-z-]+)"\} ([0-9.e+]+)$', text, re.M)
    return {verb: int(float(number)) for verb, number in found}


def _events(plane: Plane, namespace: str, outcome: Outcome) -> None:
    """What was said of NVIDIA's pods."""
    for event in plane.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]:
        if event["reason"] in ("Preempted", "Evicted") or event["source"].get("component") == "gemini-extender":
            outcome.wrong.append(f"{event['involvedObject']['name']}: {event['reason']}: {event['message'][:300]}")


def _ways(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := [way for way in chosen if way not in WAYS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no way; use some of {','.join(WAYS)}")
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--ways", type=_ways, default=tuple(WAYS), help=f"some of {','.join(WAYS)} (default: all)")
    parser.add_argument("--rate", type=float, default=RATE, help="pods of each kind in a second, at most")
    parser.add_argument("--together", action="store_true", help="one of each kind at the same instant, evenly")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path, default=Path("out/e2e/sidebyside"))
    args = parser.parse_args()
    vendor = Builder().nvidia() / "nvidia-device-plugin"
    with (
        Plane(Builder().controlplane(), args.logs, flags=["--enable-aggregator-routing=true"]) as plane,
        cluster(plane),
    ):
        outcome = play(plane, vendor, args.seconds, args.seed, args.turns, args.rate, args.ways, args.together)
    print(json.dumps(outcome.told(), indent=1))
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
