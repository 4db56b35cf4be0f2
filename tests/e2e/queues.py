"""A real Kueue on a plane of its own: the controller, its definitions and webhooks, and what a test asks of them.

Kueue wants the certificate of its metrics in a fixed folder below /etc, so it runs in a mount namespace of its own
where /etc holds that alone. Its own management of certificates needs a Service; the plane has none.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.api import Object, condition
from tests.e2e.plane import ADMINS, HOST, Plane
from tests.e2e.process import Process, free_port

QUEUES = "/apis/kueue.x-k8s.io/v1beta2"
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
FLAVOR = "cards"
INTEGRATIONS = ("batch/job", "pod")
# Of Kueue's webhooks those whose objects are there; the others wait for kinds that nobody has defined.
HOOKED = {"jobs", "pods", "workloads", "clusterqueues", "cohorts", "resourceflavors"}
HOOKS = "/apis/admissionregistration.k8s.io/v1"
# `exec`: what is signalled is the controller itself.
IN_ITS_OWN_ETC = 'mount --bind "$1" /etc && shift && exec "$@"'


def lacking() -> str:
    """Why no Kueue can run here; empty where it can."""
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    return f"no mount namespace for Kueue here: {tried.stderr.strip()}" if tried.returncode else ""


@contextlib.contextmanager
def kueue(plane: Plane, parts: Path, transformations: Sequence[Object] = ()) -> Iterator[Process]:
    """The controller with its webhooks, and one flavor. `parts`: what build.py made."""
    for file in sorted((parts / "kueue-crds").glob("*.yaml")):
        plane.kubectl("create", "-f", str(file))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    plane.api.post("/api/v1/namespaces", {"metadata": {"name": "kueue-system"}})
    pair = plane.authority.issue("kueue", hosts=(HOST,))
    folder = plane.folder / "kueue"
    for certificates in (folder / "hooks", folder / "etc/kueue/metrics/certs"):
        certificates.mkdir(parents=True)
        shutil.copy(pair.certificate, certificates / "tls.crt")
        shutil.copy(pair.key, certificates / "tls.key")
    health, hooks = free_port(), free_port()
    settings = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"{HOST}:{health}"},
        "metrics": {"bindAddress": f"{HOST}:{free_port()}"},
        "webhook": {"host": HOST, "port": hooks, "certDir": str(folder / "hooks")},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 500, "burst": 1000},
        "integrations": {"frameworks": list(INTEGRATIONS)},
        "featureGates": {"VisibilityOnDemand": False, "MultiKueue": False},
        "resources": {"transformations": list(transformations)},
    }
    (folder / "config.json").write_text(json.dumps(settings, indent=1))
    command = [
        "unshare", "-m", "sh", "-c", IN_ITS_OWN_ETC, "sh", folder / "etc",
        parts / "kueue", f"--config={folder / 'config.json'}", f"--kubeconfig={plane.kubeconfig('kueue', ADMINS)}",
    ]  # fmt: skip
    with plane.running("kueue", command, ready_url=f"http://{HOST}:{health}/readyz") as controller:
        for one in yaml.safe_load_all((parts / "kueue-hooks/manifests.yaml").read_text()):
            plane.api.post(f"{HOOKS}/{one['kind'].lower()}s", _at(plane, one, f"https://{HOST}:{hooks}"))
        plane.api.post(f"{QUEUES}/resourceflavors", {**_kind("ResourceFlavor"), "metadata": {"name": FLAVOR}})
        yield controller


def _at(plane: Plane, configuration: Object, url: str) -> Object:
    """Kueue's own webhooks, asked where it listens."""
    kept = []
    for hook in configuration["webhooks"]:
        if any(set(rule["resources"]) & HOOKED for rule in hook["rules"]):
            path = hook["clientConfig"]["service"]["path"]
            kept.append({**hook, "clientConfig": {"url": url + path, "caBundle": plane.authority.bundle}})
    name = {"name": f"kueue-{configuration['metadata']['name']}"}
    return {**configuration, "metadata": name, "webhooks": kept}


def _kind(kind: str) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind}


