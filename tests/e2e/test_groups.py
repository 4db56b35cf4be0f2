"""Groups on the real scheduler: all of their pods run, or none does, whatever it is that one of them lacks."""

from __future__ import annotations

import json

import pytest

from gemini.extender.grouplease import lease_name
from gemini.kube import names
from tests.e2e.api import Object, condition, unscheduled
from tests.e2e.plane import Plane
from tests.e2e.test_extender import CORE, crd, gemini, nodes_with_cards, priorities, sharepod

__all__ = ["crd", "priorities"]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


ZONE = names.LEVEL_LABELS["zone"]


def member(
    name: str, group: str, size: int, more: Object | None = None, cpu: str = "", request: str = "0.5", **says: str
) -> Object:
    pod = sharepod(name, more, gpu_request=request, pod_group=group, pod_group_size=str(size), **says)
    if cpu:
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return pod


def bound(plane: Plane, path: str) -> dict[str, str]:
    found = {one["metadata"]["name"]: one["spec"].get("nodeName") for one in plane.api.get(path)["items"]}
    return {name: node for name, node in found.items() if node}


@pytest.mark.parametrize("together", [False, True], ids=["one asks too much", "all together ask too much"])
def test_a_group_of_which_one_lacks_a_processor_runs_not_at_all(
    plane: Plane, namespace: str, crd: None, together: bool
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with nodes_with_cards(plane, 1, 4) as (node,), gemini(plane):
        cpu = int(plane.api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]["cpu"])
        asked = dict.fromkeys("abc", f"{cpu * 400}m") if together else {"a": "", "b": "", "c": f"{cpu + 1}"}
        for name, amount in asked.items():
            plane.api.post(path, member(name, "g", 3, cpu=amount))
        missing = plane.api.wait(
            path,
            lambda pods: list(filter(unscheduled("Insufficient cpu"), pods)),
            "a pod without a processor",
        )[0]["metadata"]["name"]
        others = [name for name in asked if name != missing]
        said = plane.api.wait(
            path, lambda pods: list(filter(unscheduled(f"({missing}: 0/1 nodes are available"), pods)),
            "who waits says for whom",
        )  # fmt: skip
        assert {one["metadata"]["name"] for one in said} <= set(others)
        assert bound(plane, path) == {}
        for name in asked if together else [missing]:
            plane.api.delete(f"{path}/{name}", 0)
            plane.api.wait_gone(f"{path}/{name}")
            plane.api.post(path, member(name, "g", 3))
        for name in asked:
            assert plane.api.wait_one(f"{path}/{name}", condition("Ready"), seconds=180)["spec"]["nodeName"] == node


def test_a_pod_behind_a_gate_is_waited_for(plane: Plane, namespace: str, crd: None) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with nodes_with_cards(plane, 1, 2), gemini(plane):
        plane.api.post(path, member("gated", "g", 2, {"schedulingGates": [{"name": "example.com/queue"}]}))
        plane.api.post(path, member("free", "g", 2))
        plane.api.wait_one(f"{path}/free", unscheduled("(gated behind a scheduling gate)"))
        assert bound(plane, path) == {}
        plane.api.patch(f"{path}/gated", {"spec": {"schedulingGates": None}})
        for name in ("gated", "free"):
            plane.api.wait_one(f"{path}/{name}", condition("Ready"))


def test_a_group_goes_where_each_of_its_pods_may(plane: Plane, namespace: str, crd: None) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with nodes_with_cards(plane, 3, 2) as nodes, gemini(plane):
        chosen = {"nodeSelector": {"kubernetes.io/hostname": nodes[2]}}
        for name in ("a", "b"):
            plane.api.post(path, member(name, "g", 3))
        plane.api.post(path, member("picky", "g", 3, chosen))
        for name in ("a", "b", "picky"):
            assert plane.api.wait_one(f"{path}/{name}", condition("Ready"))["spec"]["nodeName"] == nodes[2]


