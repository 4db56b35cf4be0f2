"""The plugin whole, over real gRPC, with the fake kubelet; API server and daemon are in memory."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import itertools
import random
import secrets
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

from gemini.kube import names
from gemini.kube.answer import Refused, Unanswered
from gemini.kube.device import write_device
from gemini.kube.resize import Amounts
from gemini.plugin import reply
from gemini.plugin.daemon import DaemonFault
from gemini.plugin.host import Host
from gemini.plugin.kubelet import Kubelet
from gemini.plugin.service import Service
from gemini.plugin.shell import Plugin, Shell
from gemini.plugin.slots import CORE, Card, Kind
from gemini.plugin.view import DEVICE, POD, RESIZE, View
from tests.e2e.fake_kubelet import FakeKubelet
from tests.gemini.plugin.pods import node, record

Object = dict[str, Any]


class Api:
    """Pods of the node. `seen`: what is told of each change; `deaf`: nobody is, as when a watch lags."""

    def __init__(self) -> None:
        self.pods: dict[str, Object] = {}
        self.resizes: dict[str, Object] = {}  # by the pod's name
        self.written: list[Object] = []  # of their status, by the node
        self.events: list[tuple[str, str, str]] = []
        self.ended: list[str] = []
        self.deaf = self.down = False
        self.lost = 0.0  # how many writes are done, and refused or not answered for
        self.random = random.Random(1)
        self.seen: Any = lambda *_: None
        self._versions = itertools.count(1)

    def put(self, pod: Object, event: str = "MODIFIED") -> Object:
        pod = copy.deepcopy(pod)
        pod["metadata"]["resourceVersion"] = str(next(self._versions))
        self.pods[pod["metadata"]["uid"]] = pod
        if not self.deaf:
            self.seen(POD, event, copy.deepcopy(pod))
        return pod

    def delete(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        if not self.deaf:
            self.seen(POD, "DELETED", pod)

    async def pods_on(self, name: str) -> tuple[list[Object], int]:
        self._answer()
        return copy.deepcopy(list(self.pods.values())), 0

    async def annotate(self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]) -> Object:
        self._answer()
        await asyncio.sleep(0)
        if uid not in self.pods:
            raise Refused(404, name)
        pod = copy.deepcopy(self.pods[uid])
        pod["metadata"]["annotations"].update(annotations)
        pod["metadata"]["annotations"] = {k: v for k, v in pod["metadata"]["annotations"].items() if v is not None}
        written = copy.deepcopy(self.put(pod))
        if self.random.random() < self.lost:
            raise Unanswered("the answer was lost")
        return written

    def resize_to(self, name: str, booked: Amounts, **status: Any) -> Object:
        """What the extender stands by for a pod from now on."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}
        known = self.resizes.get(name, {})
        generation = known.get("metadata", {}).get("generation", 0) + 1
        metadata = {"name": name, "namespace": "ns", "uid": f"resize-{name}", "ownerReferences": [owner]}
        said = {"pod": f"uid-{name}", "node": "n", "answered": generation, "booked": booked.written(), **status}
        given = {"metadata": metadata | {"generation": generation}, "spec": booked.written()}
        return self._put_resize({**given, "status": {**known.get("status", {}), **said}})

    def drop_resize(self, name: str) -> None:
        self.seen(RESIZE, "DELETED", self.resizes.pop(name))

    def _put_resize(self, given: Object) -> Object:
        stored = copy.deepcopy(given)
        stored["metadata"]["resourceVersion"] = str(next(self._versions))
        self.resizes[stored["metadata"]["name"]] = stored
        if not self.deaf:
            self.seen(RESIZE, "MODIFIED", copy.deepcopy(stored))
        return stored

    async def resize(self, namespace: str, name: str) -> Object:
        self._answer()
        if name not in self.resizes:
            raise Refused(404, name)
        return copy.deepcopy(self.resizes[name])

    async def answer_resize(self, namespace: str, name: str, version: str, status: Object) -> Object:
        self._answer()
        await asyncio.sleep(0)
        if name not in self.resizes:
            raise Refused(404, name)
        stored = self.resizes[name]
        if stored["metadata"]["resourceVersion"] != version:
            raise Refused(409, name)
        self.written.append(status)
        merged = {key: one for key, one in {**stored["status"], **status}.items() if one is not None}
        written = copy.deepcopy(self._put_resize({**stored, "status": merged}))
        if self.random.random() < self.lost:
            raise Unanswered("the answer was lost")
        return written

    async def say(self, pod: Mapping[str, Any], reason: str, message: str) -> None:
        self.events.append((pod["metadata"]["name"], reason, message))

    async def end_pod(self, namespace: str, name: str, uid: str) -> None:
        self.ended.append(name)

    def _answer(self) -> None:
        if self.down or self.random.random() < self.lost:
            raise Unanswered("down")


