"""Records belong to who writes them: the admission policy alone, on the real API server, without any webhook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
import yaml

from gemini.cli.kubectl_check import ENFORCE
from gemini.cli.main import main
from gemini.kube import names
from tests.e2e.api import Api, ApiError, Object
from tests.e2e.conftest import ROOT
from tests.e2e.pki import write_kubeconfig
from tests.e2e.plane import Plane
from tests.e2e.process import until

POLICY = ROOT / "deploy/kustomize/cluster/validatingadmissionpolicy-records.yaml"
ENDINGS = POLICY.with_name("validatingadmissionpolicy-endings.yaml")
CHART = ROOT / "deploy/helm/gemini/templates/admissionpolicy-records.yaml"
SYSTEM, EDITOR, NODE = "gemini", "editor", "records-node"
RECORD = '{"gpu":[{"minor":0,"uuid":"GPU-0","resources":{"gemini.io/gpu-core":30,"gemini.io/gpu-memory":1024}}]}'
ASKED = {names.GPU_REQUEST: "0.3"}
TAGS = {names.SHARED_MODEL: "H200"}


@pytest.fixture(scope="module")
def guarded(plane: Plane) -> Iterator[None]:
    plane.api.post("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    for account in ("gemini-node", "gemini-extender"):
        plane.api.post(f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", {"metadata": {"name": account}})
        grant = ("create", "clusterrolebinding", f"records-{account}", "--clusterrole=cluster-admin")
        plane.kubectl(*grant, f"--serviceaccount={SYSTEM}:{account}")
    plane.kubectl("apply", "-f", str(POLICY))
    try:
        probe = {"metadata": {"name": "probe", "annotations": {names.ALLOCATION: "{}"}}, "spec": SPEC}
        path = "/api/v1/namespaces/default/pods"

        def refuses() -> bool:
            try:
                plane.api.call("POST", path, probe, {"dryRun": "All"})
            except ApiError as error:
                return "is written by Gemini" in str(error)
            return False

        until(refuses, "the API server knows the policy")
        yield
    finally:
        plane.kubectl("delete", "-f", str(POLICY))
        for account in ("gemini-node", "gemini-extender"):
            plane.kubectl("delete", "clusterrolebinding", f"records-{account}")
        plane.api.delete(f"/api/v1/namespaces/{SYSTEM}")
        plane.api.wait_gone(f"/api/v1/namespaces/{SYSTEM}")


SPEC = {"containers": [{"name": "main", "image": "x"}], "terminationGracePeriodSeconds": 0}


@pytest.fixture
def pod(plane: Plane, namespace: str, guarded: None) -> Iterator[str]:
    """The path of a pod that the extender's account has bound to a node, with a record."""
    with plane.nodes(1, prefix=NODE) as (node,):
        pods = f"/api/v1/namespaces/{namespace}/pods"
        metadata = {"name": "shared", "annotations": ASKED, "labels": TAGS}
        plane.api.post(pods, {"metadata": metadata, "spec": SPEC})
        annotations = {names.ALLOCATION: RECORD, names.ASSIGNED: "false", names.ALIYUN_INDEX: "0"}
        binding = {"metadata": {"name": "shared", "annotations": annotations}, "target": {"kind": "Node", "name": node}}
        with pytest.raises(ApiError, match=f"{names.ALLOCATION}: is written by Gemini"):
            plane.api.post(f"{pods}/shared/binding", binding)
        by_extender(plane, namespace, binding)
        plane.kubectl("create", "rolebinding", EDITOR, "-n", namespace, "--clusterrole=edit", f"--user={EDITOR}")
        yield f"{pods}/shared"


def by_extender(plane: Plane, namespace: str, binding: Object) -> None:
    config = plane.account_kubeconfig(SYSTEM, "gemini-extender")
    path = f"/api/v1/namespaces/{namespace}/pods/shared/binding"
    body = {"apiVersion": "v1", "kind": "Binding", **binding}
    plane.kubectl("--kubeconfig", str(config), "create", "--raw", path, "-f", "-", text=json.dumps(body))


def editor(plane: Plane) -> Api:
    return Api(plane.server, plane.authority.client_context(EDITOR, ()))


@pytest.mark.parametrize("key", names.RECORD_KEYS)
def test_an_editor_can_change_no_record(plane: Plane, pod: str, key: str) -> None:
    api = editor(plane)
    for value in ("{}", "true"):
        with pytest.raises(ApiError, match=f"{key}: is written by Gemini's extender"):
            api.patch(pod, {"metadata": {"annotations": {key: value}}})


