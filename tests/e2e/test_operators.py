"""Groups by the templates of others' job objects: their real controllers make the pods, all of which run, or none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from gemini.kube import names
from tests.e2e.api import Object, condition, unscheduled
from tests.e2e.conftest import ROOT, built
from tests.e2e.operators import jobset, kuberay
from tests.e2e.plane import Plane
from tests.e2e.test_extender import CORE, crd, gemini, nodes_with_cards, record
from tests.e2e.test_groups import ZONE

__all__ = ["crd"]
SAMPLES = ROOT / "deploy/samples"
GROUPS = {
    "jobset": 4,
    "rayjob": 2,
    "pytorchjob": 4,
    "mpijob": 2,
}  # sample, which is the name of its group, and its size


def sample(name: str) -> Object:
    given: Object = yaml.safe_load((SAMPLES / f"{name}.yaml").read_text())
    return given


@pytest.fixture
def nodes(plane: Plane, crd: None) -> Iterator[list[str]]:
    """Two of one zone, with two cards each, of which one is taken."""
    with nodes_with_cards(plane, 2, 2) as found, gemini(plane):
        for node in found:
            plane.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {ZONE: "a"}}})
        yield found


def taken(name: str) -> Object:
    container = {"name": "main", "image": "x", "resources": {"limits": {CORE: "100"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": name}, "spec": spec}


def of_group(pods: list[Object], group: str) -> list[Object]:
    return [one for one in pods if one["metadata"].get("annotations", {}).get(names.POD_GROUP) == group]


def test_the_pods_of_a_jobset_run_together_or_none_does(plane: Plane, namespace: str, nodes: list[str]) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with jobset(plane, built("jobcontrollers")):
        plane.api.post(pods, taken("taken"))
        plane.api.wait_one(f"{pods}/taken", condition("Ready"))
        plane.api.post(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets", sample("jobset"))

        def all_wait(listed: list[Object]) -> bool:
            members = of_group(listed, "jobset")
            return len(members) == 4 and all(not one["spec"].get("nodeName") for one in members) and any(
                unscheduled("no room for all 4 pods of group jobset together within one zone")(one) for one in members
            )  # fmt: skip

        plane.api.wait(pods, all_wait, "the four wait")
        plane.api.delete(f"{pods}/taken", 0)

        def all_ran(listed: list[Object]) -> list[Object] | None:
            members = of_group(listed, "jobset")
            return members if len(members) == 4 and all(one["spec"].get("nodeName") for one in members) else None

        bound = plane.api.wait(pods, all_ran, "the four run", seconds=180)
        assert sorted(one["spec"]["nodeName"] for one in bound) == sorted(nodes * 2)
        assert all(card["resources"][CORE] == 100 for one in bound for card in record(one))


def test_the_workers_of_a_rayjob_run_together_and_its_head_without_a_card(
    plane: Plane, namespace: str, nodes: list[str]
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with kuberay(plane, built("jobcontrollers")):
        plane.api.post(f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs", sample("rayjob"))

        def all_run(listed: list[Object]) -> list[Object] | None:
            workers = of_group(listed, "rayjob")
            done = len(workers) == 2 and all(one["spec"].get("nodeName") for one in workers)
            return listed if done and len(listed) == 3 else None

        bound = plane.api.wait(pods, all_run, "head and workers run", seconds=180)
        (head,) = (one for one in bound if one["metadata"]["labels"]["ray.io/node-type"] == "head")
        assert names.ALLOCATION not in head["metadata"].get("annotations", {})
        workers = of_group(bound, "rayjob")
        assert len({one["spec"]["nodeName"] for one in workers}) == 1
        assert [card["resources"][CORE] for one in workers for card in record(one)] == [50, 50]
