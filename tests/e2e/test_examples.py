"""What HAMi's, Volcano's and KAI's documentation has for examples of shares, rewritten by `gemini migrate`, runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gemini.kube.device import write_device
from gemini.placement.model import Device, Node
from tests.e2e.api import Object
from tests.e2e.plane import Plane
from tests.e2e.test_extender import CORE, DEVICES, GIB, gemini, record
from tests.e2e.test_extender import crd as crd
from tests.gemini.kube.examples import EXAMPLES, UUIDS

CARDS = 8


@pytest.mark.timeout(1800)
def test_every_example_that_is_not_refused_runs_on_a_card_of_ours(
    plane: Plane, namespace: str, crd: None, tmp_path: Path
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    uuids = [*UUIDS, *(f"GPU-{m}" for m in range(2, CARDS))]
    devices = tuple(Device(m, uuid=uuid, model="H200", memory=80 * GIB) for m, uuid in enumerate(uuids))
    with plane.nodes(1, prefix="card", capacity={CORE: str(100 * CARDS)}) as (node,), gemini(plane):
        plane.api.post(DEVICES, write_device(Node(node, devices)))
        for number, example in enumerate(one for one in EXAMPLES if isinstance(one.becomes, tuple)):
            file = tmp_path / f"{number}.yaml"
            file.write_text(yaml.safe_dump_all(example.manifests(f"e{number}")))
            command = [sys.executable, "-m", "gemini", "migrate", "--from", example.source, "-f", str(file), "--write"]
            subprocess.run(command, check=True, timeout=120)
            plane.kubectl("-n", namespace, "apply", "-f", str(file))
            pods = len(example.asks) * example.replicas
            selected = {"labelSelector": f"example=e{number}"}
            run = plane.api.wait(path, lambda seen, pods=pods: _run(seen, pods), f"{example.paths} runs", **selected)
            for pod in run:
                assert pod["spec"]["nodeName"] == node
                assert record(pod), example.paths
            plane.kubectl("-n", namespace, "delete", "-f", str(file), "--wait=false")
            plane.api.wait(path, lambda seen: not seen, f"the end of {example.paths}", **selected)


def _run(seen: list[Object], pods: int) -> list[Object]:
    """All of them, once each runs or, of a Job, has."""
    return seen if len(seen) == pods and all(one["status"]["phase"] in ("Running", "Succeeded") for one in seen) else []
