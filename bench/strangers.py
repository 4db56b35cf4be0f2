"""Does a live daemon stand a million random connections?

    python -m bench.strangers [--connections 1000000] [--tenants 64] [--seed N]

Each connection says a right handshake with messages behind it, or the page's hello, that was then changed at random:
bits, lengths, pieces taken out, doubled, put in from elsewhere. Some stand a moment, some hang up at once. They are
spread over many tenants, for of one tenant so many a second are taken in. Meanwhile a client of another tenant asks for
its figures again and again, and is to be answered each time. It fails where the daemon ended, where an answer did not
come, and where the daemon has 10 MiB, or descriptors or threads, more than before. Times say nothing here: it may run
at the lowest priority.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import random
import secrets
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.bed import Bed, wait_for
from bench.flood import OPENING, frame, greeted, hello, send
from bench.hostile.judge import MOST_GROWTH, used
from bench.hostile.zmtp import command
from bench.report import report
from bench.tenants import resident_bytes
from libhook import core
from libhook.core import ffi, lib
from scheduler_backend.bounds import BACKLOG, CONNECTIONS_A_SECOND

LONGEST_S = 0.3  # that a connection stands which was answered
UNHEARD_S = 5.0  # and one that was not
ANSWER_S = 60.0  # for the polite client
ASKED_EVERY_S = 0.2
QUEUED_S = BACKLOG / CONNECTIONS_A_SECOND + 2  # until who waits in the kernel's queues was taken
BACK_S = 60.0  # until what the daemon had for those who left is given back
OF_A_PROCESS = 20_000  # connections; then another goes on, and what was held for the first is to be given back
WARM = 2000  # connections behind which its memory is what it begins with
_KINDS = (
    lib.WIRE_TOKEN_REQUEST, lib.WIRE_RETURN, lib.WIRE_MEM_RESERVE, lib.WIRE_MEM_RELEASE, lib.WIRE_STATS,
    lib.WIRE_GRANT, lib.WIRE_ERROR,
)  # fmt: skip
_TELLING = (0, 1, 2, 4, 5, 9, 0x7F, 0x80, 0xFE, 0xFF)  # bytes that are lengths, flags and ends of ranges


def said(random_: random.Random, card: bytes) -> bytes:
    """What a right client says, some of it."""
    octets = OPENING
    if random_.random() < 0.9:
        octets += frame(hello(card, random_.getrandbits(63)))
    for _ in range(random_.randrange(6)):
        octets += frame(core.encode(core.new(random_.choice(_KINDS), random_.getrandbits(8))))
        if random_.random() < 0.3:
            octets += command(b"\x04PING" + random_.randbytes(random_.randrange(20)))
    return octets


def asked_for_page(random_: random.Random) -> bytes:
    """The page's hello, with what its holder says of its work behind it."""
    word = struct.pack("<IHHQ", lib.WIRE_MAGIC, 0, random_.randrange(4), random_.getrandbits(16))
    return struct.pack("<IIQ", lib.WIRE_MAGIC, lib.WIRE_VERSION, random_.getrandbits(63)) + word * random_.randrange(3)


def changed(random_: random.Random, octets: bytes) -> bytes:
    """The same with some changes; now and then with none."""
    found = bytearray(octets)
    for _ in range(random_.choice((0, 1, 1, 2, 3, 8))):
        at = random_.randrange(len(found) + 1)
        way = random_.randrange(7)
        if way == 0 and at < len(found):
            found[at] ^= 1 << random_.randrange(8)
        elif way == 1 and at < len(found):
            found[at] = random_.choice(_TELLING)
        elif way == 2:
            del found[at : at + random_.choice((1, 2, 16, 200))]
        elif way == 3:
            found[at:at] = random_.randbytes(random_.choice((1, 8, 64)))
        elif way == 4:
            start = random_.randrange(len(found) + 1)
            found[at:at] = found[start : start + random_.randrange(300)]
        elif way == 5:
            found[at : at + 8] = struct.pack(">Q", random_.choice((1 << 63, (1 << 64) - 1, 1024, 1025, 0)))
        else:
            del found[at:]
    return bytes(found[:8192])


