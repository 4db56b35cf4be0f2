"""Queues: a real Kueue counts shares, suspends Jobs and lets them run, and our extender places their pods."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gemini.kube import names
from tests.e2e.api import MERGE_PATCH, Api, ApiError, Object, condition
from tests.e2e.conftest import ROOT, built
from tests.e2e.plane import Plane
from tests.e2e.process import free_port, until
from tests.e2e.queues import QUEUE_NAME, Jobs, kueue, lacking, queue
from tests.e2e.test_extender import CORE, GIB, MEMORY, RATIO, USER, crd, gemini, nodes_with_cards, record, sharepod

__all__ = ["crd"]
NVIDIA = "nvidia.com/gpu"
HALF = {"gemini.io/gpu-request": "0.5"}
PLENTY = {MEMORY: str(1000 * GIB), RATIO: "1000"}
# As docs/cluster.md has it.
WHOLE_CARDS = {"input": NVIDIA, "strategy": "Replace", "outputs": {CORE: "100", RATIO: "100"}}


@pytest.fixture(scope="module")
def plane(tools: Path, logs: Path) -> Iterator[Plane]:
    """One whose Jobs' pods run until the test ends them."""
    if why := lacking():
        pytest.skip(why)
    built("controllers")
    with Plane(tools, logs / "kueue", without_stage="pod-complete") as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def controller(plane: Plane, crd: None) -> Iterator[None]:
    """Kueue, and ours with the webhook for Jobs as it is installed."""
    port = free_port()
    with (
        kueue(plane, built("controllers"), [WHOLE_CARDS]),
        gemini(plane, webhook_port=port),
        plane.webhook("gemini-jobs", f"https://127.0.0.1:{port}/mutate", resources=("jobs",), **installed()),
    ):
        yield


def installed() -> Object:
    """Which Jobs an installation asks about."""
    text = (ROOT / "deploy/kustomize/cluster/webhookconfigurations.yaml").read_text()
    hooks = next(yaml.safe_load_all(text))["webhooks"]
    (ours,) = (hook for hook in hooks if hook["name"] == names.JOBS_HOOK)
    return {key: ours[key] for key in ("matchConditions", "objectSelector", "reinvocationPolicy", "failurePolicy")}


def cores(pod: Object) -> list[Any]:
    return [card["resources"][CORE] for card in record(pod)]


@pytest.mark.parametrize("said", ["resources", "annotations"])
def test_a_job_of_half_a_card_waits_for_its_quota_and_runs_when_it_is_freed(
    plane: Plane, namespace: str, said: str
) -> None:
    jobs = Jobs(plane, namespace)
    half: Any = {"limits": {CORE: "50"}} if said == "resources" else {"annotations": HALF}
    with nodes_with_cards(plane, 1, 2), queue(plane, namespace, {CORE: "90", **PLENTY}):
        jobs.make("first", **half)
        (pod,) = jobs.runs("first")
        assert jobs.counted("first")[CORE] == 50
        assert cores(pod) == [50]
        jobs.make("second", **half)
        jobs.waits("second", f"insufficient unused quota for {CORE}")
        jobs.finish("first")
        (pod,) = jobs.runs("second")
        assert cores(pod) == [50]


def test_a_queued_job_whose_pods_would_be_refused_is_refused_itself(plane: Plane, namespace: str) -> None:
    jobs = Jobs(plane, namespace)
    with pytest.raises(ApiError, match=r"gemini.io/gpu-request: 1.5 is above 1"):
        jobs.make("bad", {"gemini.io/gpu-request": "1.5"})


QUEUED = ROOT / "deploy/kustomize/cluster/validatingadmissionpolicy-queued.yaml"
RECORDS = QUEUED.with_name("validatingadmissionpolicy-records.yaml")
EDITOR = "queue-editor"


@pytest.fixture
def editor(plane: Plane, namespace: str) -> Iterator[Api]:
    """Who may edit the namespace, where the policies are."""
    plane.kubectl("create", "rolebinding", EDITOR, "-n", namespace, "--clusterrole=edit", f"--user={EDITOR}")
    made = Api(plane.server, plane.authority.client_context(EDITOR, ()))
    for policy in (QUEUED, RECORDS):  # here the extender has another account
        text = policy.read_text().replace("system:serviceaccount:gemini:gemini-extender", USER)
        plane.kubectl("apply", "-f", "-", text=text)
    until(lambda: "joins its queue when it is created" in joins(plane, namespace, made), "the policy of queues known")
    yield made
    for policy in (QUEUED, RECORDS):
        plane.kubectl("delete", "-f", str(policy))


