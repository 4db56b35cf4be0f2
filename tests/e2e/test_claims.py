"""ResourceClaims and annotated pods on the same cards: real scheduler, real API server, fake nodes, real reporter.

What stands on a card is counted here from the API server alone: records of pods that are bound, and consumed capacity
of claims whose devices carry our promise.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.api import Object, condition, unscheduled
from tests.e2e.plane import Plane
from tests.e2e.test_extender import CORE, DEVICES, MEMORY, gemini, record, sharepod
from tests.e2e.test_reporter import USER, crd, rights  # noqa: F401
from tests.e2e.vendor import simulated

GIB = 2**30
DRA = "/apis/resource.k8s.io/v1"


@contextmanager
def cluster(plane: Plane, machine: str, cards: int = 1) -> Iterator[str]:
    """A fake node with simulated cards and a reporter of its own; extender, webhook and scheduler."""
    machine = machine.replace("gpus=2", f"gpus={cards}")
    with plane.nodes(1, prefix="claims", capacity={CORE: str(100 * cards)}) as (name,), gemini(plane):
        command = [
            sys.executable, "-m", "gemini", "reporter", "--kubeconfig", str(plane.kubeconfig(USER)), "--node", name,
            "--checkpoint", "/nonexistent", "--pod-resources", "/nonexistent",
        ]  # fmt: skip
        with plane.running("claims-reporter", command, simulated(machine)):
            plane.api.wait(f"{DRA}/resourceslices", lambda found: slices_of(found, name), "a slice")
            plane.api.wait_one(f"/api/v1/nodes/{name}", lambda one: MEMORY in one["status"]["allocatable"])
            yield name
        plane.api.delete(f"{DEVICES}/{name}")
        plane.api.delete(f"{DRA}/resourceslices/{name}-gemini.io")


def slices_of(found: list[Object], node: str) -> list[Object]:
    return [one for one in found if one["spec"].get("nodeName") == node]


def claimpod(name: str, core: int | str, memory: str = "1Gi") -> tuple[Object, Object]:
    """A claim for a part of a card, and the pod that uses it."""
    exactly = {"deviceClassName": "gemini.io", "capacity": {"requests": {"core": str(core), "memory": memory}}}
    claim = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "card", "exactly": exactly}]}},
    }  # fmt: skip
    spec = {
        "containers": [{"name": "main", "image": "x", "resources": {"claims": [{"name": "card"}]}}],
        "resourceClaims": [{"name": "card", "resourceClaimName": name}],
        "terminationGracePeriodSeconds": 0,
    }
    return claim, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def ask(plane: Plane, namespace: str, name: str, core: int | str) -> None:
    claim, pod = claimpod(name, core)
    plane.api.post(f"{DRA}/namespaces/{namespace}/resourceclaims", claim)
    plane.api.post(f"/api/v1/namespaces/{namespace}/pods", pod)


def promised(claims: list[Object], pods: list[Object]) -> Counter[str]:
    """Card uuid (in small letters) -> percent of its time."""
    held: Counter[str] = Counter()
    for claim in claims:
        status = claim.get("status") or {}
        said = {
            entry.get("shareID"): {c["type"] for c in entry["conditions"] if c["status"] == "True"}
            for entry in status.get("devices") or ()
        }
        for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
            if "gemini.io/promised" in said.get(result["shareID"], set()):
                held[result["device"]] += int(result["consumedCapacity"]["core"])
    for pod in pods:
        if "gemini.io/allocation" in (pod["metadata"].get("annotations") or {}) and pod["spec"].get("nodeName"):
            for card in record(pod):
                held[card["uuid"].lower()] += card["resources"][CORE]
    return held


def now(plane: Plane, namespace: str) -> Counter[str]:
    """Claims are read before pods: what is counted was there all at once, or more than was."""
    claims = plane.api.get(f"{DRA}/namespaces/{namespace}/resourceclaims")["items"]
    return promised(claims, plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"])


@pytest.mark.usefixtures("rights")
def test_claim_and_annotated_pod_never_share_more_than_a_card_whoever_comes_first(
    plane: Plane, namespace: str, machine: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with cluster(plane, machine):
        plane.api.post(path, sharepod("pod", gpu_request="0.6", gpu_memory="1Gi"))
        plane.api.wait_one(f"{path}/pod", condition("Ready"))
        ask(plane, namespace, "half", 50)
        plane.api.wait_one(f"{path}/half", condition("PodScheduled", "False"))
        ask(plane, namespace, "rest", 40)
        plane.api.wait_one(f"{path}/rest", condition("Ready"), seconds=180)
        assert set(now(plane, namespace).values()) == {100}
        plane.api.delete(f"{path}/pod", grace_seconds=0)
        plane.api.wait_one(f"{path}/half", condition("Ready"), seconds=180)
        # 90 percent are claims' now
        plane.api.post(path, sharepod("over", gpu_request="0.2", gpu_memory="1Gi"))
        plane.api.wait_one(f"{path}/over", unscheduled("10 free of 100, 20 asked"))
        plane.api.post(path, sharepod("fits", gpu_request="0.1", gpu_memory="1Gi"))
        plane.api.wait_one(f"{path}/fits", condition("Ready"))
        assert set(now(plane, namespace).values()) == {100}


@pytest.mark.usefixtures("rights")
def test_claims_go_to_other_cards_where_a_pod_was_given_more_of_one(plane: Plane, namespace: str, machine: str) -> None:
    """kube-scheduler allocates the first card that has room by the slice, which told of the pod's record alone."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    with cluster(plane, machine, cards=2) as node:
        first = plane.api.get(f"{DEVICES}/{node}")["spec"]["devices"][0]["id"]
        plane.api.post(path, sharepod("grows", gpu_request="0.1", gpu_memory="1Gi", gpu_uuid=first))
        pod = plane.api.wait_one(f"{path}/grows", condition("Ready"))
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "grows", "uid": pod["metadata"]["uid"]}
        resizes = f"/apis/gemini.io/v1alpha1/namespaces/{namespace}/resizes"
        wish = {"request": 90, "limit": 100, "memory": GIB}
        plane.api.post(resizes, {
            "apiVersion": "gemini.io/v1alpha1", "kind": "Resize", "spec": wish,
            "metadata": {"name": "grows", "ownerReferences": [owner]},
        })  # fmt: skip
        plane.api.wait_one(f"{resizes}/grows", lambda one: (one.get("status") or {}).get("booked") == wish)
        ask(plane, namespace, "half", 50)
        plane.api.wait_one(f"{path}/half", condition("Ready"), seconds=120)


