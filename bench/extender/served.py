"""The extender that is measured: its own App and Service on a port of loopback, in a process of its own.

    python -m bench.extender.served --nodes 5000 --cards 8 --pods 20000

Everything is the product's but the API server, which is a dictionary here: row 16 (cluster.py) has a real one. Half of
all core is held by bound pods before it starts. Prints its URL, then serves until its standard input ends.

Besides the product's own paths:
- GET /bench/handled gives and forgets (start_ns, ns) of each call of the filter handler, bytes of the request to bytes
  of the answer
- GET /bench/bound gives the records of all that was bound
- POST /bench/nothing is answered as the verbs are, with nothing
- GET /bench/another makes a pod of the crowd's anew
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import time
from collections.abc import Awaitable
from typing import Any

import orjson
import uvloop
from aiohttp import web

from gemini import heap, serving
from gemini.extender.app import App
from gemini.extender.kinds import DEVICE, KINDS, NODE, POD
from gemini.extender.service import Service
from gemini.extender.state import Cluster
from gemini.kube import names
from gemini.kube.answer import Refused
from gemini.kube.device import write_device
from gemini.placement.model import Device, Node
from gemini.placement.policies import POLICIES

Object = dict[str, Any]
GIB = 2**30
MEMORY = {0: 80 * GIB, 1: 141 * GIB}  # two makes of card, by node
SHARES = (10, 20, 30, 50, 70, 100)
CROWDS = {  # name -> members of a group, how many more it waits for, the level of the cluster that it is held to
    "one group": (10_000, 0, None),
    "one of it is missing": (10_000, 1, None),
    "400 that differ": (400, 0, "cluster"),
    "groups of four": (4, 0, None),
}


def node_name(n: int) -> str:
    return f"gpu-node-{n:05d}"


def node_number(name: str) -> int:
    return int(name.removeprefix("gpu-node-"))


def node_objects(n: int, cards: int) -> tuple[Object, Object]:
    """A Node and its Device."""
    name = node_name(n)
    devices = tuple(
        Device(
            m, uuid=f"GPU-{n:05d}-{m}", memory=MEMORY[n % 2], model=("H100", "H200")[n % 2], pcie=str(m // 2),
            numa=str(m // 4),
        )
        for m in range(cards)
    )  # fmt: skip
    node = {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"allocatable": {"cpu": "64"}}}
    return node, write_device(Node(name, devices))


def pod(i: int) -> Object:
    """The i-th pod, as the webhook made it: about what kube-scheduler sends."""
    share = SHARES[i % len(SHARES)]
    resources = {amounts: {names.RESOURCE_CORE: str(share)} for amounts in ("requests", "limits")}
    env = [{"name": f"SETTING_{k}", "value": "some value of a usual length"} for k in range(12)]
    mounts = [{"name": f"volume-{k}", "mountPath": f"/mnt/{k}"} for k in range(4)]
    container = {
        "name": "main",
        "image": "registry/train:1",
        "env": env,
        "volumeMounts": mounts,
        "resources": resources,
    }
    metadata = {
        "name": f"pod-{i}", "namespace": "bench", "uid": f"00000000-0000-0000-0000-{i:012d}", "resourceVersion": "1",
        "labels": {"app": "train", "job": f"job-{i // 8}"},
        "annotations": {names.GPU_REQUEST: f"{share}%"},
    }  # fmt: skip
    spec = {"containers": [container], "schedulerName": "default-scheduler", "priority": 0}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def crowded(i: int, crowd: str, pods: int) -> Object:
    """The i-th pod of a namespace whose groups find no room. `crowd`: a row of CROWDS."""
    size, missing, level = CROWDS[crowd]
    size = min(size, pods)
    share = f"{51 + i % 9}%" if level else "100%"
    given = pod(i)
    given["metadata"] |= {"name": f"crowd-{i}", "namespace": "crowd", "uid": f"crowd-{i}"}
    given["metadata"]["annotations"] = {
        names.GPU_REQUEST: share, names.POD_GROUP: f"g{i // size}", names.POD_GROUP_SIZE: str(size + missing),
    } | ({names.GROUP_REQUIRED: level} if level else {})  # fmt: skip
    if level is None:  # of four of these there is no room on any node
        given["metadata"]["annotations"] |= {names.GPU_COUNT: "8"}
    amounts = {names.RESOURCE_CORE: "800" if level is None else share.removesuffix("%")}
    given["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return given


def held(n: int, minor: int, core: int) -> Object:
    """A pod that runs already and holds `core` of a card."""
    uid = f"held-{n}-{minor}"
    memory = MEMORY[n % 2] * core // 100
    resources = {names.RESOURCE_CORE: core, names.RESOURCE_MEMORY: memory}
    amounts = {name: str(amount) for name, amount in resources.items()}  # a record counts as far as these cover it
    record = {"gpu": [{"minor": minor, "uuid": f"GPU-{n:05d}-{minor}", "resources": resources}]}
    metadata = {"name": uid, "namespace": "bench", "uid": uid, "resourceVersion": "1"}
    metadata_annotations = {names.ALLOCATION: orjson.dumps(record).decode()}
    return {
        "metadata": {**metadata, "annotations": metadata_annotations},
        "spec": {
            "nodeName": node_name(n),
            "containers": [{"name": "main", "image": "x", "resources": {"requests": amounts, "limits": amounts}}],
        },
        "status": {"phase": "Running"},
    }


class Store:
    """The API server as the service uses it; what is written is watched at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.pods: dict[str, Object] = {}
        self.bound: list[Object] = []
        self._leases: dict[str, int] = {}

    def create(self, given: Object) -> None:
        self.pods[given["metadata"]["name"]] = given
        self._cluster.apply(POD, "ADDED", given)

    async def pod(self, namespace: str, name: str) -> Object:
        if name not in self.pods:
            raise Refused(404, f"there is no pod {name}")
        return self.pods[name]

    async def pods_on(self, node: str) -> tuple[list[Object], int]:
        return [pod for pod in self.bound if pod["spec"]["nodeName"] == node], 0

    async def claims_on(self, node: str) -> tuple[list[Object], int]:
        return [], 0

    async def claim(self, namespace: str, name: str) -> Object:
        raise Refused(404, f"there is no claim {name}")

    async def wake(self, stamp: str) -> None:
        pass

    async def answer_claim(self, given: Object) -> Object:
        raise Refused(404, "there are no claims")

    async def resize(self, namespace: str, name: str) -> Object:
        raise Refused(404, f"there is no Resize {name}")

    async def answer_resize(self, namespace: str, name: str, version: str, status: Object) -> Object:
        raise Refused(404, f"there is no Resize {name}")

    async def quotas(self, namespace: str) -> list[Object]:
        return []

    async def limit_ranges(self, namespace: str) -> list[Object]:
        return []

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]) -> None:
        known = self.pods[name]
        if known["spec"].get("nodeName"):
            raise Refused(409, "assigned already")
        metadata = {**known["metadata"], "annotations": {**known["metadata"]["annotations"], **annotations}}
        metadata["resourceVersion"] = "2"
        self.pods[name] = {**known, "metadata": metadata, "spec": {**known["spec"], "nodeName": node}}
        self.bound.append(self.pods[name])
        asyncio.get_running_loop().call_soon(self._cluster.apply, POD, "MODIFIED", self.pods[name])

    async def lease(self, namespace: str, name: str) -> Object | None:
        version = self._leases.get(name)
        return None if version is None else {"metadata": {"resourceVersion": str(version)}}

    async def all_leases(self, namespace: str) -> list[Object]:
        return []

    async def drop_lease(self, namespace: str, name: str, version: str | None = None) -> None:
        self._leases.pop(name, None)

    async def put_lease(self, namespace: str, name: str, metadata: Object) -> str:
        known = self._leases.get(name)
        if metadata.get("resourceVersion") != (None if known is None else str(known)):
            raise Refused(409, "changed")
        self._leases[name] = (known or 0) + 1
        return str(self._leases[name])


