"""The chart and Kustomize's base as texts: taken by the API server, one and the same, with no names of their own."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gemini.cli.main import COMMANDS
from gemini.extender.app import PORT as EXTENDER_PORT
from gemini.kube import names
from gemini.kube.claim import slice_name
from gemini.kube.scope import GROUPS, SPELLINGS
from gemini.kube.workloads import TEMPLATES, kind_of, with_pods
from gemini.plugin.app import PORT as PLUGIN_PORT
from gemini.webhook.app import PORT as WEBHOOK_PORT
from tests.e2e.api import ApiError, Object
from tests.e2e.charts import CHART, NAMESPACE, ROOT, Helm, Values, pod_templates
from tests.e2e.conftest import built
from tests.e2e.plane import Plane
from tests.e2e.process import until

EXISTING = {"mode": "existing", "caBundle": "LS0t"}
VARIANTS: dict[str, Values] = {
    "as it comes": {},
    "the default scheduler, secrets of one's own": {
        "scheduler": {"mode": "default", "mixedNodes": False}, "certificates": EXISTING,
    },
    "cert-manager and the Prometheus operator": {
        "certificates": {"mode": "cert-manager"},
        "metrics": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
        "networkPolicy": {"metricsFrom": [{"namespaceSelector": {}}]},
    },
    "a simulated machine without a service network": {
        "apiServer": {"host": "10.0.0.1", "port": 6443},
        "node": {"simulate": "gpus=2,memory=80GiB,name=NVIDIA H200", "hostNetwork": True},
        "extender": {"hostNetwork": True},
        "webhook": {"hostNetwork": True},
        "scheduler": {"hostNetwork": True, "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a.b.svc"]}]},
    },
    "everything else turned": {
        "image": {"repository": "registry.example/gemini", "tag": "9", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "crd": {"install": False},
        "deviceClass": {"install": False},
        "node": {
            "gpushare": {"enabled": True, "unit": "GiB"}, "placed": {"enabled": True},
            "affinity": {"nodeAffinity": {}}, "privileged": True,
            "runtimeClassName": "nvidia", "updateStrategy": {"type": "OnDelete"},
            "kubeletDir": "/var/lib/k0s/kubelet", "ldSoPreload": False, "cdi": True,
            "gpuCdi": "nvidia.com/gpu", "deviceNodes": True, "podAnnotations": {"a": "b"},
            "daemon": {"extraArgs": ["--no-trace"], "env": [{"name": "A", "value": "b"}]},
        },
        "extender": {
            "policies": "fragment,singular,link", "claims": False, "extraArgs": ["--no-events"],
            "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "podAnnotations": {"a": "b"},
        },
        "webhook": {"failurePolicy": "Ignore", "bindings": {"enabled": False}, "optIn": ["nvidia.com", "sharedgpu"],
                    "spellings": ["gemini.io", "koordinator.sh", "kubernetes.io"], "namespaceSelector": {
            "matchLabels": {"shares": "yes"}}},
        "deviceTypes": ["npu"],
        "uninstall": {"hook": False},
        "networkPolicy": {"enabled": False},
    },
}  # fmt: skip
LEFT = {  # what kube-score finds and stays, with the reason
    "container-resources": "limits are values.*.resources; none by default, for a throttled part holds up all tenants",
    "container-ephemeral-storage-request-and-limit": "file systems are read-only, and what is written is in memory",
    "container-image-pull-policy": "image.pullPolicy, with tags that never move",
    "container-security-context-user-group-id": "the node's parts are root's, without a capability",
    "pod-networkpolicy": "egress is left open: the API server's address is not known to a policy",
}
FOREIGN = {  # kinds that other projects define, as loosely as an API server allows
    "certificates.cert-manager.io": ("Certificate", "v1"),
    "issuers.cert-manager.io": ("Issuer", "v1"),
    "podmonitors.monitoring.coreos.com": ("PodMonitor", "v1"),
}
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(built("helm") / "helm", tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def renderings(helm: Helm) -> dict[str, list[Object]]:
    return {variant: helm.objects(values) for variant, values in VARIANTS.items()}


@pytest.fixture(scope="module")
def namespace(plane: Plane) -> Iterator[str]:
    plane.api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield NAMESPACE
    plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    plane.api.wait_gone(f"/api/v1/namespaces/{NAMESPACE}")


@pytest.fixture(scope="module")
def foreign_kinds(plane: Plane) -> Iterator[None]:
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for name, (kind, version) in FOREIGN.items():
        plural, group = name.split(".", 1)
        served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": loose}}
        spec = {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural}, "versions": [served]}
        plane.api.post(DEFINITIONS, {"metadata": {"name": name}, "spec": spec})
    for name in FOREIGN:
        plane.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=120s")
    plane.api.post(RUNTIMES, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    yield
    plane.api.delete(f"{RUNTIMES}/nvidia")
    for name in FOREIGN:
        plane.api.delete(f"{DEFINITIONS}/{name}")


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_api_server_accepts_every_object(
    renderings: dict[str, list[Object]], plane: Plane, namespace: str, foreign_kinds: None, variant: str
) -> None:
    objects = renderings[variant]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    said = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", text=listed)
    assert len(said.stdout.splitlines()) == len(objects)
    assert "Warning" not in said.stderr.replace("missing the kubectl.kubernetes.io/last-applied", ""), said.stderr


@pytest.mark.parametrize("minor", range(30, 37))
def test_every_release_is_given_what_it_serves_alone(helm: Helm, minor: int) -> None:
    """ResourceClaims came with 1.34; without their kind an older API server refuses the whole release."""
    words = ("template", "gemini", str(CHART), "--namespace", NAMESPACE, "--kube-version", f"v1.{minor}.0")
    objects = [one for one in yaml.safe_load_all(helm.run(*words)) if one]
    assert ("resource.k8s.io/v1" in {one["apiVersion"] for one in objects}) == (minor >= 34)


def test_helms_own_linter_finds_nothing(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART))


def test_kube_score_finds_nothing_but_what_operators_decide(renderings: dict[str, list[Object]]) -> None:
    program = built("policy") / "kube-score"
    found: dict[str, set[str]] = {}
    for variant in ("as it comes", "a simulated machine without a service network"):
        listed = "\n---\n".join(json.dumps(one) for one in renderings[variant])
        words = [program, "score", "--output-format", "json", "-"]
        done = subprocess.run(words, input=listed, text=True, capture_output=True, timeout=60, check=False)
        for one in json.loads(done.stdout):
            for check in one["checks"]:
                if check["grade"] < 10 and not check["skipped"]:
                    found.setdefault(check["check"]["id"], set()).add(one["object_meta"]["name"])
    assert set(found) - set(LEFT) == set(), found
    simulated = "gemini-test"  # beside simulated cards it has the daemon's user
    assert found["container-security-context-user-group-id"] <= {"gemini-node", "gemini-uninstall", simulated}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_command_is_one_that_gemini_takes(renderings: dict[str, list[Object]], variant: str) -> None:
    containers = [one for spec in pod_templates(renderings[variant]).values() for one in spec["containers"]]
    seen = set()
    for container in containers:
        if container["command"] == ["gemini"]:
            name, *options = container["args"]
            parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
            importlib.import_module(COMMANDS[name][0]).configure(parser)
            parser.parse_args([word.replace("$(POD_IP)", "10.0.0.1") for word in options])
            seen.add(name)
    hooks = {"uninstall"} if VARIANTS[variant].get("uninstall", {}).get("hook", True) else set()
    assert seen == {"serve", "device-plugin", "reporter", "extender", "webhook", *hooks}


def test_every_name_in_our_domain_is_one_of_names_py(renderings: dict[str, list[Object]]) -> None:
    known = {value for value in vars(names).values() if isinstance(value, str)}
    objects = [one for listed in renderings.values() for one in listed]
    found = set(re.findall(r"[a-z0-9.-]*gemini\.io(?:/[A-Za-z0-9._-]+)?", json.dumps(objects)))
    assert {names.GPU_REQUEST, names.RESOURCE_CORE, names.NODE_LABEL} <= found
    assert found - known == set()
    expressions = {
        condition["expression"]
        for one in objects if one["kind"].endswith("WebhookConfiguration")
        for hook in one["webhooks"] for condition in hook.get("matchConditions", ())
    }  # fmt: skip
    # HAMi's language is NVIDIA's domain, KAI's has no domain, and some say groups alone, of pods with a share. A class
    # of devices that is asked for as a resource is Kubernetes' own spelling.
    spellings = set(SPELLINGS) - {"hami", "kai", *GROUPS} | {names.BY_CLASS.removesuffix("/")}
    assert all(set(re.findall(r'"([a-z.]+)/"', expression)) <= spellings for expression in expressions)
    assert any(set(re.findall(r'"([a-z.]+)/"', expression)) == spellings for expression in expressions)


def test_release_and_ports_are_the_programs_own(renderings: dict[str, list[Object]]) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    ports = (values["extender"]["port"], values["webhook"]["port"], values["node"]["devicePlugin"]["port"])
    assert ports == (EXTENDER_PORT, WEBHOOK_PORT, PLUGIN_PORT)
    images = {one["image"] for spec in pod_templates(renderings["as it comes"]).values() for one in spec["containers"]}
    assert images == {f"gemini:{version}", "registry.k8s.io/kube-scheduler:v1.36.3"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"imagee": {}}, "imagee"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"node": {"daemon": {"metricsPort": 99999}}}, "/node/daemon/metricsPort"),
        ({"node": {"gpushare": {"unit": "GB"}}}, "/node/gpushare/unit"),
        ({"extender": {"replicas": 0}}, "/extender/replicas"),
        ({"webhook": {"spellings": ["nvidia"]}}, "/webhook/spellings/0"),
        ({"scheduler": {"mode": "third"}}, "/scheduler/mode"),
        ({"scheduler": {"mixedNodes": "no"}}, "/scheduler/mixedNodes"),
        ({"certificates": {"mode": "existing"}}, "/certificates/caBundle"),
        ({"test": {"request": "1.5"}}, "/test/request"),
        ({"uninstall": {"seconds": 0}}, "/uninstall/seconds"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(helm: Helm, values: Values, said: str) -> None:
    done = helm.call("template", "gemini", str(CHART), values=values)
    assert done.returncode != 0
    assert said in done.stderr.replace("'.", "/").replace(".", "/").replace("at '", "at "), done.stderr


@pytest.mark.parametrize("mode", ["second", "default"])
@pytest.mark.parametrize("mixed", [True, False])
def test_the_scheduler_asks_about_pods_of_nvidias_plugin_where_nodes_may_have_both(
    helm: Helm, mode: str, mixed: bool
) -> None:
    objects = helm.objects({"scheduler": {"mode": mode, "mixedNodes": mixed}})
    (text,) = [one["data"]["scheduler.yaml"] for one in objects if "scheduler.yaml" in one.get("data", {})]
    (entry,) = yaml.safe_load(text)["extenders"]
    ours = {names.RESOURCE_CORE, names.RESOURCE_MEMORY, names.RESOURCE_RATIO, names.ALIYUN_GPU_MEM}
    asked = {one["name"] for one in entry["managedResources"]}
    assert asked == ours | ({names.NVIDIA_GPU} if mixed else set())


def test_every_value_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(where: str, values: object, given: Object) -> None:
        while "$ref" in given:
            given = schema["definitions"][given["$ref"].rpartition("/")[2]]
        if isinstance(values, dict) and "properties" in given:
            assert set(values) <= set(given["properties"]), where
            for key, value in values.items():
                compare(f"{where}.{key}", value, given["properties"][key])

    compare("", yaml.safe_load((CHART / "values.yaml").read_text()), schema)


def test_control_plane_pods_keep_the_restricted_pod_security_standard(
    renderings: dict[str, list[Object]], plane: Plane
) -> None:
    """By the API server's own judgement; the node's parts, which mount the host's folders, cannot."""
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    with plane.namespace() as name:
        plane.api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": level}})
        for owner, spec in pod_templates(renderings["as it comes"]).items():
            anybody = {key: value for key, value in spec.items() if key != "serviceAccountName"}
            pod = {"metadata": {"name": owner}, "spec": anybody}
            if owner in ("gemini-node", "gemini-uninstall"):
                with pytest.raises(ApiError, match="hostPath"):
                    plane.api.call("POST", f"/api/v1/namespaces/{name}/pods", pod, {"dryRun": "All"})
                assert not any(one["securityContext"].get("privileged") for one in spec["containers"])
            else:
                plane.api.call("POST", f"/api/v1/namespaces/{name}/pods", pod, {"dryRun": "All"})


