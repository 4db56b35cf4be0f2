"""The kubelet as the plugin sees it: its folder of sockets, its checkpoint, PodResources, and when it starts again.

A kubelet that starts removes every socket in the folder, ours too: plugins must notice and register again. inotify on
the folder says so at once; a look every few seconds does where inotify cannot be had.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gemini.kube.checkpoint import CHECKPOINT, Entry, read_checkpoint
from gemini.kube.kubelet_api import KUBELET_SOCKET, VERSION, handlers, stub, v1, v1beta1

CALL_SECONDS = 10.0
LIST_SECONDS = 2.0
LOOK_SECONDS = 5.0
_IN_NONBLOCK, _IN_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_IN_CREATE, _IN_DELETE, _IN_MOVED_TO = 0x100, 0x200, 0x80
log = logging.getLogger("gemini.plugin")


async def listen(socket: Path, service: str, servicer: Any) -> Any:
    """A server of a gRPC service of kubelet_api.py on that Unix socket, made anew. Raises OSError with one line."""
    socket.unlink(missing_ok=True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([handlers(service, servicer)])
    try:
        server.add_insecure_port(f"unix://{socket}")
    except RuntimeError:  # grpc's word for every cause
        raise OSError(f"{socket} cannot be made; a path of at most 107 bytes in a folder of root's") from None
    await server.start()
    return server


class Kubelet:
    """`folder`: of device plugins; `pod_resources`: that API's socket."""

    def __init__(self, folder: Path, pod_resources: Path) -> None:
        self.folder, self._pod_resources = folder, pod_resources
        self._read: tuple[tuple[int, int, int], list[Entry]] | None = None
        self._listing: Any = None
        self._silent = False

    # ---- its record

    def checkpoint(self) -> list[Entry]:
        """Who was given what. Raises OSError, BadCheckpoint. No file: nobody was ever given anything."""
        path = self.folder / CHECKPOINT
        try:
            at = path.stat()
            stamp = (at.st_mtime_ns, at.st_size, at.st_ino)
            if self._read is None or self._read[0] != stamp:
                self._read = (stamp, read_checkpoint(path.read_bytes()))
        except FileNotFoundError:
            return []
        return self._read[1]

    async def listed(self) -> set[tuple[str, str]] | None:
        """(namespace, name) of the pods that it knows; None where PodResources does not answer.

        To be asked before devices are chosen only: the kubelet then recounts what is allocated, and between the choice
        and the end of Allocate it would lose count of what it has just chosen (UpdateAllocatedDevices, 1.36).
        """
        if self._listing is None:
            self._listing = grpc.aio.insecure_channel(f"unix://{self._pod_resources}")
        try:
            reply = await stub(self._listing, "v1.PodResourcesLister").List(
                v1.ListPodResourcesRequest(), timeout=LIST_SECONDS
            )
        except grpc.RpcError as error:
            if not self._silent:
                log.warning("pod-resources socket=%s error=%s", self._pod_resources, _told(error))
            self._silent = True
            channel, self._listing = self._listing, None
            await channel.close()
            return None
        self._silent = False
        return {(pod.namespace, pod.name) for pod in reply.pod_resources}

    # ---- registration

    async def register(self, endpoint: str, resource: str, options: Any) -> None:
        """Raises OSError with one line. The kubelet calls back before it answers."""
        request = v1beta1.RegisterRequest(version=VERSION, endpoint=endpoint, resource_name=resource, options=options)
        async with grpc.aio.insecure_channel(f"unix://{self.folder / KUBELET_SOCKET}") as channel:
            try:
                await stub(channel, "v1beta1.Registration").Register(request, timeout=CALL_SECONDS)
            except grpc.RpcError as error:
                raise OSError(f"the kubelet at {self.folder / KUBELET_SOCKET}: {_told(error)}") from None

    def stamp(self) -> tuple[int, int, int] | None:
        """Which start of the kubelet this is; None while it is down."""
        try:
            at = (self.folder / KUBELET_SOCKET).stat()
        except OSError:
            return None
        return at.st_ino, at.st_ctime_ns, at.st_dev

    async def changes(self) -> AsyncIterator[None]:
        """One item now, and one whenever something may have changed in the folder."""
        changed = asyncio.Event()
        with _watching(self.folder, changed.set):
            while True:
                changed.clear()
                yield
                with contextlib.suppress(TimeoutError):  # not wait_for: in 3.11 it swallows a cancellation now and then
                    async with asyncio.timeout(LOOK_SECONDS):
                        await changed.wait()

    async def close(self) -> None:
        if self._listing is not None:
            await self._listing.close()


@contextlib.contextmanager
def _watching(folder: Path, notify: Any) -> Any:
    """Calls `notify` when files come and go in the folder, as far as the system can say so."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
    if fd < 0 or libc.inotify_add_watch(fd, os.fsencode(folder), _IN_CREATE | _IN_DELETE | _IN_MOVED_TO) < 0:
        log.warning("inotify folder=%s error=%s", folder, os.strerror(ctypes.get_errno()))
        if fd >= 0:
            os.close(fd)
        yield
        return
    loop = asyncio.get_running_loop()

    def readable() -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(fd, 1 << 16)
        notify()

    loop.add_reader(fd, readable)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _told(error: Any) -> str:
    return f"{error.code().name.lower().replace('_', ' ')}: {error.details()}"
