"""Taking Gemini off a cluster: what the chart's own objects leave behind, in the API server and on the nodes.

Helm takes back what it made. The node's parts have written besides on Nodes, in Devices, ResourceSlices and files, the
extender in Leases. A hook of the chart runs this before the objects go, while the rights to do it are there: first the
parts that write are ended, else they would write it all again. Nothing is done while a pod or claim holds a card. An
API server that gives no answer is asked again: what is done twice is the same as done once.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from gemini.cdi import FILES
from gemini.extender.grouplease import GROUP_LEASE
from gemini.extender.ledger import NODE_LEASE
from gemini.kube import names
from gemini.kube.answer import ApiFault, Refused, Unanswered, is_unknown
from gemini.kube.client import Client
from gemini.kube.life import gone
from gemini.kube.parts import containers_of
from gemini.kube.paths import quote
from gemini.kube.placed import marked_placed

WRITERS = ("node", "node-gpushare", "node-placed", "extender", "scheduler")  # components that write what is removed
NAMED = 8  # holders that a refusal names
POLL_SECONDS = 0.5
DOMAINS = (f"{names.DOMAIN}/", f"{names.ALIYUN}/gpu-")  # of a node's resources that are ours
SELECTOR = "app.kubernetes.io/name=gemini,app.kubernetes.io/component in ({})"

Object = dict[str, Any]
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


class Held(Exception):
    """Pods or claims hold cards; the text names them."""


class TimeIsUp(Exception):
    """What was waited for did not come; the text says what."""


# ---- the cluster


def holders(pods: Iterable[Object], claims: Iterable[Object]) -> list[str]:
    """The pods that hold a share and have not ended, and the claims that have cards allocated; `namespace/name`."""
    found = []
    for pod in pods:
        metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        noted = names.ALLOCATION in (metadata.get("annotations") or {})
        placed = any(map(marked_placed, containers_of(spec)))  # without the daemon its programs would wait for ever
        if (noted or placed) and spec.get("nodeName") and not gone(pod.get("status") or {}):
            found.append(f"pod {metadata.get('namespace')}/{metadata.get('name')}")
    for claim in claims:
        metadata = claim.get("metadata") or {}
        devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
        if any(one.get("driver") == names.DRIVER for one in devices.get("results") or ()):
            found.append(f"claim {metadata.get('namespace')}/{metadata.get('name')}")
    return sorted(found)


def node_patches(node: Mapping[str, Any]) -> tuple[Object | None, Object | None]:
    """Merge patches of a Node and of its status that take back what our parts wrote there; None: nothing of it is
    there. Labels and annotations by an operator's hand stay."""
    labels = (node.get("metadata") or {}).get("labels") or {}
    ours = {"metadata": {"labels": {names.NODE_MODEL_LABEL: None}}} if names.NODE_MODEL_LABEL in labels else None
    status = node.get("status") or {}
    parts = {
        part: {key: None for key in status.get(part) or {} if key.startswith(DOMAINS)}
        for part in ("capacity", "allocatable")
    }
    parts = {part: keys for part, keys in parts.items() if keys}
    return ours, {"status": parts} if parts else None


class Patience:
    """Asks the API server again where it gave no answer, until its time is up; `told` of the first time of each call.
    Each call is one that may be made twice."""

    def __init__(self, until: float, told: Callable[[Unanswered], None]) -> None:
        self.until, self._told = until, told

    async def __call__(
        self, call: Callable[Asked, Awaitable[Answer]], *words: Asked.args, **named: Asked.kwargs
    ) -> Answer:
        told = False
        while True:
            try:
                return await call(*words, **named)
            except Unanswered as error:
                if is_unknown(error) or time.monotonic() > self.until:
                    raise
                if not told:
                    self._told(error)
                told = True
            await asyncio.sleep(POLL_SECONDS)


async def remove(
    client: Client, namespace: str, schedulers: Sequence[str], seconds: float,
    told: Callable[[Unanswered], None] = lambda _: None,
) -> list[str]:  # fmt: skip
    """Ends the parts that write, and removes what they wrote; a line for each kind that was there. `schedulers`: names
    of kube-schedulers of ours, which have a Lease each. Raises Held before anything is done, TimeIsUp, ApiFault."""
    asked = Patience(time.monotonic() + seconds, told)
    claims = await _listed(client, asked, "ResourceClaim")
    if held := holders((await asked(client.all_of, "Pod"))[0], claims):
        many = f" and {len(held) - NAMED} more" if len(held) > NAMED else ""
        raise Held(f"{', '.join(held[:NAMED])}{many}")
    await _end_writers(client, asked, namespace)
    said: list[str] = []
    for kind in ("ResourceSlice", "Device"):
        listed = await _listed(client, asked, kind)
        those = [one["metadata"]["name"] for one in listed if kind == "Device" or _ours(one)]
        for name in those:
            await asked(client.delete, kind, name)
        said += [f"{kind}: {len(those)} removed"] if those else []
    patched = 0
    for node in (await asked(client.all_of, "Node"))[0]:
        patched += await _clear_node(client, asked, node)
    said += [f"Node: resources and label of {patched} removed"] if patched else []
    prefixes = tuple(form.format("") for form in (NODE_LEASE, GROUP_LEASE))
    leases = [one["metadata"]["name"] for one in await asked(client.all_leases, namespace)]
    leases = [name for name in leases if name.startswith(prefixes) or name in schedulers]
    for name in leases:
        await asked(client.drop_lease, namespace, name)
    return said + ([f"Lease: {len(leases)} removed"] if leases else [])