class Polite:
    """A client of a tenant of its own, which asks for its figures and waits for the answer."""

    def __init__(self, path: str, card: bytes) -> None:
        self.socket = greeted(path)
        send(self.socket, frame(hello(card, secrets.randbits(63))))
        self.socket.settimeout(ANSWER_S)
        self.answers, self.slowest_ms = 0, 0.0

    def ask(self) -> None:
        """One question and its answer. TimeoutError, or ConnectionError where the daemon has closed it."""
        serial = 1000 + self.answers
        began = time.monotonic()
        self.socket.sendall(frame(core.encode(core.new(lib.WIRE_MEM_RESERVE, serial, device=0, **{"bytes": 0}))))
        while True:
            kind, message = self._message()
            if kind == lib.WIRE_MEM_REPLY and message.answers == serial:
                break
        self.answers += 1
        self.slowest_ms = max(self.slowest_ms, (time.monotonic() - began) * 1000)

    def _message(self) -> tuple[int, Any]:
        flags, size = self._read(2)
        if flags & 2:
            size = struct.unpack(">Q", bytes([size]) + self._read(7))[0]
        body = self._read(size)
        kind = 0 if flags & 4 else lib.wire_check(body, size)
        answer = ffi.new("struct wire_mem_reply *")
        if kind == lib.WIRE_MEM_REPLY:
            ffi.memmove(answer, body, size)
        return kind, answer

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            if not more:
                raise ConnectionError("the polite client was cut off")
            found += more
        return found


class Strangers:
    """The connections: each call of step() makes some, hears what comes, and ends those whose time is over."""

    def __init__(self, paths: list[str], card: bytes, seed: int) -> None:
        self.made, self.heard_bytes, self.refused = 0, 0, 0
        self._random = random.Random(seed)
        self._paths, self._card = paths, card
        self._poll = select.epoll()
        self._standing: dict[int, tuple[socket.socket, float]] = {}
        self._due = dict.fromkeys(paths, time.monotonic())

    def step(self) -> None:
        before = self.made
        now = time.monotonic()
        for path, due in self._due.items():
            if due <= now:  # as many as are taken in: else they would have left before that
                self._due[path] = max(due, now - 1.0) + 1 / CONNECTIONS_A_SECOND
                self._come(path)
        for fd, _event in self._poll.poll(0 if self.made > before else 0.002):
            self._hear(fd)
        for fd, (_one, ends) in list(self._standing.items()):
            if now > ends:
                self._end(fd)

    def _come(self, path: str) -> None:
        random_ = self._random
        to_page = random_.random() < 0.1
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            one.connect(f"{path}.page" if to_page else path)
        except BlockingIOError:  # the queue is full
            self.refused += 1
            one.close()
            return
        octets = changed(random_, asked_for_page(random_) if to_page else said(random_, self._card))
        at = 0
        with contextlib.suppress(OSError):
            while at < len(octets):
                at += one.send(octets[at : at + (random_.randrange(1, 64) if random_.random() < 0.05 else 8192)])
        self.made += 1
        if random_.random() < 0.3:
            one.close()
            return
        self._standing[one.fileno()] = one, time.monotonic() + UNHEARD_S
        self._poll.register(one.fileno(), select.EPOLLIN)

    def _hear(self, fd: int) -> None:
        one, ends = self._standing[fd]
        try:
            heard = one.recv(4096)
        except OSError:
            heard = b""
        self.heard_bytes += len(heard)
        if heard:
            self._standing[fd] = one, min(ends, time.monotonic() + LONGEST_S * self._random.random())
        else:
            self._end(fd)

    def _end(self, fd: int) -> None:
        one, _ends = self._standing.pop(fd)
        self._poll.unregister(fd)
        one.close()

    def end(self) -> None:
        for fd in list(self._standing):
            self._end(fd)
        self._poll.close()