def joins(plane: Plane, namespace: str, who: Api) -> str:
    """What is said to who gives a queue to a suspended Job whose template admission has not written."""
    jobs, name = Jobs(plane, namespace), f"late-{uuid.uuid4().hex[:8]}"
    inside = {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"}
    template = {"metadata": {"annotations": {"gemini.io/gpu-request": "0.9"}}, "spec": inside}
    plane.api.post(jobs.path, {"metadata": {"name": name}, "spec": {"suspend": True, "template": template}})
    return refused(who, f"{jobs.path}/{name}", {"metadata": {"labels": {QUEUE_NAME: "local"}}}, dryRun="All")


def refused(who: Api, path: str, change: Object, **query: str) -> str:
    """Empty: it is let."""
    try:
        who.call("PATCH", path, change, query, content_type=MERGE_PATCH)
    except ApiError as error:
        return str(error)
    return ""


def test_what_a_queued_job_asks_for_cannot_change_while_it_waits(plane: Plane, namespace: str, editor: Api) -> None:
    """Kubernetes lets labels, annotations and resources of a suspended Job's template change. Its pods went by the
    annotations, and its queue by the resources: 90 percent ran, and 1 was counted."""
    jobs, fixed = Jobs(plane, namespace), "what a queued Job's pods ask for cannot change once it exists"
    with nodes_with_cards(plane, 1, 2), queue(plane, namespace, {CORE: "90", **PLENTY}):
        jobs.make("first", HALF)
        jobs.runs("first")
        jobs.make("second", HALF)
        jobs.waits("second", f"insufficient unused quota for {CORE}")
        path = f"{jobs.path}/second"
        (container,) = plane.api.get(path)["spec"]["template"]["spec"]["containers"]
        one = {CORE: "1", RATIO: "1"}
        for inside in (
            {"metadata": {"annotations": {"gemini.io/gpu-request": "0.9"}}},
            {"metadata": {"annotations": {"gemini.io/gpu-request": None}}},
            {"metadata": {"annotations": {"gemini.io/gpu-memory.main": "70Gi"}}},
            {"metadata": {"labels": {"sharedgpu/gpu_request": "0.9"}}},
            {"spec": {"nodeSelector": {"gemini.io/gpu": "true"}}},
            {"spec": {"containers": [{**container, "resources": {"limits": one, "requests": one}}]}},
        ):
            assert fixed in refused(editor, path, {"spec": {"template": inside}}), inside
        others: Object = {
            "metadata": {"labels": {"team": "a"}},
            "spec": {"nodeSelector": {"kubernetes.io/os": "linux"}},
        }
        assert refused(editor, path, {"spec": {"template": others}}, dryRun="All") == ""
        assert refused(editor, path, {"metadata": {"labels": {QUEUE_NAME: "other"}}}, dryRun="All") == ""
        jobs.finish("first")
        (pod,) = jobs.runs("second")
        assert jobs.counted("second")[CORE] == 50
        assert cores(pod) == [50]


def test_a_queues_marks_stay_on_its_pods(plane: Plane, namespace: str, editor: Api) -> None:
    """By them a growth past what the queue counts is refused."""
    jobs, stay = Jobs(plane, namespace), "stays on a pod with a share, for its queue counts it"
    with nodes_with_cards(plane, 1, 2), queue(plane, namespace, {CORE: "90", **PLENTY}):
        jobs.make("first", HALF)
        (pod,) = jobs.runs("first")
        path, marks = f"{jobs.pods}/{pod['metadata']['name']}", 0
        gone: Object = {"metadata": {"labels": {"kueue.x-k8s.io/cluster-queue-name": None}}}
        until(lambda: stay in refused(editor, path, gone, dryRun="All"), "the policy of records known")
        for part in ("labels", "annotations"):
            for key in [key for key in pod["metadata"][part] if key.startswith("kueue.x-k8s.io/")]:
                for value in (None, "other"):
                    assert stay in refused(editor, path, {"metadata": {part: {key: value}}}), (part, key)
                marks += 1
        assert marks > 2
        assert refused(editor, path, {"metadata": {"labels": {"team": "a"}}}) == ""
        jobs.finish("first")  # Kubernetes' own controllers and Kueue do what they do


def test_a_queue_borrows_within_its_cohort_and_gives_back(plane: Plane, namespace: str) -> None:
    with plane.namespace() as other, nodes_with_cards(plane, 1, 2):
        back = {"reclaimWithinCohort": "Any"}
        with (
            queue(plane, namespace, {CORE: "100", **PLENTY}, cohort=namespace, borrowing_limit="60"),
            queue(plane, other, {CORE: "100", **PLENTY}, cohort=namespace, preemption=back),
        ):
            ours, theirs = Jobs(plane, namespace), Jobs(plane, other)
            ours.make("vast", {"gemini.io/gpu-request": "0.9"}, pods=2)
            ours.waits("vast", f"insufficient quota for {CORE}")  # 180 of 160
            ours.make("borrows", {"gemini.io/gpu-request": "0.75"}, pods=2)
            assert [cores(pod) for pod in ours.runs("borrows")] == [[75], [75]]
            assert ours.counted("borrows")[CORE] == 150
            theirs.make("owns", {"gemini.io/gpu-request": "1"})
            (pod,) = theirs.runs("owns")
            assert cores(pod) == [100]
            ours.waits("borrows", "reclamation within the cohort")
            theirs.finish("owns")
            assert [cores(pod) for pod in ours.runs("borrows")] == [[75], [75]]


def test_a_limit_ranges_defaults_count_where_a_job_says_no_share_alone(plane: Plane, namespace: str) -> None:
    jobs = Jobs(plane, namespace)
    bounds = {"type": "Container", "default": {CORE: "10"}, "defaultRequest": {CORE: "10"}, "max": {CORE: "60"}}
    ranges = f"/api/v1/namespaces/{namespace}/limitranges"
    plane.api.post(ranges, {"metadata": {"name": "l"}, "spec": {"limits": [bounds]}})
    with nodes_with_cards(plane, 1, 2), queue(plane, namespace, {CORE: "200", **PLENTY}):
        for name, said, core in (("annotated", HALF, 50), ("silent", {}, 10)):
            jobs.make(name, said)
            (pod,) = jobs.runs(name)
            assert jobs.counted(name)[CORE] == core
            assert cores(pod) == [core]
        jobs.make("vast", {"gemini.io/gpu-request": "0.7"})
        jobs.waits("vast", "must not be above the limitRange max")


def test_a_quota_in_bytes_counts_what_is_said_in_bytes(plane: Plane, namespace: str) -> None:
    jobs = Jobs(plane, namespace)
    said = {"gemini.io/gpu-request": "0.2", "gemini.io/gpu-memory": "50Gi"}
    with nodes_with_cards(plane, 1, 2), queue(plane, namespace, {MEMORY: "90Gi", CORE: "200", RATIO: "200"}):
        jobs.make("first", said)
        jobs.runs("first")
        assert jobs.counted("first")[MEMORY] == 50 * GIB
        jobs.make("second", said)
        jobs.waits("second", f"insufficient unused quota for {MEMORY}")
        jobs.finish("first")
        (pod,) = jobs.runs("second")
        assert record(pod)[0]["resources"][MEMORY] == 50 * GIB


def test_a_ratio_counts_as_bytes_where_the_namespaces_quota_counts_those(plane: Plane, namespace: str) -> None:
    jobs, quotas = Jobs(plane, namespace), f"/api/v1/namespaces/{namespace}/resourcequotas"
    with nodes_with_cards(plane, 1, 2), queue(plane, namespace, {MEMORY: "100Gi", CORE: "200"}):
        plane.api.post(quotas, {"metadata": {"name": "q"}, "spec": {"hard": {f"requests.{MEMORY}": str(100 * GIB)}}})
        plane.api.wait_one(f"{quotas}/q", lambda one: bool((one.get("status") or {}).get("hard")))
        jobs.make("half", HALF)
        (pod,) = jobs.runs("half")
        assert jobs.counted("half") == {CORE: 50, MEMORY: 40 * GIB}
        assert record(pod)[0]["resources"][MEMORY] == 40 * GIB


def test_a_transformation_counts_whole_cards_in_another_spelling(plane: Plane, namespace: str) -> None:
    jobs = Jobs(plane, namespace)
    with queue(plane, namespace, {CORE: "200", RATIO: "200"}):
        jobs.make("whole", limits={NVIDIA: "2"})
        assert jobs.counted("whole") == {CORE: 200, RATIO: 200}


def test_a_queued_pod_is_counted_as_it_was_admitted(plane: Plane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with nodes_with_cards(plane, 1, 2), queue(plane, namespace, {CORE: "90", **PLENTY}):
        for name in ("first", "second"):
            pod = sharepod(name, gpu_request="0.5")
            pod["metadata"]["labels"] = {QUEUE_NAME: "local"}
            plane.api.post(path, pod)
            if name == "first":
                assert cores(plane.api.wait_one(f"{path}/first", condition("Ready"))) == [50]
        Jobs(plane, namespace).waits_as_pod("second", f"insufficient unused quota for {CORE}")
        plane.api.delete(f"{path}/first", 0)
        assert cores(plane.api.wait_one(f"{path}/second", condition("Ready"))) == [50]
