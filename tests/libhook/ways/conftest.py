"""What the tests of the twenty ways share: a simulated machine, programs under the library, and a daemon by script."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from libhook import core
from libhook.build import preloaded
from libhook.core import lib
from libhook.observer import Segment, Timeline
from tests.libhook.hooks.conftest import build, fake, look, lookup, shared  # noqa: F401 - fixtures of the tests here
from tests.libhook.hooks.guest import HOOK, SIM
from tests.libhook.runtime.conftest import MS, Daemon, folder  # noqa: F401

PROGRAM = Path(__file__).with_name("program.py")
# How long to wait for what must come. A run that is expected to fail says less.
PATIENCE_S = float(os.environ.get("GEMINI_WAYS_PATIENCE", "60"))
WHOLE = 1 << 62


class Program:
    """A scenario of program.py as a process."""

    def __init__(self, environment: dict[str, str], words: tuple[object, ...]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", PROGRAM, *map(str, words)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # its children end with it
        )
        self.pid = self.process.pid

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(f"it ended with {self.process.wait()}: {self.process.stderr.read()[-1500:]}")
        return json.loads(line)

    def say(self, word: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def finish(self) -> list[Any]:
        """To its end, which is a good one and silent on stderr; what it still said."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert (self.process.returncode, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]


class Warden:
    """The daemon of one tenant: answers Hello and MemReserve by itself, and the rest as a test says."""

    def __init__(self, daemon: Daemon, spec: str) -> None:
        self.daemon, self.spec = daemon, spec
        self.hellos: list[Any] = []
        self.peers: dict[bytes, int] = {}
        self.requests: list[Any] = []
        self.returns: list[Any] = []
        self.held: list[tuple[int, int]] = []
        self.waiting: bytes | None = None
        self.limit, self.used, self.reserved, self.released = WHOLE, 0, 0, 0
        self.refuse_from = WHOLE  # a single reservation of so many bytes is refused
        self.grants: dict[str, Any] | None = None  # how to grant whatever is asked; None: not at all
        self.withheld: set[int] = set()  # devices that are not granted even so
        self.epoch, self.granted_ns = 0, 0
        self.segments: list[Segment] = []
        self._seen = 0
        self._timeline: Timeline | None = None

    @property
    def timeline(self) -> Timeline:
        if self._timeline is None:
            self._timeline = Timeline(self.spec)
        return self._timeline

    def look(self) -> None:
        self._seen, new = self.timeline.segments(0, self._seen)
        self.segments += new

    def give(self, peer: bytes, **how: Any) -> None:
        self.epoch += 1
        self.granted_ns = time.monotonic_ns()
        self.daemon.grant(peer, self.epoch, **how)

    def welcome(self, peer: bytes, devices: int) -> None:
        message = core.new(
            lib.WIRE_WELCOME, 1, incarnation=self.daemon.incarnation, device_count=devices, tenant=b"test"
        )
        for device in range(devices):
            message.device[device].managed = 1
            message.device[device].page_slot = 3 + device
            message.device[device].memory_limit_bytes = 0 if self.limit == WHOLE else self.limit
        self.daemon.socket.send_multipart([peer, core.encode(message)])

    def one(self, timeout: float = 0.05) -> int | None:
        """Take one message and answer it; its type."""
        try:
            peer, kind, message = self.daemon.receive(timeout)
        except TimeoutError:
            return None
        if kind == lib.WIRE_HELLO:
            self.hellos.append(message)
            self.peers[peer] = message.pid
            self.welcome(peer, message.device_count)
        elif kind == lib.WIRE_MEM_RESERVE:
            fits = self.used + message.bytes <= self.limit and message.bytes < self.refuse_from
            credit = 0
            if fits and not message.flags & (lib.WIRE_MEM_EXPORTED | lib.WIRE_MEM_CONTEXT):
                credit = message.credit_bytes if self.used + message.bytes + message.credit_bytes <= self.limit else 0
                self.used += message.bytes + credit
                self.reserved += message.bytes + credit
            self.daemon.send(
                peer,
                lib.WIRE_MEM_REPLY,
                answers=message.header.serial,
                device=message.device,
                granted=int(fits),
                credit_bytes=credit,
                limit_bytes=0 if self.limit == WHOLE else self.limit,
                used_bytes=self.used,
            )
        elif kind == lib.WIRE_MEM_RELEASE and not message.flags & lib.WIRE_MEM_RELEASE_WHOLE:  # that takes nothing off
            self.used -= message.bytes
            self.released += message.bytes
        elif kind == lib.WIRE_RETURN:
            self.returns.append(message)
            self.held.append((self.granted_ns, time.monotonic_ns()))
            if self.daemon.page:
                self.daemon.page.store(0)
            self.look()
            if message.flags & lib.WIRE_RETURN_WANT_MORE:
                self._asked(peer, message.device)
        elif kind == lib.WIRE_TOKEN_REQUEST and message.flags & lib.WIRE_TOKEN_RENEW:
            self.daemon.send(
                peer,
                lib.WIRE_EXTEND,
                device=message.device,
                epoch=message.epoch,
                quota_ns=MS,
                lease_ns=30 * MS,
                cap_ns=MS,
                flags=1,
            )
        elif kind == lib.WIRE_TOKEN_REQUEST:
            self.requests.append(message)
            self._asked(peer, message.device)
        return int(kind)

    def _asked(self, peer: bytes, device: int) -> None:
        self.waiting = peer
        if self.grants is not None and device not in self.withheld:
            self.give(peer, **self.grants)

    def until(self, condition: Callable[[], Any], seconds: float = PATIENCE_S) -> None:
        end = time.monotonic() + seconds
        while not condition():
            self.one()
            assert time.monotonic() < end, f"not within {seconds} s; story: {self.daemon.story[-12:]}"

    def serve(self, program: Program, until: Callable[[], object] | None = None) -> None:
        """Until the program has ended or has said something; it is told to go on when `until` has come about."""
        end = time.monotonic() + PATIENCE_S
        while not select.select([program.process.stdout], [], [], 0)[0]:
            self.one(0.02)
            assert time.monotonic() < end, f"it says nothing; story: {self.daemon.story[-12:]}"
            if until is not None and until():
                program.say()
                until = None

    def kernels(self, pid: int | None = None) -> int:
        """How many ran on the first card, of this process or of all."""
        self.look()
        return sum(one.kernels for one in self.segments if pid in (None, one.pid))

    def outside(self) -> list[Segment]:
        """Work that was not between a Grant and the Return that confirmed its drain."""
        self.look()
        return [
            one
            for one in self.segments
            if one.start_ns < self.held[-1][1] and not any(a <= one.start_ns and one.end_ns <= b for a, b in self.held)
        ]

    def busy_ms(self) -> list[float]:
        """The device's time within each grant."""
        return [
            sum(one.end_ns - one.start_ns for one in self.segments if start <= one.start_ns < end) / MS
            for start, end in self.held
        ]


