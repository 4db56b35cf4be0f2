"""A small client of the Kubernetes API for tests: blocking calls with a time limit, and watches that outlive it.

It is not the product's client on purpose: what the tests see must not come through the code they judge.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.e2e.process import POLL_SECONDS, NotReady

Object = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
CALL_SECONDS = 60.0


class ApiError(AssertionError):
    def __init__(self, status: int, body: Object, call: str) -> None:
        super().__init__(f"{call}: {status} {body.get('reason', '')}: {body.get('message', body)}")
        self.status = status
        self.body = body


class Api:
    def __init__(self, server: str, context: ssl.SSLContext) -> None:
        self.server = server
        self._address = urlsplit(server)
        self._context = context
        self._kept = threading.local()

    def get(self, path: str, **query: str) -> Object:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Object) -> Object:
        return self.call("POST", path, body)

    def put(self, path: str, body: Object) -> Object:
        return self.call("PUT", path, body)

    def delete(self, path: str, grace_seconds: int | None = None) -> Object:
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        return self.call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    def patch(self, path: str, body: Object) -> Object:
        return self.call("PATCH", path, body, content_type=MERGE_PATCH)

    def call(
        self, method: str, path: str, body: Object | None = None, query: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:  # fmt: skip
        """The decoded reply; ApiError for any status from 400 on. One connection per thread is kept open."""
        target = path + (f"?{urlencode(query)}" if query else "")
        content = json.dumps(body).encode() if body is not None else None
        connection = getattr(self._kept, "connection", None) or self._connect(CALL_SECONDS)
        self._kept.connection = None
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        try:
            connection.request(method, target, content, headers)
            reply = connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLError):  # kept, and the server has restarted
            connection = self._connect(CALL_SECONDS)
            connection.request(method, target, content, headers)
            reply = connection.getresponse()
        text = reply.read()
        self._kept.connection = connection  # not where an exception came: its state is unknown
        decoded = json.loads(text) if text.startswith(b"{") else {"message": text.decode(errors="replace")}
        if reply.status >= 400:
            raise ApiError(reply.status, decoded, f"{method} {path}")
        return decoded

    def events(self, path: str, seconds: float, version: str = "", **query: str) -> Iterator[Object]:
        """The events of one watch, from resource version `version` on, until the server closes it or time is up."""
        connection = self._connect(seconds + 1)
        try:
            asked = {
                "watch": "1",
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(max(1, round(seconds))),
                **query,
            }
            if version:
                asked["resourceVersion"] = version
            connection.request("GET", f"{path}?{urlencode(asked)}")
            reply = connection.getresponse()
            if reply.status >= 400:
                raise ApiError(reply.status, json.loads(reply.read() or b"{}"), f"watch {path}")
            while line := reply.readline():
                yield json.loads(line)
        except TimeoutError:
            return
        finally:
            connection.close()

    def wait(
        self, path: str, check: Callable[[list[Object]], Any], what: str, seconds: float = 120.0, **query: str
    ) -> Any:
        """What `check` says of all objects under the collection `path`, as soon as that is truthy: list, then watch."""
        deadline = time.monotonic() + seconds
        objects: dict[tuple[str, str], Object] = {}
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):  # a server that restarts: list again
                listed = self.get(path, **query)
                objects = {_key(item): item for item in listed["items"]}
                version = listed["metadata"]["resourceVersion"]
                if found := check(list(objects.values())):
                    return found
                for event in self.events(path, max(deadline - time.monotonic(), 0.1), version, **query):
                    if event["type"] == "ERROR":
                        break  # too old, or forced to close: list again, as every client must
                    if event["type"] == "DELETED":
                        objects.pop(_key(event["object"]), None)
                    elif event["type"] != "BOOKMARK":
                        objects[_key(event["object"])] = event["object"]
                    if found := check(list(objects.values())):
                        return found
            if time.monotonic() > deadline:
                seen = [(key, item.get("status")) for key, item in objects.items()]
                raise NotReady(f"{what}: not within {seconds:g} s; last seen: {json.dumps(seen)[:3000]}")
            time.sleep(POLL_SECONDS)

    def wait_one(self, path: str, check: Callable[[Object], Any], what: str = "", seconds: float = 120.0) -> Object:
        """The object at `path` (collection/name), as soon as `check` says so of it."""
        collection, name = path.rsplit("/", 1)

        def chosen(objects: list[Object]) -> Object | None:
            return next((one for one in objects if check(one)), None)

        text = what or f"{path}, {getattr(check, '__name__', 'condition')}"
        return self.wait(collection, chosen, text, seconds, fieldSelector=f"metadata.name={name}")  # type: ignore[no-any-return]

    def wait_gone(self, path: str, seconds: float = 120.0) -> None:
        collection, name = path.rsplit("/", 1)
        self.wait(collection, lambda objects: not objects, f"{path} gone", seconds,
                  fieldSelector=f"metadata.name={name}")  # fmt: skip

    def _connect(self, seconds: float) -> http.client.HTTPSConnection:
        host, port = self._address.hostname, self._address.port
        assert host is not None
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=self._context)


def condition(kind: str, status: str = "True") -> Callable[[Object], bool]:
    """A check for wait_one: the object's status condition `kind` is `status`."""

    def holds(one: Object) -> bool:
        conditions = one.get("status", {}).get("conditions") or []
        return any(c["type"] == kind and c["status"] == status for c in conditions)

    holds.__name__ = f"condition {kind}={status}"
    return holds


def unscheduled(why: str) -> Callable[[Object], bool]:
    """A check for wait_one: the scheduler did not place the pod and says `why` in the condition's message.

    A node that has just come is tainted for a moment, so the first message may name that alone.
    """

    def holds(one: Object) -> bool:
        conditions = one.get("status", {}).get("conditions") or []
        found = [c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"]
        return any(why in c.get("message", "") for c in found)

    holds.__name__ = f"PodScheduled=False for {why!r}"
    return holds


def _key(one: Object) -> tuple[str, str]:
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]
