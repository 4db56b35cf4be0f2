"""Helm on the plane: the chart's renderings, and releases of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.api import Object
from tests.e2e.plane import Plane

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/gemini"
NAMESPACE = "gemini"
VERSION = "v1.36.3"  # of the cluster, where none is asked
Values = dict[str, Any]
# What the chart had not yet at 2616b08, the last one that left the definition behind and ran no hooks, of what an image
# of today does without; and the line by which it kept the definition.
NOT_YET = ("uninstall.yaml", "admissionpolicy-queued.yaml")
DEFINITION = '(list $ "objects/customresourcedefinition-device.yaml" dict)'
KEPT = DEFINITION.replace("dict)", '(dict "helm.sh/resource-policy" "keep"))')


class Helm:
    """`program` with state of its own, on the plane as its admin; without a plane it only renders."""

    def __init__(self, program: Path, folder: Path, plane: Plane | None = None) -> None:
        self._program, self._folder = program, folder
        self._environment = {**os.environ, "HOME": str(folder)}
        for kind in ("CACHE", "CONFIG", "DATA"):
            self._environment.pop(f"HELM_{kind}_HOME", None)
            self._environment.pop(f"XDG_{kind}_HOME", None)
        if plane is not None:
            self._environment["KUBECONFIG"] = str(plane.admin)

    def call(self, *words: str, values: Values | None = None, seconds: float = 480) -> subprocess.CompletedProcess[str]:
        """`helm WORDS`, with `values` as a file, which JSON is good enough for."""
        if values is not None:
            file = self._folder / "values.json"
            file.write_text(json.dumps(values))
            words = (*words, "--values", str(file))
        return subprocess.run(
            [self._program, *words], env=self._environment, text=True, capture_output=True, timeout=seconds, check=False
        )

    def run(self, *words: str, values: Values | None = None, seconds: float = 480) -> str:
        done = self.call(*words, values=values, seconds=seconds)
        assert done.returncode == 0, f"helm {' '.join(words)}: status {done.returncode}: {done.stderr}{done.stdout}"
        return done.stdout

    def objects(self, values: Values | None = None) -> list[Object]:
        """What an installation would create, tests included."""
        words = ("template", "gemini", str(CHART), "--namespace", NAMESPACE, "--kube-version", VERSION)
        text = self.run(*words, values=values or {})
        return [one for one in yaml.safe_load_all(text) if one]


def older_chart(folder: Path) -> Path:
    """A copy of the chart as an older one was in what matters to those who uninstall: by what is recorded above, for a
    shallow clone has no older commit."""
    chart = Path(shutil.copytree(CHART, folder / "gemini"))
    for name in NOT_YET:
        (chart / "templates" / name).unlink()
    objects = chart / "templates/objects.yaml"
    text = objects.read_text()
    assert DEFINITION in text
    objects.write_text(text.replace(DEFINITION, KEPT))
    return chart


def pod_templates(objects: list[Object]) -> dict[str, Object]:
    """Pod specs by the name of what makes the pods."""
    found = {}
    for one in objects:
        if one["kind"] in ("Deployment", "DaemonSet", "Job"):
            found[one["metadata"]["name"]] = one["spec"]["template"]["spec"]
        elif one["kind"] == "Pod":
            found[one["metadata"]["name"]] = one["spec"]
    return found
