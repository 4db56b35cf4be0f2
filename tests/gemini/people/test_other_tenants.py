"""What an administrator ran into whose cluster ran others' parts already, by what the API server asks and Helm reads.

Imports nothing of the tree: with OTHERS_TREE another commit's is tried. docs/proof.md has the table; at 13a6762 all of
these fail.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
TREE = Path(os.environ.get("OTHERS_TREE", ROOT))
# Answers a list of pods, each in its turn by /mutate and, as it is then, by /validate; one that is followed by another
# with `behind` is given a container behind its own, and goes through both again.
ASK = """
import base64, json, sys
from gemini.webhook import review
try:
    from gemini.webhook.settings import Settings
except ImportError:
    from gemini.webhook.review import Settings

def ask(verb, pod):
    request = {"uid": "u", "operation": "CREATE", "kind": {"kind": "Pod"}, "resource": {"resource": "pods"},
               "namespace": "ns", "object": pod}
    return verb({"request": request}, Settings(scheduler="gemini-scheduler"))["response"]

def apply(pod, patch):
    for step in patch:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        at = pod
        for part in way:
            at = at[int(part) if isinstance(at, list) else part]
        if isinstance(at, list):
            at.insert(len(at) if last == "-" else int(last), step["value"]) if step["op"] == "add" else (
                at.__setitem__(int(last), step["value"]))
        elif step["op"] == "remove":
            del at[last]
        else:
            at[last] = step["value"]
    return pod

def through(pod):
    said = ask(review.mutate, pod)
    patch = json.loads(base64.b64decode(said["patch"])) if said.get("patch") else []
    checked = ask(review.validate, apply(pod, patch)) if said["allowed"] else said
    return {"allowed": checked["allowed"], "touched": bool(patch), "said": (checked.get("status") or {}).get("message")}

answers = []
for given in json.load(sys.stdin):
    answer = through(given["pod"])
    if given["behind"] and answer["allowed"]:
        given["pod"]["spec"]["containers"].append(given["behind"])
        answer = through(given["pod"])
    answers.append(answer)
print(json.dumps(answers))
"""


def answered(pod: dict[str, Any], behind: dict[str, Any] | None = None) -> dict[str, Any]:
    """What becomes of a pod in a cluster with the defaults."""
    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=TREE, input=json.dumps([{"pod": pod, "behind": behind}]), text=True,
        capture_output=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(TREE)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)
    return dict(answer)


def pod(amounts: dict[str, str] | None = None, notes: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"limits": amounts or {}}, **spec.pop("container", {})}
    return {"metadata": {"name": "p", "annotations": notes or {}}, "spec": {"containers": [container], **spec}}


NVIDIA = {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    "given",
    [
        pod(NVIDIA), pod(NVIDIA, schedulerName="volcano"), pod(NVIDIA, nodeName="n1"),
        pod(NVIDIA, container={"securityContext": {"privileged": True}}),
        pod(NVIDIA, container={"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}),
    ],
    ids=["whole card", "another scheduler", "on a node already", "privileged", "cards by itself"],
)  # fmt: skip
def test_1_pods_of_nvidias_plugin_are_left_as_they_are(given: dict[str, Any]) -> None:
    assert answered(given) == {"allowed": True, "touched": False, "said": None}


def test_2_a_container_that_another_webhook_put_behind_ours_is_admitted() -> None:
    answer = answered(pod(notes={"gemini.io/gpu-request": "0.5"}), {"name": "istio-proxy", "image": "mesh"})
    assert answer["allowed"], answer


def test_4_hamis_spelling_is_not_half_converted() -> None:
    assert not answered(pod({**NVIDIA, "nvidia.com/gpumem": "1000"}))["touched"]


@pytest.mark.parametrize(
    "notes",
    [
        {"gemini.io/gpu-class": "latency"}, {"gemini.io/gpu-model": "H200"},
        {"gemini.io/pod-group": "g", "gemini.io/pod-group-size": "2"},
    ],
    ids=["class", "model", "group"],
)  # fmt: skip
def test_5_what_is_said_of_cards_without_asking_for_one_is_refused(notes: dict[str, str]) -> None:
    answer = answered(pod(notes=notes))
    assert not answer["allowed"]
    assert next(iter(notes)) in answer["said"]


def test_7_the_chart_makes_nothing_of_resource_k8s_io_where_it_is_not_served() -> None:
    objects = (TREE / "deploy/helm/gemini/templates/objects.yaml").read_text()
    (condition,) = (line for line in objects.splitlines() if "deviceClass.install" in line)
    assert "servesClaims" in condition


def test_8_a_page_says_what_autoscalers_see() -> None:
    assert "cluster-autoscaler" in (TREE / "docs/autoscaling.md").read_text()


def test_9_the_definition_goes_with_the_release_and_hooks_take_back_the_rest() -> None:
    templates = TREE / "deploy/helm/gemini/templates"
    assert "resource-policy" not in (templates / "objects.yaml").read_text()
    assert "pre-delete" in (templates / "uninstall.yaml").read_text()


def test_10_a_replica_that_hangs_costs_the_scheduler_five_seconds_a_call() -> None:
    (seconds,) = re.findall(r"httpTimeout: (\d+)s", (TREE / "deploy/helm/gemini/templates/_helpers.tpl").read_text())
    assert int(seconds) <= 5
    patience = re.search(r"^PATIENCE_SECONDS = ([0-9.]+)", (TREE / "gemini/extender/gather.py").read_text(), re.M)
    assert patience is not None
    assert float(patience[1]) < int(seconds)  # a member's binding is held for less