def test_an_editor_can_remove_no_record_by_any_verb(plane: Plane, namespace: str, pod: str) -> None:
    api, refused = editor(plane), "is written by Gemini's extender and by the pod's own node alone"
    with pytest.raises(ApiError, match=refused):
        api.patch(pod, {"metadata": {"annotations": {names.ALLOCATION: None}}})
    whole = api.get(pod)
    whole["metadata"]["annotations"] = ASKED
    with pytest.raises(ApiError, match=refused):
        api.put(pod, whole)
    config = str(plane.kubeconfig(EDITOR))
    one = ("--kubeconfig", config, "-n", namespace)
    done = plane.kubectl(*one, "annotate", "--overwrite", "pod", "shared", f"{names.ALLOCATION}-", check=False)
    assert refused in done.stderr, done
    applied = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shared", "annotations": {names.ALLOCATION: "{}"}},
    }
    apply = (*one, "apply", "--server-side", "--force-conflicts", "-f", "-")
    done = plane.kubectl(*apply, text=json.dumps(applied), check=False)
    assert refused in done.stderr, done
    operations = [{"op": "remove", "path": f"/metadata/annotations/{names.ALLOCATION.replace('/', '~1')}"}]
    with pytest.raises(ApiError, match=refused):
        api.call("PATCH", pod, operations, content_type="application/json-patch+json")  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["status", "ephemeralcontainers", "resize"])
def test_no_subresource_of_a_pod_changes_its_record(plane: Plane, pod: str, part: str) -> None:
    """By somebody who may use them all: what the API server does not drop by itself is refused."""
    change = {"annotations": {names.ALLOCATION: "{}", names.GPU_REQUEST: "1"}}
    with suppress(ApiError):
        plane.api.patch(f"{pod}/{part}", {"metadata": change})
    now = plane.api.get(pod)["metadata"]["annotations"]
    assert now[names.ALLOCATION] == RECORD
    assert now[names.GPU_REQUEST] == ASKED[names.GPU_REQUEST]


def test_what_a_pod_asks_for_is_fixed_when_it_is_created(plane: Plane, pod: str) -> None:
    fixed = "what a pod asks for cannot change once it exists; create the pod anew"
    changes: list[Object] = [
        {"annotations": {names.GPU_REQUEST: "0.9"}},
        {"annotations": {names.GPU_REQUEST: None}},
        {"annotations": {names.GPU_MEMORY: "70Gi"}},
        {"annotations": {f"{names.GPU_LIMIT}.main": "1"}},
        {"labels": {names.SHARED_MODEL: None}},
        {"labels": {names.SHARED_REQUEST: "1"}},
        {"labels": {names.ALIYUN_GPU_COUNT: "8"}},
    ]
    for change in changes:
        with pytest.raises(ApiError, match=fixed):
            editor(plane).patch(pod, {"metadata": change})
    editor(plane).patch(pod, {"metadata": {"annotations": {"team": "blue"}, "labels": {"app": "x"}}})


@pytest.fixture
def ended(plane: Plane, pod: str) -> Iterator[str]:
    """The pod, once the policy about the ways in which one ends is there."""
    plane.kubectl("apply", "-f", str(ENDINGS))

    def refuses() -> bool:
        try:
            editor(plane).call("DELETE", pod, {**AT_ONCE, "dryRun": ["All"]})
        except ApiError as error:
            return FORCED in str(error)
        return False

    try:
        until(refuses, "the API server knows the policy")
        yield pod
    finally:
        plane.kubectl("delete", "-f", str(ENDINGS))


AT_ONCE: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
FORCED = "a pod with a share or a claim is not ended by force"


def test_an_editor_ends_no_pod_with_a_share_by_force(plane: Plane, namespace: str, ended: str) -> None:
    """Its kubelet would let its programs run on while the extender promises its card: it has not seen them end."""
    api, pods = editor(plane), ended.rpartition("/")[0]
    eviction = {"metadata": {"name": "shared"}, "deleteOptions": AT_ONCE}
    kubectl = ("--kubeconfig", str(plane.kubeconfig(EDITOR)), "-n", namespace, "delete", "--wait=false")
    with pytest.raises(ApiError, match=FORCED):
        api.call("DELETE", ended, None, {"gracePeriodSeconds": "0"})
    with pytest.raises(ApiError, match=FORCED):
        api.call("DELETE", ended, AT_ONCE)
    with pytest.raises(ApiError, match=FORCED):
        api.call("DELETE", pods, AT_ONCE)
    with pytest.raises(ApiError, match=FORCED):
        api.post(f"{ended}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", **eviction})
    assert FORCED in plane.kubectl(*kubectl, "--force", "pod", "shared", check=False).stderr
    # An administrator knows whether the node is there still.
    plane.api.call("DELETE", ended, {**AT_ONCE, "dryRun": ["All"]})
    api.delete(ended, 3600)
    plane.api.wait_gone(ended)


