"""The reporter as a program: looks, listens, and keeps the Device object and the node in step with what is there.

What may change, and how it is noticed. Cards and adapters are noticed by a look every few seconds, Xid events by a
thread that waits for them. What other plugins gave out is noticed by the kubelet's checkpoint (a stat twice a second)
and the node's pods (a watch). The node itself is watched, and what share a pod that runs was given instead of its own.
Each sets one event; one loop then works out what should be written and writes what differs, by compare and set. Where
the API server refuses or does not answer, it tries again, ever more seldom; what is in the Device stays until then, and
stays when the reporter ends.

Blocking questions (NVML, the kubelet's gRPC) are asked from threads.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemini.extender.podview import slimmed
from gemini.extender.state import Cluster
from gemini.kube import names
from gemini.kube.answer import ApiFault, Refused
from gemini.kube.checkpoint import BadCheckpoint, read_checkpoint
from gemini.kube.claim import keeps_promises, slice_name, slice_object
from gemini.kube.client import Client, Keep
from gemini.kube.follow import follow, follow_once_there
from gemini.kube.kubelet_api import stub, v1
from gemini.kube.life import gone
from gemini.kube.resize import read_resize, slim_resize
from gemini.placement.model import GPU
from gemini.reporter import inventory, record, sysfs, vendor
from gemini.reporter.health import Health
from gemini.reporter.inventory import CannotLook, Card, Inventory
from gemini.reporter.options import CannotReport, Settings, settings_of

SLICE, RESIZE = "ResourceSlice", names.RESIZE_KIND
STAT_SECONDS = 0.5
FIRST_WAIT, LONGEST_WAIT = 0.2, 10.0  # between tries
CALL_SECONDS = 5.0
LISTED: dict[str, Keep] = {"Pod": slimmed, RESIZE: slim_resize}  # what is kept of a list's objects
log = logging.getLogger("gemini.reporter")


class Here:
    """The node, its pods and their Resizes as watched. Of a pod little is kept: those that have ended stay there too,
    and who may make pods makes ever so many, each as large as the API server stores it. `name`: the node's."""

    def __init__(self, changed: Callable[[], None], name: str = "") -> None:
        self.node: dict[str, Any] | None = None
        self._name = name
        self.pods: dict[str, dict[str, Any]] = {}
        self.cluster = Cluster()  # of this one node: who holds what of its cards
        self._changed = changed

    def apply(self, kind: str, event: str, given: dict[str, Any]) -> None:
        if kind == RESIZE and not self._is_here(given):
            return
        self.cluster.apply(kind, event, given)
        if kind == "Node":
            self.node = None if event == "DELETED" else given
        elif kind == "Pod" and event == "DELETED":
            self.pods.pop(given["metadata"]["uid"], None)
        elif kind == "Pod":
            self.pods[given["metadata"]["uid"]] = slimmed(given)
        self._changed()

    def replace(self, kind: str, objects: list[dict[str, Any]], version: int = 0) -> None:
        if kind == RESIZE:
            objects = [one for one in objects if self._is_here(one)]
        self.cluster.replace(kind, objects, version)
        if kind == "Node":
            self.node = objects[0] if objects else None
        elif kind == "Pod":
            self.pods = {pod["metadata"]["uid"]: slimmed(pod) for pod in objects}
        self._changed()

    def _is_here(self, resize: dict[str, Any]) -> bool:
        """Whether it is of a pod of this node, as the extender says: of others there may be any number."""
        read = read_resize(resize)
        return read is not None and read.node == self._name

    def over(self) -> frozenset[tuple[str, str]]:
        """(namespace, name) of pods that are there still, but have ended."""
        ended = (pod["metadata"] for pod in self.pods.values() if gone(pod.get("status") or {}))
        return frozenset((metadata["namespace"], metadata["name"]) for metadata in ended)

    def running(self) -> dict[str, dict[str, Any]]:
        return {uid: pod for uid, pod in self.pods.items() if not gone(pod.get("status") or {})}


