"""What strangers pass along (libhook/carrier/rights.h): it is neither read over nor dropped here."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from bench.hostile.rights import let_go, lingering, pass_along
from libhook.core import ffi, lib

ROOM = 64
PATIENCE_S = 60.0


def read(one: socket.socket) -> bytes | int:
    buffer = ffi.new("uint8_t[]", ROOM)
    count = int(lib.rights_recv(one.fileno(), buffer, ROOM))
    return bytes(ffi.buffer(buffer, count)) if count >= 0 else count


def are_gone(count: int) -> bool:
    """Are no more than so many descriptors open, in a while?"""
    until = time.monotonic() + PATIENCE_S
    while len(os.listdir("/proc/self/fd")) > count:
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def _reads_as_recv_does() -> None:
    ours, theirs = socket.socketpair()
    lib.rights_refuse(ours.fileno())
    assert read(ours) == -errno.EAGAIN
    theirs.send(b"abc")
    assert read(ours) == b"abc"
    theirs.send(bytes(ROOM + 1))
    assert read(ours) == bytes(ROOM)
    assert read(ours) == b"\0"
    theirs.close()
    assert read(ours) == b""
    lib.rights_close(ours.detach())


def _reads_up_to_what_bears_some() -> None:
    ours, theirs = socket.socketpair()
    lib.rights_refuse(ours.fileno())
    with open("/dev/null") as file:
        theirs.send(b"abc")
        passed = pass_along(theirs, b"def", file.fileno())
        theirs.send(b"ghi")
    if passed:
        assert read(ours) == -errno.EPERM
        assert read(ours) == -errno.EPERM
    else:
        assert read(ours) == b"abcghi"
    lib.rights_close(ours.detach())


def _waits_for_none(end: Callable[[int], None], flags: int = 0) -> None:
    """Each lingers for an hour: where one were waited for this would not end."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with lingering() as one:
            ours, theirs = socket.socketpair()
            lib.rights_refuse(ours.fileno())
            theirs.send(b"abc")
            let_go(one, pass_along(theirs, b"d", one.fileno(), flags=flags))
            theirs.send(bytes(100_000))
            end(ours.detach())
            theirs.close()
    assert are_gone(before)


def _closes_without_waiting() -> None:
    _waits_for_none(lib.rights_close)
    _waits_for_none(lib.rights_close, socket.MSG_OOB)


def _leaves_without_waiting() -> None:
    _waits_for_none(lib.rights_leave)


def _ends_a_listener_without_waiting() -> None:
    listening = socket.socket(socket.AF_UNIX)
    lib.rights_refuse(listening.fileno())
    listening.bind("")
    listening.listen(8)
    listening.setblocking(False)
    connections = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    with lingering() as one:
        for connection in connections:
            connection.connect(listening.getsockname())
        let_go(one, any([pass_along(connection, b"x", one.fileno()) for connection in connections]))
        lib.rights_end(listening.detach())
        for connection in connections:
            connection.close()


CASES = [
    _reads_as_recv_does,
    _reads_up_to_what_bears_some,
    _closes_without_waiting,
    _leaves_without_waiting,
    _ends_a_listener_without_waiting,
]


@pytest.mark.parametrize("sought", [False, True], ids=["as-it-is", "before-linux-6.16"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_passed_is_neither_read_over_nor_waited_for(case: Callable[[], None], sought: bool) -> None:
    """In a process of its own, for it is once for a process whether descriptors are sought."""
    begin = "from libhook.core import lib; lib.rights_forget_option(); " if sought else ""
    words = f"{begin}import tests.libhook.carrier.test_rights as cases; cases.{case.__name__}()"
    told = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert told.returncode == 0, told.stderr
