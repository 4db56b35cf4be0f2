"""How requests come to one API server, and what it answers to them comes back.

Stands on kubernetes.aio for who and where we are (kubeconfig or service account, TLS, tokens); requests and replies are
plain JSON over a session of our own. That client's typed calls check each reply against a model, and
create_namespaced_pod_binding raises although the pod was bound (client 37: the reply is a Status). Its way from a call
to the wire costs as much again as the request itself. Small writes go by http1.py.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson

from gemini.kube.answer import Object, Unanswered, read_answer
from gemini.kube.http1 import Connections

CALL_SECONDS = 10
CONNECTIONS = 24  # a handshake costs as much as several calls, and more at once are no faster


class Transport:
    """One API server. Make it with `connect`, inside the event loop. Raises ApiFault for what was not done."""

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
        self._session = aiohttp.ClientSession(connector=connector, read_bufsize=1 << 20)
        self._more = {"proxy": settings.proxy, "proxy_headers": settings.proxy_headers}
        if settings.tls_server_name:
            self._more["server_hostname"] = settings.tls_server_name

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> Transport:
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

    async def call(
        self, method: str, path: str, body: Object | None = None, query: dict[str, str] | None = None
    ) -> Object:
        try:
            reply = await self.send(method, path, body, query, aiohttp.ClientTimeout(CALL_SECONDS))
            text = await reply.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unanswered(f"{method} {path}: {str(error) or type(error).__name__}") from None
        return read_answer(method, path, reply.status, text)

    async def read(self, path: str, query: dict[str, str], most: int) -> tuple[Object, int] | None:
        """What is answered, and how long it is; None: longer than `most` bytes, or than was read in time."""
        text = bytearray()
        try:
            reply = await self.send("GET", path, None, query, aiohttp.ClientTimeout(CALL_SECONDS))
            async for part in reply.content.iter_any():
                text += part
                if len(text) > most:
                    reply.close()
                    return None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if text and isinstance(error, TimeoutError) and most < sys.maxsize:
                return None
            raise Unanswered(f"GET {path}: {str(error) or type(error).__name__}") from None
        return read_answer("GET", path, reply.status, text), len(text)

    async def write(self, method: str, path: str, body: Object) -> Object:
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
        return read_answer(method, path, reply.status, reply.body)

    async def _credentials(self) -> dict[str, str]:
        settings = await self._api.configuration.auth_settings()
        return {auth["key"]: auth["value"] for auth in settings.values()}

    async def send(
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
