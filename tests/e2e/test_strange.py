"""Objects that an editor of a namespace may make as strange as the API server stores them keep nobody else waiting: on
the real API server, whose text of them the extender has to read."""

from __future__ import annotations

import asyncio
import json

import pytest

from gemini.kube.client import Client
from tests.e2e.api import Object, condition
from tests.e2e.plane import Plane
from tests.e2e.test_claims import DRA
from tests.e2e.test_extender import crd as crd
from tests.e2e.test_extender import gemini, nodes_with_cards, sharepod

pytestmark = pytest.mark.timeout(600)
EDITOR = "strange-editor"
DEEP = 3_000


def claim(name: str, parameters: str) -> str:
    """The text of a claim that configures another driver, with just these parameters."""
    config = [{"opaque": {"driver": "other.io", "parameters": {"a": "HERE"}}}]
    request = {"name": "r", "exactly": {"deviceClassName": "gemini.io"}}
    body = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [request], "config": config}},
    }  # fmt: skip
    return json.dumps(body).replace('"HERE"', parameters)


def large() -> Object:
    """A pod of 1.2 MB that no scheduler looks at. The API server tells of it in 7, for each of these is six letters
    there."""
    env = [{"name": f"V{i}", "value": "<" * 100_000} for i in range(12)]
    return sharepod("large", {"containers": [{"name": "main", "image": "x", "env": env}], "schedulerName": "none"})


def serves(plane: Plane, name: str) -> None:
    """Somebody else's pod is placed."""
    pods = "/api/v1/namespaces/default/pods"
    plane.api.post(pods, sharepod(name, gpu_request="0.1", gpu_memory="1Gi"))
    plane.api.wait_one(f"{pods}/{name}", condition("Ready"), seconds=60)
    plane.api.delete(f"{pods}/{name}", 0)
    plane.api.wait_gone(f"{pods}/{name}")


def make(plane: Plane, path: str, text: str) -> None:
    config = str(plane.kubeconfig(EDITOR))
    plane.kubectl("--kubeconfig", config, "create", "--raw", path, "-f", "-", text=text)


@pytest.fixture
def edited(plane: Plane, namespace: str) -> str:
    """A namespace with an editor."""
    plane.kubectl("create", "rolebinding", EDITOR, "-n", namespace, "--clusterrole=edit", f"--user={EDITOR}")
    return namespace


@pytest.mark.parametrize("parameters", ["[" * DEEP + "]" * DEEP, r'"\ud800"'], ids=["deep", "half a pair"])
def test_a_claim_that_no_quick_parser_takes_keeps_no_replica_from_beginning(
    plane: Plane, edited: str, crd: None, parameters: str
) -> None:
    """No ResourceClaim of the cluster could be listed any more: a replica that began was never ready, and who ran heard
    of no claim again."""
    make(plane, f"{DRA}/namespaces/{edited}/resourceclaims", claim("strange", parameters))
    with nodes_with_cards(plane, 1, 1), gemini(plane):
        serves(plane, "beside")


def test_a_pod_that_is_told_of_in_megabytes_ends_no_replica(plane: Plane, edited: str, crd: None) -> None:
    """Its first news ended each replica of the extender that watched pods."""
    others: Object = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [edited]}]
    }
    path = f"/api/v1/namespaces/{edited}/pods"
    with nodes_with_cards(plane, 1, 1), gemini(plane, namespaceSelector=others):
        make(plane, path, json.dumps(large()))
        for i in range(3):
            plane.api.patch(f"{path}/large", {"metadata": {"labels": {"again": str(i)}}})
            serves(plane, f"beside-{i}")


def test_of_a_nodes_pods_that_have_ended_none_is_read_before_a_binding(plane: Plane, edited: str, crd: None) -> None:
    """Ended pods are kept by the thousand. Where another replica has bound, or another device plugin serves the node
    too, the node's pods are read: with 5,000 that have ended a binding took three seconds."""
    path, ended = f"/api/v1/namespaces/{edited}/pods", {"Succeeded", "Failed"}
    with plane.nodes(1) as (node,):
        for name in ("runs", *ended):
            plane.api.post(path, sharepod(name.lower(), {"nodeName": node}))
            plane.api.wait_one(f"{path}/{name.lower()}", condition("Ready"))
        for phase in ended:
            plane.api.patch(f"{path}/{phase.lower()}/status", {"status": {"phase": phase}})

        async def read() -> list[str]:
            client = await Client.connect(str(plane.admin))
            try:
                return [pod["metadata"]["name"] for pod in (await client.pods_on(node))[0]]
            finally:
                await client.close()

        assert len(plane.api.get(path)["items"]) == 3
        assert asyncio.run(read()) == ["runs"]
