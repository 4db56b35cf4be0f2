"""What a status says of a pod's containers."""

from __future__ import annotations

import pytest

from gemini.kube.life import begins_anew, gone, initialized

RUNNING = {"containerStatuses": [{"state": {"terminated": {}}}, {"state": {"running": {}}}]}


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ({}, False),
        ({"phase": "Running"}, False),
        ({"phase": "Succeeded"}, True),
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {}}}]}, True),
        ({"phase": "Failed", **RUNNING}, False),
        ({"phase": "Failed", "initContainerStatuses": [{"state": {"running": {}}}]}, False),  # a sidecar
        ({"phase": "Failed", "containerStatuses": [None, {"state": 3}]}, True),
    ],
)
def test_pod_has_ended_when_its_phase_says_so_and_no_container_runs(status: dict[str, object], ended: bool) -> None:
    assert gone(status) is ended


def test_init_containers_have_ended_with_the_condition() -> None:
    assert initialized({"conditions": [None, {"type": "Initialized", "status": "True"}]})
    assert not initialized({"conditions": [{"type": "Initialized", "status": "False"}]})
    assert not initialized({})


@pytest.mark.parametrize(
    ("spec", "anew"),
    [
        ({}, True),
        ({"restartPolicy": "Always"}, True),
        ({"restartPolicy": "OnFailure"}, True),
        ({"restartPolicy": "Never", "containers": [{"name": "a"}]}, False),
        ({"restartPolicy": "Never", "containers": [{"name": "a", "restartPolicyRules": []}]}, False),
        (
            {"restartPolicy": "Never", "containers": [{"restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
            True,
        ),
        ({"restartPolicy": "Never", "initContainers": [{"restartPolicyRules": [{}]}]}, True),
    ],
)
def test_init_containers_may_run_again_but_where_the_pod_says_never(spec: dict[str, object], anew: bool) -> None:
    assert begins_anew(spec) is anew
