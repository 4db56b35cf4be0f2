"""A cluster in memory for these tests: what an API server stores and promises, with watches that lag as asked."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import random
from collections import deque
from typing import Any

from gemini.extender.codec import BindRequest, FilterRequest
from gemini.extender.kinds import CLAIM, DEVICE, KINDS, NODE, POD, RESIZE, UID_KINDS
from gemini.extender.promises import Verdict
from gemini.extender.service import SHORTLIST, Service
from gemini.extender.state import Cluster
from gemini.kube import names
from gemini.kube.answer import Refused, Unanswered
from gemini.kube.device import write_device
from gemini.kube.life import ENDED
from gemini.kube.pod import injected, parse_pod
from gemini.kube.resize import Amounts
from gemini.kube.spelling import InvalidPod
from gemini.placement.model import Device, Node

Object = dict[str, Any]
GIB = 2**30
MOST_ANNOTATIONS = 256 << 10  # bytes of an object's, in all


def node_object(name: str, **annotations: str) -> Object:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": annotations},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "250", "gemini.io/gpu-core": "200"}},
    }


def cards(name: str, count: int = 2, **more: Any) -> Node:
    return Node(name, tuple(Device(m, uuid=f"GPU-{name}-{m}", memory=16 * GIB, **more) for m in range(count)))


def pod_object(name: str, uid: str | None = None, priority: int = 0, **annotations: str) -> Object:
    """`gpu_request="0.5"` says gemini.io/gpu-request; the resources are those that admission gives such a pod."""
    said = {f"gemini.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return admitted(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "annotations": said},
            "spec": {"priority": priority, "containers": [{"name": "main", "image": "x"}]},
            "status": {"phase": "Pending"},
        }
    )


def admitted(pod: Object) -> Object:
    """With the resources of our domain that the webhook writes; a pod that makes no sense as it is."""
    with contextlib.suppress(InvalidPod):
        asked = injected(parse_pod(pod))
        for one in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            if one["name"] in asked:
                one["resources"] = {"limits": {key: str(amount) for key, amount in asked[one["name"]].items()}}
    return pod


class World:
    """The API server. `faults`: asked before each write and after it whether to fail there."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.version = 0
        self.objects: dict[tuple[str, str], Object] = {}
        self.leases: dict[str, Object] = {}
        self.lease_reads = 0
        self.queues: list[deque[tuple[str, str, Object]]] = []
        self.bindings: list[tuple[str, str]] = []
        self.fault_rate = 0.0
        self.binds_refused: list[Refused | Unanswered] = []  # the next bindings fail so
        self.said: list[tuple[str, int, str]] = []
        self.shares = 0
        self.woken = 0
        self.quotas_of: dict[str, list[Object]] = {}
        self.limits_of: dict[str, list[Object]] = {}

    # ---- as a test uses it

    def put(self, kind: str, given: Object) -> Object:
        self.version += 1
        stored = copy.deepcopy(given)
        stored["metadata"]["resourceVersion"] = str(self.version)
        key = (kind, stored["metadata"]["uid" if kind in UID_KINDS else "name"])
        event = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = stored
        self._tell(kind, event, stored)
        return stored

    def delete(self, kind: str, key: str) -> None:
        stored = self.objects.pop((kind, key))
        self.version += 1
        gone = copy.deepcopy(stored)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell(kind, "DELETED", gone)

    def nodes(self, *names: str, count: int = 2, **more: Any) -> None:
        for name in names:
            self.put(NODE, node_object(name))
            self.put(DEVICE, write_device(cards(name, count, **more)))

    def pod_of(self, uid: str) -> Object:
        return self.objects[POD, uid]

    def _tell(self, kind: str, event: str, stored: Object) -> None:
        for queue in self.queues:
            queue.append((kind, event, stored))

    # ---- as an extender uses it

    async def pod(self, namespace: str, name: str) -> Object:
        await self._maybe_lost()
        for (kind, _), stored in self.objects.items():
            if kind == POD and stored["metadata"]["name"] == name:
                return copy.deepcopy(stored)
        raise Refused(404, "no such pod")

    async def pods_on(self, node: str) -> tuple[list[Object], int]:
        await self._maybe_lost()
        pods = (stored for (kind, _), stored in self.objects.items() if kind == POD)
        here = [
            pod
            for pod in pods
            if pod["spec"].get("nodeName") == node and pod.get("status", {}).get("phase") not in ENDED
        ]
        return copy.deepcopy(here), self.version

    async def wake(self, stamp: str) -> None:
        await self._maybe_lost()
        self.woken += 1

    async def claims_on(self, node: str) -> tuple[list[Object], int]:
        await self._maybe_lost()
        here = [o for (k, _), o in self.objects.items() if k == CLAIM and _pool(o) == node]
        return copy.deepcopy(here), self.version

    async def claim(self, namespace: str, name: str) -> Object:
        await self._maybe_lost()
        for (kind, _), stored in self.objects.items():
            if kind == CLAIM and stored["metadata"]["name"] == name:
                return copy.deepcopy(stored)
        raise Refused(404, "no such claim")

    async def answer_claim(self, given: Object) -> Object:
        await self._maybe_lost()
        stored = self.objects.get((CLAIM, given["metadata"]["uid"]))
        if stored is None:
            raise Refused(404, "gone")
        if stored["metadata"]["resourceVersion"] != given["metadata"]["resourceVersion"]:
            raise Refused(409, "changed")
        written = self.put(CLAIM, given)
        await self._maybe_lost()  # done, but nobody hears of it
        return copy.deepcopy(written)

    async def resize(self, namespace: str, name: str) -> Object:
        await self._maybe_lost()
        return copy.deepcopy(self._resize(namespace, name))

    def _resize(self, namespace: str, name: str) -> Object:
        for (kind, _), stored in self.objects.items():
            metadata = stored["metadata"]
            if kind == RESIZE and (metadata["namespace"], metadata["name"]) == (namespace, name):
                return stored
        raise Refused(404, "no such resize")

    async def answer_resize(self, namespace: str, name: str, version: str, status: Object) -> Object:
        await self._maybe_lost()
        stored = self._resize(namespace, name)
        if stored["metadata"]["resourceVersion"] != version:
            raise Refused(409, "changed")
        merged = {key: one for key, one in {**stored.get("status", {}), **status}.items() if one is not None}
        written = self.put(RESIZE, {**stored, "status": merged})
        await self._maybe_lost()  # done, but nobody hears of it
        return copy.deepcopy(written)

    async def quotas(self, namespace: str) -> list[Object]:
        await self._maybe_lost()
        return copy.deepcopy(self.quotas_of.get(namespace, []))

    async def limit_ranges(self, namespace: str) -> list[Object]:
        await self._maybe_lost()
        return copy.deepcopy(self.limits_of.get(namespace, []))

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]) -> None:
        await self._maybe_lost()
        if self.binds_refused:
            raise self.binds_refused.pop(0)
        stored = self.objects.get((POD, uid))
        if stored is None:
            raise Refused(409, "another uid, or gone")
        if stored["spec"].get("nodeName"):
            raise Refused(409, "assigned already")
        bound = copy.deepcopy(stored)
        bound["spec"]["nodeName"] = node
        bound["metadata"]["annotations"].update(annotations)
        self.put(POD, bound)
        self.bindings.append((uid, node))
        await self._maybe_lost()  # done, but nobody hears of it

    async def lease(self, namespace: str, name: str) -> Object | None:
        self.lease_reads += 1
        await self._maybe_lost()
        return copy.deepcopy(self.leases.get(name))

    async def all_leases(self, namespace: str) -> list[Object]:
        await self._maybe_lost()
        return [copy.deepcopy(lease) for lease in self.leases.values()]

    async def put_lease(self, namespace: str, name: str, metadata: Object) -> str:
        await self._maybe_lost()
        stored, given = self.leases.get(name), metadata.get("resourceVersion")
        if given is None and stored is not None:
            raise Refused(409, "is there already")
        if given is not None and (stored is None or stored["metadata"]["resourceVersion"] != given):
            raise Refused(404 if stored is None else 409, "changed")
        if sum(len(key) + len(value) for key, value in metadata.get("annotations", {}).items()) > MOST_ANNOTATIONS:
            raise Refused(422, "metadata.annotations: Too long: may not be more than 262144 bytes")
        self.version += 1
        self.leases[name] = {
            "metadata": {**copy.deepcopy(metadata), "name": name, "resourceVersion": str(self.version)}
        }
        await self._maybe_lost()
        return str(self.version)

    async def drop_lease(self, namespace: str, name: str, version: str | None = None) -> None:
        await self._maybe_lost()
        stored = self.leases.get(name)
        if stored is not None and version not in (None, stored["metadata"]["resourceVersion"]):
            raise Refused(409, "changed")
        self.leases.pop(name, None)

    async def event(self, pod: Object, name: str, reason: str, message: str, count: int, stamp: str) -> None:
        self.said.append((pod["metadata"]["name"], count, message))

    async def _maybe_lost(self) -> None:
        await asyncio.sleep(0)
        if self.fault_rate and self.random.random() < self.fault_rate:
            raise Unanswered("lost")

    # ---- as a user of `kubectl gemini resize`

    def wish(self, pod: str, request: int, memory: int, limit: int = 100) -> Object:
        """Another wish for the pod of that name; the object is made where it is not there."""
        uid = f"resize-uid-{pod}"
        stored = self.objects.get((RESIZE, uid), {})
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}"}
        generation = stored.get("metadata", {}).get("generation", 0) + 1
        metadata = {"name": pod, "namespace": "ns", "uid": uid, "generation": generation, "ownerReferences": [owner]}
        return self.put(RESIZE, {**stored, "metadata": metadata, "spec": Amounts(request, limit, memory).written()})

    def resized(self, pod: str) -> Object:
        """What has become of the wish."""
        status: Object = self.objects[RESIZE, f"resize-uid-{pod}"].get("status", {})
        return status

    # ---- as kube-scheduler deals with claims, which never asks us

    def allocate(self, name: str, node: str, minor: int, core: int, memory: int = GIB) -> Object:
        """Another allocation of the claim; it is made where it is not there."""
        self.shares += 1
        result = {
            "driver": "gemini.io", "pool": node, "device": f"gpu-{node}-{minor}", "shareID": f"share-{self.shares}",
            "bindingConditions": ["gemini.io/promised"], "bindingFailureConditions": ["gemini.io/refused"],
            "consumedCapacity": {"core": str(core), "memory": str(memory)},
        }  # fmt: skip
        metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
        status = {"allocation": {"devices": {"results": [result]}}}
        return self.put(CLAIM, {"metadata": metadata, "status": status})

    def deallocate(self, name: str) -> None:
        self.put(CLAIM, {**self.objects[CLAIM, f"uid-{name}"], "status": {}})

    def word(self, name: str) -> str:
        """What a claim was answered: promised, refused, or nothing."""
        for entry in self.objects[CLAIM, f"uid-{name}"]["status"].get("devices", ()):
            for condition in entry["conditions"]:
                if condition["status"] == "True":
                    return str(condition["type"]).partition("/")[2]
        return ""

    # ---- what must never be

    def promised(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(node, minor) -> (core, bytes) as the records of bound pods and the claims that were promised say, counted by
        this test's own code."""
        total: dict[tuple[str, int], tuple[int, int]] = {}
        for (kind, _), stored in self.objects.items():
            record = stored["metadata"]["annotations"].get("gemini.io/allocation") if kind == POD else None
            for entry in json.loads(record)["gpu"] if record else ():
                at = (stored["spec"]["nodeName"], entry["minor"])
                core, memory = total.get(at, (0, 0))
                amounts = entry["resources"]
                own = (amounts["gemini.io/gpu-core"], amounts["gemini.io/gpu-memory"])
                status = self.objects.get((RESIZE, f"resize-{stored['metadata']['uid']}"), {}).get("status", {})
                said = [status.get(part) for part in ("booked", "enforced")]
                each = [own if one is None else (one["request"], one["memory"]) for one in said]
                total[at] = core + max(c for c, _ in each), memory + max(m for _, m in each)
            if kind == CLAIM and self.word(stored["metadata"]["name"]) == "promised":
                for result in stored["status"]["allocation"]["devices"]["results"]:
                    at = (result["pool"], int(result["device"].rpartition("-")[2]))
                    core, memory = total.get(at, (0, 0))
                    amounts = result["consumedCapacity"]
                    total[at] = core + int(amounts["core"]), memory + int(amounts["memory"])
        return total


def _pool(claim: Object) -> str | None:
    allocation = claim["status"].get("allocation")
    return allocation["devices"]["results"][0]["pool"] if allocation else None


class Replica:
    """An extender on a world; what it has watched is behind by what stands in `queue`."""

    def __init__(
        self,
        world: World,
        name: str = "a",
        alone: bool = False,
        policies: tuple[str, ...] = (),
        types: frozenset[str] = names.DEVICE_TYPES,
        shortlist: int = SHORTLIST,
        listed: bool = True,
        patience: float = 60,
    ) -> None:
        self.world = world
        self.cluster = Cluster(policies, types)
        self.queue: deque[tuple[str, str, Object]] = deque()
        self.now_ns = 1_000
        leases = None if alone else "ns"
        clock = lambda: self.now_ns  # noqa: E731
        self.service = Service(self.cluster, world, clock, clock, leases, name, shortlist, patience)
        if listed:
            self.list()

    def list(self) -> None:
        """Takes in all that there is, and watches from now on."""
        for kind in KINDS:
            listed = [copy.deepcopy(stored) for (of, _), stored in self.world.objects.items() if of == kind]
            self.cluster.replace(kind, listed, self.world.version)
        self.world.queues.append(self.queue)

    async def begin(self) -> None:
        """As the program does, one that was made with `listed` False."""
        await self.service.inherit()
        self.list()

    def watch(self, events: int | None = None) -> None:
        """Takes in that many events, or all."""
        while self.queue and (events is None or events > 0):
            kind, event, stored = self.queue.popleft()
            self.cluster.apply(kind, event, copy.deepcopy(stored))
            events = None if events is None else events - 1

    def known(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.cluster.book.nodes())

    async def filter(self, pod: Object, *nodes: str) -> Verdict:
        return await self.service.filter(FilterRequest(pod, nodes or self.known()))

    async def bind(self, pod: Object, node: str) -> str:
        meta = pod["metadata"]
        return await self.service.bind(BindRequest(meta["name"], meta["namespace"], meta["uid"], node))