def test_a_nodes_credentials_end_pods_of_that_node_alone(
    renderings: dict[str, list[Object]], plane: Plane, namespace: str
) -> None:
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ClusterRole", "ClusterRoleBinding")
    given = [one for one in renderings["as it comes"] if one["kind"] in kinds]
    parts = [one for one in given if "records" not in one["metadata"]["name"]]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": parts})
    plane.kubectl("apply", "-f", "-", text=listed)
    user = f"system:serviceaccount:{NAMESPACE}:gemini-node"
    claim = "authentication.kubernetes.io/node-name=n1"

    def end(pod: str, *more: str) -> str:
        words = ("-n", namespace, "delete", "pod", pod, "--wait=false", f"--as={user}", *more)
        return plane.kubectl(*words, check=False).stderr

    try:
        for node in ("n1", "n2"):
            spec = {"nodeName": node, "containers": [{"name": "a", "image": "x"}], "terminationGracePeriodSeconds": 0}
            plane.api.post(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": f"on-{node}"}, "spec": spec})
        said = plane.kubectl("auth", "can-i", "create", "pods", "--subresource=eviction", f"--as={user}", check=False)
        assert said.stdout.strip() == "no"
        # Dry runs until the policy has come to the API server.
        until(
            lambda: "on its own node alone" in end("on-n2", f"--as-user-extra={claim}", "--dry-run=server"),
            "the policy",
        )
        assert "on its own node alone" in end("on-n1")
        assert "on its own node alone" in end("on-n2", f"--as-user-extra={claim}")
        assert end("on-n1", f"--as-user-extra={claim}") == ""
    finally:
        plane.kubectl("delete", "-f", "-", text=listed)


def test_a_nodes_credentials_write_records_and_the_model_alone(
    renderings: dict[str, list[Object]], plane: Plane, namespace: str
) -> None:
    """Else they take taints off their node, and give it labels that its kubelet may not: others' pods come there."""
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    given = [one for one in renderings["as it comes"] if one["kind"] in kinds]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": given})
    plane.kubectl("apply", "-f", "-", text=listed)
    user = f"system:serviceaccount:{NAMESPACE}:gemini-node"  # with all rights: the policy alone keeps it
    plane.kubectl("create", "clusterrolebinding", "node-all", "--clusterrole=cluster-admin", f"--user={user}")
    who = (
        f"--as={user}",
        "--as-user-extra=authentication.kubernetes.io/node-name=written",
    )
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def change(what: str, patch: object, *more: str) -> str:
        words = ("-n", namespace, "patch", *what.split(), "--type=merge", "-p", json.dumps(patch), *who, *more)
        return plane.kubectl(*words, check=False).stderr

    def refused(what: str, patch: object, *more: str) -> bool:
        return "writes records of pods and the model of its cards alone" in change(what, patch, *more)

    try:
        taint = {"key": "own", "value": "x", "effect": "NoSchedule"}
        plane.api.post("/api/v1/nodes", {"metadata": {"name": "written"}, "spec": {"taints": [taint]}})
        spec = {"nodeName": "written", "containers": [{"name": "a", "image": "x"}], "terminationGracePeriodSeconds": 0}
        plane.api.post(pods, {"metadata": {"name": "mine", "labels": {"a": "b"}}, "spec": spec})
        label = {"metadata": {"labels": {"node-restriction.kubernetes.io/vault": "true"}}}
        until(lambda: refused("node written", label, "--dry-run=server"), "the policy")
        for patch in (label, {"metadata": {"annotations": {names.NODE_CORDON: ""}}}, {"spec": {"taints": []}}):
            assert refused("node written", patch), patch
        for patch in (
            {"metadata": {"labels": {"a": "c"}}}, {"metadata": {"annotations": {"x": "y"}}},
            {"metadata": {"finalizers": ["a/b"]}}, {"spec": {"activeDeadlineSeconds": 5}},
        ):  # fmt: skip
            assert refused("pod mine", patch), patch
        assert change("node written", {"metadata": {"labels": {names.NODE_MODEL_LABEL: "H200"}}}) == ""
        assert change("node written --subresource=status", {"status": {"capacity": {names.RESOURCE_CORE: "100"}}}) == ""
        assert change("pod mine", {"metadata": {"annotations": dict.fromkeys(names.RECORD_KEYS, "1")}}) == ""
    finally:
        plane.api.delete(f"{pods}/mine", 0)
        plane.api.delete("/api/v1/nodes/written")
        plane.kubectl("delete", "clusterrolebinding", "node-all")
        plane.kubectl("delete", "-f", "-", text=listed)


def test_a_nodes_credentials_publish_cards_of_that_node_alone(
    renderings: dict[str, list[Object]], plane: Plane
) -> None:
    """By a slice of another node's pool claims hold that node's cards; one of its name keeps its own from there."""
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    given = [
        one for one in renderings["as it comes"] if one["kind"] in kinds and one["metadata"]["name"] == "gemini-node"
    ]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": given})
    plane.kubectl("apply", "-f", "-", text=listed)
    user = f"system:serviceaccount:{NAMESPACE}:gemini-node"  # with all rights: the policy alone keeps it
    plane.kubectl("create", "clusterrolebinding", "node-slices", "--clusterrole=cluster-admin", f"--user={user}")
    who = (f"--as={user}", "--as-user-extra=authentication.kubernetes.io/node-name=n1")

    def publish(name: str, pool: str, driver: str, *more: str) -> str:
        pools = {"name": pool, "generation": 9, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": "n1", "pool": pools, "devices": [{"name": "gpu-0"}]}
        one = {
            "apiVersion": names.RESOURCE_API_VERSION,
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": spec,
        }
        return plane.kubectl("create", "-f", "-", *who, *more, text=json.dumps(one), check=False).stderr

    try:
        own = slice_name("n1")
        until(lambda: "of its own node alone" in publish(own, "n2", names.DRIVER, "--dry-run=server"), "the policy")
        assert "of its own node alone" in publish(own, "n2", names.DRIVER)
        assert "of its own node alone" in publish(slice_name("n2"), "n1", names.DRIVER)
        assert "of its own node alone" in publish(own, "n1", "gpu.example.com")
        assert publish(own, "n1", names.DRIVER) == ""
        assert "deleted" in plane.kubectl("delete", "resourceslice", own, *who).stdout
    finally:
        plane.kubectl("delete", "clusterrolebinding", "node-slices")
        plane.kubectl("delete", "-f", "-", text=listed)


def test_kustomizes_base_is_the_chart_with_cert_manager(helm: Helm, plane: Plane) -> None:
    text = plane.kubectl("kustomize", str(ROOT / "deploy/kustomize/cluster")).stdout
    ours = {_key(one): one for one in yaml.safe_load_all(text)}
    given = helm.objects({"certificates": {"mode": "cert-manager"}})
    given = [one for one in given if "helm.sh/hook" not in one["metadata"].get("annotations", {})]
    charts = {_key(one): _without_release(one) for one in given}
    assert ours.pop(("Namespace", "", NAMESPACE))
    assert set(ours) == set(charts)
    for key, one in charts.items():
        assert _without_release(ours[key]) == one, key


def _key(one: Object) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def _without_release(one: Object) -> Object:
    """Without what Helm alone writes: who installed it, and stamps that make pods anew when a configuration changes."""
    metadata = one["metadata"]
    kept = {key: text for key, text in metadata.get("labels", {}).items() if key == "app.kubernetes.io/component"}
    notes = {key: text for key, text in metadata.get("annotations", {}).items() if not key.startswith("helm.sh/")}
    plain = {key: value for key, value in metadata.items() if key not in ("labels", "annotations")}
    if "template" in one.get("spec", {}):
        one["spec"]["template"]["metadata"].pop("annotations", None)
    return {**one, "metadata": {**plain, "labels": kept, "annotations": notes}}


def _known(sample: Path) -> list[Object]:
    """Its objects, as far as every API server knows them; of a job controller's the pods that they describe."""
    found: list[Object] = []

    def note(pod: Object) -> Object:
        metadata = {"name": f"p{len(found)}", **pod.get("metadata", {})}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]})
        return pod

    for given in filter(None, yaml.safe_load_all(sample.read_text())):
        kind = kind_of(given)
        if kind[0] in ("", "apps", "batch") or kind not in TEMPLATES:
            found.append(given)
        else:
            for path in TEMPLATES[kind]:
                with_pods(given, path, note)
    return found


@pytest.mark.parametrize("sample", sorted((ROOT / "deploy/samples").glob("*.yaml")), ids=lambda path: path.stem)
def test_samples_are_accepted(plane: Plane, sample: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.yaml"
    known.write_text(yaml.safe_dump_all(_known(sample)))
    with plane.namespace() as name:
        plane.kubectl("-n", name, "apply", "--dry-run=server", "--validate=strict", "-f", str(known))
