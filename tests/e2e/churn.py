"""The control plane under an editor (editor.py) who rewrites at random all that he may, beside other tenants.

    python -m tests.e2e.churn --seconds 600 [--seed 1]      # ten minutes, by hand; the tests play one

Real API server, scheduler, controllers, admission policy, webhook and extender; fake nodes. The editor has a quota that
leaves room for the others. These are pods that stand all the while, and visitors who come one after another, each for a
share for which there is room whatever the editor does. What stands on a card is counted here, by the records that the
API server showed when the pods were bound, and by nothing of the product's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gemini.kube import names
from gemini.webhook.app import OPTED_IN
from tests.e2e.api import Api, ApiError, Object, condition
from tests.e2e.build import Builder
from tests.e2e.editor import CARDS, Editor, Outcome
from tests.e2e.plane import Plane
from tests.e2e.test_extender import BASE, CORE, GIB, HOOK_USER, MEMORY, gemini, nodes_with_cards, sharepod
from tests.e2e.test_records import POLICY

BINDER, EDITOR = "system:serviceaccount:gemini:gemini-extender", "hostile-editor"
NODES, EDITORS = 2, 3
# Eight cards, half of the time of each is standing pods'. To leave a visitor no room on one of them takes 41 percent or
# 67 GiB more: the editor can fill six of them.
QUOTA = {f"requests.{CORE}": "200", f"requests.{MEMORY}": "190Gi", "pods": "40"}  # bytes, in whatever spelling
STANDING, VISITOR = ("0.5", "10Gi"), ("0.1", "4Gi")
VISIT_SECONDS = 60.0


class Count:
    """What stands on each card, by what was written when each pod was bound."""

    def __init__(self, api: Api, hostile: str, outcome: Outcome) -> None:
        self._api, self._hostile, self._outcome = api, hostile, outcome
        self._held: dict[str, list[tuple[str, int, int]]] = {}  # uid -> (card, core, bytes)
        self._text: dict[str, str] = {}
        self._over = threading.Event()

    def follow(self) -> None:
        version = ""
        while not self._over.is_set():
            try:
                if not version:
                    listed = self._api.get("/api/v1/pods")
                    version = listed["metadata"]["resourceVersion"]
                    for uid in set(self._held) - {one["metadata"]["uid"] for one in listed["items"]}:
                        del self._held[uid]
                    for one in listed["items"]:
                        self._see(one)
                for event in self._api.events("/api/v1/pods", 5.0, version):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] == "DELETED":
                        self._held.pop(event["object"]["metadata"]["uid"], None)
                    elif event["type"] != "BOOKMARK":
                        self._see(event["object"])
            except (OSError, ApiError):
                version = ""

    def stop(self) -> None:
        self._over.set()

    def _see(self, pod: Object) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        text = (pod["metadata"].get("annotations") or {}).get(names.ALLOCATION)
        if not node or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            self._held.pop(uid, None)
            return
        if uid in self._text:
            if text != self._text[uid]:
                self._outcome.rewritten.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}: {text}")
            return
        if text is None:
            return
        self._text[uid] = text
        cards = json.loads(text).get("gpu", ())
        self._held[uid] = [(one["uuid"], one["resources"][CORE], one["resources"][MEMORY]) for one in cards]
        self._outcome.bound += pod["metadata"]["namespace"] == self._hostile
        core: Counter[str] = Counter()
        memory: Counter[str] = Counter()
        for held in list(self._held.values()):
            for card, percent, size in held:
                core[card] += percent
                memory[card] += size
        self._outcome.peak_core = max(self._outcome.peak_core, *core.values())
        self._outcome.peak_memory = max(self._outcome.peak_memory, *memory.values())


@contextlib.contextmanager
def cluster(plane: Plane) -> Iterator[None]:
    """What the chart installs, with the extender's account as a user; all namespaces opted in to others' spellings."""
    roles = ("clusterrole-extender", "clusterrole-extender-leases", "clusterrole-webhook")
    files = [str(BASE / f"{kind}.yaml") for kind in ("customresourcedefinition-device", "deviceclass", *roles)]
    files.append(str(POLICY))
    for file in files:
        plane.kubectl("apply", "-f", file)
    plane.kubectl("wait", "--for=condition=Established", "crd/devices.gemini.io", "--timeout=120s")
    bindings = {"editor-extender": BINDER, "editor-webhook": HOOK_USER}
    for name, user in bindings.items():
        role = f"--clusterrole=gemini-{name.removeprefix('editor-')}"
        plane.kubectl("create", "clusterrolebinding", name, role, f"--user={user}")
    leases = ("-n", "kube-system", "rolebinding", "editor-extender-leases")
    plane.kubectl("create", *leases, "--clusterrole=gemini-extender-leases", f"--user={BINDER}")
    try:
        with nodes_with_cards(plane, NODES, CARDS, prefix="editor"), gemini(plane, user=BINDER, path=OPTED_IN):
            yield
    finally:
        plane.kubectl("delete", *leases)
        plane.kubectl("delete", "clusterrolebinding", *bindings)
        for file in reversed(files):
            plane.kubectl("delete", "-f", file)


def play(plane: Plane, seconds: float, seed: int = 1) -> Outcome:
    outcome = Outcome()
    with cluster(plane), plane.namespace("hostile") as hostile, plane.namespace("quiet") as quiet:
        limits = f"/api/v1/namespaces/{hostile}/resourcequotas"
        plane.api.post(limits, {"metadata": {"name": "share"}, "spec": {"hard": QUOTA}})
        system = {"operator": "In", "scopeName": "PriorityClass",
                  "values": ["system-node-critical", "system-cluster-critical"]}  # fmt: skip
        spec = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [system]}}
        plane.api.post(limits, {"metadata": {"name": "no-priority"}, "spec": spec})
        plane.api.wait_one(f"{limits}/share", lambda one: bool((one.get("status") or {}).get("hard")))
        plane.api.wait_one(f"{limits}/no-priority", lambda one: bool((one.get("status") or {}).get("hard")))
        plane.kubectl("create", "rolebinding", EDITOR, "-n", hostile, "--clusterrole=edit", f"--user={EDITOR}")
        more = "--resource=pods/ephemeralcontainers,pods/resize"  # as those get who debug
        plane.kubectl("create", "role", EDITOR, "-n", hostile, "--verb=patch,update", more)
        plane.kubectl("create", "rolebinding", f"{EDITOR}-more", "-n", hostile, f"--role={EDITOR}", f"--user={EDITOR}")
        path = f"/api/v1/namespaces/{quiet}/pods"
        standing = []
        for i in range(NODES * CARDS):
            request, memory = STANDING
            plane.api.post(path, sharepod(f"standing-{i}", gpu_request=request, gpu_memory=memory))
            standing.append(plane.api.wait_one(f"{path}/standing-{i}", condition("Ready")))
        count = Count(plane.api, hostile, outcome)
        until = time.monotonic() + seconds
        with ThreadPoolExecutor(EDITORS + 2) as pool:
            counting = pool.submit(count.follow)
            visiting = pool.submit(visit, plane.api, path, until, outcome)
            editors = []
            for i in range(EDITORS):
                api = Api(plane.server, plane.authority.client_context(EDITOR, ()))
                editors.append(pool.submit(Editor(api, hostile, quiet, standing, seed * 100 + i, outcome).work, until))
            try:
                for one in (*editors, visiting):
                    one.result()
            finally:
                count.stop()
            counting.result()
        judge(plane.api, quiet, standing, outcome)
    return outcome


def visit(api: Api, path: str, until: float, outcome: Outcome) -> None:
    request, memory = VISITOR
    while time.monotonic() < until:
        name = f"visitor-{outcome.visits}"
        began = time.monotonic()
        api.post(path, sharepod(name, gpu_request=request, gpu_memory=memory))
        try:
            api.wait_one(f"{path}/{name}", condition("Ready"), seconds=VISIT_SECONDS)
        except AssertionError as error:
            outcome.wrong.append(f"{name} found no room: {str(error)[-600:]}")
        outcome.seconds[name] = time.monotonic() - began
        outcome.visits += 1
        api.delete(f"{path}/{name}", 0)


def judge(api: Api, quiet: str, standing: list[Object], outcome: Outcome) -> None:
    """What befell the pods that were there before, and what the visitors were told."""
    path = f"/api/v1/namespaces/{quiet}"
    now = {one["metadata"]["name"]: one for one in api.get(f"{path}/pods")["items"]}
    for pod in standing:
        name = pod["metadata"]["name"]
        same = now.get(name, {})
        for what in ("uid", "annotations"):
            if same.get("metadata", {}).get(what) != pod["metadata"][what]:
                outcome.wrong.append(f"{name}: its {what} changed: {same.get('metadata', {}).get(what)}")
        if not condition("Ready")(same):
            outcome.wrong.append(f"{name} is no longer Ready")
    for event in api.get(f"{path}/events")["items"]:
        name, reason = event["involvedObject"]["name"], event["reason"]
        if reason in ("FailedScheduling", "Preempted", "Evicted", "GeminiMismatch"):
            outcome.wrong.append(f"{name}: {reason}: {event['message'][:300]}")


def told(outcome: Outcome) -> dict[str, Any]:
    return {
        "tried": sum(outcome.tried.values()), "let": sum(outcome.let.values()), "by kind": {
            kind: f"{outcome.let[kind]} of {many}" for kind, many in sorted(outcome.tried.items())},
        "his pods bound": outcome.bound, "most of a card, percent": outcome.peak_core,
        "most of a card, GiB": round(outcome.peak_memory / GIB, 2), "records rewritten": outcome.rewritten[:5],
        "visits": outcome.visits, "slowest visit, s": round(max(outcome.seconds.values(), default=0), 2),
        "wrong": outcome.wrong[:20],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path, default=Path("out/e2e/editor"))
    args = parser.parse_args()
    with Plane(Builder().controlplane(), args.logs, flags=["--enable-aggregator-routing=true"]) as plane:
        outcome = play(plane, args.seconds, args.seed)
    print(json.dumps(told(outcome), indent=1))
    return 0 if outcome.good() else 1


if __name__ == "__main__":
    sys.exit(main())
