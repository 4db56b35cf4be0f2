"""What goes round a share is named with its mend, and may be allowed by its name."""

from __future__ import annotations

from typing import Any

import pytest

from gemini.kube.escapes import ALLOWANCES, CLOSED, OPEN, admission_fault, ephemeral_fault, leads_to
from gemini.kube.pod import parse_pod

Object = dict[str, Any]


def pod(share: bool = True, ephemeral: Any = (), **spec: Any) -> Object:
    said = {"gemini.io/gpu-request.a": "0.5"} if share else {}
    boxes = {"containers": [{"name": "a"}, {"name": "b"}], "ephemeralContainers": list(ephemeral)}
    return {"kind": "Pod", "metadata": {"name": "p", "annotations": said}, "spec": {**boxes, **spec}}


def a(**more: Any) -> Object:
    return {"containers": [{"name": "a", **more}, {"name": "b"}]}


def b(**more: Any) -> Object:
    return {"containers": [{"name": "a"}, {"name": "b", **more}]}


def visible(value: str) -> list[Object]:
    return [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]


def host(path: str) -> Object:
    return {"volumes": [{"name": "v", "hostPath": {"path": path}}]}


WAYS = [  # (what the pod says, the field of the refusal, by what it may be allowed)
    ({"nodeName": "n1"}, "spec.nodeName", None),
    ({"hostPID": True}, "spec.hostPID", "hostPID"),
    ({"hostIPC": True}, "spec.hostIPC", "hostIPC"),
    (host("/run/gemini"), "spec.volumes[0].hostPath.path", "hostPath"),
    (host("/dev"), "spec.volumes[0].hostPath.path", "hostPath"),
    (a(securityContext={"privileged": True}), "spec.containers[0].securityContext.privileged", "privileged"),
    (
        b(securityContext={"capabilities": {"add": ["NET_ADMIN", "SYS_ADMIN"]}}),
        "spec.containers[1].securityContext.capabilities.add", "capabilities",
    ),
    (b(securityContext={"capabilities": {"add": ["cap_sys_ptrace"]}}), "spec.containers[1].security", "capabilities"),
    (a(env=visible("all")), "spec.containers[0].env[NVIDIA_VISIBLE_DEVICES]", None),
    (a(env=visible("void")), "spec.containers[0].env[NVIDIA_VISIBLE_DEVICES]", None),
    (b(env=visible("all")), "spec.containers[1].env[NVIDIA_VISIBLE_DEVICES]", None),
    (a(envFrom=[{"configMapRef": {"name": "c"}}]), "spec.containers[0].envFrom[0]", "envFrom"),
    (a(envFrom=[{"prefix": "A_"}, {"prefix": "NVIDIA_"}]), "spec.containers[0].envFrom[1]", "envFrom"),
    (a(env=[{"name": "LD_PRELOAD", "valueFrom": {}}]), "spec.containers[0].env[LD_PRELOAD]", None),
    (a(volumeMounts=[{"mountPath": "/var/run/gemini/"}]), "spec.containers[0].volumeMounts[0].mountPath", None),
    (b(volumeMounts=[{"mountPath": "/var/run/nvidia-container-devices/all"}]), "spec.containers[1].volumeMounts", None),
    ({"initContainers": [{"name": "i", "env": visible("0")}]}, "spec.initContainers[0].env", None),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "by"), WAYS)
def test_each_way_round_a_share_is_refused_with_its_mend_and_allowed_by_its_own_name_alone(
    spec: Object, field: str, by: str | None
) -> None:
    made = pod(**spec)
    read = parse_pod(made)
    fault = admission_fault(made, read)
    assert fault is not None
    assert fault.field.startswith(field)
    assert "; " in str(fault)
    assert "\n" not in str(fault)
    assert admission_fault(made, read, set(ALLOWANCES) - {by}) is not None
    if by is not None:
        assert admission_fault(made, read, {by}) is None
    plain = pod(share=False, **spec)
    assert admission_fault(plain, parse_pod(plain)) is None


