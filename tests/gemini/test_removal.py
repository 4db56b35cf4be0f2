"""What is taken off a cluster, by an API server in memory and a folder for a node."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gemini import removal
from gemini.kube import names
from gemini.kube.answer import Unanswered
from gemini.kube.client import Client
from tests.gemini.kube.apiserver import talked

NODE = {
    "metadata": {"name": "n1", "labels": {names.NODE_LABEL: "true", names.NODE_MODEL_LABEL: "H200", "zone": "a"}},
    "status": {
        "capacity": {names.RESOURCE_CORE: "200", names.RESOURCE_MEMORY: "9", "cpu": "4", names.NVIDIA_GPU: "1"},
        "allocatable": {names.ALIYUN_GPU_COUNT: "2", "cpu": "4"},
    },
}


def pod(name: str, phase: str = "Running", record: bool = True) -> dict[str, Any]:
    notes = {names.ALLOCATION: "{}"} if record else {}
    metadata = {"name": name, "namespace": "d", "annotations": notes}
    return {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": phase}}


def claim(name: str, driver: str) -> dict[str, Any]:
    allocation = {"devices": {"results": [{"driver": driver, "pool": "n1"}]}}
    return {"metadata": {"name": name, "namespace": "d"}, "status": {"allocation": allocation}}


def test_pods_with_a_record_that_have_not_ended_and_claims_of_our_driver_hold_cards() -> None:
    placed = pod("placed", record=False)  # by another scheduler, and held to its time by us
    placed["spec"]["containers"] = [{"name": "c", "resources": {"limits": {names.RESOURCE_PLACED: "1"}}}]
    pods = [pod("a"), pod("over", "Succeeded"), pod("plain", record=False), placed]
    claims = [claim("ours", names.DRIVER), claim("theirs", "gpu.example.com"), {"metadata": {"name": "new"}}]
    assert removal.holders(pods, claims) == ["claim d/ours", "pod d/a", "pod d/placed"]


def test_a_node_loses_what_our_parts_wrote_and_keeps_all_else() -> None:
    labels, status = removal.node_patches(NODE)
    assert labels == {"metadata": {"labels": {names.NODE_MODEL_LABEL: None}}}
    capacity = dict.fromkeys((names.RESOURCE_CORE, names.RESOURCE_MEMORY))
    assert status == {"status": {"capacity": capacity, "allocatable": {names.ALIYUN_GPU_COUNT: None}}}
    assert removal.node_patches({"metadata": {}, "status": {"capacity": {"cpu": "4"}}}) == (None, None)


class Server:
    """As much of the API server as is asked."""

    def __init__(self, **objects: list[dict[str, Any]]) -> None:
        self.objects = objects

    async def __call__(self, request: web.Request) -> web.Response:
        kind = request.path.rpartition("/")[2]
        if request.method == "GET":
            if kind not in self.objects:
                return web.Response(text="404 page not found\n", status=404)  # as the API server says it
            items = self.objects[kind] if "namespaces/gemini/pods" not in request.path else []
            return web.json_response({"items": items, "metadata": {"resourceVersion": "1"}})
        return web.json_response({})


def cluster(**more: list[dict[str, Any]]) -> Server:
    def named(*those: str) -> list[dict[str, Any]]:
        return [{"metadata": {"name": one}} for one in those]

    leases = named("gemini-node-n1", "gemini-group-abc", "gemini-scheduler", "somebodys")
    slices = [{"metadata": {"name": "s"}, "spec": {"driver": names.DRIVER}}, {"metadata": {"name": "x"}, "spec": {}}]
    return Server(**{
        "pods": [], "nodes": [NODE], "leases": leases, "resourceslices": slices, "devices": named("n1"),
        "resourceclaims": [], "daemonsets": named("gemini-node"), "deployments": named("gemini-extender"), **more,
    })  # fmt: skip


def test_writers_end_first_and_then_all_that_they_wrote_is_removed(tmp_path: Path) -> None:
    said: list[str] = []

    async def talk(client: Client) -> None:
        said.extend(await removal.remove(client, "gemini", ("gemini-scheduler",), 60))

    calls = talked(cluster(), talk, tmp_path)
    gone = [path.rpartition("/")[2] for method, path, _ in calls if method == "DELETE"]
    assert gone == [
        "gemini-node", "gemini-extender", "s", "n1", "gemini-node-n1", "gemini-group-abc", "gemini-scheduler",
    ]  # fmt: skip
    assert [line.partition(":")[0] for line in said] == ["ResourceSlice", "Device", "Node", "Lease"]


def test_an_api_server_that_answers_each_call_the_second_time_only_loses_as_much(tmp_path: Path) -> None:
    server, seen, told = cluster(), set[tuple[str, str]](), []

    async def handle(request: web.Request) -> web.StreamResponse:
        if (call := (request.method, request.path_qs)) not in seen:
            seen.add(call)
            return web.json_response({"message": "etcdserver: leader changed"}, status=503)
        return await server(request)

    async def talk(client: Client) -> None:
        said = await removal.remove(client, "gemini", ("gemini-scheduler",), 600, told.append)
        assert [line.partition(":")[0] for line in said] == ["ResourceSlice", "Device", "Node", "Lease"]

    calls = talked(handle, talk, tmp_path)
    made = Counter((method, path) for method, path, _ in calls)
    assert set(made.values()) == {2}
    assert len(told) == len(made)


def test_a_node_that_goes_meanwhile_keeps_nothing_from_being_removed(tmp_path: Path) -> None:
    """An autoscaler takes nodes away at any moment: the uninstallation ended half done, as refused."""
    gone = {**NODE, "metadata": {**NODE["metadata"], "name": "gone"}}
    server = cluster(nodes=[gone, NODE])

    async def handle(request: web.Request) -> web.StreamResponse:
        if "/nodes/gone" in request.path:
            return web.json_response({"reason": "NotFound", "message": 'nodes "gone" not found'}, status=404)
        return await server(request)

    async def talk(client: Client) -> None:
        said = await removal.remove(client, "gemini", ("gemini-scheduler",), 60)
        assert "Node: resources and label of 1 removed" in said
        assert "Lease: 3 removed" in said

    talked(handle, talk, tmp_path)


def test_an_api_server_that_never_answers_ends_it_when_its_time_is_up(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.json_response({}, status=503)

    async def talk(client: Client) -> None:
        with pytest.raises(Unanswered, match="503"):
            await removal.remove(client, "gemini", (), 0.01)

    calls = talked(handle, talk, tmp_path)
    assert {method for method, _, _ in calls} == {"GET"}


def test_while_a_card_is_held_nothing_is_done(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        with pytest.raises(removal.Held, match="pod d/a"):
            await removal.remove(client, "gemini", (), 60)

    calls = talked(cluster(pods=[pod("a")]), talk, tmp_path)
    assert {method for method, _, _ in calls} == {"GET"}


def test_where_the_kinds_are_not_served_the_rest_is_removed(tmp_path: Path) -> None:
    server = cluster()
    for kind in ("resourceslices", "resourceclaims", "devices"):
        del server.objects[kind]

    async def talk(client: Client) -> None:
        assert [line.partition(":")[0] for line in await removal.remove(client, "gemini", (), 60)] == ["Node", "Lease"]

    talked(server, talk, tmp_path)


def test_parts_that_do_not_end_are_named(tmp_path: Path) -> None:
    server = cluster()

    async def handle(request: web.Request) -> web.StreamResponse:
        if "namespaces/gemini/pods" in request.path:
            return web.json_response({"items": [{"metadata": {"name": "gemini-node-x"}}]})
        return await server(request)

    async def talk(client: Client) -> None:
        with pytest.raises(removal.TimeIsUp, match="gemini-node-x"):
            await removal.remove(client, "gemini", (), 0.01)

    talked(handle, talk, tmp_path)


def test_a_daemonset_counts_when_its_status_is_of_its_present_form(tmp_path: Path) -> None:
    answers = [
        {"metadata": {"generation": 1}},
        {"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 2}},
        {
            "metadata": {"generation": 1},
            "status": {"observedGeneration": 1, "desiredNumberScheduled": 2, "numberReady": 2},
        },
    ]

    async def handle(request: web.Request) -> web.Response:
        return web.json_response(answers.pop(0))

    async def talk(client: Client) -> None:
        assert await removal.wait_for_nodes(client, "gemini", "gemini-uninstall", 60) == 2

    talked(handle, talk, tmp_path)


def test_our_files_go_and_those_of_others_stay(tmp_path: Path) -> None:
    kubelet = Path("/var/lib/kubelet")
    ours = (
        "run/gemini/state/lock", "run/gemini/control.sock", "var/lib/gemini/lib.so",
        "var/run/cdi/gemini.io-share_a.json", "var/run/cdi/gemini-shares-1234abcd.json",
        "var/lib/kubelet/device-plugins/gemini-gemini.io_gpu-core.sock",
        "var/lib/kubelet/plugins_registry/gemini.io-reg.sock", "var/lib/kubelet/plugins/gemini.io/dra.sock",
    )  # fmt: skip
    others = ("var/run/cdi/nvidia.yaml", "var/lib/kubelet/device-plugins/kubelet.sock", "var/lib/kubelet/plugins/a/b")
    for path in (*ours, *others):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    removal.remove_files(removal.node_files(tmp_path, kubelet))
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == set(others)
    assert (tmp_path / "run/gemini").is_dir()
    assert removal.node_files(tmp_path, kubelet) == []