def come(paths: list[str], card: bytes, seed: int, most: int, told: Any) -> None:
    """One process of strangers; `told` is what it tells."""
    strangers = Strangers(paths, card, seed)
    while strangers.made < most:
        strangers.step()
        told[:] = strangers.made, strangers.heard_bytes, strangers.refused
    strangers.end()


def storm(bed: Bed, paths: list[str], card: bytes, polite: Polite, most: int, seed: int) -> Iterator[list[int]]:
    """So many connections, of one process after the other; yields now and then what was told so far."""
    assert bed.daemon is not None
    fork = multiprocessing.get_context("fork")
    sums = [0, 0, 0]
    while sums[0] < most:
        told: Any = fork.Array("q", 3)
        child = fork.Process(target=come, args=(paths, card, seed + sums[0], min(OF_A_PROCESS, most - sums[0]), told))
        child.start()
        try:
            while child.is_alive() and bed.daemon.poll() is None:
                polite.ask()
                yield [a + b for a, b in zip(sums, list(told), strict=True)]
                child.join(ASKED_EVERY_S)
        finally:
            child.kill()
            child.join()
        sums = [a + b for a, b in zip(sums, list(told), strict=True)]
        if bed.daemon.poll() is not None:
            break
    ends = time.monotonic() + QUEUED_S
    while time.monotonic() < ends and bed.daemon.poll() is None:
        polite.ask()
        yield sums
        time.sleep(ASKED_EVERY_S)


def run(most: int, tenants: int, seed: int) -> dict[str, Any]:
    """The storm, and what it left."""
    with Bed() as bed:
        assert bed.daemon is not None
        pid = bed.daemon.pid
        paths = [bed.tenant(f"s{i}", 0.0, 0.5, memory=1 << 30) for i in range(tenants)]
        card = bytes.fromhex(bed.state()["device"]["uuid"].removeprefix("GPU-").replace("-", ""))
        polite = Polite(bed.tenant("polite", 0.5, 1.0, memory=1 << 30), card)
        polite.ask()
        began = shown = time.monotonic()
        before, after, error = used(pid), {}, ""
        sums, first, peak = [0, 0, 0], 0, 0
        try:
            for sums in storm(bed, paths, card, polite, most, seed):
                peak = max(peak, resident_bytes(pid))
                first = first if sums[0] > WARM else resident_bytes(pid)
                if time.monotonic() - shown > 60:
                    shown = time.monotonic()
                    print(f"{sums[0]} connections, {peak - first:+d} bytes", file=sys.stderr, flush=True)
            with contextlib.suppress(TimeoutError):
                wait_for(lambda: all(now <= before[name] for name, now in used(pid).items()), BACK_S, "end")
            polite.ask()
            after = used(pid)
        except (OSError, KeyError) as problem:  # no answer, or it ended
            error = repr(problem)
        return {
            "seed": seed, "tenants": tenants, "connections": sums[0], "heard_bytes": sums[1], "queue_was_full": sums[2],
            "answers": polite.answers, "slowest_answer_ms": polite.slowest_ms, "wall_s": time.monotonic() - began,
            "first_bytes": first, "most_bytes": peak, "before": before, "after": after, "error": error,
            "daemon_ended": bed.daemon.poll(), "log_bytes": (bed.state_dir / "daemon.log").stat().st_size,
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.strangers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=1_000_000, help="how many (1000000)")
    parser.add_argument("--tenants", type=int, default=64, help="whom they come to (64)")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of what is random (a random one)")
    args = parser.parse_args()
    found = run(args.connections, args.tenants, args.seed)
    return report("Does a live daemon stand a million random connections?", found, {
        "so many were made": found["connections"] >= args.connections,
        "the daemon lives": found["daemon_ended"] is None,
        "each question of the polite client was answered": not found["error"],
        "it has no more memory, by 10 MiB": found["most_bytes"] - found["first_bytes"] <= MOST_GROWTH,
        "it has no more descriptors, threads or children": bool(found["after"])
        and all(now <= found["before"][name] for name, now in found["after"].items()),
    })  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
