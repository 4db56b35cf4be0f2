"""Each function of the table does what its class says: seen at a gate that is closed, and then opened."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from libhook.build import preloaded
from libhook.core import lib
from tests.headers.compare import ours, table
from tests.libhook.runtime.conftest import Daemon

CALLS = Path(__file__).with_name("calls.py")
LIB = Path(__file__).parents[3] / "libhook" / "lib"
# They stop a stream, and must not stop at the gate, for others may wait for what comes behind them.
PAUSING = re.compile(r"cuLaunchHostFunc|cuStreamAddCallback|cuStreamWaitValue|cuStreamBatchMemOp|cuWaitExternal")


def named(*classes: str) -> list[str]:
    return [row.symbol for row in table() if row.kind == "HOOK" and row.why in classes]


def arguments(symbol: str) -> list[str]:
    """ "*" for a pointer, else the argument's size."""
    inside = re.fullmatch(r"i4\((.*)\)", ours().functions[symbol])
    assert inside
    return [("*" if word.endswith("*") or "(" in word else word[-1]) for word in inside[1].split(", ") if word]


class Caller:
    """calls.py under the library, on the simulated driver, served by a daemon that grants when it is told to."""

    def __init__(self, daemon: Daemon, folder: Path, sim: str, symbols: list[str]) -> None:
        self.daemon, self.peer, self.epoch, self.asked = daemon, b"", 0, False
        self.process = subprocess.Popen(
            [sys.executable, CALLS],
            env={
                "GEMINI_SIM": f"id={sim},driver=13.5",
                "GEMINI_SOCKET": f"ipc://{folder}/tenant.sock",
                "LD_PRELOAD": preloaded(LIB / "libgemini_hook.so"),
                "LD_LIBRARY_PATH": str(LIB / "sim"),
                **{name: value for name, value in os.environ.items() if name.startswith(("ASAN_", "TSAN_", "UBSAN_"))},
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin
        json.dump({symbol: arguments(symbol) for symbol in symbols}, self.process.stdin)
        self.process.stdin.close()

    def serve(self, granting: bool, until: Callable[[], bool]) -> None:
        """Answer messages until there are none for a while and `until` holds."""
        while True:
            if granting and self.asked:
                self.asked = False
                self.epoch += 1
                self.daemon.grant(self.peer, self.epoch, quota_ms=50, lease_ms=500)
            try:
                peer, kind, message = self.daemon.receive(0.1)
            except TimeoutError:
                if until():
                    return
                assert self.process.poll() is None, self.process.returncode
                continue
            if kind == lib.WIRE_HELLO:
                self.peer = peer
                self.daemon.welcome(peer)
            elif kind == lib.WIRE_MEM_RESERVE:
                self.daemon.send(peer, lib.WIRE_MEM_REPLY, answers=message.header.serial, granted=1)
            elif kind == lib.WIRE_TOKEN_REQUEST:
                self.asked = True
            elif kind == lib.WIRE_RETURN:
                self.asked = bool(message.flags & lib.WIRE_RETURN_WANT_MORE)

    def line(self) -> set[str]:
        assert self.process.stdout
        return set(json.loads(self.process.stdout.readline()))


@pytest.fixture
def call(daemon: Daemon, folder: Path, sim: str) -> Callable[[list[str]], Caller]:
    return lambda symbols: Caller(daemon, folder, sim, symbols)


def test_what_starts_work_on_the_device_waits_for_the_token(call: Callable[[list[str]], Caller]) -> None:
    symbols = named("GATED")
    assert len(symbols) > 90
    caller = call(symbols)
    caller.serve(granting=False, until=lambda: caller.asked)
    assert caller.line() == set()
    caller.serve(granting=True, until=lambda: caller.process.poll() is not None)
    assert caller.line() == set(symbols)
    assert caller.process.returncode == 0


def test_what_only_copies_or_pauses_does_not_wait(call: Callable[[list[str]], Caller]) -> None:
    symbols = named("BILLED") + [symbol for symbol in named("WATCHED") if PAUSING.match(symbol)]
    assert len(symbols) > 35
    caller = call(symbols)
    caller.serve(granting=False, until=lambda: caller.process.poll() is not None)
    assert caller.line() | caller.line() == set(symbols)
    assert not caller.asked


def test_no_call_that_starts_work_is_left_alone() -> None:
    """What is passed through, or known by name only, is no launch, copy, memset or allocation by its name."""
    work = re.compile(r"cu(Launch|GraphLaunch|GraphUpload|Memcpy|Memset|MemPrefetch|MemDiscard|MemBatch|Fabric)")
    takes = re.compile(
        r"cu(MemAlloc(?!Host)|MemCreate|MemPoolCreate|Array(3D)?Create|MipmappedArrayCreate|.*CtxCreate)"
    )
    left = {row.symbol: row.why for row in table() if row.kind != "HOOK"}
    allowed = re.compile(r"32-bit device pointers|context for graphics interop|green contexts")
    assert {s: why for s, why in left.items() if (work.match(s) or takes.match(s)) and not allowed.match(why)} == {}
