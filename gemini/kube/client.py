"""The Kubernetes API as the cluster parts use it: list, watch, bind, compare and set, events.

How a call gets to the API server is transport.py's, where things are there paths.py's, and what it answers
answer.py's. The two writes that every pod costs go by Transport.write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
import orjson
from aiohttp.http_exceptions import HttpProcessingError

from gemini.kube import names
from gemini.kube.answer import ApiFault, Object, Refused, TooOld, Unanswered, is_unknown
from gemini.kube.claim import slim_claim
from gemini.kube.decode import decode
from gemini.kube.life import ENDED
from gemini.kube.paths import PATHS, claim_path, lease_path, pod_path, quote, resize_path
from gemini.kube.quantity import version_number
from gemini.kube.transport import CALL_SECONDS, Transport

Keep = Callable[[Object], Object | None]  # what is kept of an object of a list; None: nothing

FIRST_PAGE, PAGE = 100, 500  # objects a list answers at once
PAGE_BYTES = 16 << 20  # of their text; as objects it is several times that
EVENT_BYTES = 64 << 20  # of one event of a watch: an object of 1.5 MB may be told of in ten
WATCH_SECONDS = 300
INVALID = 422  # status of a refusal: the object makes no sense
BUSY = (429, 503)  # statuses of an API server that has too much to do: a list would cost it far more than a watch
NOT_ENDED = ",".join(f"status.phase!={phase}" for phase in ENDED)
QUIET_SECONDS = 150  # bookmarks come about once a minute; a watch that is silent for longer is dead


class Client:
    """One API server. Make it with `connect`, inside the event loop."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.keeps: Mapping[str, Keep] = {}  # by kind, of objects that are read of one node: set by whoever reads them

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> Client:
        """By a kubeconfig (and one of its contexts), or without one by the service account of the pod we are in."""
        return cls(await Transport.connect(kubeconfig, context))

    async def close(self) -> None:
        await self._transport.close()

    # ---- any object

    async def get(self, path: str, **query: str) -> Object:
        return await self.call("GET", path, query=query)

    async def call(
        self, method: str, path: str, body: Object | None = None, query: dict[str, str] | None = None
    ) -> Object:
        return await self._transport.call(method, path, body, query)

    # ---- collections

    async def first_of(self, kind: str) -> None:
        """Reads one object. Raises what a list would."""
        await self.get(PATHS[kind], limit="1")

    async def all_of(self, kind: str, keep: Keep | None = None, **query: str) -> tuple[list[Object], str]:
        """All objects of a kind and the resource version they were read at, page by page; of each what `keep` says."""
        return await self._pages(PATHS[kind], query, keep)

    async def _pages(self, path: str, query: dict[str, str], keep: Keep | None = None) -> tuple[list[Object], str]:
        """Whoever makes objects may make them as large as the API server stores them: a page of these is asked for
        again with fewer, and each is made small before the next is read."""
        items: list[Object] = []
        many = FIRST_PAGE
        while True:
            found = await self._transport.read(
                path, {**query, "limit": str(many)}, PAGE_BYTES if many > 1 else sys.maxsize
            )
            if found is None:
                many = max(1, many // 4)
                continue
            page, size = found
            here = page.get("items") or []
            items += here if keep is None else [one for one in map(keep, here) if one is not None]
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion", ""))
            query = {**query, "continue": metadata["continue"]}
            many = max(1, min(PAGE, 2 * many, PAGE_BYTES // 2 * max(1, len(here)) // max(1, size)))
            del found, page, here

    async def watch(self, kind: str, version: str, **query: str) -> AsyncIterator[tuple[str, Object]]:
        """(event, object) from a version on, bookmarks too, until the server ends the watch; then watch again from the
        last version seen. `query`: that of the list. Raises TooOld where only a new list helps."""
        query |= {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_SECONDS)}
        query["resourceVersion"] = version
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_SECONDS, sock_read=QUIET_SECONDS)
        try:
            reply = await self._transport.send("GET", PATHS[kind], None, query, timeout)
            async with reply:
                if reply.status == 410:
                    raise TooOld(f"watch {kind}: {version} is too old")
                if reply.status in BUSY:
                    raise Unanswered(f"watch {kind}: {reply.status}: {(await reply.text())[:200]}")
                if reply.status >= 400:
                    raise Refused(reply.status, f"watch {kind}: {(await reply.text())[:200]}")
                async for line in _lines(reply.content, EVENT_BYTES):
                    event = decode(line)
                    if event["type"] == "ERROR":  # 410 Gone, or closed by force: a new list is always right
                        raise TooOld(f"watch {kind}: {event['object'].get('message', 'ended by the server')}")
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError) as error:
            raise Unanswered(f"watch {kind}: {str(error) or type(error).__name__}") from None
        except (ValueError, KeyError, TypeError) as error:  # a line cut short, or no JSON
            raise TooOld(f"watch {kind}: {error}") from None

    # ---- what the reporter does

    async def find(self, kind: str, name: str) -> Object | None:
        """The object of that name; None where there is none. For kinds without namespaces."""
        try:
            return await self.get(f"{PATHS[kind]}/{quote(name)}")
        except Refused as error:
            if error.status == 404:
                return None
            raise

    async def put(self, kind: str, given: Object) -> Object:
        """Compare and set: creates the object, or replaces the one of metadata.resourceVersion, else Refused (409). For
        kinds without namespaces."""
        metadata = given["metadata"]
        if "resourceVersion" not in metadata:
            return await self.call("POST", PATHS[kind], given)
        return await self.call("PUT", f"{PATHS[kind]}/{quote(metadata['name'])}", given)

    async def delete(self, kind: str, name: str) -> None:
        """It is gone afterwards, whether or not it was there. For kinds without namespaces."""
        try:
            await self.call("DELETE", f"{PATHS[kind]}/{quote(name)}")
        except Refused as error:
            if error.status != 404:
                raise

    async def serves(self, version: str) -> bool:
        """Whether the API server has that group and version."""
        try:
            await self.get(f"/apis/{version}")
        except ApiFault as error:
            if is_unknown(error):
                return False
            raise
        return True

    async def patch_node(self, name: str, patch: Object, status: bool = False) -> Object:
        path = f"{PATHS['Node']}/{quote(name)}" + ("/status" if status else "")
        return await self.call("PATCH", path, patch)

    # ---- what the device plugin does

    async def annotate(self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]) -> Object:
        """The pod as it is then; None removes an annotation. Refused (404, 409, 422) where the pod is another now."""
        metadata: Object = {"uid": uid, "annotations": dict(annotations)}
        return await self.call("PATCH", pod_path(namespace, name), {"metadata": metadata})

    async def end_pod(self, namespace: str, name: str, uid: str) -> None:
        """Deletes a pod that cannot start, as its node may. Not an Eviction: that says nothing of the pod's node, so no
        policy could keep the credentials of one node from evicting the pods of all."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self.call("DELETE", pod_path(namespace, name), body)

    # ---- what the extender does

    async def pod(self, namespace: str, name: str) -> Object:
        return await self.get(pod_path(namespace, name))

    async def pods_on(self, node: str) -> tuple[list[Object], int]:
        """The pods bound to a node that have not ended, as far as they are kept, by a read that has seen every write
        answered before, and its version. Pods that have ended are kept for days, thousands of them, and hold nothing:
        a kubelet says that a pod has ended when all its containers have (Kubernetes 1.27 and later)."""
        selector = f"spec.nodeName={node},{NOT_ENDED}"
        items, version = await self.all_of("Pod", self.keeps.get("Pod"), fieldSelector=selector)
        return items, version_number(version)

    async def claims_on(self, node: str) -> tuple[list[Object], int]:
        """The ResourceClaims with devices of a node allocated, as far as they are kept, by a read that has seen every
        write answered before, and its version."""
        items, version = await self.all_of(
            "ResourceClaim", lambda item: slim_claim(item) if node in _pools(item) else None
        )
        return items, version_number(version)

    async def claim(self, namespace: str, name: str) -> Object:
        return await self.get(claim_path(namespace, name))

    async def answer_claim(self, given: Object) -> Object:
        """Writes a claim's status, by compare and set. What somebody configured for a driver stands in the allocation
        as he wrote it, and a status is refused in which a byte of that is another. What the API server tells of it is
        another, so it is told in several ways: as all but a few write JSON; not at all, with what is kept in its
        place, where numbers and letters are written in an uncommon way; and as Python's client writes it."""
        metadata = given["metadata"]
        path = f"{claim_path(metadata['namespace'], metadata['name'])}/status"
        version, devices = {"resourceVersion": metadata["resourceVersion"]}, {"devices": given["status"]["devices"]}
        for method, body in (("PUT", given), ("PATCH", {"metadata": version, "status": devices})):
            try:
                return await self.call(method, path, body)
            except Refused as error:
                if error.status != INVALID:
                    raise
            except orjson.JSONEncodeError:  # a number that is too large to be written
                continue
        spaced: Any = orjson.Fragment(json.dumps(given))
        return await self.call("PUT", path, spaced)

    async def resize(self, namespace: str, name: str) -> Object:
        return await self.get(resize_path(namespace, name))

    async def answer_resize(self, namespace: str, name: str, version: str, status: Object) -> Object:
        """Writes parts of a Resize's status, by compare and set; None takes a part away."""
        body = {"metadata": {"resourceVersion": version}, "status": status}
        return await self.call("PATCH", f"{resize_path(namespace, name)}/status", body)

    async def quotas(self, namespace: str) -> list[Object]:
        return (await self._pages(f"/api/v1/namespaces/{quote(namespace)}/resourcequotas", {}))[0]

    async def limit_ranges(self, namespace: str) -> list[Object]:
        return (await self._pages(f"/api/v1/namespaces/{quote(namespace)}/limitranges", {}))[0]

    async def wake(self, stamp: str) -> None:
        """Makes kube-scheduler look again at pods that an extender refused: any event of an object that it watches
        does, so one that is ours and means nothing else is changed, our DeviceClass."""
        path = f"/apis/{names.RESOURCE_API_VERSION}/deviceclasses/{names.DRIVER}"
        await self.call("PATCH", path, {"metadata": {"annotations": {names.ROOM: stamp}}})

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]) -> None:
        """One write: the server merges the Binding's annotations into the pod. Another uid, or a pod that is bound
        already, is Refused with 409."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._transport.write("POST", f"{pod_path(namespace, name)}/binding", binding)

    async def lease(self, namespace: str, name: str) -> Object | None:
        try:
            return await self.get(f"{lease_path(namespace)}/{quote(name)}")
        except Refused as error:
            if error.status == 404:
                return None
            raise

    async def all_leases(self, namespace: str) -> list[Object]:
        """All leases of a namespace."""
        return (await self._pages(lease_path(namespace), {}))[0]

    async def put_lease(self, namespace: str, name: str, metadata: Object) -> str:
        """Compare and set: creates the lease, or replaces the one of metadata.resourceVersion; its new version. A
        lease that is there already, is gone, or has changed is Refused with 404 or 409. The server is told to keep no
        record of who wrote which field: nobody asks, and it would be worked out anew at each of many writes."""
        fresh = "resourceVersion" not in metadata
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace, "managedFields": [{}], **metadata},
            "spec": {},
        }
        path = lease_path(namespace) if fresh else f"{lease_path(namespace)}/{quote(name)}"
        written = await self._transport.write("POST" if fresh else "PUT", path, body)
        return str((written.get("metadata") or {}).get("resourceVersion", ""))

    async def drop_lease(self, namespace: str, name: str, version: str | None = None) -> None:
        """It is gone afterwards, whether or not it was there. `version`: only the one of that resourceVersion, else
        Refused (409)."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if version is not None:
            body["preconditions"] = {"resourceVersion": version}
        try:
            await self.call("DELETE", f"{lease_path(namespace)}/{quote(name)}", body)
        except Refused as error:
            if error.status != 404:
                raise

    async def event(
        self, pod: Object, name: str, reason: str, message: str, count: int, stamp: str, source: str = "gemini-extender"
    ) -> None:
        """Says something of a pod, as `kubectl describe` shows it; the same name again brings it up to date."""
        metadata = pod["metadata"]
        namespace = metadata["namespace"]
        about = {key: metadata[key] for key in ("name", "namespace", "uid")}
        news = {"message": message[:1024], "count": count, "lastTimestamp": stamp}
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", **about},
            "reason": reason,
            "type": "Warning",
            "source": {"component": source},
            "firstTimestamp": stamp,
            **news,
        }
        path = f"/api/v1/namespaces/{quote(namespace)}/events"
        if count == 1:
            try:
                await self.call("POST", path, body)
                return
            except Refused as error:
                if error.status != 409:
                    raise
        try:
            await self.call("PATCH", f"{path}/{quote(name)}", news)
        except Refused as error:
            if error.status != 404:
                raise
            await self.call("POST", path, body)  # somebody has taken it away


async def _lines(content: aiohttp.StreamReader, most: int) -> AsyncIterator[bytes]:
    """Lines of any length: aiohttp's own end the connection where one is longer than its buffer. Raises ValueError for
    one of more than `most` bytes."""
    rest = bytearray()
    async for part in content.iter_any():
        begin = 0
        while (end := part.find(b"\n", begin)) >= 0:
            rest += part[begin:end]
            begin = end + 1
            yield bytes(rest)
            rest.clear()
        rest += part[begin:]
        if len(rest) > most:
            raise ValueError(f"an event of more than {most} bytes")


def _pools(claim: Object) -> set[str]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return {result.get("pool", "") for result in (allocation.get("devices") or {}).get("results") or ()}