async def _clear_node(client: Client, asked: Patience, node: Object) -> bool:
    """Whether something of ours was there, and is not any more."""
    labels, status = node_patches(node)
    try:
        if status is not None:
            await asked(client.patch_node, node["metadata"]["name"], status, status=True)
        if labels is not None:
            await asked(client.patch_node, node["metadata"]["name"], labels)
    except Refused as error:
        if error.status != 404:  # the node itself has gone meanwhile, with all that was on it
            raise
        return False
    return status is not None or labels is not None


async def _listed(client: Client, asked: Patience, kind: str) -> list[Object]:
    """All objects of a kind; none where the API server does not know it."""
    try:
        return (await asked(client.all_of, kind))[0]
    except ApiFault as error:
        if is_unknown(error):
            return []
        raise


def _ours(slice_: Object) -> bool:
    return bool((slice_.get("spec") or {}).get("driver") == names.DRIVER)


async def _end_writers(client: Client, asked: Patience, namespace: str) -> None:
    """Deletes what makes their pods, and waits until these are gone."""
    apps, selector = f"/apis/apps/v1/namespaces/{quote(namespace)}", SELECTOR.format(",".join(WRITERS))
    for kind in ("daemonsets", "deployments"):
        for one in (await asked(client.get, f"{apps}/{kind}", labelSelector=selector)).get("items") or ():
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
            try:
                await asked(client.call, "DELETE", f"{apps}/{kind}/{quote(one['metadata']['name'])}", body)
            except Refused as error:
                if error.status != 404:
                    raise
    while True:
        found = await asked(client.get, f"/api/v1/namespaces/{quote(namespace)}/pods", labelSelector=selector)
        left = sorted(one["metadata"]["name"] for one in found.get("items") or ())
        if not left:
            return
        if time.monotonic() > asked.until:
            raise TimeIsUp(f"pods of the parts have not ended: {', '.join(left[:NAMED])}")
        await asyncio.sleep(POLL_SECONDS)


async def wait_for_nodes(client: Client, namespace: str, name: str, seconds: float) -> int:
    """Until every pod of a DaemonSet has cleaned its node, which is when it is ready; how many. Raises TimeIsUp."""
    path, until = f"/apis/apps/v1/namespaces/{quote(namespace)}/daemonsets/{quote(name)}", time.monotonic() + seconds
    while True:
        try:
            one = await client.get(path)
        except Unanswered:
            one = {}
        status, generation = one.get("status") or {}, (one.get("metadata") or {}).get("generation")
        wanted = int(status.get("desiredNumberScheduled") or 0)
        ready = int(status.get("numberReady") or 0)
        if generation is not None and status.get("observedGeneration") == generation and ready >= wanted:
            return wanted
        if time.monotonic() > until:
            raise TimeIsUp(f"{ready} of {wanted} nodes have had their files removed")
        await asyncio.sleep(POLL_SECONDS)


# ---- a node's files


def node_files(root: Path, kubelet: Path) -> list[Path]:
    """What our parts leave on a node, below `root`: contents of our own folders, and our files in those of others. The
    folders themselves are mounts of whoever removes them, and stay."""
    found: list[Path] = []
    for folder in (Path("run/gemini"), Path("var/lib/gemini"), kubelet.relative_to("/") / "plugins" / names.DRIVER):
        found += sorted((root / folder).glob("*"))
    found += sorted(path for form in FILES for path in (root / "var/run/cdi").glob(form))
    found += sorted((root / kubelet.relative_to("/") / "device-plugins").glob("gemini-*.sock"))
    registered = root / kubelet.relative_to("/") / "plugins_registry" / f"{names.DRIVER}-reg.sock"
    return found + ([registered] if registered.exists() else [])


def remove_files(found: Iterable[Path]) -> list[Path]:
    """Removes them; those that were there. Raises OSError."""
    removed = []
    for path in found:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        removed.append(path)
    return removed