@pytest.fixture
def spec() -> Iterator[str]:
    name = f"ways-{uuid.uuid4().hex[:10]}"
    yield f"gpus=2,id={name}"
    for file in Path("/dev/shm").glob(f"gemini-sim-*{name}*"):
        file.unlink(missing_ok=True)


@pytest.fixture
def daemon(folder: Path) -> Iterator[Daemon]:  # noqa: F811
    made = Daemon(folder / "tenant.sock")
    yield made
    made.close()


@pytest.fixture
def warden(daemon: Daemon, spec: str) -> Warden:
    return Warden(daemon, spec)


@pytest.fixture
def start(spec: str, folder: Path) -> Iterator[Callable[..., Program]]:  # noqa: F811
    """Starts a scenario on the simulated machine: under the library unless `bare`."""
    programs: list[Program] = []

    def starter(*words: object, bare: bool = False, **more: str) -> Program:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("GEMINI_", "LD_", "CUDA_"))}
        environment |= {"GEMINI_SIM": spec, "LD_LIBRARY_PATH": str(SIM)}
        environment["LD_PRELOAD"] = preloaded(*([] if bare else [HOOK]))
        if not bare:
            environment["GEMINI_SOCKET"] = f"ipc://{folder}/tenant.sock"
        programs.append(Program(environment | more, words))
        return programs[-1]

    yield starter
    for program in programs:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.process.communicate()