class Daemon:
    """Tenants, with the one rule that matters here: a card is promised once."""

    def __init__(self) -> None:
        self.specs: dict[str, Object] = {}
        self.in_use: dict[str, int] = {}
        self.down = False

    async def tenants(self) -> dict[str, Object]:
        self._answer()
        return {name: {**spec, "memory_limit_bytes": spec.get("memory_bytes", 0)} for name, spec in self.specs.items()}

    async def register(self, spec: Mapping[str, Any]) -> None:
        self._answer()
        used: Counter[str] = Counter()
        for other in (*(s for s in self.specs.values() if s["name"] != spec["name"]), spec):
            for gpu in other["gpus"]:
                used[gpu] += round(other["request"] * 100)
        if max(used.values()) > 100:
            raise DaemonFault(f"the requests on {used} are above 1", clash=True)
        self.specs[spec["name"]] = dict(spec)

    async def change(self, spec: Mapping[str, Any]) -> None:
        if self.in_use.get(spec["name"], 0) > spec["memory_bytes"]:
            raise DaemonFault(f"tenant {spec['name']} has {self.in_use[spec['name']]} in use", clash=True)
        await self.register({**self.specs[spec["name"]], **spec})

    async def remove(self, name: str) -> None:
        self._answer()
        self.specs.pop(name, None)

    def _answer(self) -> None:
        if self.down:
            raise DaemonFault("no answer from the daemon at /run/gemini/control.sock")


class Rig:
    """One node. `told`: whether PodResources answers."""

    def __init__(
        self, folder: Path, cards: dict[str, Card], kind: Kind = CORE, told: bool = True, seed: int = 0
    ) -> None:
        self.cards, self.kind, self.told = cards, kind, told
        self.kubelet = FakeKubelet(folder / "kubelet", seed)
        self.api, self.daemon, self.folder = Api(), Daemon(), folder
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.options = reply.Options(reply.Paths("/lib.so", "/run/gemini/tenants"))

    def start(self) -> None:
        self._thread.start()
        self.kubelet.start()
        self.start_plugin()
        self.wait_slots()

    def stop(self) -> None:
        self.stop_plugin()
        self.kubelet.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def start_plugin(self) -> None:
        """As it is after a start: it knows what API server and kubelet tell, and nothing else."""
        self.call(self._start_plugin())

    async def _start_plugin(self) -> None:
        socket = self.kubelet.pod_resources_socket
        self.kubelets = Kubelet(self.kubelet.plugin_folder, socket if self.told else socket.with_name("nobody"))
        self.view = View("n", self.kind, self.api, self.kubelets, names.DEVICE_TYPES)
        host = Host(self.folder / "cdi", self.folder / "cgroup")
        self.service = Service(self.view, self.options, self.daemon, host, lambda: secrets.token_hex(4))
        self.shell = Shell(Plugin(self.service), self.kubelets)
        self.report()
        self.view.replace(POD, copy.deepcopy(list(self.api.pods.values())))
        self.view.replace(RESIZE, copy.deepcopy(list(self.api.resizes.values())))
        self.api.seen = lambda *what: self.loop.call_soon_threadsafe(self.view.apply, *what)
        self._running = self.loop.create_task(self.shell.run())
        await asyncio.wait_for(self.shell.registered.wait(), 60)

    def stop_plugin(self) -> None:
        self.call(self._stop_plugin())

    async def _stop_plugin(self) -> None:
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running
        await self.shell.stop()
        await self.kubelets.close()

    def report(self, unhealthy: tuple[str, ...] = ()) -> None:
        """The reporter's word on the cards."""
        given = write_device(node(self.cards))
        for entry in given["spec"]["devices"]:
            entry["health"] = entry["id"] not in unhealthy
        self.view.apply(DEVICE, "MODIFIED", given)

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        future: concurrent.futures.Future[Any] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return future.result(60)

    def wait_slots(self, healthy: int | None = None) -> None:
        count = sum(map(self.kind.count, self.cards.values())) if healthy is None else healthy
        self.kubelet.wait_devices(self.kind.resource, count, 60)

    def restart_kubelet(self) -> None:
        self.kubelet.restart()
        self.wait_slots()

    def now(self, name: str) -> Object:
        """The pod as the API server has it."""
        return self.api.pods[f"uid-{name}"]

    def check(self, name: str, container: str = "main") -> str:
        """Annotation, kubelet's record, environment and daemon say the same of a container; the name of its tenant."""
        cards = record(self.now(name))
        held = self.kubelet.held(f"uid-{name}", container)[self.kind.resource]
        assert {slot.partition("::")[0] for slot in held.devices} == set(cards)
        assert held.reply.envs["NVIDIA_VISIBLE_DEVICES"] == ",".join(cards)
        (mount,) = (one for one in held.reply.mounts if one.container_path == "/run/gemini")
        tenant = Path(mount.host_path).name
        assert self.daemon.specs[tenant]["gpus"] == cards
        assert float(held.reply.envs["GEMINI_REQUEST"]) == self.daemon.specs[tenant]["request"]
        return tenant


@contextlib.contextmanager
def running(folder: Path, cards: dict[str, Card], **more: Any) -> Iterator[Rig]:
    rig = Rig(folder, cards, **more)
    rig.start()
    try:
        yield rig
    finally:
        rig.stop()
