"""`gemini reporter` as a process of its own, on the simulated NVML and an API server that this test keeps in memory."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gemini.reporter.app import LISTED, Here
from tests.gemini.reporter.conftest import simulated

SECONDS = 60
UID = "fa8983dc"


class Server:
    """One node, its pods, its Device and its ResourceSlice. `faults`: statuses that the next writes are answered with.
    `drops`: fields of a slice's devices that this server does not know; None: it has no resource.k8s.io/v1."""

    def __init__(self, *faults: int, drops: frozenset[str] | None = None) -> None:
        self.faults = list(faults)
        self.drops = drops
        self.slice: dict[str, Any] | None = None
        self.withdrawn = 0
        self.node: dict[str, Any] = {"metadata": {"name": "n1", "uid": "u-1", "resourceVersion": "1"}, "status": {}}
        self.pods = [{"metadata": {"name": "p", "namespace": "ns", "uid": UID}, "spec": {"nodeName": "n1"}}]
        self.resizes: list[dict[str, Any]] = []
        self.device: dict[str, Any] | None = None
        self.version = 1
        self.changed = asyncio.Event()
        self.queries: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rstrip("/").split("/")[-1]
        if request.query.get("watch"):
            reply = web.StreamResponse()
            await reply.prepare(request)
            await asyncio.sleep(3600)
        if request.method == "GET":
            self.queries.append(request.query_string)
            if "resource.k8s.io" in request.path:
                found = self.slice if "resourceslices" in request.path else {} if self.drops is not None else None
                missing = web.json_response({"message": "no"}, status=404)
                return missing if found is None else web.json_response(found)
            if "devices" in request.path:
                missing = web.json_response({"message": "no"}, status=404)
                return missing if self.device is None else web.json_response(self.device)
            items = {"nodes": [self.node], "resizes": self.resizes}.get(kind, self.pods)
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        body = await request.json() if request.can_read_body else {}
        if self.faults:
            return web.json_response({"message": "not now"}, status=self.faults.pop(0))
        self.version += 1
        if "resourceslices" in request.path:
            return self.write_slice(request.method, body)
        if request.method == "PATCH":
            self.node.setdefault("status", {}).update(body.get("status", {}))
            self.node["metadata"].setdefault("labels", {}).update(body.get("metadata", {}).get("labels", {}))
        else:
            known = self.device["metadata"]["resourceVersion"] if self.device else None
            if body["metadata"].get("resourceVersion") != known:
                return web.json_response({"message": "changed"}, status=409)
            self.device = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        self.changed.set()
        return web.json_response(body)

    def write_slice(self, method: str, body: dict[str, Any]) -> web.Response:
        if method == "DELETE":
            self.slice, self.withdrawn = None, self.withdrawn + 1
        else:
            devices = [{k: v for k, v in one.items() if k not in (self.drops or ())} for one in body["spec"]["devices"]]
            metadata = {**body["metadata"], "resourceVersion": str(self.version)}
            self.slice = {**body, "metadata": metadata, "spec": {**body["spec"], "devices": devices}}
        self.changed.set()
        return web.json_response(self.slice or {})

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    def given_out(self) -> list[Any]:
        annotations = (self.device or {}).get("metadata", {}).get("annotations", {})
        found: list[Any] = json.loads(annotations.get("gemini.io/devices-checkpoints", "[]"))
        return found