class Timed(App):
    """Notes how long the filter handler takes."""

    handled: list[tuple[int, int]]

    def filter(self, body: bytes) -> bytes | Awaitable[bytes]:
        start = time.monotonic_ns()
        answer = super().filter(body)
        if isinstance(answer, bytes):  # all of the bench's pods, which are in no group, are answered at once
            self.handled.append((start, time.monotonic_ns() - start))
        return answer


async def serve(args: argparse.Namespace) -> None:
    cluster = Cluster(args.policies.split(",") if args.policies else ())
    pairs = [node_objects(n, args.cards) for n in range(args.nodes)]
    cluster.replace(NODE, [node for node, _ in pairs])
    cluster.replace(DEVICE, [device for _, device in pairs])
    chance = random.Random(1)
    for n in range(args.nodes):
        for minor in range(args.cards):
            core = chance.choice((0, 0, 30, 50, 80, 100))
            if core:
                cluster.apply(POD, "ADDED", held(n, minor, core))
    store = Store(cluster)
    for i in range(args.pods):
        store.create(orjson.loads(orjson.dumps(pod(i))))
    for i in range(args.crowd_pods):
        store.create(crowded(i, args.crowd, args.crowd_pods))
    service = Service(cluster, store, time.monotonic_ns, time.time_ns, "bench", "bench")
    synced = {kind: asyncio.Event() for kind in KINDS}
    for event in synced.values():
        event.set()
    app = Timed(service, None, synced)
    app.handled = []

    async def handled(_: web.Request) -> web.Response:
        given, app.handled = app.handled, []
        return web.Response(body=orjson.dumps(given))

    async def bound(_: web.Request) -> web.Response:
        records = [[p["spec"]["nodeName"], p["metadata"]["annotations"][names.ALLOCATION]] for p in store.bound]
        return web.Response(body=orjson.dumps(records))

    async def another(_: web.Request) -> web.Response:
        given = crowded(0, args.crowd, args.crowd_pods)
        given["metadata"]["uid"] += f"-{time.monotonic_ns()}"
        cluster.apply(POD, "ADDED", given)
        cluster.apply(POD, "DELETED", given)
        return web.Response()

    async def sweep() -> None:
        while True:
            await asyncio.sleep(1)
            await service.sweep()

    application = app.application()
    application.router.add_get("/bench/handled", handled)
    application.router.add_get("/bench/bound", bound)
    application.router.add_get("/bench/another", another)
    gc.collect()
    gc.freeze()  # as the program does once everything was listed
    verbs = {**app.verbs(), "/bench/nothing": lambda body: (200, b"{}")}
    async with serving.listening(application, "127.0.0.1", 0, verbs=verbs) as url:
        print(url.rpartition(":")[2], flush=True)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
        sweeping = asyncio.get_running_loop().create_task(sweep())
        await ended.wait()
        sweeping.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--crowd", choices=CROWDS, default="one group")
    parser.add_argument("--crowd-pods", type=int, default=0, help="of a namespace whose groups find no room")
    parser.add_argument("--policies", default="", help=f"some of {', '.join(POLICIES)}")
    args = parser.parse_args()
    heap.keep_freed()  # as the program does
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
