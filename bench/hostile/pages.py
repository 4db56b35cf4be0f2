"""Attacks on the page socket, and on the page that it hands out."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable

from bench.flood import connected, page, send
from bench.hostile.table import TENANT, Attack, Place, Steps, attack
from bench.hostile.zmtp import many
from libhook.core import lib
from scheduler_backend.page import SIZE

_SEALS = (1, 2, 4, 8, 16)  # F_SEAL_*
_FUTEX, _FUTEX_WAKE, _FUTEX_REQUEUE = 202, 1, 3


_TRIES: tuple[Callable[[int], object], ...] = (
    lambda fd: os.ftruncate(fd, 0),
    lambda fd: os.ftruncate(fd, 1 << 40),
    lambda fd: os.posix_fallocate(fd, 0, 1 << 30),
    lambda fd: os.pwrite(fd, b"\xff" * 64, 0),
    lambda fd: mmap.mmap(fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE).write(b"\xff" * 64),
    lambda fd: os.pwrite(os.open(f"/proc/self/fd/{fd}", os.O_RDWR), b"\xff" * 64, 0),
)


def _hello() -> bytes:
    return struct.pack("<IIQ", lib.WIRE_MAGIC, lib.WIRE_VERSION, secrets.randbits(63))


def _page(place: Place) -> tuple[socket.socket, int]:
    """A page connection and the page's descriptor, -1 where none came."""
    one = page(place.socket, secrets.randbits(63))
    with contextlib.suppress(OSError):
        _, fds, _, _ = socket.recv_fds(one, 64, 4)
        return one, fds[0] if fds else -1
    return one, -1


@attack(TENANT)
def writes_to_the_page(place: Place) -> Steps:
    """Truncates, grows, seals, punches and writes the page, maps it to write, and opens it anew to write"""
    while True:
        one, fd = _page(place)
        with one:
            if fd < 0:
                yield None
                continue
            before = os.pread(fd, SIZE, 0)[:64]
            for attempt in _TRIES:
                with contextlib.suppress(OSError, ValueError):
                    attempt(fd)
            for seal in _SEALS:
                with contextlib.suppress(OSError):
                    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seal)
            if os.fstat(fd).st_size != SIZE or os.pread(fd, SIZE, 0)[:64] != before:
                yield "the page was changed by a tenant"
            os.close(fd)
        os.closerange(fd + 1, 4096)  # what was opened anew
        yield None


@attack(TENANT)
def wakes_the_page(place: Place) -> Steps:
    """Wakes all who sleep on the words of its page, and moves them to other words, without end"""
    libc = ctypes.CDLL(None, use_errno=True)
    one, fd = _page(place)
    while fd < 0:
        yield None
        one, fd = _page(place)
    with one:
        libc.mmap.restype = ctypes.c_void_p
        address = libc.mmap(None, ctypes.c_size_t(SIZE), mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
        while True:
            for offset in range(0, SIZE, 64):
                libc.syscall(_FUTEX, ctypes.c_void_p(address + offset), _FUTEX_WAKE, 1 << 30, None, None, 0)
                libc.syscall(_FUTEX, ctypes.c_void_p(address + offset), _FUTEX_REQUEUE, 0, ctypes.c_long(1 << 30),
                             ctypes.c_void_p(address), 0)  # fmt: skip
            yield None


@attack(TENANT)
def page_connections_that_stand(place: Place) -> Steps:
    """Six hundred page connections that said nothing"""
    return many(place, 600, b"", place.page)


@attack(TENANT)
def pages_that_stand(place: Place) -> Steps:
    """Six hundred page connections of one process under as many nonces, each of which was given the page"""
    standing: list[socket.socket] = []
    while True:
        standing.append(page(place.socket, secrets.randbits(63)))
        if len(standing) > 600:
            standing.pop(0).close()
        yield None


@attack(TENANT)
def page_hellos_in_pieces(place: Place) -> Steps:
    """The page's hello byte by byte, too long, of another version, and twice"""
    while True:
        for octets in (
            _hello()[:7],
            _hello() * 2,
            b"\0" * 16,
            _hello()[:4] + b"\xff" * 12,
            os.urandom(16),
            b"x" * 5000,
        ):
            with connected(place.page) as one:
                for octet in octets[:20]:
                    send(one, bytes([octet]))
                send(one, octets[20:])
            yield None


@attack(TENANT)
def pages_that_are_not_taken(place: Place) -> Steps:
    """Asks for the page and leaves it and its descriptor unread"""
    standing: list[socket.socket] = []
    while True:
        one = connected(place.page)
        send(one, _hello())
        standing.append(one)
        if len(standing) == 250:
            time.sleep(0.2)
            for each in standing:
                each.close()
            standing = []
        yield None


@attack(TENANT)
def page_of_a_process_that_died(place: Place) -> Steps:
    """A child asks for the page and ends; its parent keeps the connection and speaks on it"""
    while True:
        left, right = socket.socketpair()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                one = page(place.socket, secrets.randbits(63))
                socket.send_fds(right, [b"x"], [one.fileno()])
            os._exit(0)
        os.waitpid(child, 0)
        left.settimeout(0.5)
        with contextlib.suppress(OSError):
            _, fds, _, _ = socket.recv_fds(left, 1, 1)
            for fd in fds:
                with contextlib.suppress(OSError):
                    for _ in range(20):
                        os.write(fd, struct.pack("<IHHQ", lib.WIRE_MAGIC, 0, 1, secrets.randbits(20)))
                os.close(fd)
        left.close()
        right.close()
        yield None


ATTACKS: tuple[Attack, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Attack))
