"""Attacks below the messages: what goes over the tenant's socket is ZMTP, or not even that."""

from __future__ import annotations

import array
import contextlib
import os
import random
import secrets
import socket
import struct
import time

from bench.flood import OPENING, connected, frame, greeted, hello, send, stands
from bench.hostile.table import TENANT, Attack, Place, Steps, attack
from libhook import core
from libhook.core import lib

GREETING, READY = OPENING[:64], OPENING[64:]
MANY, WHOLE = 300, 600  # connections: within what a tenant may have, and beyond
LONG = 1 << 16
_PING, _PONG = b"\x04PING", b"\x04PONG"


def command(body: bytes) -> bytes:
    """One ZMTP command."""
    return b"\x04" + bytes([len(body)]) + body if len(body) < 256 else b"\x06" + struct.pack(">Q", len(body)) + body


def more(body: bytes) -> bytes:
    """A frame behind which another of its message comes."""
    return b"\x01" + bytes([len(body)]) + body


def pour(place: Place, opening: bytes, octets: bytes) -> Steps:
    """The same without end, on a new connection where the last one was closed for it."""
    while True:
        with connected(place.socket) as one:
            send(one, opening)
            one.setblocking(False)
            left = octets
            while stands(one):
                try:
                    left = left[one.send(left) :] or octets
                except BlockingIOError:
                    time.sleep(0.001)
                except OSError:
                    break
                yield None
        yield None


def many(place: Place, count: int, octets: bytes, path: str = "") -> Steps:
    """So many connections that say this and stand; those that were closed are made anew."""
    standing: list[socket.socket] = []
    while True:
        while len(standing) < count:
            one = connected(path or place.socket)
            send(one, octets)
            one.setblocking(False)
            standing.append(one)
            if len(standing) % 16 == 0:
                yield None
        yield None
        left = []
        for one in standing:
            if stands(one):
                left.append(one)
            else:
                one.close()
        standing = left
        time.sleep(0.05)


@attack(TENANT, finding=1)
def ping_and_hang_up(place: Place) -> Steps:
    """Fills the pipe with messages, puts a PING behind them and hangs up, so that the answer finds nobody"""
    stats = frame(core.encode(core.new(lib.WIRE_STATS, 9, device=0)))
    while True:
        with greeted(place.socket) as one:
            send(one, frame(hello(place.card, secrets.randbits(63))) + stats * 40 + command(_PING + b"\0\0") + stats)
        yield None


@attack(TENANT, finding=1)
def short_pings(place: Place) -> Steps:
    """PINGs that are too short; an answer longer than a PONG without context shows the daemon's memory"""
    while True:
        for tail in (b"", b"\0"):
            with greeted(place.socket) as one:
                send(one, command(_PING + tail))
                one.settimeout(0.2)
                with contextlib.suppress(OSError):
                    heard = one.recv(4096)
                    at = heard.find(_PONG)
                    if at >= 0 and len(heard) > at + len(_PONG):
                        yield f"a PING of {5 + len(tail)} bytes was answered with {len(heard) - at - 5} bytes of memory"
            yield None


@attack(TENANT)
def pings(place: Place) -> Steps:
    """PINGs without end, whose answers nobody reads"""
    one = greeted(place.socket)
    octets = command(_PING + b"\0\1" + b"x" * 16) * 100
    while True:
        send(one, octets)
        yield None
        if not _open(one):
            one.close()
            one = greeted(place.socket)


@attack(TENANT)
def long_pings(place: Place) -> Steps:
    """PINGs with a context far longer than the 16 bytes that ZMTP allows"""
    return pour(place, OPENING, command(_PING + b"\0\1" + b"x" * 4000))


@attack(TENANT, finding=2)
def endless_message(place: Place) -> Steps:
    """One message of frames that never ends (MORE is set in each of them)"""
    return pour(place, OPENING, more(b"x" * 250) * 64)


@attack(TENANT, finding=2)
def endless_tiny_frames(place: Place) -> Steps:
    """The same with frames of one byte, each of which costs its reader twenty times as much"""
    return pour(place, OPENING, more(b"x") * 4096)


@attack(TENANT, finding=2)
def endless_empty_frames(place: Place) -> Steps:
    """The same with frames of no byte at all"""
    return pour(place, OPENING, more(b"") * 4096)


@attack(TENANT, finding=2)
def many_unended_messages(place: Place) -> Steps:
    """Three hundred connections, each with a message that goes on for as long as it is let"""
    return many(place, MANY, OPENING + more(b"x" * 250) * 30)


@attack(TENANT)
def noise(place: Place) -> Steps:
    """Random bytes instead of a greeting"""
    while True:
        with connected(place.socket) as one:
            send(one, random.randbytes(random.choice((1, 10, 11, 12, 63, 64, 65, 4096))))
        yield None


@attack(TENANT)
def noise_behind_the_greeting(place: Place) -> Steps:
    """Random bytes as commands and messages behind a right greeting"""
    while True:
        with connected(place.socket) as one:
            send(one, (GREETING, OPENING)[random.getrandbits(1)] + random.randbytes(200))
            one.settimeout(0.01)
            with contextlib.suppress(OSError):
                one.recv(4096)
        yield None


