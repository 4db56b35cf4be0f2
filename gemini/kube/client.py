"""The Kubernetes API as the cluster parts use it: list, watch, bind, compare and set, events.

Stands on kubernetes.aio for who and where we are (kubeconfig or service account, TLS, tokens); requests and replies are
plain JSON over a session of our own. That client's typed calls check each reply against a model, and
create_namespaced_pod_binding raises although the pod was bound (client 37: the reply is a Status); its way from a call
to the wire costs as much again as the request itself. The two writes that every pod costs go by http1.py.

A refusal by the API server is a Refused with its HTTP status; no answer (connection, time-out, a proxy's page) is an
Unanswered: then what was asked may or may not have been done.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote as quoted
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson

from gemini.kube import names
from gemini.kube.http1 import Connections
from gemini.kube.quantity import version_number

Object = dict[str, Any]
Keep = Callable[[Object], Object | None]  # what is kept of an object of a list; None: nothing

PATHS = {  # kind -> collection of all namespaces
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "Device": f"/apis/{names.DEVICE_API_VERSION}/devices",
    "Resize": f"/apis/{names.DEVICE_API_VERSION}/resizes",
    "ResourceClaim": f"/apis/{names.RESOURCE_API_VERSION}/resourceclaims",
    "ResourceSlice": f"/apis/{names.RESOURCE_API_VERSION}/resourceslices",
    "ResourceQuota": "/api/v1/resourcequotas",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
}
CALL_SECONDS = 10
CONNECTIONS = 24  # a handshake costs as much as several calls, and more at once are no faster
FIRST_PAGE, PAGE = 100, 500  # objects a list answers at once
PAGE_BYTES = 16 << 20  # of their text; as objects it is several times that
WATCH_SECONDS = 300
QUIET_SECONDS = 150  # bookmarks come about once a minute; a watch that is silent for longer is dead
NO_SUCH_PATH = b"404 page not found"  # where not even the group of a kind is there


class ApiFault(Exception):
    """The API server did not do what was asked."""


class Refused(ApiFault):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Unanswered(ApiFault):
    """No answer came: it may have been done."""


class Undefined(Unanswered):
    """The API server knows no such path: nobody has defined the kind (yet)."""


def is_unknown(error: ApiFault) -> bool:
    """Whether it says that nobody has defined the kind that was asked for, or not its group."""
    return isinstance(error, Undefined) or (isinstance(error, Refused) and error.status == 404)


class TooOld(ApiFault):
    """The watch cannot go on from there; list again."""


class Client:
    """One API server. Make it with `connect`, inside the event loop."""

    def __init__(self, api: Any) -> None:
        """`api`: a kubernetes.aio ApiClient."""
        self._api = api
        settings, rest = api.configuration, api.rest_client
        connector = aiohttp.TCPConnector(limit=settings.connection_pool_maxsize, ssl=rest.ssl_context)
        where = urlsplit(settings.host)
        secure = where.scheme == "https"
        self._short: Connections | None = None  # for small calls; a proxy is spoken to by aiohttp alone
        if not settings.proxy and where.hostname:
            context, name = rest.ssl_context if secure else None, settings.tls_server_name
            port = where.port or (443 if secure else 80)
            self._short = Connections(where.hostname, port, context, name, CONNECTIONS)
        self._prefix, self._host = where.path.rstrip("/"), where.netloc.rpartition("@")[2]
        # A watch's events can be larger than aiohttp's own buffer.
        self._session = aiohttp.ClientSession(connector=connector, read_bufsize=1 << 21)
        self._more = {"proxy": settings.proxy, "proxy_headers": settings.proxy_headers}
        if settings.tls_server_name:
            self._more["server_hostname"] = settings.tls_server_name

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> Client:
        """By a kubeconfig (and one of its contexts), or without one by the service account of the pod we are in."""
        from kubernetes.aio import client  # over a second to import

        config: Any = importlib.import_module("kubernetes.aio.config")
        if kubeconfig is not None and not any(Path(part).is_file() for part in kubeconfig.split(os.pathsep)):
            there = any(Path(part).exists() for part in kubeconfig.split(os.pathsep))
            raise FileNotFoundError("this is no file" if there else "there is no such file")
        settings = client.Configuration()
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=settings)
        else:
            try:
                await config.load_kube_config(config_file=kubeconfig, context=context, client_configuration=settings)
            except (TypeError, AttributeError):  # YAML, but of another shape
                raise ValueError("this is no kubeconfig") from None
        settings.connection_pool_maxsize = CONNECTIONS
        # Proxies of the environment are looked up here, once. Left to aiohttp they are looked up for every request, and
        # so is ~/.netrc, by a thread of its own: a third of a call's time.
        where = urlsplit(settings.host)
        if settings.proxy is None and not proxy_bypass(where.netloc):
            settings.proxy = getproxies().get(where.scheme)
        return cls(client.ApiClient(settings))

    async def close(self) -> None:
        if self._short is not None:
            self._short.close()
        await self._session.close()
        await self._api.close()

    # ---- any object

    async def get(self, path: str, **query: str) -> Object:
        return await self.call("GET", path, query=query)

    async def call(
        self, method: str, path: str, body: Object | None = None, query: dict[str, str] | None = None
    ) -> Object:
        try:
            reply = await self._send(method, path, body, query, aiohttp.ClientTimeout(CALL_SECONDS))
            text = await reply.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unanswered(f"{method} {path}: {str(error) or type(error).__name__}") from None
        return _answer(method, path, reply.status, text)

    async def _read(self, path: str, query: dict[str, str], most: int) -> tuple[Object, int] | None:
        """What is answered, and how long it is; None: longer than `most` bytes, or than was read in time."""
        text = bytearray()
        try:
            reply = await self._send("GET", path, None, query, aiohttp.ClientTimeout(CALL_SECONDS))
            async for part in reply.content.iter_any():
                text += part
                if len(text) > most:
                    reply.close()
                    return None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if text and isinstance(error, TimeoutError) and most < sys.maxsize:
                return None
            raise Unanswered(f"GET {path}: {str(error) or type(error).__name__}") from None
        return _answer("GET", path, reply.status, text), len(text)

    async def _write(self, method: str, path: str, body: Object) -> Object:
        """`call` for small objects, in a fraction of its time."""
        if self._short is None:
            return await self.call(method, path, body)
        content = orjson.dumps(body)
        fields = {
            "Host": self._host, "Accept": "application/json", "Content-Type": "application/json",
            "Content-Length": str(len(content)), **await self._credentials(),
        }  # fmt: skip
        head = "".join(f"{key}: {value}\r\n" for key, value in fields.items())
        request = f"{method} {self._prefix}{path} HTTP/1.1\r\n{head}\r\n".encode() + content
        try:
            reply = await self._short.exchange(request, CALL_SECONDS)
        except (TimeoutError, OSError) as error:
            raise Unanswered(f"{method} {path}: {str(error) or type(error).__name__}") from None
        return _answer(method, path, reply.status, reply.body)

    async def _credentials(self) -> dict[str, str]:
        settings = await self._api.configuration.auth_settings()
        return {auth["key"]: auth["value"] for auth in settings.values()}

    async def _send(
        self, method: str, path: str, body: Object | None, query: dict[str, str] | None, timeout: Any
    ) -> Any:
        target = self._api.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", **await self._credentials()}
        if body is not None:
            kind = "merge-patch+json" if method == "PATCH" else "json"
            headers["Content-Type"] = f"application/{kind}"
        return await self._session.request(
            method, target, data=None if body is None else orjson.dumps(body), headers=headers,
            timeout=timeout, **self._more,
        )  # fmt: skip

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
            found = await self._read(path, {**query, "limit": str(many)}, PAGE_BYTES if many > 1 else sys.maxsize)
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
            reply = await self._send("GET", PATHS[kind], None, query, timeout)
            async with reply:
                if reply.status == 410:
                    raise TooOld(f"watch {kind}: {version} is too old")
                if reply.status >= 400:
                    raise Refused(reply.status, f"watch {kind}: {(await reply.text())[:200]}")
                while line := await reply.content.readline():
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":  # 410 Gone, or closed by force: a new list is always right
                        raise TooOld(f"watch {kind}: {event['object'].get('message', 'ended by the server')}")
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
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
        return await self.call("PATCH", _pod_path(namespace, name), {"metadata": metadata})

    async def end_pod(self, namespace: str, name: str, uid: str) -> None:
        """Deletes a pod that cannot start, as its node may. Not an Eviction: that says nothing of the pod's node, so no
        policy could keep the credentials of one node from evicting the pods of all."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self.call("DELETE", _pod_path(namespace, name), body)

    # ---- what the extender does

    async def pod(self, namespace: str, name: str) -> Object:
        return await self.get(_pod_path(namespace, name))

    async def pods_on(self, node: str) -> tuple[list[Object], int]:
        """The pods bound to a node, by a read that has seen every write answered before, and its version."""
        items, version = await self.all_of("Pod", fieldSelector=f"spec.nodeName={node}")
        return items, version_number(version)

    async def claims_on(self, node: str) -> tuple[list[Object], int]:
        """The ResourceClaims with devices of a node allocated, by a read that has seen every write answered before, and
        its version."""
        items, version = await self.all_of("ResourceClaim", lambda item: item if node in _pools(item) else None)
        return items, version_number(version)

    async def claim(self, namespace: str, name: str) -> Object:
        return await self.get(_claim_path(namespace, name))

    async def answer_claim(self, given: Object) -> Object:
        """Writes a claim's status, by compare and set."""
        metadata = given["metadata"]
        return await self.call("PUT", f"{_claim_path(metadata['namespace'], metadata['name'])}/status", given)

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
        await self._write("POST", f"{_pod_path(namespace, name)}/binding", binding)

    async def lease(self, namespace: str, name: str) -> Object | None:
        try:
            return await self.get(f"{_lease_path(namespace)}/{quote(name)}")
        except Refused as error:
            if error.status == 404:
                return None
            raise

    async def all_leases(self, namespace: str) -> list[Object]:
        """All leases of a namespace."""
        return (await self._pages(_lease_path(namespace), {}))[0]

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
        path = _lease_path(namespace) if fresh else f"{_lease_path(namespace)}/{quote(name)}"
        written = await self._write("POST" if fresh else "PUT", path, body)
        return str((written.get("metadata") or {}).get("resourceVersion", ""))

    async def drop_lease(self, namespace: str, name: str, version: str | None = None) -> None:
        """It is gone afterwards, whether or not it was there. `version`: only the one of that resourceVersion, else
        Refused (409)."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if version is not None:
            body["preconditions"] = {"resourceVersion": version}
        try:
            await self.call("DELETE", f"{_lease_path(namespace)}/{quote(name)}", body)
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
        await self.call("PATCH", f"{path}/{quote(name)}", news)


def _answer(method: str, path: str, status: int, text: bytes | bytearray) -> Object:
    """The object that the API server answered; raises what it did not do."""
    if status == 404 and text.strip() == NO_SUCH_PATH:
        raise Undefined(f"{method} {path}: the API server has no such path")
    try:
        decoded = orjson.loads(text) if text else {}
    except ValueError:
        decoded = None
    if not isinstance(decoded, dict):
        raise Unanswered(f"{method} {path}: {status} with a body that is no object")
    if status >= 500 or status == 429:
        raise Unanswered(f"{method} {path}: {status}: {decoded.get('message', '')}")
    if status >= 400:
        raise Refused(status, f"{decoded.get('message') or method + ' ' + path}")
    return decoded


def quote(name: str) -> str:
    """A name as a part of a path, whatever is in it."""
    return quoted(name, safe="")


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"


def resize_path(namespace: str, name: str = "") -> str:
    path = f"/apis/{names.DEVICE_API_VERSION}/namespaces/{quote(namespace)}/resizes"
    return f"{path}/{quote(name)}" if name else path


def _claim_path(namespace: str, name: str) -> str:
    return f"/apis/{names.RESOURCE_API_VERSION}/namespaces/{quote(namespace)}/resourceclaims/{quote(name)}"


def _pools(claim: Object) -> set[str]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return {result.get("pool", "") for result in (allocation.get("devices") or {}).get("results") or ()}


def _lease_path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"