class Reporter:
    def __init__(self, client: Client, settings: Settings) -> None:
        self.client, self.settings = client, settings
        self.changed = asyncio.Event()
        self.here = Here(self.changed.set, settings.node)
        self.health = Health(settings.ignored_xids, settings.recover_ns)
        self.seen = Inventory((), (), ())
        self.claims = None if settings.claims else False  # None: not known yet whether there are any
        self.looked = False
        self.ended = False
        self._said: dict[str, str] = {}  # what is wrong, so that it is logged when it changes, not each time
        self._loop = asyncio.get_running_loop()

    async def run(self, ready: Callable[[], None]) -> None:
        """Until it is cancelled. `ready` is called once the Device is written."""
        synced = {kind: asyncio.Event() for kind in ("Node", "Pod")}
        name = self.settings.node
        async with asyncio.TaskGroup() as group:
            for kind, selector in (("Node", f"metadata.name={name}"), ("Pod", f"spec.nodeName={name}")):
                keep = LISTED.get(kind)
                group.create_task(follow(self.client, kind, self.here, synced[kind], log, keep, fieldSelector=selector))
            group.create_task(follow_once_there(self.client, RESIZE, self.here, asyncio.Event(), log, LISTED[RESIZE]))
            group.create_task(self._look())
            group.create_task(self._stat())
            group.create_task(self._xids())
            try:
                for event in synced.values():
                    await event.wait()
                await self._write(ready)
            finally:
                self.ended = True

    # ---- noticing

    async def _look(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self.settings.look_seconds)

    async def look(self) -> None:
        """Takes in what is there now. A card that was known and is gone stays in the Device, out of service."""
        try:
            seen = await asyncio.to_thread(inventory.look, self.settings.sys)
            self._note("nvml", "")
        except CannotLook as error:
            seen = Inventory((), (), tuple(await asyncio.to_thread(sysfs.adapters, self.settings.sys)))
            self._note("nvml", f"{error}; no cards are reported from here")
        self._note("mig", ", ".join(seen.mig) and f"in MIG mode, left out: {', '.join(seen.mig)}")
        answered = await asyncio.to_thread(inventory.answers, [card.uuid for card in seen.cards])
        now = time.monotonic_ns()
        there = {card.uuid for card in seen.cards}
        minors = {card.minor for card in seen.cards}
        lost = [card for card in self.seen.cards if card.uuid not in there and card.minor not in minors]
        for card in lost:
            self.health.gone(card.uuid, now)
        changed = self.health.seen({**answered, **{card.uuid: False for card in lost}}, now)
        for uuid in changed:
            fault = self.health.fault(uuid)
            log.warning("card=%s %s", uuid, f"out of service: {fault.message}" if fault else "in service again")
        cards = tuple(sorted((*seen.cards, *lost), key=lambda card: card.minor))
        links = seen.links if not lost else (*seen.links, *_links_of(self.seen, lost, cards))
        fresh = replace(seen, cards=cards, links=tuple(links))
        if fresh != self.seen or changed or not self.looked:
            self.seen, self.looked = fresh, True
            self.changed.set()

    async def _stat(self) -> None:
        last: object = None
        while True:
            try:
                at = os.stat(self.settings.checkpoint)
                now: object = (at.st_mtime_ns, at.st_ino, at.st_size)
            except OSError:
                now = None
            if now != last:
                last = now
                self.changed.set()
            await asyncio.sleep(STAT_SECONDS)

    async def _xids(self) -> None:
        """Waits for events in a thread; again with other cards when the cards have changed."""
        while True:
            uuids = self._uuids()
            if uuids:
                with suppress(CannotLook):
                    over = functools.partial(self._asked_others, uuids)
                    await asyncio.to_thread(inventory.watch_xids, uuids, self._heard, over)
            await asyncio.sleep(1.0)

    def _uuids(self) -> list[str]:
        return [card.uuid for card in self.seen.cards]

    def _asked_others(self, uuids: list[str]) -> bool:
        return self.ended or uuids != self._uuids()

    def _heard(self, uuid: str | None, xid: int) -> None:
        self._loop.call_soon_threadsafe(self._xid, uuid, xid)

    def _xid(self, uuid: str | None, xid: int) -> None:
        struck = self.health.xid(uuid, xid, [card.uuid for card in self.seen.cards], time.monotonic_ns())
        log.warning("card=%s xid=%d %s", uuid, xid, "out of service" if struck else "ignored")
        if struck:
            self.changed.set()

    # ---- writing

    async def _write(self, ready: Callable[[], None]) -> None:
        wait, told = FIRST_WAIT, False
        while True:
            await self.changed.wait()
            self.changed.clear()
            if self.here.node is None or not self.looked:
                self._note("node", "" if self.here.node else f"there is no node {self.settings.node} (yet)")
                continue
            try:
                await self.write()
            except ApiFault as error:
                log.warning("write error=%s retry_seconds=%.1f", error, wait)
                self.changed.set()
                await asyncio.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT)
                continue
            wait = FIRST_WAIT
            self._note("node", "")
            if not told:
                told = True
                ready()

    async def write(self) -> None:
        """Brings Device and node up to date. Raises ApiFault."""
        owner = self.here.node
        assert owner is not None
        faults = {card.uuid: fault for card in self.seen.cards if (fault := self.health.fault(card.uuid))}
        node = record.node_of(self.settings.node, self.seen, faults, self.settings.slots)
        given = record.device_object(
            node, self.seen, faults, await self._given_out(), owner, time.time_ns(), time.monotonic_ns()
        )
        for _ in range(3):
            wanted = record.merged(await self.client.find("Device", self.settings.node), given)
            if wanted is None:
                break
            try:
                await self.client.put("Device", wanted)
                break
            except Refused as error:
                if error.status not in (404, 409):
                    raise
        else:
            raise Refused(409, f"Device {self.settings.node} keeps changing")
        await self._write_slice(given)
        labels, status = record.node_patches(owner, node)
        if status is not None:
            await self.client.patch_node(self.settings.node, status, status=True)
        if labels is not None:
            await self.client.patch_node(self.settings.node, labels)

    async def _write_slice(self, device: dict[str, Any]) -> None:
        """What of the cards is left for ResourceClaims, by the very book that the extender keeps."""
        if self.claims is None:
            self.claims = await self.client.serves(names.RESOURCE_API_VERSION)
        if not self.claims or self.here.node is None:
            return
        self.here.cluster.apply("Device", "MODIFIED", device)
        book, name = self.here.cluster.book, self.settings.node
        node = book.node(name)
        if node is None:
            return
        snapshot = book.snapshot()
        taken = {d.minor: snapshot[name, GPU, d.minor][:3] for d in node.devices if d.type == GPU}
        wanted = slice_object(node, taken, self.here.node, await self.client.find(SLICE, slice_name(name)))
        if wanted is None:
            return
        if not keeps_promises(await self.client.put(SLICE, wanted)):
            self.claims = False
            self._note("claims", "no cards for claims: the API server lacks consumable capacity or binding conditions")
            await self.client.delete(SLICE, slice_name(name))

    async def _given_out(self) -> list[dict[str, Any]]:
        """The entries of other plugins' pods. A checkpoint that cannot be read tells nothing: then the last entries
        stand."""
        try:
            text = await asyncio.to_thread(self.settings.checkpoint.read_bytes)
            entries = read_checkpoint(text)
        except FileNotFoundError:
            return []  # no device plugin has ever given out anything here
        except (OSError, BadCheckpoint) as error:
            self._note("checkpoint", f"{self.settings.checkpoint}: {error}")
            raise Refused(0, f"{self.settings.checkpoint}: {error}") from None
        self._note("checkpoint", "")
        held = await asyncio.to_thread(held_devices, self.settings.pod_resources, self.here.over())
        self._note("pod-resources", "" if held is not None else f"{self.settings.pod_resources} does not answer")
        types = {device.type for device in record.node_of("", self.seen, {}).devices} - {"gpu"}
        return vendor.published(entries, self.seen.cards, self.here.running(), held, types)

    def _note(self, about: str, what: str) -> None:
        if what and self._said.get(about) != what:
            log.warning("%s", what)
        self._said[about] = what


