"""Attacks by messages: each of them is well formed, and a lie."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import struct
import time
from collections.abc import Callable

from bench import flood
from bench.flood import Client, frame, greeted, hello, page, send, talk
from bench.hostile.table import TENANT, Attack, Place, Steps, attack
from libhook import core
from libhook.core import ffi, lib

ENDLESS = (1 << 64) - 1
CLIENTS = 24


def message(kind: int, **fields: object) -> bytes:
    """One encoded message; `bytes_` is the field of that name, and fields may hold anything."""
    made = core.new(kind, secrets.randbits(32), **{name.rstrip("_"): value for name, value in fields.items()})
    return bytes(ffi.buffer(made))


def _steps(way: Callable[[str, bytes], object]) -> Callable[[Place], Steps]:
    """One of the floods that tests play, too (bench/flood.py)."""

    def play(place: Place) -> Steps:
        yield from way(place.socket, place.card)  # type: ignore[misc]

    return play


def _flood(way: str, what: str) -> Attack:
    return Attack(f"flood-of-{way}", TENANT, what, _steps(flood.WAYS[way]), 0, False, 0)


FLOODS = tuple(
    _flood(way, what)
    for way, what in {
        "messages": "Requests for the token without end on one connection",
        "many": "Requests for the token from 64 connections that take turns",
        "hellos": "Ever new processes, as it says: a new nonce with each connection",
        "drained": "Words for the carrier's thread without end: nothing of an epoch runs any more",
        "connections": "Connects, says nonsense, leaves, on both sockets",
        "pages": "The page under ever new nonces, which is then truncated and written",
        "nonsense": "Frames that are no messages, each on a connection of its own",
        "memory": "Reserves a TiB and says it holds a GiB, without end",
        "recalls": "One asks for more than there is, so that 63 others are asked for theirs",
        "standing": "450 connections that stand and are filled while one is busy",
    }.items()
)


def talkers(place: Place, say: Callable[[], bytes], count: int = CLIENTS) -> Steps:
    """So many connections that said Hello and then say this; those that are cut off come back."""
    clients: list[Client] = []
    while True:
        while len(clients) < count:
            clients.append(Client(place.socket, place.card))
            yield None
        left = []
        for client in clients:
            if client.say(say()):
                left.append(client)
            else:
                client.close()
        clients = left
        yield None


@attack(TENANT)
def wrong_epochs(place: Place) -> Steps:
    """Returns, renewals and drain words of epochs that it never had: others', later ones, the last there can be"""

    def say() -> bytes:
        epoch = random.choice((1, 2, secrets.randbits(20), secrets.randbits(63), ENDLESS))
        if random.getrandbits(1):
            return message(lib.WIRE_RETURN, device=0, epoch=epoch, flags=random.getrandbits(3))
        return message(lib.WIRE_TOKEN_REQUEST, device=0, epoch=epoch, flags=random.getrandbits(3))

    return talkers(place, say)


@attack(TENANT)
def lying_returns(place: Place) -> Steps:
    """Asks for the token and gives it back with times that are endless, or none, and work it never did"""

    def say() -> bytes:
        if random.getrandbits(1):
            return message(lib.WIRE_TOKEN_REQUEST, device=0, burst_ns=ENDLESS, gap_ns=0, waiting_threads=0xFFFFFFFF)
        lies = {name: random.choice((0, ENDLESS, 1 << 63)) for name in ("held_ns", "busy_ns", "overuse_ns", "idle_ns")}
        return message(lib.WIRE_RETURN, device=0, epoch=secrets.randbits(16), flags=1, launches=ENDLESS,
                       burst_ns=ENDLESS, gap_ns=ENDLESS, **lies)  # fmt: skip

    return talkers(place, say)


@attack(TENANT)
def lying_figures(place: Place) -> Steps:
    """Statistics of 2^64-1 launches, and of less than before"""
    return talkers(
        place,
        lambda: message(lib.WIRE_STATS, device=0, launches=random.choice((0, ENDLESS)), busy_ns=ENDLESS,
                        ungated_lookups=ENDLESS),
    )  # fmt: skip


