"""What Helm renders of the chart, of this tree or another commit's (OTHERS_TREE): what an administrator ran into whose
cluster ran others' parts already. docs/proof.md has the table; at 13a6762 all of these fail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.e2e.api import Object
from tests.e2e.charts import NAMESPACE, ROOT, Helm
from tests.e2e.conftest import built

CHART = Path(os.environ.get("OTHERS_TREE", ROOT)) / "deploy/helm/gemini"
ANSWER_SECONDS = 5


def rendered(folder: Path, version: str) -> list[Object]:
    words = ("template", "gemini", str(CHART), "--namespace", NAMESPACE, "--kube-version", version)
    return [one for one in yaml.safe_load_all(Helm(built("helm") / "helm", folder).run(*words)) if one]


@pytest.mark.parametrize("version", ["v1.30.0", "v1.33.0"])
def test_7_a_kubernetes_that_does_not_serve_claims_is_given_nothing_of_them(tmp_path: Path, version: str) -> None:
    assert [
        one["kind"] for one in rendered(tmp_path, version) if one["apiVersion"].startswith("resource.k8s.io/")
    ] == []


def test_9_the_definitions_go_with_the_release_and_hooks_come_before_them(tmp_path: Path) -> None:
    objects = rendered(tmp_path, "v1.36.0")
    notes = {f"{one['kind']}/{one['metadata']['name']}": one["metadata"].get("annotations") or {} for one in objects}
    definitions = {name for name in notes if name.startswith("CustomResourceDefinition/")}
    assert definitions
    assert [name for name in definitions if "helm.sh/resource-policy" in notes[name]] == []
    assert [
        name for name, said in notes.items() if name.startswith("Job/") and said.get("helm.sh/hook") == "pre-delete"
    ]


def test_10_kube_scheduler_waits_five_seconds_at_most_for_an_extenders_answer(tmp_path: Path) -> None:
    """A replica that hangs costs it so much a call."""
    texts = [
        text for one in rendered(tmp_path, "v1.36.0") if one["kind"] == "ConfigMap" for text in one["data"].values()
    ]
    told = [yaml.safe_load(text) for text in texts if "KubeSchedulerConfiguration" in text]
    waits = [extender["httpTimeout"] for one in told for extender in one["extenders"]]
    assert waits
    assert all(float(wait.removesuffix("s")) <= ANSWER_SECONDS for wait in waits), waits