def with_reporter(
    server_faults: tuple[int, ...], machine: str, folder: Path, talk: Any, drops: frozenset[str] | None = None
) -> tuple[int, str]:
    """Runs `talk(server, process)` beside a reporter; its exit status and what it wrote to stderr."""

    async def run() -> tuple[int, str]:
        server = Server(*server_faults, drops=drops)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", server.handle)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        kubeconfig = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://{host}:{port}"}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gemini", "reporter", "--kubeconfig", str(folder / "kubeconfig"), "--node", "n1",
            "--checkpoint", str(folder / "checkpoint"), "--pod-resources", str(folder / "none"), "--slots", "8",
            "--sys", str(folder / "sys"), env=simulated(machine), stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            await talk(server, process)
            process.send_signal(signal.SIGTERM)
            _, said = await asyncio.wait_for(process.communicate(), SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
            await runner.cleanup()
        return process.returncode or 0, said.decode()

    return asyncio.run(run())


def test_device_and_node_are_written_in_spite_of_refusals_and_the_end_is_clean(machine: str, tmp_path: Path) -> None:
    async def talk(server: Server, process: Any) -> None:
        await server.until(lambda: "gemini.io/gpu-model" in server.node["metadata"].get("labels", {}))
        assert server.device is not None
        cards = server.device["spec"]["devices"]
        assert [(card["minor"], card["health"], card["slots"]) for card in cards] == [(i, True, 8) for i in range(4)]
        assert server.node["status"]["capacity"]["gemini.io/gpu-memory-ratio"] == "400"
        assert {"fieldSelector=metadata.name%3Dn1", "fieldSelector=spec.nodeName%3Dn1"} <= {
            part for query in server.queries for part in query.split("&")
        }

    status, said = with_reporter((500, 409, 429), machine, tmp_path, talk)
    assert status == 0
    assert "500" in said
    assert "Traceback" not in said
    assert "gemini: reporter has written Device n1" in said


def test_what_other_plugins_give_out_is_noticed_and_taken_back_and_a_broken_checkpoint_changes_nothing(
    machine: str, tmp_path: Path
) -> None:
    async def talk(server: Server, process: Any) -> None:
        await server.until(lambda: server.device is not None)
        assert server.device is not None
        card = server.device["spec"]["devices"][2]["id"]
        entry = {
            "PodUID": UID, "ContainerName": "c", "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"-1": [card]},
            "AllocResp": "",
        }  # fmt: skip
        replace(tmp_path / "checkpoint", {"Data": {"PodDeviceEntries": [entry]}})
        await server.until(lambda: [e["deviceIDs"] for e in server.given_out()] == [[card]])
        (tmp_path / "checkpoint").write_text("{")
        assert process.stderr is not None
        async with asyncio.timeout(SECONDS):
            while b"no checkpoint of a kubelet" not in await process.stderr.readline():
                pass
        assert server.given_out()
        replace(tmp_path / "checkpoint", {"Data": {"PodDeviceEntries": []}})
        await server.until(lambda: not server.given_out())

    status, said = with_reporter((), machine, tmp_path, talk)
    assert status == 0
    assert "Traceback" not in said


def test_cards_are_published_for_claims_less_what_annotated_pods_hold(machine: str, tmp_path: Path) -> None:
    async def talk(server: Server, process: Any) -> None:
        resources = {"gemini.io/gpu-core": 60, "gemini.io/gpu-memory": 1 << 30}
        record = {"gpu": [{"minor": 1, "resources": resources}]}
        server.pods[0]["metadata"]["annotations"] = {"gemini.io/allocation": json.dumps(record)}
        asked = {name: str(amount) for name, amount in resources.items()}  # a record counts as far as they cover it
        server.pods[0]["spec"]["containers"] = [{"name": "main", "resources": {"requests": asked, "limits": asked}}]
        await server.until(lambda: server.slice is not None)
        assert server.slice is not None
        cores = [device["capacity"]["core"]["value"] for device in server.slice["spec"]["devices"]]
        assert cores == ["100", "40", "100", "100"]
        assert server.slice["spec"]["nodeName"] == server.slice["spec"]["pool"]["name"] == "n1"

    assert with_reporter((), machine, tmp_path, talk, frozenset())[0] == 0


def test_what_a_pod_has_that_was_given_another_share_is_no_capacity_for_claims(machine: str, tmp_path: Path) -> None:
    """kube-scheduler gave claims of that card, by the pod's record, and the extender refused them: again and again,
    though other cards of the node were free."""

    async def talk(server: Server, process: Any) -> None:
        resources = {"gemini.io/gpu-core": 10, "gemini.io/gpu-memory": 1 << 30}
        record = {"gpu": [{"minor": 1, "resources": resources}]}
        server.pods[0]["metadata"]["annotations"] = {"gemini.io/allocation": json.dumps(record)}
        asked = {name: str(amount) for name, amount in resources.items()}
        server.pods[0]["spec"]["containers"] = [{"name": "main", "resources": {"requests": asked, "limits": asked}}]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": UID}
        amounts = {"request": 70, "limit": 100, "memory": 1 << 30}
        metadata = {"name": "p", "namespace": "ns", "uid": "r", "generation": 1, "ownerReferences": [owner]}
        said = {"answered": 1, "pod": UID, "node": "n1", "booked": amounts, "enforced": amounts, "settled": True}
        server.resizes.append({"metadata": metadata, "spec": amounts, "status": said})

        def cores() -> list[str]:
            devices = server.slice["spec"]["devices"] if server.slice is not None else []
            return [device["capacity"]["core"]["value"] for device in devices]

        await server.until(lambda: cores() == ["100", "30", "100", "100"])

    assert with_reporter((), machine, tmp_path, talk, frozenset())[0] == 0


@pytest.mark.parametrize("dropped", ["bindingConditions", "allowMultipleAllocations"])
def test_slice_is_taken_back_where_the_server_could_not_keep_a_promise(
    dropped: str, machine: str, tmp_path: Path
) -> None:
    async def talk(server: Server, process: Any) -> None:
        await server.until(lambda: server.withdrawn > 0)

    status, said = with_reporter((), machine, tmp_path, talk, frozenset({dropped}))
    assert status == 0
    assert "no cards for claims" in said


def replace(path: Path, given: Any) -> None:
    """As the kubelet writes it: whole, by a rename."""
    path.with_suffix(".new").write_text(json.dumps(given))
    path.with_suffix(".new").rename(path)


def test_reporter_told_to_simulate_sees_simulated_cards(machine: str) -> None:
    """Without LD_LIBRARY_PATH, as a container starts it."""
    program = "import sys; from gemini.cli.reporter import simulate; simulate(sys.argv[1]); "
    program += "from gemini.reporter.inventory import look; print(len(look().cards))"
    done = subprocess.run([sys.executable, "-c", program, machine], capture_output=True, text=True, timeout=60)
    assert done.stdout == "4\n", done.stderr


@pytest.mark.parametrize("in_a_list", [False, True])
def test_large_pods_take_little_of_a_reporters_memory(in_a_list: bool) -> None:
    """It kept each pod of its node whole, those that had ended too, of which there may be any number."""
    env = [{"name": f"A{i}", "value": "v" * 60} for i in range(13_000)]
    spec = {"nodeName": "n1", "containers": [{"name": "main", "env": env}]}
    states = [{"name": "main", "image": "x" * 1000, "state": {"running": {"startedAt": "now"}}}]
    annotations = {"gemini.io/allocation": "{}", "example.com/long": "x" * 200_000}
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "annotations": annotations}, "spec": spec,
        "status": {"phase": "Failed", "containerStatuses": states},
    }  # fmt: skip
    text, here, ten = json.dumps(pod), Here(lambda: None), 10
    listed: list[dict[str, Any]] = []
    tracemalloc.start()
    try:
        for i in range(ten):
            given = json.loads(text)
            given["metadata"] |= {"uid": f"u{i}", "resourceVersion": str(i + 1)}
            if in_a_list:
                listed.append(LISTED["Pod"](given))
            else:
                here.apply("Pod", "ADDED", given)
        if in_a_list:
            here.replace("Pod", listed)
        del given
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < ten * 20_000
    finally:
        tracemalloc.stop()
    assert set(here.running()) == {f"u{i}" for i in range(ten)}, "a container of each runs still"
    assert "gemini.io/allocation" in here.running()["u0"]["metadata"]["annotations"]
    ended = [{"name": "main", "state": {"terminated": {"exitCode": 0}}}]
    here.apply("Pod", "MODIFIED", {**given_of(text, "u0"), "status": {"phase": "Failed", "containerStatuses": ended}})
    assert "u0" not in here.running()
    assert here.over() == {("ns", "p")}


def given_of(text: str, uid: str) -> dict[str, Any]:
    given: dict[str, Any] = json.loads(text)
    given["metadata"] |= {"uid": uid, "resourceVersion": "99"}
    return given
