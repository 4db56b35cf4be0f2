"""Keeping what one knows of the objects of a kind in step with the API server: list, watch, and again."""

from __future__ import annotations

import asyncio
from typing import Any

from gemini.kube.answer import ApiFault, Refused, TooOld, is_unknown
from gemini.kube.client import Client, Keep
from gemini.kube.quantity import version_number

LOOK_SECONDS = 5.0


async def follow_once_there(
    client: Client, kind: str, cluster: Any, synced: asyncio.Event, log: Any, keep: Keep | None = None
) -> None:
    """The same for a kind that may not be defined (yet): until it is, there are no objects of it."""
    told = ""
    while True:
        try:
            await client.first_of(kind)
            break
        except ApiFault as error:
            if is_unknown(error):
                synced.set()
            if str(error) != told:
                log.warning("look for=%s error=%s", kind, error)
            told = str(error)
        await asyncio.sleep(LOOK_SECONDS)
    await follow(client, kind, cluster, synced, log, keep)


async def follow(
    client: Client, kind: str, cluster: Any, synced: asyncio.Event | None = None, log: Any = None,
    keep: Keep | None = None, **query: str,
) -> None:  # fmt: skip
    """Keeps `cluster` in step with all objects of a kind, for ever: list, watch, and list again where that must be.

    `cluster` has replace(kind, objects, version) and apply(kind, event, object). `keep`: what it needs of each object
    of a list. `query` narrows the objects, such as fieldSelector="spec.nodeName=n1".
    """
    version, wait = "", 0.1
    while True:
        try:
            if not version:
                items, version = await client.all_of(kind, keep, **query)
                cluster.replace(kind, items, version_number(version))
                if synced is not None:
                    synced.set()
                wait = 0.1
            async for event, item in client.watch(kind, version, **query):
                if event != "BOOKMARK":
                    try:
                        cluster.apply(kind, event, item)
                    except Exception:  # one object must not end the watch: it would be there again after a restart
                        if log is None:
                            raise
                        log.exception("watch kind=%s event=%s failed on an object", kind, event)
                version = str((item.get("metadata") or {}).get("resourceVersion") or version)
                wait = 0.1
        except TooOld:
            version = ""
        except ApiFault as error:
            if log is not None:
                log.warning("watch kind=%s error=%s retry_seconds=%.1f", kind, error, wait)
            if isinstance(error, Refused):
                version = ""
            await asyncio.sleep(wait)
            wait = min(wait * 2, 10.0)