@contextlib.contextmanager
def queue(
    plane: Plane, namespace: str, quota: Mapping[str, str], cohort: str = "", borrowing_limit: str = "", **spec: Any
) -> Iterator[str]:  # fmt: skip
    """A ClusterQueue of the namespace's name, and a LocalQueue for it there. `borrowing_limit` holds for the first
    resource; `spec` goes in as it is."""
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    if borrowing_limit:
        resources[0]["borrowingLimit"] = borrowing_limit
    flavors = [{"name": FLAVOR, "resources": resources}]
    body = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": list(quota), "flavors": flavors}], **spec}
    if cohort:
        body["cohortName"] = cohort
    made = f"{QUEUES}/clusterqueues/{namespace}"
    plane.api.post(f"{QUEUES}/clusterqueues", {**_kind("ClusterQueue"), "metadata": {"name": namespace}, "spec": body})
    try:
        local = {**_kind("LocalQueue"), "metadata": {"name": "local"}, "spec": {"clusterQueue": namespace}}
        plane.api.post(f"{QUEUES}/namespaces/{namespace}/localqueues", local)
        plane.api.wait_one(made, condition("Active"), "the ClusterQueue active")
        yield namespace
    finally:
        plane.api.delete(made)


class Jobs:
    """Those of one namespace, and what Kueue counts for them."""

    def __init__(self, plane: Plane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self.path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.workloads = f"{QUEUES}/namespaces/{namespace}/workloads"

    def make(
        self, name: str, annotations: Mapping[str, str] | None = None, limits: Mapping[str, str] | None = None,
        pods: int = 1, **spec: Any,
    ) -> Object:  # fmt: skip
        container = {"name": "main", "image": "x", "resources": {"limits": dict(limits or {})}}
        inside = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec}
        template: Object = {"spec": inside}
        if annotations:
            template["metadata"] = {"annotations": dict(annotations)}
        body = {"parallelism": pods, "completions": pods, "template": template}
        meta = {"name": name, "labels": {QUEUE_NAME: "local"}}
        return self.plane.api.post(self.path, {"metadata": meta, "spec": body})

    def counted(self, name: str) -> dict[str, int]:
        """What Kueue counts for a Job that it let run."""
        workload = self._workload(name, condition("Admitted"), "admitted")
        (assigned,) = workload["status"]["admission"]["podSetAssignments"]
        return {resource: int(amount) for resource, amount in assigned["resourceUsage"].items()}

    def waits(self, name: str, why: str) -> None:
        """Until Kueue says why the Job waits; it is suspended then."""
        self._workload(name, lambda one: why in json.dumps(one.get("status") or {}), f"waits for: {why}")
        assert self.plane.api.get(f"{self.path}/{name}")["spec"]["suspend"]
        assert not self._of(name, self.plane.api.get(self.pods)["items"])

    def waits_as_pod(self, name: str, why: str) -> None:
        """The same of a pod that is queued by itself: it has a gate."""
        self._workload(name, lambda one: why in json.dumps(one.get("status") or {}), f"waits for: {why}")
        assert self.plane.api.get(f"{self.pods}/{name}")["spec"]["schedulingGates"]

    def runs(self, name: str) -> list[Object]:
        """The Job's pods, once all of them are running."""
        ready, many = condition("Ready"), self.plane.api.get(f"{self.path}/{name}")["spec"]["parallelism"]

        def all_run(pods: list[Object]) -> list[Object] | None:
            own = self._of(name, pods)
            return own if len(own) == many and all(map(ready, own)) else None

        return self.plane.api.wait(self.pods, all_run, f"the pods of {name}")  # type: ignore[no-any-return]

    def finish(self, name: str) -> None:
        """Its pods have done their work, and their containers have ended: until then the cards are theirs."""
        for pod in self.runs(name):
            path = f"{self.pods}/{pod['metadata']['name']}/status"
            ended = {"ready": False, "started": False, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
            containers = [{**one, **ended} for one in pod["status"]["containerStatuses"]]
            self.plane.api.patch(path, {"status": {"phase": "Succeeded", "containerStatuses": containers}})
        self.plane.api.wait_one(f"{self.path}/{name}", condition("Complete"))

    def _workload(self, name: str, check: Any, what: str) -> Object:
        def found(workloads: list[Object]) -> Object | None:
            return next((one for one in workloads if _owner(one) == name and check(one)), None)

        return self.plane.api.wait(self.workloads, found, f"the workload of {name} {what}")  # type: ignore[no-any-return]

    def _of(self, name: str, pods: list[Object]) -> list[Object]:
        return [pod for pod in pods if _owner(pod) == name]


def _owner(one: Object) -> str | None:
    return next((owner["name"] for owner in one["metadata"].get("ownerReferences") or ()), None)