@attack(TENANT)
def slow_greetings(place: Place) -> Steps:
    """Four hundred connections that say one byte of the greeting now and then"""
    standing = [connected(place.socket) for _ in range(400)]
    while True:
        for octet in GREETING[:60]:
            for one in standing:
                send(one, bytes([octet]))
            yield None
            time.sleep(0.2)
        for one in standing:
            one.close()
        standing = [connected(place.socket) for _ in range(400)]


@attack(TENANT)
def silent_connections(place: Place) -> Steps:
    """Six hundred connections that say nothing, opened again as they are closed"""
    return many(place, WHOLE, b"")


@attack(TENANT)
def half_open(place: Place) -> Steps:
    """Connections whose writing end is shut at once, so that they end but do not go"""
    standing: list[socket.socket] = []
    while True:
        one = connected(place.socket)
        send(one, GREETING)
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_WR)
        standing.append(one)
        if len(standing) > MANY:
            standing.pop(0).close()
        yield None


@attack(TENANT)
def connect_and_leave(place: Place) -> Steps:
    """Connections that are closed as soon as they are made, as many a second as can be"""
    while True:
        connected(place.socket).close()
        yield None


@attack(TENANT)
def backlog(place: Place) -> Steps:
    """Connections that are never waited for, so that the kernel's queue is always full"""
    waiting: list[socket.socket] = []
    while True:
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(OSError):
            one.connect(place.socket)
        waiting.append(one)
        if len(waiting) > 900:
            for old in waiting[:450]:
                old.close()
            del waiting[:450]
        yield None


@attack(TENANT)
def other_mechanisms(place: Place) -> Steps:
    """Greetings that name PLAIN, CURVE, GSSAPI, nothing, or a mechanism of 20 bytes, and each as-server"""
    while True:
        for name in (b"PLAIN", b"CURVE", b"GSSAPI", b"", b"\xff" * 20, b"NULL\0X", b"null"):
            for server in (b"\0", b"\1", b"\xff"):
                with connected(place.socket) as one:
                    send(one, GREETING[:12] + name.ljust(20, b"\0") + server + bytes(31) + READY)
                    send(one, command(b"\x05HELLO" + b"\xff" * 40) + command(b"\x08INITIATE" + bytes(100)))
                yield None


@attack(TENANT)
def other_versions(place: Place) -> Steps:
    """Greetings of ZMTP 1, 2, 3.0, 4 and 255, and those whose signature is almost right"""
    while True:
        for major, minor in ((0, 0), (1, 0), (2, 0), (3, 0), (3, 255), (4, 0), (255, 255)):
            with connected(place.socket) as one:
                send(one, GREETING[:10] + bytes([major, minor]) + GREETING[12:] + READY + frame(bytes(64)))
            yield None
        for old in (b"\x01\x00", b"\xff" + bytes(8) + b"\x7e", b"\xff" + b"\xff" * 8 + b"\x7f", b"\x05\x00abcd"):
            with connected(place.socket) as one:
                send(one, old + bytes(100))
            yield None


@attack(TENANT)
def other_socket_types(place: Place) -> Steps:
    """READY as ROUTER, PUB, SUB, REQ, STREAM, a name of 255 bytes or none, with subscriptions behind it"""
    kinds = (b"ROUTER", b"PUB", b"SUB", b"REQ", b"REP", b"PUSH", b"PAIR", b"STREAM", b"x" * 255, b"")
    while True:
        for kind in kinds:
            body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
            with connected(place.socket) as one:
                send(one, GREETING + command(body) + command(b"\x09SUBSCRIBE") * 20 + frame(b"\1") * 20)
            yield None


@attack(TENANT)
def huge_properties(place: Place) -> Steps:
    """READY with properties whose lengths go up to 2^32-1, and names of 255 bytes"""
    while True:
        for length in (255, LONG, 1 << 31, (1 << 32) - 1):
            body = b"\x05READY" + b"\xff" + b"n" * 255 + struct.pack(">I", length) + b"v" * min(length, LONG)
            with connected(place.socket) as one:
                send(one, GREETING + command(body))
            yield None


@attack(TENANT)
def many_properties(place: Place) -> Steps:
    """READY with fifty thousand properties, on connections that stand"""
    body = b"\x05READY" + (b"\x01a" + struct.pack(">I", 1) + b"b") * 50_000
    return many(place, 64, GREETING + command(body))


@attack(TENANT)
def ready_again(place: Place) -> Steps:
    """READY after READY, and ERROR commands with reasons of 255 bytes"""
    return pour(place, OPENING, READY * 50 + command(b"\x05ERROR\xff" + b"\x1b" * 255))


@attack(TENANT)
def unknown_commands(place: Place) -> Steps:
    """Commands that do not exist, with names of no and of 255 bytes"""
    return pour(place, OPENING, command(b"\x00") * 100 + command(b"\xff" + b"C" * 255) * 20)


