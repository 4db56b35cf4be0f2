"""What the quick starts for a cluster and for operating it tell a reader to type works as it stands on a real cluster.

The reader sits on this machine, with kubectl, helm and an administrator's kubeconfig. What a page leaves to the reader
is what is special about a cluster: here `my-values.yaml` says that the node has no network of its own for pods,
simulates its card, and finds the API server at another place. The image lies on the node, under the pages' name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemini.kube import names
from tests.docs.blocks import Step, blocks, steps
from tests.docs.reader import Reader
from tests.docs.shown import READ
from tests.e2e.conftest import ROOT, built
from tests.e2e.node import Node, lacking
from tests.e2e.plane import HOST, Plane
from tests.e2e.process import free_port
from tests.e2e.product_image import ProductImage
from tests.e2e.test_chart_install import import_images

pytestmark = pytest.mark.timeout(900)
DOCS = ROOT / "docs"
CLUSTER, OPERATING = DOCS / "quickstart-cluster.md", DOCS / "quickstart-sre.md"
LAST = "## Take it away again"  # of the first page; the second goes on before it
IMAGE, TAG = "registry.example.com/gemini", "0.1.0"
NAMESPACE = "gemini"


@pytest.fixture(scope="module")
def gpu_node(plane: Plane, product: ProductImage) -> Iterator[Node]:
    """A real kubelet, of the name that the pages have, with the product's image."""
    if why := lacking():
        pytest.skip(why)
    with Node(plane, built("node"), "gpu-node-1") as node:
        import_images(node, product, f"{IMAGE}:{TAG}")
        yield node


@pytest.fixture
def desk(plane: Plane, gpu_node: Node, tmp_path: Path) -> Iterator[Path]:
    """The folder that the reader works in: the sources' deploy/ and my-values.yaml. What is left of it goes."""
    machine = f"e2e-{uuid.uuid4().hex[:8]}"
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "my-values.yaml").write_text(json.dumps(_values(plane, gpu_node, machine)))
    for left in (f"namespace/{NAMESPACE}", f"crd/{names.DEVICE_DEFINITION}"):  # other tests do not wait for their end
        plane.kubectl("wait", "--for=delete", left, "--timeout=180s", check=False)
    try:
        with plane.scheduler():
            yield tmp_path
    finally:
        plane.kubectl("-n", "default", "delete", "pod", "--all", "--now", "--ignore-not-found", check=False)
        helm = [built("helm") / "helm", "uninstall", "gemini", "--namespace", NAMESPACE, "--ignore-not-found"]
        subprocess.run(helm, env=_environment(plane, tmp_path), capture_output=True, timeout=120, check=False)
        plane.kubectl("delete", "crd", names.DEVICE_DEFINITION, "--ignore-not-found", check=False)
        plane.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s", check=False)
        for left in Path("/dev/shm").glob(f"gemini-sim-*-{machine}*"):
            left.unlink()


def _values(plane: Plane, node: Node, machine: str) -> dict[str, object]:
    def part(**more: object) -> dict[str, object]:
        return {"hostNetwork": True, "port": free_port(node.address), "replicas": 1, **more}

    return {
        "image": {"repository": IMAGE},
        "apiServer": {"host": HOST, "port": int(plane.server.rpartition(":")[2])},
        "node": {
            "hostNetwork": True,
            "simulate": f"gpus=1,memory=80GiB,name=NVIDIA H200,id={machine}",  # ports: its address is its own
        },
        "extender": part(),
        "webhook": part(timeoutSeconds=20),
        "scheduler": part(hostAliases=[{"ip": node.address, "hostnames": [f"gemini-extender.{NAMESPACE}.svc"]}]),
    }


def _environment(plane: Plane, home: Path) -> dict[str, str]:
    """A shell of one's own: what the reader has set up, and nothing else of this machine's."""
    ours = (Path(sys.executable).parent, plane.tools, built("helm"), built("prometheus"))
    programs = (*ours, "/usr/local/bin", "/usr/bin", "/bin")
    return {
        "PATH": ":".join(map(str, programs)), "HOME": str(home), "KUBECONFIG": str(plane.admin), "LANG": "C.UTF-8",
        "TERM": "dumb",
    }  # fmt: skip


def typed(page: Path) -> list[Step]:
    return [step for block in blocks(page) for step in steps(block)]


def test_every_block_of_the_pages_says_what_it_is() -> None:
    assert not [block.where for page in (CLUSTER, OPERATING) for block in blocks(page) if not block.language]


def test_quick_starts_for_a_cluster_and_for_operating_it_work_as_they_stand(plane: Plane, desk: Path) -> None:
    head, _, tail = CLUSTER.read_text().partition(LAST)
    assert tail, f"{CLUSTER} has no {LAST!r}"
    last = len(head.splitlines())
    begin = [step for block in blocks(CLUSTER) if block.line <= last for step in steps(block)]
    end = [step for block in blocks(CLUSTER) if block.line > last for step in steps(block)]
    assert begin
    assert end
    shell = ["bash", "--noprofile", "--norc", "-c", f"cd {desk}; exec bash --noprofile --norc"]
    with Reader(shell, desk, _environment(plane, desk), owner=os.getuid(), limit=400) as reader:
        try:
            reader.follow([*begin, *typed(OPERATING), *end])
        finally:
            READ.parent.mkdir(parents=True, exist_ok=True)
            READ.write_text(json.dumps(reader.said, indent=1))
