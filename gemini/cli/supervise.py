"""A command that runs under our eyes: signals go on to it, its exit status is ours, and it ends if we are killed.

What was ignored when we were started (nohup: SIGHUP; `&` of a script: SIGINT) stays ignored, by us and by the command.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from types import FrameType

from gemini.cli.bound import bound_to_us
from gemini.cli.problem import Problem

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT)
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)  # reach the whole foreground group; when sent to us alone, forwarded
ESCALATION = (None, signal.SIGTERM, signal.SIGKILL)  # the first, second and third Ctrl-C of a program that cannot run


def supervise(
    command: Sequence[str],
    program: str,
    environment: dict[str, str],
    cores: set[int] | None = None,
    stuck: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda _text: None,
    begun: Callable[[], None] | None = None,
) -> int:
    """Run the command to its end. Returns a shell's exit status. `begun` is called once it runs.

    `stuck`: is there no daemon, so that the program waits within a launch? A Python program notices Ctrl-C only when
    that returns. Then the second one ends it (SIGTERM), and the third kills it; a program that may go on is its own
    master.
    """
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals that came before there was a child
    interrupts = 0

    def forward(number: int, _frame: FrameType | None) -> None:
        nonlocal interrupts
        if child is None:
            early.append(number)
            return
        if child.poll() is not None:
            return
        if not (number in FROM_TERMINAL and os.isatty(0)):
            child.send_signal(number)
        if number != signal.SIGINT or not stuck():
            interrupts = 0
            return
        harder = ESCALATION[min(interrupts, len(ESCALATION) - 1)]
        interrupts += 1
        if harder is None:
            say("the program waits for a daemon that does not answer; interrupt once more to end it")
        else:
            child.send_signal(harder)

    bind = bound_to_us()  # whoever kills `gemini run` with SIGKILL means the command too

    def before_exec() -> None:
        bind()
        if cores is not None:
            os.sched_setaffinity(0, cores)

    taken = [n for n in (*FORWARDED, *FROM_TERMINAL) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, forward) for number in taken}
    try:
        child = subprocess.Popen(command, executable=program, env=environment, preexec_fn=before_exec)
        if begun is not None:
            begun()
        for number in early:
            child.send_signal(number)
        status = ended(child)
    except OSError as error:
        raise Problem(f"{command[0]}: {error.strerror}; is it a program for this machine?") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - status if status < 0 else status


def ended(child: subprocess.Popen[bytes]) -> int:
    """Wait for its end. A signal may come to any thread of ours, and interrupts a system call of that one alone: so
    each wakes the main thread, which runs the handlers, by a byte on a socket."""
    if not hasattr(os, "pidfd_open"):
        return child.wait()
    waking, woken = socket.socketpair()
    with waking, woken:
        waking.setblocking(False)
        woken.setblocking(False)
        before = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        pidfd = os.pidfd_open(child.pid)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(woken, select.POLLIN)
        try:
            while (status := child.poll()) is None:
                if any(fd == woken.fileno() for fd, _ in poll.poll()):
                    woken.recv(4096)
            return status
        finally:
            os.close(pidfd)
            signal.set_wakeup_fd(before)