@attack(TENANT)
def lying_use(place: Place) -> Steps:
    """Says what it used beside others under epochs that it never had: nothing, all there can be, less than before"""

    def say() -> bytes:
        if random.getrandbits(2) == 0:
            return message(lib.WIRE_TOKEN_REQUEST, device=0)
        epoch = random.choice((0, 1, secrets.randbits(20), ENDLESS))
        figures = {name: random.choice((0, 1, 1 << 63, ENDLESS)) for name in ("busy_ns", "waited_ns")}
        return message(lib.WIRE_USED, device=0, epoch=epoch, **figures)

    return talkers(place, say)


@attack(TENANT)
def short_bursts(place: Place) -> Steps:
    """Says that its bursts take a nanosecond and its gaps are endless, to be let before the others"""
    return talkers(place, lambda: message(lib.WIRE_TOKEN_REQUEST, device=0, burst_ns=1, gap_ns=ENDLESS))


@attack(TENANT)
def sums_that_overflow(place: Place) -> Steps:
    """Reserves and gives back 2^64-1 bytes, and the halves of it, from many processes"""

    def say() -> bytes:
        size = random.choice((ENDLESS, 1 << 63, (1 << 63) + 1, place.memory_bytes + 1))
        kind = random.choice((lib.WIRE_MEM_RESERVE, lib.WIRE_MEM_RELEASE))
        if kind == lib.WIRE_MEM_RESERVE:
            return message(kind, device=0, bytes_=size, credit_bytes=random.choice((0, size)))
        return message(kind, device=0, bytes_=size, flags=random.getrandbits(2))

    return talkers(place, say)


@attack(TENANT)
def more_memory_than_its_limit(place: Place) -> Steps:
    """Reserves what its limit leaves, says it gave all of that back, and reserves it again"""
    client = Client(place.socket, place.card)
    half = place.memory_bytes // 2
    while True:
        for said in (
            message(lib.WIRE_MEM_RESERVE, device=0, bytes_=half, credit_bytes=half),
            message(lib.WIRE_MEM_RELEASE, device=0, bytes_=ENDLESS),
            message(lib.WIRE_MEM_RELEASE, device=0, bytes_=half, flags=lib.WIRE_MEM_RELEASE_RECALLED),
        ):
            if not client.say(said):
                client.close()
                client = Client(place.socket, place.card)
        yield None


@attack(TENANT)
def contexts_without_end(place: Place) -> Steps:
    """Asks again and again what its first context took, for which the daemon asks the driver"""
    return talkers(
        place,
        lambda: message(lib.WIRE_MEM_RESERVE, device=0, flags=lib.WIRE_MEM_CONTEXT, credit_bytes=secrets.randbits(40)),
    )


@attack(TENANT)
def lying_hellos(place: Place) -> Steps:
    """Hellos of a reconnection that say it holds all epochs, all memory, and one card sixteen times"""
    while True:
        made = core.new(lib.WIRE_HELLO, 1, client_nonce=secrets.randbits(63), pid=1, program=b"liar", device_count=16,
                        flags=lib.WIRE_HELLO_AGAIN)  # fmt: skip
        for device in range(16):
            ffi.memmove(made.uuid[device], place.card, 16)
            made.held_epoch[device] = secrets.randbits(64)
            made.memory_bytes[device] = ENDLESS
        with greeted(place.socket) as one:
            send(one, frame(bytes(ffi.buffer(made))))
        yield None


@attack(TENANT)
def one_nonce_for_all(place: Place) -> Steps:
    """A hundred connections that all say they are the same process"""
    octets = frame(hello(place.card, 12345))
    standing: list[socket.socket] = []
    while True:
        one = greeted(place.socket)
        send(one, octets)
        standing.append(one)
        for each in standing:
            send(each, octets)
        if len(standing) > 100:
            for each in standing:
                each.close()
            standing = []
        yield None


@attack(TENANT, finding=8)
def names_that_draw(place: Place) -> Steps:
    """Programs whose names clear the screen, break the line, are no UTF-8, or end in no zero"""
    names = (b"\x1b[2J\x1b[H", b"a\nlevel=error x=1", b"\xff\xfe\xfd", b"x" * 32, b"\r\0\x07", b'"}\n# HELP x')
    while True:
        for name in names:
            made = core.new(lib.WIRE_HELLO, 1, client_nonce=secrets.randbits(63), pid=0xFFFFFFFF, device_count=1)
            ffi.memmove(made.program, name, len(name))
            ffi.memmove(made.library, name, len(name))
            ffi.memmove(made.uuid[0], place.card, 16)
            with greeted(place.socket) as one:
                send(one, frame(bytes(ffi.buffer(made))))
                time.sleep(0.01)
            yield None


