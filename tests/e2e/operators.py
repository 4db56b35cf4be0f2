"""Real controllers of jobs on a plane: JobSet's and KubeRay's, and the definitions that they serve."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.e2e.api import Object, condition
from tests.e2e.plane import ADMINS, HOST, Plane
from tests.e2e.process import Process, free_port

HOOKS = "/apis/admissionregistration.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@contextlib.contextmanager
def defined(plane: Plane, folder: Path) -> Iterator[None]:
    """The definitions in a folder."""
    files = sorted(folder.glob("*.yaml"))
    names = [yaml.safe_load(file.read_text())["metadata"]["name"] for file in files]
    for file in files:
        plane.kubectl("create", "-f", str(file))
    try:
        for name in names:
            plane.api.wait_one(f"{DEFINITIONS}/{name}", condition("Established"))
        yield
    finally:
        plane.kubectl("delete", "--wait=false", *(f"crd/{name}" for name in names))


@contextlib.contextmanager
def jobset(plane: Plane, parts: Path) -> Iterator[Process]:
    """With its webhooks for JobSets; those for pods see to a placement that nobody here asks for."""
    pair = plane.authority.issue("jobset", hosts=(HOST,))
    folder = plane.folder / "jobset"
    folder.mkdir()
    shutil.copy(pair.certificate, folder / "tls.crt")
    shutil.copy(pair.key, folder / "tls.key")
    health, port = free_port(), free_port()
    settings = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{HOST}:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": HOST, "port": port, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }
    config = folder / "config.json"
    config.write_text(json.dumps(settings))
    kubeconfig = str(plane.kubeconfig("jobset", ADMINS))
    command: list[str | Path] = [parts / "jobset", f"--config={config}", f"--kubeconfig={kubeconfig}"]
    made = []
    with defined(plane, parts / "jobset-crds"), plane.running("jobset", command) as process:
        process.wait_http(f"http://{HOST}:{health}/readyz")
        try:
            for one in yaml.safe_load_all((parts / "jobset-hooks/manifests.yaml").read_text()):
                path = f"{HOOKS}/{one['kind'].lower()}s"
                made.append(f"{path}/{plane.api.post(path, _at(plane, one, port))['metadata']['name']}")
            yield process
        finally:
            for path in made:
                plane.api.delete(path)


def _at(plane: Plane, configuration: Object, port: int) -> Object:
    kept = []
    for hook in configuration["webhooks"]:
        if all(rule["resources"] == ["jobsets"] for rule in hook["rules"]):
            url = f"https://{HOST}:{port}{hook['clientConfig']['service']['path']}"
            kept.append({**hook, "clientConfig": {"url": url, "caBundle": plane.authority.bundle}})
    return {**configuration, "metadata": {"name": f"jobset-{configuration['metadata']['name']}"}, "webhooks": kept}


@contextlib.contextmanager
def kuberay(plane: Plane, parts: Path) -> Iterator[Process]:
    health = free_port()
    kubeconfig = str(plane.kubeconfig("kuberay", ADMINS))
    command: list[str | Path] = [
        parts / "ray-operator", f"--kubeconfig={kubeconfig}", f"--health-probe-bind-address={HOST}:{health}",
        f"--metrics-addr={HOST}:{free_port()}", "--enable-leader-election=false",
    ]  # fmt: skip
    with defined(plane, parts / "ray-crds"), plane.running("kuberay", command) as process:
        process.wait_http(f"http://{HOST}:{health}/readyz")
        yield process
