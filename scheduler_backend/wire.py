"""Frames to events and actions to frames. Thin: the structs, their checks and their bytes are libhook/core/wire.h's.

Device numbers are translated here and nowhere else: on the wire `device` is the index into the client's own Hello, in
events and actions it is the daemon's number of the GPU.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from libhook import core
from scheduler_backend.core import events as ev

ffi, lib = core.ffi, core.lib
MAX_SIZE: int = lib.WIRE_MAX_SIZE
HELLO: int = lib.WIRE_HELLO
STATS: int = lib.WIRE_STATS
_ERROR_TEXT = 159  # bytes of wire_error.text, less its NUL
_MOST = (1 << 64) - 1  # a field's: sums of what clients say may be more


class BadFrame(ValueError):
    """The sender broke the protocol: its connection is to be closed. `code` is an errno value for it."""

    def __init__(self, text: str, code: int = errno.EPROTO) -> None:
        super().__init__(text)
        self.code = code


class Hello(NamedTuple):
    """What a client says of itself. Only nonce, uuids and what it holds matter; the rest is for people."""

    nonce: int
    pid: int  # in its own pid namespace
    program: str
    library: str
    uuids: tuple[bytes, ...]
    held: tuple[int, ...]  # by device
    memory: tuple[int, ...]
    serial: int = 0  # of the message: the process counts all that it says, on whatever connection


def decode(frame: bytes) -> tuple[int, Any]:
    """Type and struct of a frame; raises BadFrame."""
    try:
        return core.decode(frame)
    except core.WireError as error:
        raise BadFrame(str(error), error.errno) from None


def hello_of(message: Any) -> Hello:
    """The Hello in a struct wire_hello; held epochs and memory count only in a reconnection."""
    count = message.device_count
    again = bool(message.flags & lib.WIRE_HELLO_AGAIN)
    return Hello(
        message.client_nonce,
        message.pid,
        ffi.string(message.program).decode(errors="replace"),
        ffi.string(message.library).decode(errors="replace"),
        tuple(bytes(message.uuid[device]) for device in range(count)),
        tuple(message.held_epoch[device] if again else 0 for device in range(count)),
        tuple(message.memory_bytes[device] if again else 0 for device in range(count)),
        message.header.serial,
    )


def _asked(client: int, gpu: int, message: Any) -> ev.Event:
    if message.flags & lib.WIRE_TOKEN_RENEW:
        draining, foreseen = (bool(message.flags & f) for f in (lib.WIRE_TOKEN_DRAINING, lib.WIRE_TOKEN_FORESEEN))
        return ev.TokenRenewed(client, gpu, message.epoch, draining, foreseen)
    return ev.TokenAsked(client, gpu, message.burst_ns, message.gap_ns)


def returned(client: int, gpu: int, message: Any) -> ev.TokenReturned:
    """The event behind a struct wire_return."""
    flags = message.flags
    return ev.TokenReturned(
        client,
        gpu,
        message.epoch,
        bool(flags & lib.WIRE_RETURN_WANT_MORE),
        bool(flags & lib.WIRE_RETURN_IDLE),
        bool(flags & lib.WIRE_RETURN_UNCONFIRMED),
        message.busy_ns,
        message.launches,
        message.burst_ns,
        message.gap_ns,
        message.held_ns,
    )


def _used(client: int, gpu: int, message: Any) -> ev.Event:
    return ev.Used(client, gpu, message.epoch, message.busy_ns, message.waited_ns)


def _reserved(client: int, gpu: int, message: Any) -> ev.Event:
    if message.flags & lib.WIRE_MEM_CONTEXT:  # the server answers it; of the node it asks the figures
        return ev.MemoryAsked(client, gpu, 0, 0, message.header.serial)
    if message.flags & lib.WIRE_MEM_EXPORTED:
        return ev.MemoryAsked(client, gpu, 0, 0, message.header.serial, message.credit_bytes)
    return ev.MemoryAsked(client, gpu, message.bytes, message.credit_bytes, message.header.serial)


def asks_for_context(kind: int, message: Any) -> bool:
    """Does a client ask what its context took? `credit_bytes` is what it holds besides, then."""
    return kind == lib.WIRE_MEM_RESERVE and bool(message.flags & lib.WIRE_MEM_CONTEXT)


def tells_exported(kind: int, message: Any) -> bool:
    """Does a client say what it exported? It is told the mark of such memory."""
    flags = message.flags & (lib.WIRE_MEM_EXPORTED | lib.WIRE_MEM_CONTEXT) if kind == lib.WIRE_MEM_RESERVE else 0
    return bool(flags == lib.WIRE_MEM_EXPORTED)


def _released(client: int, gpu: int, message: Any) -> ev.Event:
    flags = message.flags
    recalled, whole = bool(flags & lib.WIRE_MEM_RELEASE_RECALLED), bool(flags & lib.WIRE_MEM_RELEASE_WHOLE)
    return ev.MemoryReleased(client, gpu, message.bytes, recalled, whole)


# Messages of clients that are events. Hello and Stats are the server's own matter.
READERS: dict[int, Callable[[int, int, Any], ev.Event]] = {
    lib.WIRE_TOKEN_REQUEST: _asked,
    lib.WIRE_RETURN: returned,
    lib.WIRE_MEM_RESERVE: _reserved,
    lib.WIRE_MEM_RELEASE: _released,
    lib.WIRE_USED: _used,
}


def event_of(kind: int, message: Any, client: int, gpus: Mapping[int, int]) -> ev.Event:
    """The event behind a message of a client whose devices are these GPUs; raises BadFrame."""
    reader = READERS.get(kind)
    if reader is None:
        raise BadFrame(f"a client does not send messages of type {kind}")
    gpu = gpus.get(message.device)
    if gpu is None:
        raise BadFrame(f"device {message.device} is not one that this tenant shares", errno.ENODEV)
    return reader(client, gpu, message)


# One message of each kind is kept and written anew: what is sent is a copy of its bytes.
_GRANT = core.new(lib.WIRE_GRANT, 0)
_EXTEND = core.new(lib.WIRE_EXTEND, 0)
_REVOKE = core.new(lib.WIRE_REVOKE, 0)
_GRANT_BUFFER, _EXTEND_BUFFER, _REVOKE_BUFFER = ffi.buffer(_GRANT), ffi.buffer(_EXTEND), ffi.buffer(_REVOKE)


def grant(action: ev.Grant, device: int, serial: int) -> bytes:
    """The frame of a Grant."""
    message = _GRANT
    message.header.serial = serial
    message.device = device
    message.flags = (
        (lib.WIRE_GRANT_CONTENDED if action.contended else 0)
        | (lib.WIRE_GRANT_JOINED if action.joined else 0)
        | (lib.WIRE_GRANT_SHARED if action.shared else 0)
    )
    message.epoch = action.epoch
    message.quota_ns = action.quota_ns
    message.lease_ns = action.lease_ns
    message.cap_ns = action.cap_ns
    return bytes(_GRANT_BUFFER)


def prepared_grant(action: ev.Grant, device: int, serial: int) -> bytes:
    """The frame of a Grant that begins when the page shows its epoch."""
    grant(action, device, serial)
    _GRANT.flags |= lib.WIRE_GRANT_PREPARED
    return bytes(_GRANT_BUFFER)


def extend(action: ev.Extend, device: int, serial: int) -> bytes:
    """The frame of an Extend."""
    message = _EXTEND
    message.header.serial = serial
    message.device = device
    message.flags = (lib.WIRE_GRANT_CONTENDED if action.contended else 0) | (
        lib.WIRE_GRANT_SHARED if action.shared else 0
    )
    message.epoch = action.epoch
    message.quota_ns = action.quota_ns
    message.lease_ns = action.lease_ns
    message.cap_ns = action.cap_ns
    return bytes(_EXTEND_BUFFER)


def revoke(action: ev.Revoke, device: int, serial: int) -> bytes:
    """The frame of a Revoke."""
    message = _REVOKE
    message.header.serial = serial
    message.device = device
    message.reason = action.reason
    message.epoch = action.epoch
    return bytes(_REVOKE_BUFFER)


def mem_reply(action: ev.MemReply, device: int, serial: int) -> bytes:
    """The frame of a MemReply."""
    message = core.new(
        lib.WIRE_MEM_REPLY,
        serial,
        answers=action.serial,
        device=device,
        granted=int(action.granted),
        credit_bytes=action.credit_bytes,
        limit_bytes=action.limit_bytes,
        used_bytes=min(action.used_bytes, _MOST),
    )
    return bytes(ffi.buffer(message))


def mem_recall(action: ev.MemRecall, device: int, serial: int) -> bytes:
    """The frame of a MemRecall."""
    wanted = min(action.wanted_bytes, _MOST)
    return bytes(ffi.buffer(core.new(lib.WIRE_MEM_RECALL, serial, device=device, **{"bytes": wanted})))


class WelcomeDevice(NamedTuple):
    """One device in a Welcome."""

    limit_bytes: int
    used_bytes: int
    slot: int
    managed: bool


def welcome(
    serial: int, incarnation: int, tenant: str, shares_ppm: tuple[int, int], latency: bool, devices: list[WelcomeDevice]
) -> bytes:
    """The frame of a Welcome."""
    message = core.new(
        lib.WIRE_WELCOME,
        serial,
        incarnation=incarnation,
        device_count=len(devices),
        request_ppm=shares_ppm[0],
        limit_ppm=shares_ppm[1],
        latency_class=int(latency),
        tenant=tenant.encode(),
    )
    for index, device in enumerate(devices):
        row = message.device[index]
        row.memory_limit_bytes = device.limit_bytes
        row.memory_used_bytes = min(device.used_bytes, _MOST)
        row.page_slot = device.slot
        row.managed = int(device.managed)
    return bytes(ffi.buffer(message))


def error(serial: int, answers: int, code: int, text: str) -> bytes:
    """The frame of an Error: why the connection is about to be closed."""
    line = text.encode()[:_ERROR_TEXT].decode(errors="ignore").encode()
    return bytes(ffi.buffer(core.new(lib.WIRE_ERROR, serial, answers=answers, code=code, text=line)))
