"""A thread of ours in a program of others: no signal of theirs is handled on it, and it has a name."""

from __future__ import annotations

import ctypes
import signal
import threading
from pathlib import Path

from tests.libhook.runtime.seams import Seams

PR_GET_TIMERSLACK = 30
START = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def started(seams: Seams, name: bytes) -> dict[str, object]:
    """What a new thread finds of itself."""
    found: dict[str, object] = {}
    ended = threading.Event()

    def run(_nothing: int | None) -> None:
        seams.function("thread_begins", None, ctypes.c_char_p)(name)
        folder = Path("/proc/thread-self")
        status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
        found["name"] = (folder / "comm").read_text().strip()
        found["blocked"] = int(status["SigBlk"], 16)
        found["slack"] = ctypes.CDLL(None).prctl(PR_GET_TIMERSLACK)
        ended.set()

    entry = START(run)
    assert seams.function("thread_start", ctypes.c_int, START)(entry) == 0
    assert ended.wait(60)
    found["kept"] = entry
    return found


def test_it_has_its_name_and_wakes_in_time(seams: Seams) -> None:
    found = started(seams, b"gemini-agent")
    assert (found["name"], found["slack"]) == ("gemini-agent", 1)


def test_no_signal_of_the_programs_is_handled_on_it(seams: Seams) -> None:
    blocked = started(seams, b"gemini-agent")["blocked"]
    assert isinstance(blocked, int)
    unblockable = {signal.SIGKILL, signal.SIGSTOP}
    open_to_it = {number for number in signal.valid_signals() - unblockable if not blocked >> (number - 1) & 1}
    assert open_to_it == set()


def test_the_starting_threads_signals_stay_as_they_were(seams: Seams) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        mine = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        started(seams, b"gemini-agent")
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mine
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
