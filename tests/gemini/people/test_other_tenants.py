"""What an administrator ran into whose cluster ran others' parts already, by what the API server asks and Helm reads.

Imports nothing of the tree, but asks its programs: with OTHERS_TREE another commit's. docs/proof.md has the table; at
13a6762 all of these fail.
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
import yaml

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


# What the extender answers for a group of two: of the first, while the second is gated; and, once that is not any more,
# when the first is to be bound and the second never comes.
GROUP = """
import asyncio, json
from tests.gemini.extender.world import Replica, World, pod_object
try:
    from gemini.extender.kinds import POD
except ImportError:
    from gemini.extender.state import POD

async def play():
    world = World()
    world.nodes("n1")
    said = {"gpu_request": "50%", "pod_group": "g", "pod_group_size": "2"}
    first, second = (pod_object(name, **said) for name in ("first", "second"))
    second["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    for pod in (first, second):
        world.put(POD, pod)
    try:
        replica = Replica(world, patience=0.5)
    except TypeError:
        replica = Replica(world)
    gated = (await replica.filter(first)).passed
    world.put(POD, {**second, "spec": {k: v for k, v in second["spec"].items() if k != "schedulingGates"}})
    replica.watch()
    free = [(await replica.filter(pod)).passed for pod in (first, second)]
    refused = await replica.bind(first, "n1")
    return {"gated": list(gated), "free": [list(one) for one in free], "refused": refused, "bound": len(world.bindings)}

print(json.dumps(asyncio.run(play())))
"""


def run(script: str, given: object = None) -> Any:
    """What a program of the tree says."""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=TREE, input=json.dumps(given), text=True,
        capture_output=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(TREE)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def answered(pod: dict[str, Any], behind: dict[str, Any] | None = None) -> dict[str, Any]:
    """What becomes of a pod in a cluster with the defaults."""
    (answer,) = run(ASK, [{"pod": pod, "behind": behind}])
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


def test_3_a_member_of_a_group_neither_runs_nor_holds_a_card_alone() -> None:
    """A gated one is no member yet; and none is bound where another does not come to be."""
    answer = run(GROUP)
    assert answer["gated"] == []
    assert answer["free"] == [["n1"], ["n1"]]
    assert "second" in answer["refused"]
    assert answer["bound"] == 0


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


def test_6_what_a_limit_range_fills_in_refuses_no_annotated_pod() -> None:
    told = (
        "LimitRanger plugin set: gemini.io/gpu-core limit for container main; gemini.io/gpu-core request for container"
    )
    given = pod(
        {"gemini.io/gpu-core": "10"}, {"gemini.io/gpu-request": "0.5", "kubernetes.io/limit-ranger": f"{told} main"}
    )
    answer = answered(given)
    assert answer["allowed"], answer


def test_6_a_page_says_what_quotas_and_queues_count() -> None:
    page = (TREE / "docs/cluster.md").read_text()
    assert "## Limits, quotas and queues" in page
    assert "requests.gemini.io/gpu-core" in page


def test_7_the_chart_makes_nothing_of_resource_k8s_io_where_it_is_not_served() -> None:
    objects = (TREE / "deploy/helm/gemini/templates/objects.yaml").read_text()
    (condition,) = (line for line in objects.splitlines() if "deviceClass.install" in line)
    assert "servesClaims" in condition


def test_8_a_page_says_what_autoscalers_see() -> None:
    assert "cluster-autoscaler" in (TREE / "docs/autoscaling.md").read_text()


def test_8_what_that_page_has_made_is_admitted_and_asks_for_a_whole_node() -> None:
    """What tests/e2e/test_autoscaling.py has a real Karpenter add a node for."""
    block = re.search(r"```yaml\n# placeholder.yaml\n(.*?)```", (TREE / "docs/autoscaling.md").read_text(), re.S)
    assert block is not None
    (deployment,) = (one for one in yaml.safe_load_all(block[1]) if one["kind"] == "Deployment")
    answer = answered({**deployment["spec"]["template"], "kind": "Pod"})
    assert (answer["allowed"], answer["touched"]) == (True, True)


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