def test_sixteen_cards_on_two_nodes_of_one_zone_or_none(plane: Plane, namespace: str, crd: None) -> None:
    """Of zone a one card is taken. One member lacks a processor at first: nobody runs, on either node."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    with nodes_with_cards(plane, 4, 8) as nodes, gemini(plane):
        for i, node in enumerate(nodes):
            plane.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {ZONE: "aabb"[i]}}})
        plane.api.post(path, sharepod("one", {"nodeSelector": {"kubernetes.io/hostname": nodes[0]}}, gpu_request="1"))
        plane.api.wait_one(f"{path}/one", condition("Ready"))
        says = {"request": "1", "pod_group_required_topology": "zone"}
        cpu = int(plane.api.get(f"/api/v1/nodes/{nodes[0]}")["status"]["allocatable"]["cpu"])
        for i in range(16):
            plane.api.post(path, member(f"w{i}", "g", 16, cpu=f"{cpu + 1}" if i == 15 else "", **says))
        plane.api.wait(
            path,
            lambda pods: list(filter(unscheduled("(w15: 0/"), pods)),
            "who waits says for whom",
            seconds=120,
        )
        assert set(bound(plane, path)) == {"one"}
        plane.api.delete(f"{path}/w15", 0)
        plane.api.wait_gone(f"{path}/w15")
        plane.api.post(path, member("w15", "g", 16, **says))
        there = [
            plane.api.wait_one(f"{path}/w{i}", condition("Ready"), seconds=180)["spec"]["nodeName"] for i in range(16)
        ]
        assert sorted(there) == sorted(nodes[2:] * 8)


def test_groups_in_the_words_of_others(plane: Plane, namespace: str, crd: None) -> None:
    """One of Koordinator's waits for the other; one of the coscheduling plugin, whose size nobody says, is refused."""
    path, gang = f"/api/v1/namespaces/{namespace}/pods", "gang.scheduling.koordinator.sh"

    def one(name: str) -> Object:
        pod = sharepod(name, gpu_request="0.5")
        pod["metadata"]["annotations"] |= {f"{gang}/name": "g", f"{gang}/min-available": "2"}
        return pod

    with nodes_with_cards(plane, 1, 2), gemini(plane, spellings="koordinator.sh,scheduling.x-k8s.io"):
        made = plane.api.post(path, one("a"))["metadata"]["annotations"]
        assert (made[names.POD_GROUP], made[names.POD_GROUP_SIZE]) == ("g", "2")
        plane.api.wait_one(f"{path}/a", unscheduled("group g has 1 of its 2 pods"))
        plane.api.post(path, one("b"))
        for name in ("a", "b"):
            plane.api.wait_one(f"{path}/{name}", condition("Ready"))
        labelled = sharepod("c", gpu_request="0.5")
        labelled["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "h"}
        with pytest.raises(AssertionError, match="h is a group whose size the pod does not say"):
            plane.api.post(path, labelled)


def test_the_garbage_collector_leaves_a_groups_lease_alone(plane: Plane, namespace: str, crd: None) -> None:
    """Its pods are in another namespace: there are none of those names where the Lease is."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    with nodes_with_cards(plane, 1, 2), gemini(plane):
        for name in ("a", "b"):
            plane.api.post(path, member(name, "g", 2))
        name = lease_name((namespace, "g"))  # the groups of other tests have theirs for a while after them
        made = plane.api.wait(LEASES, lambda found: [one for one in found if one["metadata"]["name"] == name], name)[0]
        pod = plane.api.get(f"{path}/a")["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
        stray = {"metadata": {"name": f"stray-{namespace}", "ownerReferences": [owner]}, "spec": {}}
        plane.api.post(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **stray})
        plane.api.wait_gone(f"{LEASES}/stray-{namespace}")  # such an owner is none to the collector
        kept = plane.api.get(f"{LEASES}/{name}")
        assert kept["metadata"]["uid"] == made["metadata"]["uid"]
        assert "ownerReferences" not in kept["metadata"], json.dumps(kept)
        plane.api.wait_gone(f"{LEASES}/{name}", seconds=120)  # when its time is up


def names_of(plane: Plane, path: str) -> set[str]:
    return {
        one["metadata"]["name"] for one in plane.api.get(path)["items"] if "deletionTimestamp" not in one["metadata"]
    }


def test_a_group_has_room_made_for_all_of_it_or_nobody_is_evicted(
    plane: Plane, namespace: str, crd: None, priorities: list[str]
) -> None:
    """By itself kube-scheduler evicts for each pod of a group, is it all there or not, and has it room then or not."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    least, _, high = priorities
    important = {"priorityClassName": high}
    with nodes_with_cards(plane, 1, 2), gemini(plane):
        lesser = {"low-0", "low-1"}
        for name in sorted(lesser):
            plane.api.post(path, sharepod(name, {"priorityClassName": least}, gpu_request="1.0"))
            plane.api.wait_one(f"{path}/{name}", condition("Ready"))
        for name in "abc":
            plane.api.post(path, member(name, "large", 3, important, request="1.0"))
        plane.api.post(path, member("first", "g", 2, important, request="1.0"))
        for name in ("a", "b", "c", "first"):
            plane.api.wait_one(f"{path}/{name}", unscheduled(f"Insufficient {CORE}"))
            plane.api.wait_one(f"{path}/{name}", unscheduled("preemption"))
        assert names_of(plane, path) >= lesser
        plane.api.post(path, member("second", "g", 2, important, request="1.0"))
        for name in ("first", "second"):
            plane.api.wait_one(f"{path}/{name}", condition("Ready"), seconds=180)
        assert names_of(plane, path) == {"a", "b", "c", "first", "second"}


def test_a_group_is_evicted_as_a_whole_or_stays(plane: Plane, namespace: str, crd: None, priorities: list[str]) -> None:
    """One card is enough; whose pod is on it may lose it alone, a group loses all of its pods."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    least, less, high = priorities
    with nodes_with_cards(plane, 1, 3) as (node,), gemini(plane):
        for name in ("one", "two"):
            plane.api.post(path, member(name, "low", 2, {"priorityClassName": least}, request="1.0"))
        for name in ("one", "two"):
            plane.api.wait_one(f"{path}/{name}", condition("Ready"))
        plane.api.post(path, sharepod("alone", {"priorityClassName": least}, gpu_request="1.0"))
        plane.api.wait_one(f"{path}/alone", condition("Ready"))
        plane.api.post(path, sharepod("high-0", {"priorityClassName": high}, gpu_request="1.0"))
        plane.api.wait_one(f"{path}/high-0", condition("Ready"), seconds=180)
        assert names_of(plane, path) == {"one", "two", "high-0"}  # one victim, not the two of the group
        plane.api.post(path, sharepod("high-1", {"priorityClassName": less}, gpu_request="1.0"))
        assert plane.api.wait_one(f"{path}/high-1", condition("Ready"), seconds=180)["spec"]["nodeName"] == node
        assert names_of(plane, path) == {"high-0", "high-1"}


def test_a_group_on_several_nodes_stays_whole_and_others_go(
    plane: Plane, namespace: str, crd: None, priorities: list[str]
) -> None:
    """kube-scheduler evicts the pods of one node: those on the others would run on without them."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    least, less, high = priorities
    says = {"request": "1.0", "pod_group_required_topology": "cluster"}
    with nodes_with_cards(plane, 3, 1), gemini(plane):
        for name in ("one", "two"):
            plane.api.post(path, member(name, "low", 2, {"priorityClassName": least}, **says))
        there = {
            plane.api.wait_one(f"{path}/{name}", condition("Ready"))["spec"]["nodeName"] for name in ("one", "two")
        }
        assert len(there) == 2
        plane.api.post(path, sharepod("alone", {"priorityClassName": less}, gpu_request="1.0"))
        plane.api.wait_one(f"{path}/alone", condition("Ready"))
        plane.api.post(path, sharepod("high-0", {"priorityClassName": high}, gpu_request="1.0"))
        plane.api.wait_one(f"{path}/high-0", condition("Ready"), seconds=180)
        assert names_of(plane, path) == {"one", "two", "high-0"}  # the more important one, as the others are a group
        plane.api.post(path, sharepod("high-1", {"priorityClassName": high}, gpu_request="1.0"))
        plane.api.wait_one(f"{path}/high-1", unscheduled(f"Insufficient {CORE}"))
        plane.api.wait_one(f"{path}/high-1", unscheduled("preemption"))
        assert set(bound(plane, path)) == {"one", "two", "high-0"}
        assert names_of(plane, path) == {"one", "two", "high-0", "high-1"}