@attack(TENANT)
def almost_messages(place: Place) -> Steps:
    """Messages of every type with a field out of range, another version, a size that is not theirs, or one bit off"""
    kinds = range(1, 14)

    def say() -> bytes:
        octets = bytearray(message(random.choice(kinds)))
        for _ in range(random.randrange(1, 4)):
            octets[random.randrange(len(octets))] = random.randrange(256)
        return bytes(octets[: random.choice((len(octets), len(octets), random.randrange(1, len(octets))))])

    return talkers(place, say, 8)


@attack(TENANT)
def words_of_the_daemon(place: Place) -> Steps:
    """Sends what only the daemon says: Welcome, Grant, Extend, Revoke, MemReply, MemRecall, Error"""
    kinds = (lib.WIRE_WELCOME, lib.WIRE_GRANT, lib.WIRE_EXTEND, lib.WIRE_REVOKE, lib.WIRE_MEM_REPLY,
             lib.WIRE_MEM_RECALL, lib.WIRE_ERROR)  # fmt: skip
    return talkers(place, lambda: message(random.choice(kinds)), 8)


@attack(TENANT)
def holds_and_sleeps(place: Place) -> Steps:
    """Asks for the token from processes without a page, never gives it back, and renews it for ever"""
    asked = message(lib.WIRE_TOKEN_REQUEST, device=0)
    while True:
        with greeted(place.socket) as one:
            send(one, frame(hello(place.card, secrets.randbits(63))) + frame(asked))
            for _ in range(50):
                send(one, frame(message(lib.WIRE_TOKEN_REQUEST, device=0, flags=3, epoch=secrets.randbits(16))))
                yield None
                time.sleep(0.01)


@attack(TENANT)
def turns_that_end_at_once(place: Place) -> Steps:
    """Takes each grant and gives it back with a wish for more, as often as it is let"""
    return talk(place.socket, place.card, message(lib.WIRE_TOKEN_REQUEST, device=0),
                message(lib.WIRE_RETURN, device=0, flags=1))  # fmt: skip


@attack(TENANT)
def dies_between_messages(place: Place) -> Steps:
    """Processes that end after each step of coming in: connected, greeted, with a page, after Hello, while they wait"""
    asked = frame(message(lib.WIRE_TOKEN_REQUEST, device=0))
    while True:
        for step in range(5):
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    _come_in(place, step, asked)
                os._exit(0)
            os.waitpid(child, 0)
            yield None


def _come_in(place: Place, step: int, asked: bytes) -> None:
    nonce = secrets.randbits(63)
    if step == 0:
        flood.connected(place.socket)
        return
    kept = [page(place.socket, nonce)] if step > 1 else []
    one = greeted(place.socket)
    if step > 2:
        send(one, frame(hello(place.card, nonce)))
    if step > 3:
        send(one, asked)
    del kept


@attack(TENANT)
def threehundred_processes(place: Place) -> Steps:
    """Three hundred real processes that each say Hello with a page, and go and come back"""
    children: list[int] = []
    while True:
        while len(children) < 300:
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    client = Client(place.socket, place.card)
                    while client.say(message(lib.WIRE_TOKEN_REQUEST, device=0)):
                        time.sleep(1)
                os._exit(0)
            children.append(child)
            if len(children) % 10 == 0:
                yield None
        for child in children[:30]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, 9)
        for child in children[:30]:
            os.waitpid(child, 0)
        del children[:30]
        time.sleep(0.1)
        yield None


@attack(TENANT)
def drain_words_with_returns(place: Place) -> Steps:
    """Drain words for every slot and none, with Returns behind them that are cut, doubled, or somebody else's"""
    while True:
        client = Client(place.socket, place.card)
        with contextlib.suppress(OSError):
            for _ in range(200):
                word = struct.pack("<IHHQ", lib.WIRE_MAGIC, random.getrandbits(16), random.getrandbits(3),
                                   secrets.randbits(24))  # fmt: skip
                behind = message(lib.WIRE_RETURN, device=random.getrandbits(5), epoch=secrets.randbits(24))
                client.page.send(word + behind[: random.choice((0, 1, len(behind), len(behind)))])
                yield None
        client.close()
        yield None


ATTACKS: tuple[Attack, ...] = (*FLOODS, *(value for value in list(globals().values()) if isinstance(value, Attack)))