def test_pods_that_hold_no_card_end_as_anybody_likes(plane: Plane, namespace: str, ended: str) -> None:
    api, pods = editor(plane), ended.rpartition("/")[0]
    for name, asked in (("waits", ASKED), ("plain", {})):
        api.post(pods, {"metadata": {"name": name, "annotations": asked}, "spec": SPEC})
        api.call("DELETE", f"{pods}/{name}", AT_ONCE)
    plane.api.patch(f"{ended}/status", {"status": {"phase": "Failed"}})
    api.call("DELETE", ended, AT_ONCE)


DRA = "/apis/resource.k8s.io/v1"
PROTECTION = "resource.kubernetes.io/delete-protection"
KEPT = "a claim that holds a card keeps its finalizer"


@pytest.fixture
def allocated(plane: Plane, namespace: str, ended: str) -> str:
    """The path of a claim that somebody wrote an allocation of a card of ours into, as kube-scheduler does."""
    return claim(plane, namespace, "held", names.DRIVER)


def claim(plane: Plane, namespace: str, name: str, driver: str) -> str:
    path = f"{DRA}/namespaces/{namespace}/resourceclaims"
    asked = {"devices": {"requests": [{"name": "card", "exactly": {"deviceClassName": "any"}}]}}
    metadata = {"name": name, "finalizers": [PROTECTION, "example.com/own"]}
    made = plane.api.post(path, {"metadata": metadata, "spec": asked})
    result = {"request": "card", "driver": driver, "pool": "n1", "device": "card-0"}
    user = plane.api.get(f"/api/v1/namespaces/{namespace}/pods/shared")["metadata"]
    users = [{"resource": "pods", "name": user["name"], "uid": user["uid"]}]
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
    plane.api.put(f"{path}/{name}/status", {**made, "status": status})
    return f"{path}/{name}"


def test_an_editor_takes_no_finalizer_off_a_claim_that_holds_a_card(
    plane: Plane, namespace: str, allocated: str
) -> None:
    """It would be gone with its next deletion, and its card free for others while the programs of its pods go on."""
    api, none = editor(plane), {"metadata": {"finalizers": None}}
    with pytest.raises(ApiError, match=KEPT):
        api.patch(allocated, none)
    operations = [{"op": "remove", "path": "/metadata/finalizers/0"}]
    with pytest.raises(ApiError, match=KEPT):
        api.call("PATCH", allocated, operations, content_type="application/json-patch+json")  # type: ignore[arg-type]
    whole = api.get(allocated)
    with pytest.raises(ApiError, match=KEPT):
        api.put(allocated, {**whole, "metadata": {**whole["metadata"], "finalizers": []}})
    one = ("--kubeconfig", str(plane.kubeconfig(EDITOR)), "-n", namespace)
    told = plane.kubectl(*one, "patch", "resourceclaim", "held", "-p", json.dumps(none), "--type=merge", check=False)
    assert KEPT in told.stderr
    api.patch(allocated, {"metadata": {"finalizers": [PROTECTION], "labels": {"a": "b"}}})  # what is his own he may
    api.call("DELETE", allocated, None)
    assert api.get(allocated)["metadata"]["deletionTimestamp"]
    with pytest.raises(ApiError, match=KEPT):
        api.patch(allocated, none)
    for part in ("status", "driver"):
        with pytest.raises(ApiError, match=r"(?i)forbidden|not find"):
            api.patch(f"{allocated}/{part}", {"metadata": {"finalizers": None}, "status": {"allocation": None}})
    plane.api.patch(allocated, none)
    plane.api.wait_gone(allocated)


def test_claims_that_hold_no_card_of_ours_end_as_anybody_likes(plane: Plane, namespace: str, ended: str) -> None:
    api, path = editor(plane), f"{DRA}/namespaces/{namespace}/resourceclaims"
    asked = {"devices": {"requests": [{"name": "card", "exactly": {"deviceClassName": "any"}}]}}
    api.post(path, {"metadata": {"name": "waits", "finalizers": [PROTECTION]}, "spec": asked})
    for one in (f"{path}/waits", claim(plane, namespace, "theirs", "other.io")):
        api.patch(one, {"metadata": {"finalizers": None}})


