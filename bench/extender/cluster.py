"""Row 16: pods per second of an unmodified kube-scheduler on 1,000 nodes x 8 cards, with the extender and without.

etcd, kube-apiserver and kube-scheduler are real, on loopback, on the same cores as everything else; nodes are objects
in the API server only. In each run the pods are there before their scheduler starts, so that the rate is the
scheduler's and not that of creating them: from the first binding seen to the last. Both arms place the same pods with
the same resources; without the extender the scheduler counts gpu-core by node and knows no cards. The arms alternate,
and the extender runs in its own arms only: once ready for other replicas, with two writes a binding, and once alone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from bench.extender.served import MEMORY, node_number, node_objects, pod
from bench.goals import Claim, claim
from bench.jitter import Probe
from bench.report import ROOT
from gemini.kube import names
from tests.e2e.api import Object
from tests.e2e.build import Builder, CannotBuild
from tests.e2e.plane import NODE_CAPACITY, Plane, extender, scheduler_configuration
from tests.e2e.process import free_port

USER = "gemini-extender"  # a service account, as in a cluster: a token costs the API server less than a certificate
SYSTEM = "kube-system"
BASE = ROOT / "deploy/kustomize/base"
DEVICES = f"/apis/{names.DEVICE_API_VERSION}/devices"
NAMESPACE = "/api/v1/namespaces/bench"
READY = {"type": "Ready", "status": "True", "reason": "Bench", "message": "an object only"}
# No controllers run: nobody would make service accounts, nor take the taint off new nodes.
FLAGS = ("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",)
RUN_SECONDS = 300
ARMS: dict[str, list[str] | None] = {
    "without": None,
    "replicas may join": [],
    "one replica, --alone": ["--alone"],
}


class Bare(Plane):
    """etcd and kube-apiserver."""

    def start(self) -> None:
        self._etcd = self._start_etcd()
        self.start_apiserver()

    def processes(self) -> dict[str, int]:
        return {process.name: process.pid for process in self._started}


def fill(plane: Plane, nodes: int, cards: int) -> None:
    """The nodes with their Devices, and what the extender needs."""
    for file in ("customresourcedefinition-device", "clusterrole-extender", "clusterrole-extender-leases"):
        plane.kubectl("apply", "-f", str(BASE / f"{file}.yaml"))
    plane.kubectl("wait", "--for=condition=Established", "crd/devices.gemini.io", "--timeout=30s")
    account, leases = f"--serviceaccount={SYSTEM}:{USER}", f"--clusterrole={USER}-leases"
    plane.kubectl("-n", SYSTEM, "create", "serviceaccount", USER)
    plane.kubectl("create", "clusterrolebinding", USER, f"--clusterrole={USER}", account)
    plane.kubectl("-n", SYSTEM, "create", "rolebinding", f"{USER}-leases", leases, account)
    plane.api.post("/api/v1/namespaces", {"metadata": {"name": "bench"}})
    capacity = {**NODE_CAPACITY, names.RESOURCE_CORE: str(100 * cards)}

    def make(n: int) -> None:
        node, device = node_objects(n, cards)
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [READY]}
        plane.api.post("/api/v1/nodes", {"metadata": {"name": node["metadata"]["name"]}, "status": status})
        plane.api.post(DEVICES, device)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(nodes)))


def create_pods(plane: Plane, scheduler: str, pods: int) -> None:
    def make(i: int) -> None:
        made = pod(i)
        metadata = {key: made["metadata"][key] for key in ("name", "labels", "annotations")}
        container = {key: value for key, value in made["spec"]["containers"][0].items() if key != "volumeMounts"}
        spec = {"schedulerName": scheduler, "containers": [container]}
        plane.api.post(f"{NAMESPACE}/pods", {"metadata": metadata, "spec": spec})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(pods)))


def processor_seconds(pid: int) -> float:
    """Of one process since it was started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watcher:
    """When each pod was seen bound, and to where; `spent`: what each of `processes` had used up by the first and by
    the last of them, for on a machine this small a pod costs what all of them need for it together."""

    def __init__(self, plane: Plane, pods: int, processes: Mapping[str, int]) -> None:
        self._api, self._pods = plane.api, pods
        self.processes = dict(processes)
        self._spent: list[dict[str, float]] = []
        self.bound: dict[str, tuple[int, Object]] = {}
        version = plane.api.get(f"{NAMESPACE}/pods")["metadata"]["resourceVersion"]
        self._thread = threading.Thread(target=self._watch, args=(version,), daemon=True)
        self._thread.start()

    def _watch(self, version: str) -> None:
        deadline = time.monotonic() + RUN_SECONDS
        while len(self.bound) < self._pods and time.monotonic() < deadline:
            for event in self._api.events(f"{NAMESPACE}/pods", 30, version):
                if event["type"] == "ERROR":  # closed by force under the load: look at all of them again
                    listed = self._api.get(f"{NAMESPACE}/pods")
                    version = listed["metadata"]["resourceVersion"]
                    for item in listed["items"]:
                        self._note(item)
                    break
                version = event["object"]["metadata"]["resourceVersion"]
                self._note(event["object"])
                if len(self.bound) >= self._pods:
                    return

    def _note(self, item: Object) -> None:
        if item["spec"].get("nodeName") and item["metadata"]["name"] not in self.bound:
            self.bound[item["metadata"]["name"]] = time.monotonic_ns(), item
            if len(self.bound) in (1, self._pods):
                self._spent.append({name: processor_seconds(pid) for name, pid in list(self.processes.items())})

    def milliseconds_a_pod(self) -> dict[str, float]:
        first, last = self._spent
        return {name: round((last[name] - first.get(name, 0)) * 1e3 / (self._pods - 1), 2) for name in last}

    def wait(self) -> list[int]:
        """When they were seen, in order. Raises TimeoutError."""
        self._thread.join(RUN_SECONDS + 30)
        if len(self.bound) < self._pods:
            raise TimeoutError(f"{len(self.bound)} of {self._pods} pods were bound within {RUN_SECONDS} s")
        return sorted(at for at, _ in self.bound.values())


