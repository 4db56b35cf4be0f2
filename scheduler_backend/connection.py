"""One connection of a tenant's process: bytes of its socket to messages, by the ZMTP of libhook/core/zmtp.h, and back.

No byte that a process sends reaches anything else before it was checked there, and descriptors that it passes are
neither taken nor dropped (rights.py). What is kept of a connection is bounded
both ways: one frame and one read that is not heard yet; and what its kernel buffer did not take, up to UNSENT_BYTES.
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import Any

from libhook.core import ffi, lib
from scheduler_backend import rights
from scheduler_backend.bounds import READ_BYTES, SEND_BUFFER_BYTES, UNSENT_BYTES

ALL, MESSAGE, COMMAND = int(lib.ZMTP_ALL), int(lib.ZMTP_MESSAGE), int(lib.ZMTP_COMMAND)
_READY = int(lib.ZMTP_READY)
_take, _buffer = lib.zmtp_take, ffi.buffer
# One read at a time, of whatever connection; what is not heard at once is copied.
_READ = ffi.new("uint8_t[]", READ_BYTES)
_recv = lib.rights_recv
_USED = ffi.new("size_t *")
_PENDING = ffi.new("const uint8_t **")
_HEADER = ffi.new("uint8_t[]", lib.ZMTP_HEADER_MAX)
_HEADER_BYTES = _buffer(_HEADER)


class Connection:
    """It is new, then greeted, then ready; closed from either end. Its owner reads when the kernel says so."""

    __slots__ = (
        "_at", "_bytes", "_codec", "_out", "_size", "client", "fd", "is_ready", "is_waiting", "left", "pid", "since_ns",
        "socket", "uid", "unsent",
    )  # fmt: skip

    def __init__(self, connected: socket.socket, now_ns: int) -> None:
        """Of a socket that does not block. Raises OSError where it is closed already."""
        self.socket = connected
        self.fd = connected.fileno()
        self.since_ns = now_ns
        self.pid, self.uid, _gid = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.client: Any = None  # the Client that said Hello here, and has not left for another connection
        self.is_ready = False  # greeting and READY are over
        self.left = False  # nothing more is taken of it before the next Hello
        self.unsent = b""
        self.is_waiting = False  # for the kernel to take that: its owner asked to be told
        self._out = ffi.new("uint8_t[]", lib.ZMTP_ANSWERS_MAX)
        self._codec: Any = ffi.new("struct zmtp *")
        self._bytes: Any = _READ  # what was read last, from `_at` on not heard yet
        self._at = self._size = 0
        lib.zmtp_start(self._codec, lib.ZMTP_ROUTER, self._out, lib.ZMTP_ANSWERS_MAX)

    @property
    def is_open(self) -> bool:
        """Until close()."""
        return self.fd >= 0

    # --- in ---------------------------------------------------------------------------------------------------------
    @property
    def has_more(self) -> bool:
        """Was something read that is not heard yet?"""
        return self._at < self._size

    def read(self) -> bool:
        """Read once, where all that was read is heard; False where the other end is gone."""
        if self._at < self._size:
            return True
        size = int(_recv(self.fd, _READ, READ_BYTES))
        self._bytes, self._at, self._size = _READ, 0, max(0, size)
        return size > 0 or size == -errno.EAGAIN

    def take(self) -> int:
        """The next of what was read: MESSAGE, COMMAND, ALL, or an errno value below 0 for what ends the connection."""
        taken = int(_take(self._codec, self._bytes + self._at, self._size - self._at, _USED))
        self._at += _USED[0]
        if taken == MESSAGE:
            return taken
        if taken == COMMAND:
            self.is_ready = self.is_ready or int(self._codec.state) == _READY
        return taken if self._answer() else -errno.ENOBUFS

    def message(self) -> bytes:
        """What take() found."""
        return bytes(_buffer(self._codec.message, self._codec.message_size))

    def keep(self) -> None:
        """What is not heard yet is for later: others are read in between."""
        if self._at < self._size and self._bytes is _READ:
            size = self._size - self._at
            kept = ffi.new("uint8_t[]", size)
            ffi.memmove(kept, _READ + self._at, size)
            self._bytes, self._at, self._size = kept, 0, size

    # --- out --------------------------------------------------------------------------------------------------------
    def greet(self) -> bool:
        """Say the greeting; False where that cannot be."""
        return self._answer()

    def _answer(self) -> bool:
        """Write what the protocol itself has to say."""
        size = lib.zmtp_pending(self._codec, _PENDING)
        if not size:
            return True
        octets = bytes(_buffer(_PENDING[0], size))
        lib.zmtp_sent(self._codec, size)
        return self._write(octets)

    def send(self, message: bytes) -> bool:
        """Say one message (at most MESSAGE_BYTES); False where the other end is gone, or has not read for so long that
        it may go. Never blocks."""
        size = lib.zmtp_header(_HEADER, len(message))
        return self._write(_HEADER_BYTES[0:size] + message)

    def _write(self, octets: bytes) -> bool:
        if self.fd < 0:
            return False
        if self.unsent:
            octets = self.unsent + octets
        sent = 0
        try:
            sent = self.socket.send(octets)
        except BlockingIOError:
            pass
        except OSError:
            return False
        self.unsent = octets[sent:]
        return len(self.unsent) <= UNSENT_BYTES

    def flush(self) -> bool:
        """The kernel may take more; False as of send()."""
        return not self.unsent or self._write(b"")

    def close(self) -> None:
        """The end, also of what is unsent."""
        self.fd = -1
        self.client = None
        self.unsent = b""
        self._bytes, self._at, self._size = _READ, 0, 0
        rights.close(self.socket)
