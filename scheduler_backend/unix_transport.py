"""A transport of a Unix socket that reads what bears no descriptors, and nothing else (rights.py).

For kernels on which a socket cannot refuse them: the loop's own transports read whatever comes, and so drop what was
passed along.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any

from scheduler_backend import rights

_READ_BYTES = 64 << 10
_HIGH_BYTES = 64 << 10  # unsent; above it the protocol is asked to write no more


class UnixTransport(asyncio.Transport):
    """Of a connected socket that does not block, which is the transport's from here on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket, protocol: asyncio.Protocol) -> None:
        super().__init__({"socket": connection, "peername": ""})
        self._loop, self._socket, self._protocol = loop, connection, protocol
        self._fd = connection.fileno()
        self._unsent = bytearray()
        self._high = _HIGH_BYTES
        self._reads = self._is_full = self._closing = self._lost = False
        protocol.connection_made(self)
        self.resume_reading()

    # --- in ---------------------------------------------------------------------------------------------------------
    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if not self._reads and not self._closing:
            self._reads = True
            self._loop.add_reader(self._fd, self._read)

    def _read(self) -> None:
        try:
            data = rights.recv(self._socket, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        if data:
            self._protocol.data_received(data)
            return
        self.pause_reading()
        if not self._protocol.eof_received():
            self.close()

    # --- out --------------------------------------------------------------------------------------------------------
    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing or self._lost:
            return
        waited = bool(self._unsent)
        self._unsent += data
        if not waited:
            self._write()
        if self._unsent and not waited and not self._lost:
            self._loop.add_writer(self._fd, self._write_more)
        if len(self._unsent) > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        del self._unsent[:sent]

    def _write_more(self) -> None:
        self._write()
        if self._lost or self._unsent:
            return
        self._loop.remove_writer(self._fd)
        if self._is_full:
            self._is_full = False
            self._protocol.resume_writing()
        if self._closing:
            self._lose(None)

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_BYTES if high is None else high

    # --- the end ----------------------------------------------------------------------------------------------------
    def is_closing(self) -> bool:
        return self._closing or self._lost

    def close(self) -> None:
        if self.is_closing():
            return
        self.pause_reading()
        self._closing = True
        if not self._unsent:
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self.pause_reading()
        self._closing = self._lost = True
        if self._unsent:
            self._loop.remove_writer(self._fd)
            self._unsent.clear()
        rights.close(self._socket)
        self._loop.call_soon(self._protocol.connection_lost, error)
