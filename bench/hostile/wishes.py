"""Attacks by wishes that are meant: processes that ask for the token, get it, and give it back as the library would."""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import select
import socket
import struct

from bench.flood import connected, frame, greeted, hello
from bench.hostile.table import TENANT, Attack, Place, Steps, attack
from bench.hostile.words import message
from libhook import core
from libhook.core import ffi, lib

PAGE_BYTES = 4096
MOST = 250  # processes of a tenant, as far as the daemon can tell


class Holder:
    """One client that reads what it is told and sees the page, so that it knows which epoch is its."""

    def __init__(self, place: Place) -> None:
        nonce = secrets.randbits(63)
        self.page = connected(place.page)
        self.page.sendall(struct.pack("<IIQ", lib.WIRE_MAGIC, lib.WIRE_VERSION, nonce))
        _, descriptors, _, _ = socket.recv_fds(self.page, 64, 1)
        self.view = mmap.mmap(descriptors[0], PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
        os.close(descriptors[0])
        self.shown = ffi.cast("struct wire_page *", ffi.from_buffer(self.view))
        self.socket = greeted(place.socket)
        self.socket.sendall(frame(hello(place.card, nonce)))
        self.socket.setblocking(False)
        self.epochs: list[int] = []  # granted, and not given back
        self._rest = b""

    def epoch(self) -> int:
        """Under which its tenant may launch now."""
        return int(lib.wire_page_load_epoch(self.shown, 0))

    def read(self) -> bool:
        """Take what there is; False where the connection has ended."""
        try:
            more = self.socket.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._rest += more
        while (size := self._size()) and len(self._rest) >= size[0] + size[1]:
            body, self._rest = self._rest[size[0] : sum(size)], self._rest[sum(size) :]
            with contextlib.suppress(core.WireError):
                kind, said = core.decode(body)
                if kind == lib.WIRE_GRANT:
                    self.epochs.append(said.epoch)
        return more != b""

    def _size(self) -> tuple[int, int] | None:
        """Of the next frame: of its header, and of what is behind it."""
        if len(self._rest) < 9:
            return (2, self._rest[1]) if len(self._rest) > 1 and not self._rest[0] & 2 else None
        return (9, struct.unpack_from(">Q", self._rest, 1)[0]) if self._rest[0] & 2 else (2, self._rest[1])

    def say(self, said: bytes) -> None:
        with contextlib.suppress(OSError):
            self.socket.send(frame(said))

    def holds(self) -> int:
        """The epoch that it has, of a grant that it was told of; 0: none."""
        epoch = self.epoch()
        return epoch if epoch in self.epochs else 0

    def give_back(self, epoch: int, *, more: bool = False) -> None:
        self.epochs = [one for one in self.epochs if one > epoch]
        self.say(message(lib.WIRE_RETURN, device=0, epoch=epoch, flags=int(more) or lib.WIRE_RETURN_IDLE))


def _asked() -> bytes:
    return message(lib.WIRE_TOKEN_REQUEST, device=0, burst_ns=100_000, gap_ns=100_000)


@attack(TENANT)
def turns_of_nothing(place: Place) -> Steps:
    """Asks for the token, gives it back at once for lack of work, and asks again, so that others are asked for it"""
    yield from _turns(place, 1)


@attack(TENANT)
def wishes_of_many(place: Place) -> Steps:
    """The same from 250 processes that come to wait one after the other, so that each order has others to be told"""
    yield from _turns(place, MOST)


def _turns(place: Place, count: int) -> Steps:
    holders = []
    for _ in range(count):
        holders.append(Holder(place))
        if len(holders) % 10 == 0:
            yield None
    poll = select.poll()
    by_fd = {one.socket.fileno(): one for one in holders}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    asked = _asked()
    for one in holders:
        one.say(asked)
    while True:
        for fd, _ in poll.poll(1):
            by_fd[fd].read()
        if epoch := holders[0].epoch():
            for one in holders:
                if epoch in one.epochs:
                    one.give_back(epoch)
                    one.say(asked)
        yield None


ATTACKS: tuple[Attack, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Attack))