def test_an_editor_ends_no_pod_with_a_claim_by_force(plane: Plane, namespace: str, ended: str) -> None:
    """Kubernetes gives its devices back as soon as it is gone."""
    api, pods = editor(plane), ended.rpartition("/")[0]
    node = api.get(ended)["spec"]["nodeName"]
    spec = {**SPEC, "resourceClaims": [{"name": "card", "resourceClaimName": "none"}], "nodeName": node}
    plane.api.post(pods, {"metadata": {"name": "claims"}, "spec": spec})
    with pytest.raises(ApiError, match=FORCED):
        api.call("DELETE", f"{pods}/claims", AT_ONCE)
    plane.api.call("DELETE", f"{pods}/claims", AT_ONCE)
    waits = {key: value for key, value in spec.items() if key != "nodeName"}
    api.post(pods, {"metadata": {"name": "waits"}, "spec": waits})
    api.call("DELETE", f"{pods}/waits", AT_ONCE)


@pytest.mark.parametrize("key", names.RECORD_KEYS)
def test_nobody_makes_a_pod_that_has_a_record(plane: Plane, namespace: str, guarded: None, key: str) -> None:
    one = {"metadata": {"name": "copied", "annotations": {key: "{}"}}, "spec": SPEC}
    with pytest.raises(ApiError, match="out of what pods are made from"):
        plane.api.post(f"/api/v1/namespaces/{namespace}/pods", one)


def test_a_pods_own_node_writes_its_record_and_no_other_node_does(plane: Plane, pod: str) -> None:
    own = plane.api.get(pod)["spec"]["nodeName"]
    said = {}
    with plane.nodes(1, prefix="other") as (other,):
        for i, where in enumerate((own, other, None)):
            bound = () if where is None else ("--bound-object-kind=Node", f"--bound-object-name={where}")
            token = plane.kubectl("-n", SYSTEM, "create", "token", "gemini-node", *bound).stdout.strip()
            path = plane.folder / "records-node.kubeconfig"
            write_kubeconfig(path, plane.server, plane.authority.certificate, {"token": token})
            change = ("--overwrite", f"{names.ASSIGNED}={i}", f"{names.ALIYUN_ASSIGNED}={i}")
            namespace, name = pod.split("/")[4], pod.rpartition("/")[2]
            command = ("--kubeconfig", str(path), "-n", namespace, "annotate", "pod", name, *change)
            done = plane.kubectl(*command, check=False)
            said[where] = done.stdout + done.stderr
    assert said.pop(own) == "pod/shared annotated\n"
    assert all("the pod's own node alone" in text for text in said.values()), said


def test_pods_without_a_share_are_none_of_its_business(plane: Plane, namespace: str, guarded: None) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.api.post(path, {"metadata": {"name": "plain", "annotations": {"a": "b"}}, "spec": SPEC})
    plane.api.patch(f"{path}/plain", {"metadata": {"annotations": {"a": None, names.ALIYUN_ASSIGNED: "true"}}})
    plane.api.patch(f"{path}/plain", {"metadata": {"labels": {"a": "b"}}})


def test_kubectl_gemini_check_says_which_namespaces_let_pods_reach_the_node(
    plane: Plane, namespace: str, pod: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> dict[str, str]:
        status = main(["kubectl", "check", "--kubeconfig", str(plane.admin)])
        lines = capsys.readouterr().out.splitlines()
        assert status == 1, "the webhooks and the other policy are not installed here"
        return {line[6:].partition(":")[0]: line[:4] for line in lines}

    before = told()
    assert (before["policy gemini-records"], before["policy gemini-node"]) == ("ok  ", "FAIL")
    assert before["webhook validate.gemini.io"] == "FAIL"
    assert before[f"namespace {namespace}"] == "FAIL"
    label = {"metadata": {"labels": {ENFORCE: "baseline"}}}
    plane.api.patch(f"/api/v1/namespaces/{namespace}", label)
    until(lambda: told()[f"namespace {namespace}"] == "ok  ", "Pod Security to know the label")


@pytest.mark.parametrize("path", [POLICY, CHART], ids=["kustomize", "chart"])
def test_the_policy_names_each_record(path: object) -> None:
    text = str(getattr(path, "read_text")())  # noqa: B009
    listed = "[" + ", ".join(f'"{key}"' for key in names.RECORD_KEYS) + "]"
    assert listed in text
    if path == POLICY:
        policy, binding = yaml.safe_load_all(text)
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert binding["spec"]["validationActions"] == ["Deny"]