@pytest.mark.usefixtures("rights")
def test_kube_scheduler_counts_of_a_claim_what_the_book_does(plane: Plane, namespace: str, machine: str) -> None:
    """Of parts of a percent it counted less, and gave the next claims a card without room: again and again."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    with cluster(plane, machine, cards=2):
        for name, core in (("most", "99500m"), ("less", "500m")):
            ask(plane, namespace, name, core)
            plane.api.wait_one(f"{path}/{name}", condition("Ready"), seconds=120)
        assert sorted(now(plane, namespace).values()) == [1, 100]


@pytest.mark.usefixtures("rights")
def test_a_pod_of_administrators_access_is_told_why_it_waits(plane: Plane, namespace: str, machine: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with cluster(plane, machine):
        label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        plane.api.patch(f"/api/v1/namespaces/{namespace}", label)
        claim, pod = claimpod("admin", 10)
        claim["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
        plane.api.post(f"{DRA}/namespaces/{namespace}/resourceclaims", claim)
        plane.api.post(path, pod)
        plane.api.wait_one(f"{path}/admin", unscheduled("adminAccess"), seconds=120)


CONFIGURED = {  # as somebody may write it
    "plain": '{"a":1}', "blanks": '{"a": 1, "b": [1, 2]}', "number": '{"a":1.50}', "letters": '{"a":"<&"}',
    "escaped": r'{"a":"\u003c\u00e9"}', "half": r'{"a":"\ud800"}', "large": '{"a":' + "7" * 30 + "}",
}  # fmt: skip


@pytest.mark.usefixtures("rights")
def test_claims_are_answered_however_somebody_wrote_what_he_configured(
    plane: Plane, namespace: str, machine: str
) -> None:
    """The API server refuses a status in which a byte of that is another: their pods waited for ever."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    with cluster(plane, machine):
        for name, text in CONFIGURED.items():
            claim, pod = claimpod(name, 10)
            claim["spec"]["devices"]["config"] = [{"opaque": {"driver": "other.io", "parameters": "HERE"}}]
            body = json.dumps(claim).replace('"HERE"', text)
            claims = f"{DRA}/namespaces/{namespace}/resourceclaims"
            plane.kubectl("create", "--raw", claims, "-f", "-", text=body)
            plane.api.post(path, pod)
        for name in CONFIGURED:
            plane.api.wait_one(f"{path}/{name}", condition("Ready"), seconds=180)


@pytest.mark.usefixtures("rights")
def test_no_pod_with_a_claim_is_gone_as_soon_as_somebody_evicts_it(plane: Plane, namespace: str) -> None:
    """The policy about endings is told of an eviction, and not of its pod."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    with plane.nodes(1, prefix="evicted") as (node,), gemini(plane, installed=True):
        named = {"deviceclass.resource.kubernetes.io/gemini.io": "1"}  # for which kube-scheduler makes a claim
        for name, grace in (("at-once", 0), ("later", 30), ("named", 0)):
            _, pod = claimpod(name, 10)
            pod["spec"] |= {"terminationGracePeriodSeconds": grace, "nodeName": node}
            if name == "named":
                del pod["spec"]["resourceClaims"]
                pod["spec"]["containers"][0]["resources"] = {"limits": named}
            made = plane.api.post(path, pod)
            assert made["spec"]["terminationGracePeriodSeconds"] == max(1, grace)
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            plane.api.post(f"{path}/{name}/eviction", {**eviction, "deleteOptions": {"dryRun": ["All"]}})
        plain = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
        plain["spec"]["terminationGracePeriodSeconds"] = 0  # type: ignore[index]
        assert plane.api.post(path, plain)["spec"]["terminationGracePeriodSeconds"] == 0


@pytest.mark.usefixtures("rights")
def test_claims_and_annotated_pods_that_race_for_cards_never_get_more_than_there_is(
    plane: Plane, namespace: str, machine: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    most: Counter[str] = Counter()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            most.__ior__(now(plane, namespace))

    with cluster(plane, machine, cards=2):
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            for i in range(6):
                ask(plane, namespace, f"claim-{i}", 30)
                plane.api.post(path, sharepod(f"pod-{i}", gpu_request="0.3", gpu_memory="1Gi"))
            full = lambda pods: sum(map(condition("Ready"), pods)) == 6 and pods  # noqa: E731
            plane.api.wait(path, full, "three shares of 0.3 on each card", 180)
            assert sorted(now(plane, namespace).values()) == [90, 90]
        finally:
            over.set()
            watcher.join()
    assert most
    assert max(most.values()) <= 100