@attack(TENANT)
def commands_before_the_end_of_the_handshake(place: Place) -> Steps:
    """Messages and PINGs instead of READY"""
    return pour(place, GREETING, command(_PING + b"\0\1") + frame(hello(place.card, 1)))


@attack(TENANT)
def greatest_lengths(place: Place) -> Steps:
    """Frames and commands that say they have 2^63 bytes and more, or a GiB that comes slowly"""
    while True:
        for length in ((1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 9, 1 << 30, 1025):
            for flags in (b"\x02", b"\x03", b"\x06"):
                with connected(place.socket) as one:
                    send(one, OPENING + flags + struct.pack(">Q", length) + bytes(4096))
                yield None


@attack(TENANT)
def gigabytes_promised(place: Place) -> Steps:
    """Three hundred connections that each promise a frame of a GiB and trickle it"""
    return many(place, MANY, OPENING + b"\x02" + struct.pack(">Q", 1 << 30) + bytes(2000))


@attack(TENANT)
def longest_frames(place: Place) -> Steps:
    """Frames of just the longest message there is, and one byte more, without end"""
    return pour(place, OPENING, frame(bytes(1024)) * 8 + frame(bytes(1025)))


@attack(TENANT)
def reserved_flags(place: Place) -> Steps:
    """Frames with every flag that ZMTP keeps for later, and lengths in their longer form"""
    while True:
        for flags in range(8, 256, 5):
            with connected(place.socket) as one:
                send(one, OPENING + bytes([flags]) + struct.pack(">Q", 16) + bytes(16))
            yield None
        with connected(place.socket) as one:
            send(one, OPENING + (b"\x02" + struct.pack(">Q", 1) + b"x") * 200)
        yield None


@attack(TENANT)
def byte_by_byte(place: Place) -> Steps:
    """Right messages, each byte of which is a packet of its own, on a hundred connections"""
    octets = OPENING + frame(hello(place.card, secrets.randbits(63)))
    octets += frame(core.encode(core.new(lib.WIRE_TOKEN_REQUEST, 9, device=0))) * 20
    while True:
        standing = [connected(place.socket) for _ in range(100)]
        for octet in octets:
            for one in standing:
                send(one, bytes([octet]))
            yield None
        for one in standing:
            one.close()


@attack(TENANT)
def never_reads(place: Place) -> Steps:
    """Asks what is always answered, and reads none of the answers, on sixty connections"""
    asked = frame(core.encode(core.new(lib.WIRE_MEM_RESERVE, 9, device=0, **{"bytes": 0}))) * 16
    standing: list[socket.socket] = []
    while True:
        while len(standing) < 60:
            one = greeted(place.socket)
            send(one, frame(hello(place.card, secrets.randbits(63))))
            one.setblocking(False)
            standing.append(one)
            yield None
        for one in standing:
            with contextlib.suppress(OSError):
                one.send(asked)
        standing = [one for one in standing if _open(one)]
        yield None


@attack(TENANT)
def anothers_identity(place: Place) -> Steps:
    """Connections that take the same routing id, one of 255 bytes, and ones that begin with a zero byte"""
    while True:
        for identity in (b"a", b"a", b"\0\0\0\0\1", b"\0" * 5, b"z" * 255):
            body = READY[2:-4] + struct.pack(">I", len(identity)) + identity
            with connected(place.socket) as one, connected(place.socket) as two:
                for each in (one, two):
                    send(each, GREETING + command(body) + frame(hello(place.card, secrets.randbits(63))))
            yield None


@attack(TENANT)
def out_of_band(place: Place) -> Steps:
    """Urgent bytes between the others, and messages of no byte"""
    while True:
        with connected(place.socket) as one:
            send(one, OPENING)
            for _ in range(20):
                with contextlib.suppress(OSError):
                    one.send(b"!", socket.MSG_OOB)
                    one.send(b"")
        yield None


@attack(TENANT)
def descriptors_to_the_daemon(place: Place) -> Steps:
    """Passes 253 descriptors with each packet (SCM_RIGHTS), to both sockets"""
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(253)]
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
    page_hello = struct.pack("<IIQ", lib.WIRE_MAGIC, lib.WIRE_VERSION, secrets.randbits(63))
    while True:
        for path, octets in ((place.socket, OPENING), (place.page, page_hello)):
            with connected(path) as one:
                for part in (octets[:4], octets[4:], b"\0", b"\0"):
                    with contextlib.suppress(OSError):
                        one.sendmsg([part], rights)
        yield None


@attack(TENANT)
def sockets_within_sockets(place: Place) -> Steps:
    """Passes sockets that hold each other, so that only the kernel's collector can free them"""
    while True:
        with connected(place.socket) as one:
            left, right = socket.socketpair()
            with left, right, contextlib.suppress(OSError):
                for each, other in ((left, right), (right, left), (one, left), (one, right)):
                    each.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [other.fileno()]))])
        yield None


def _open(one: socket.socket) -> bool:
    """Is the connection there? Reads nothing."""
    try:
        one.send(b"")
    except BlockingIOError:
        return True
    except OSError:
        return False
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


ATTACKS: tuple[Attack, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Attack))