@pytest.mark.parametrize("said", [{"gpu-request": "0"}, {"gpu-request": "0", "gpu-limit": "1"}])
def test_a_share_that_reserves_no_memory_is_refused_for_the_node_would_not_limit_it(said: dict[str, str]) -> None:
    """No quota counted it, and it could fill a card whose memory was promised to others."""
    made = pod(share=False)
    made["metadata"]["annotations"] = {f"gemini.io/{key}": value for key, value in said.items()}
    fault = admission_fault(made, parse_pod(made), set(ALLOWANCES) - {"gpu-memory"})
    assert fault is not None
    assert str(fault).startswith("gemini.io/gpu-memory: is not said")
    assert admission_fault(made, parse_pod(made), {"gpu-memory"}) is None
    made["metadata"]["annotations"]["gemini.io/gpu-memory"] = "1Gi"
    assert admission_fault(made, parse_pod(made)) is None


def test_kubeshares_share_that_reserves_no_memory_is_refused_in_its_own_words() -> None:
    made = pod(share=False)
    made["metadata"]["labels"] = {"sharedgpu/gpu_request": "0", "sharedgpu/gpu_limit": "1.0"}
    assert str(admission_fault(made, parse_pod(made))).startswith("sharedgpu/gpu_mem: is not said")


@pytest.mark.parametrize(
    "spec",
    [
        host("/data"), host("/dev/shm"), host("/dev/infiniband/"), host("/run/spire/sockets"), host("/etc/localtime"),
        b(env=visible("void")), b(envFrom=[{"secretRef": {"name": "s"}}]), a(envFrom=[{"prefix": "APP_"}]),
        b(env=[{"name": "LD_PRELOAD", "valueFrom": {}}]), a(env=[{"name": "LD_PRELOAD", "value": "/x.so"}]),
        a(securityContext={"capabilities": {"add": ["IPC_LOCK", "SYS_NICE"]}}),
        {"hostNetwork": True, "hostPID": False},
    ],
)  # fmt: skip
def test_what_does_not_reach_the_card_is_nobodys_business(spec: Object) -> None:
    made = pod(**spec)
    assert admission_fault(made, parse_pod(made)) is None


ROUNDABOUT = (
    "/",
    "//",
    "/var",
    "/run",
    "/var/run/../run/",
    "/etc",
    "/var/run/gemini",
    "/dev//nvidia0",
    "/x/../dev",
    "dev",
)


@pytest.mark.parametrize("path", [*CLOSED, *(path + "/x" for path in CLOSED), *ROUNDABOUT])
def test_a_folder_in_above_or_below_a_closed_one_leads_there(path: str) -> None:
    assert leads_to(path) in CLOSED


def test_open_folders_lead_nowhere_and_lie_in_closed_ones() -> None:
    assert all(leads_to(path) is None and leads_to(path.rsplit("/", 1)[0]) is not None for path in OPEN)


def test_devices_that_an_annotation_names_to_the_runtime_are_refused() -> None:
    given = pod()
    given["metadata"]["annotations"]["cdi.k8s.io/all"] = "nvidia.com/gpu=all"
    assert str(admission_fault(given, parse_pod(given))).startswith("cdi.k8s.io/all: names devices to the container")
    plain = pod(share=False)
    plain["metadata"]["annotations"]["cdi.k8s.io/all"] = "nvidia.com/gpu=all"
    assert admission_fault(plain, parse_pod(plain)) is None


def test_cards_by_cdi_make_the_environment_harmless() -> None:
    for spec in (a(envFrom=[{"configMapRef": {"name": "c"}}]), a(env=visible("void"))):
        made = pod(**spec)
        assert admission_fault(made, parse_pod(made), by_cdi=True) is None
    made = pod(**a(env=visible("all")))
    assert admission_fault(made, parse_pod(made), by_cdi=True) is not None


@pytest.mark.parametrize(
    ("container", "field"),
    [
        ({"env": visible("all")}, "env[NVIDIA_VISIBLE_DEVICES]"),
        ({"securityContext": {"privileged": True}}, "securityContext.privileged"),
        ({"securityContext": {"capabilities": {"add": ["ALL"]}}}, "securityContext.capabilities.add"),
        ({"volumeMounts": [{"mountPath": "/run/gemini"}]}, "volumeMounts[0].mountPath"),
    ],
)
def test_a_container_that_is_added_is_looked_at_and_those_that_are_there_are_not(container: Object, field: str) -> None:
    old, new = pod(ephemeral=[{"name": "was", **container}]), {"name": "new", **container}
    fault = ephemeral_fault(pod(ephemeral=[{"name": "was", **container}, new]), old)
    assert fault is not None
    assert fault.field == f"spec.ephemeralContainers[1].{field}"
    assert ephemeral_fault(pod(ephemeral=[{"name": "was", **container}, {"name": "new"}]), old) is None