@contextmanager
def served(plane: Plane, options: list[str]) -> Iterator[tuple[str, int]]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    kubeconfig = str(plane.account_kubeconfig(SYSTEM, USER))
    command = [sys.executable, "-m", "gemini", "extender", "--kubeconfig", kubeconfig, "--port", str(port)]
    command += ["--policies", "binpack", *options]
    with plane.running("extender", command, ready_url=f"{url}/readyz") as process:
        yield url, process.pid


def one_run(plane: Bare, arm: str, number: int, pods: int) -> dict[str, Any]:
    scheduler = f"bench-{number}"
    create_pods(plane, scheduler, pods)
    options = ARMS[arm]
    with nullcontext() if options is None else served(plane, options) as running:
        entries, processes = [], plane.processes()
        if running is not None:
            entries.append(extender(running[0], [names.RESOURCE_CORE], node_cache_capable=True))
            processes["extender"] = running[1]
        configuration = scheduler_configuration(entries, profiles=[{"schedulerName": scheduler}])
        with Probe() as probe:
            watcher = Watcher(plane, pods, processes)
            with plane.scheduler(configuration, name=scheduler) as process:
                watcher.processes["kube-scheduler"] = process.pid
                seen = watcher.wait()
    plane.kubectl("-n", "bench", "delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
    plane.api.wait(f"{NAMESPACE}/pods", lambda left: not left or None, "pods gone", 120)
    found = {
        "arm": arm, "pods_per_second": round((pods - 1) / ((seen[-1] - seen[0]) / 1e9), 1),
        "seconds": round((seen[-1] - seen[0]) / 1e9, 2), "stalls": len(probe.stalls),
        "processor_ms_a_pod": watcher.milliseconds_a_pod(),
    }  # fmt: skip
    if options is not None:
        found["over_committed_cards"] = overcommitted([item for _, item in watcher.bound.values()])
    return found


def overcommitted(bound: list[Object]) -> int:
    core: Counter[tuple[str, int]] = Counter()
    memory: Counter[tuple[str, int]] = Counter()
    for item in bound:
        for entry in json.loads(item["metadata"]["annotations"][names.ALLOCATION])["gpu"]:
            at = item["spec"]["nodeName"], entry["minor"]
            core[at] += entry["resources"][names.RESOURCE_CORE]
            memory[at] += entry["resources"][names.RESOURCE_MEMORY]
    return sum(core[at] > 100 or memory[at] > MEMORY[node_number(at[0]) % 2] for at in core)


def measure(nodes: int, cards: int, runs: int, pods: int) -> tuple[dict[str, Any], list[Claim], dict[str, bool]]:
    try:
        tools = Path(Builder().controlplane())
    except CannotBuild as why:
        return {"left_out": str(why)}, [], {}
    logs = ROOT / "out/bench-extender"
    found: list[dict[str, Any]] = []
    with Bare(tools, logs, flags=FLAGS) as plane:
        fill(plane, nodes, cards)
        number = 0
        for _ in range(runs):
            for arm in ARMS:
                found.append(one_run(plane, arm, number, pods))
                number += 1

    def median(arm: str) -> float:
        return float(np.median([run["pods_per_second"] for run in found if run["arm"] == arm]))

    rates = {arm: median(arm) for arm in ARMS}
    ratios = {arm: rates[arm] / rates["without"] for arm, options in ARMS.items() if options is not None}
    figures = {
        "nodes": nodes, "cards_per_node": cards, "pods_a_run": pods, "pods_per_second": rates,
        "ratios": ratios, "runs": found,
    }  # fmt: skip
    held = {
        "no card is over-committed behind kube-scheduler": not any(run.get("over_committed_cards") for run in found)
    }
    return figures, [claim("scheduler.rate", ratio, case=arm) for arm, ratio in ratios.items()], held
