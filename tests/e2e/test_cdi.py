"""CDI files of shares that somebody took away, on a real kubelet and a containerd that knows CDI.

Such a file is what brings the library in front of a container's program. Without it no container may run, and with it
there again each has its share.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.api import Object, condition
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.process import until
from tests.e2e.sharing import Daemon
from tests.e2e.test_claims import DRA, slices_of
from tests.e2e.test_dra import claimed, create, lab, plugin
from tests.e2e.test_extender import CORE
from tests.e2e.test_plugin import cluster, role, sharepod
from tests.e2e.test_reporter import crd, reporter, rights

__all__ = ["cluster", "crd", "lab", "rights", "role"]
pytestmark = pytest.mark.timeout(900)
WORK = "echo $BASHPID > /pid; grep -o -m1 [^/]*libgemini_hook.so /proc/self/maps || echo free; exec sleep 1000"
KINDS = ("claim", "share")


@pytest.fixture
def served(plane: Plane, cdi_node: Node, lab: str, cluster: None) -> Iterator[None]:
    """The node with reporter and daemon, and without a device plugin."""
    with reporter(plane, cdi_node, lab), Daemon(cdi_node, lab):
        yield
        plane.api.delete(f"{DRA}/resourceslices/{cdi_node.name}-gemini.io")


def end_containers(plane: Plane, namespace: str) -> None:
    for name in KINDS:
        plane.kubectl("-n", namespace, "exec", name, "--", "/bin/bash", "-c", "kill -9 $(cat /pid)")


def wait_again(plane: Plane, namespace: str, restarts: int) -> None:
    """Until both have been started so often, and run with the library in front."""

    def again(pod: Object) -> bool:
        (status,) = pod["status"]["containerStatuses"]
        return status["restartCount"] >= restarts and "running" in status["state"]

    for name in KINDS:
        plane.api.wait_one(f"/api/v1/namespaces/{namespace}/pods/{name}", again, seconds=400)
        assert plane.log(namespace, name, "\n") == "libgemini_hook.so\n"


def files(node: Node) -> list[Path]:
    return sorted(node.cdi_folder.glob("gemini.io-share_*.json"))


def test_a_container_whose_cdi_file_somebody_took_away_starts_again_with_the_library_in_front(
    plane: Plane, cdi_node: Node, namespace: str, lab: str, served: None
) -> None:
    path, node = f"/api/v1/namespaces/{namespace}/pods", cdi_node
    with plugin(plane, node, lab, "--cdi"):
        node.wait_capacity(CORE, 100)
        plane.api.wait(f"{DRA}/resourceslices", lambda found: slices_of(found, node.name), "a slice", 180)
        claim, pod = claimed("claim", node, 50, WORK)
        share = sharepod("share", node, WORK, gpu_request="0.3", gpu_memory="1Gi")
        for one in (pod, share):
            one["spec"]["restartPolicy"] = "Always"
        create(plane, namespace, claim, pod)
        plane.api.post(path, share)
        for name in KINDS:
            plane.api.wait_one(f"{path}/{name}", condition("Ready"), seconds=180)
        wait_again(plane, namespace, 0)
        before = {file: file.read_text() for file in files(node)}
        assert len(before) == len(KINDS)

        for file in before:
            file.unlink()
        end_containers(plane, namespace)
        wait_again(plane, namespace, 1)
        assert {file: file.read_text() for file in files(node)} == before
        for name in KINDS:
            plane.api.delete(f"{path}/{name}", grace_seconds=0)
            plane.api.wait_gone(f"{path}/{name}")
        until(lambda: not files(node), "the files gone with their pods", 120)
