"""Queues: a real Kueue counts shares, suspends Jobs and lets them run, and our extender places their pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gemini.kube import names
from tests.e2e.api import ApiError, Object, condition
from tests.e2e.conftest import ROOT, built
from tests.e2e.plane import Plane
from tests.e2e.process import free_port
from tests.e2e.queues import QUEUE_NAME, Jobs, kueue, lacking, queue
from tests.e2e.test_extender import CORE, GIB, MEMORY, RATIO, crd, gemini, nodes_with_cards, record, sharepod

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
    built("kueue")
    with Plane(tools, logs / "kueue", without_stage="pod-complete") as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def controller(plane: Plane, crd: None) -> Iterator[None]:
    """Kueue, and ours with the webhook for Jobs as it is installed."""
    port = free_port()
    with (
        kueue(plane, built("kueue"), [WHOLE_CARDS]),
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
