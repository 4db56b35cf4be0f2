"""kubectl gemini defrag on the real API server and scheduler: within budgets, and the card is free afterwards."""

from __future__ import annotations

import pytest

from gemini.cli.main import main
from tests.e2e.api import Object, condition
from tests.e2e.plane import Plane
from tests.e2e.test_extender import crd, gemini, nodes_with_cards, sharepod

__all__ = ["crd"]


def deployment(name: str, request: str) -> Object:
    pod = sharepod(name, gpu_request=request)
    labels = {"app": name}
    template = {"metadata": {"labels": labels, "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def test_an_eviction_frees_a_card_unless_a_budget_forbids_it(
    plane: Plane, namespace: str, crd: None, capsys: pytest.CaptureFixture[str]
) -> None:
    pods, apps = f"/api/v1/namespaces/{namespace}/pods", f"/apis/apps/v1/namespaces/{namespace}/deployments"
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"

    def runs(name: str) -> Object:
        found = plane.api.wait(
            pods,
            lambda listed: [one for one in listed if one["metadata"]["labels"]["app"] == name and ready(one)],
            f"{name} runs",
            seconds=120,
            labelSelector=f"app={name}",
        )
        return found[0]

    def ready(pod: Object) -> bool:
        return condition("Ready")(pod) and "deletionTimestamp" not in pod["metadata"]

    def defrag(step: str) -> tuple[int, str]:
        capsys.readouterr()
        status = main(["kubectl", "defrag", step, "--kubeconfig", str(plane.admin)])
        return status, capsys.readouterr().out

    with nodes_with_cards(plane, 2, 1) as nodes, gemini(plane, policies="fragment"):
        where = {}
        for name, request in (("first", "0.6"), ("second", "0.6"), ("small", "0.3")):
            plane.api.post(apps, deployment(name, request))
            where[name] = runs(name)["spec"]["nodeName"]
        assert {where["first"], where["second"]} == set(nodes)
        beside = "first" if where["small"] == where["first"] else "second"  # it goes: its card is used by small alone
        stays = where["second" if beside == "first" else "first"]
        plane.api.delete(f"{apps}/{beside}")
        plane.api.wait(
            pods, lambda listed: not [one for one in listed if one["metadata"]["labels"]["app"] == beside], "its end",
            seconds=120,
        )  # fmt: skip
        before = runs("small")["metadata"]["name"]
        status, said = defrag("--plan")
        assert (status, said.splitlines()[0]) == (
            0, f"{where['small']} gpu/0: evict {namespace}/{before} (to {stays} gpu/0)",
        )  # fmt: skip
        assert runs("small")["metadata"]["name"] == before
        selector = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}  # of either card
        plane.api.post(budgets, {"metadata": {"name": "b"}, "spec": {"minAvailable": 2, "selector": selector}})
        plane.api.wait_one(f"{budgets}/b", lambda one: (one.get("status") or {}).get("currentHealthy") == 2)
        status, said = defrag("--apply")
        assert said.endswith("0 cards can be freed by 0 evictions\n")
        assert f"a PodDisruptionBudget forbids that {namespace}/{before} be evicted" in said
        assert runs("small")["metadata"]["name"] == before
        plane.api.delete(f"{budgets}/b")
        plane.api.wait_gone(f"{budgets}/b")
        status, said = defrag("--apply")
        assert (status, said) == (0, f"{where['small']} gpu/0: evicted {namespace}/{before}\n")
        plane.api.wait_gone(f"{pods}/{before}")
        assert runs("small")["spec"]["nodeName"] == stays
        for name in (beside, "second" if beside == "first" else "first", "small"):
            if name != beside:
                plane.api.delete(f"{apps}/{name}")