def held_devices(path: Path, over: frozenset[tuple[str, str]] = frozenset()) -> frozenset[str] | None:
    """The ids of all devices that PodResources says containers hold, but for those of pods `over`, which some kubelets
    list still; None where it does not answer."""
    import grpc

    with grpc.insecure_channel(f"unix://{path}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            listed = stub(channel, "v1.PodResourcesLister").List(v1.ListPodResourcesRequest(), timeout=CALL_SECONDS)
        except grpc.RpcError:
            return None
        return frozenset(
            one
            for pod in listed.pod_resources
            if (pod.namespace, pod.name) not in over
            for container in pod.containers
            for devices in container.devices
            for one in devices.device_ids
        )


def _links_of(before: Inventory, lost: list[Card], cards: tuple[Card, ...]) -> list[Any]:
    """The links of lost cards, as they were."""
    minors, known = {card.minor for card in lost}, {card.minor for card in cards}
    return [k for k in before.links if {k.a, k.b} & minors and {k.a, k.b} <= known]


# ---- the program


async def run(args: argparse.Namespace, ready: Callable[[str], None]) -> None:
    """Reports until SIGTERM. Raises CannotReport."""
    settings = settings_of(args)
    kubeconfig = args.kubeconfig or os.environ.get("KUBECONFIG")
    try:
        client = await Client.connect(kubeconfig)
    except Exception as error:  # each way of logging in fails in its own way
        where = kubeconfig or "the service account"
        raise CannotReport(f"{where}: {' '.join(str(error).split())}; give --kubeconfig FILE") from None
    try:
        reporter = Reporter(client, settings)
        work = asyncio.ensure_future(reporter.run(lambda: ready(settings.node)))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, work.cancel)
        with suppress(asyncio.CancelledError):
            await work
    finally:
        await client.close()
