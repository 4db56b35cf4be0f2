"""Unix sockets to which strangers write, as Python has them: what they pass with it is never ours to end.

All sockets that somebody else may connect to are refused descriptors before they listen, read by `recv`, and closed
here (libhook/carrier/rights.h says why).
"""

from __future__ import annotations

import os
import socket

from libhook.core import ffi, lib


def refuse(one: socket.socket) -> None:
    """Nobody may pass descriptors to it, or to what it accepts; where the kernel cannot say so they are looked for."""
    lib.rights_refuse(one.fileno())


def are_sought() -> bool:
    """Is this a kernel that cannot refuse them?"""
    return bool(lib.rights_are_sought())


def recv(one: socket.socket, size: int) -> bytes:
    """What stands there, at most so many bytes; never waits. Raises OSError: BlockingIOError where there is nothing,
    PermissionError where somebody passed descriptors."""
    buffer = ffi.new("uint8_t[]", size)
    count = int(lib.rights_recv(one.fileno(), buffer, size))
    if count < 0:
        raise OSError(-count, os.strerror(-count))
    return bytes(ffi.buffer(buffer, count))


def close(one: socket.socket) -> None:
    """The end of a connection; may be called twice."""
    if one.fileno() >= 0:
        lib.rights_close(one.detach())


def leave(one: socket.socket) -> None:
    """Close it, of which another has a copy, that may be closed at any moment."""
    if one.fileno() >= 0:
        lib.rights_leave(one.detach())


def end(listening: socket.socket) -> None:
    """The end of a listener, and of those who wait to come in; may be called twice."""
    if listening.fileno() >= 0:
        lib.rights_end(listening.detach())
