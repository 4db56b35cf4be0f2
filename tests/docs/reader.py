"""A reader at a shell: types what a page says, in order, and looks whether the answers have the form that is shown.

What a reader does without being told so, and therefore this one too: look again a moment later where nothing is to be
seen yet (LOOKS), and end with Ctrl-C what does not end by itself (ENDLESS).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import selectors
import signal
import struct
import subprocess
import termios
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.docs.blocks import Step, missing

LOOKS = re.compile(
    r"\s*(gemini (ps|top|check|advise)|kubectl (-n \S+ )?(get|gemini|logs|describe|exec)|curl|promtool query)\b"
)
ENDLESS = re.compile(r"\s*gemini top\s*$")
PATIENCE_SECONDS = 60.0
AGAIN_SECONDS = 0.5
ROWS, COLUMNS = 40, 120
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


class Wrong(AssertionError):
    """A page that does not say what is so."""


class Terminal:
    """A terminal of the reader's own, for what draws on one; the text of all that was drawn."""

    def __init__(self, owner: int) -> None:
        self._near, self._far = os.openpty()
        fcntl.ioctl(self._far, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.path = os.ttyname(self._far)
        os.chown(self.path, owner, -1)
        self.drawn = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._near)
        os.close(self._far)

    def read(self, seconds: float) -> None:
        if select.select([self._near], [], [], seconds)[0]:
            self.drawn += os.read(self._near, 1 << 16)

    def shown(self) -> str:
        return CONTROLS.sub("", self.drawn.decode(errors="replace")).replace("\r", "\n")


class Reader:
    def __init__(
        self, shell: Sequence[str], home: Path, environment: Mapping[str, str] | None = None, limit: float = 300,
        owner: int = 0,
    ) -> None:  # fmt: skip
        """`shell`: the command line of a bash that reads its standard input. `home`: where it works, as seen from here.
        `limit`: the seconds that one command may take. `owner`: the user of that shell."""
        self.home, self.limit, self._owner = home, limit, owner
        self.said: list[tuple[str, str]] = []  # what was typed, and all that was answered
        self._mark = uuid.uuid4().hex
        self._process = subprocess.Popen(
            shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True, preexec_fn=_heed_interrupts,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._keys, self._out = self._process.stdin, self._process.stdout
        os.set_blocking(self._out.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what it left in the background, too
        self._process.wait()
        self._keys.close()
        self._selector.close()
        self._out.close()

    def follow(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self.take(step)

    def take(self, step: Step) -> None:
        if step.file:
            target = self.home / step.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(step.content)
            target.chmod(0o644)
            return
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            endless = ENDLESS.match(step.command)
            status, said = self.watch(step.command, step.shown) if endless else self.type(step.command)
            lacking = missing(step.shown, said)
            if status == 0 and lacking is None:
                return
            if not LOOKS.match(step.command) or time.monotonic() > deadline:
                why = f"ended with status {status}" if status else f"did not show {lacking!r}"
                raise Wrong(f"{step.where}: `{step.command}` {why}; it said:\n{said}")
            time.sleep(AGAIN_SECONDS)

    def type(self, command: str) -> tuple[int, str]:
        """Exit status and output of a command that ends by itself."""
        self._write(command)
        status, said = self._answer(command)
        self.said.append((command, said))
        return status, said

    def watch(self, command: str, until: tuple[str, ...]) -> tuple[int, str]:
        """The same of one that draws on a terminal until it is interrupted: once it has shown `until`."""
        before = self._children()
        with Terminal(self._owner) as terminal:
            self._write(f"{command} >{terminal.path} 2>&1")
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not terminal.drawn or missing(until, terminal.shown()) is not None:
                if time.monotonic() > deadline:
                    raise Wrong(f"`{command}` did not show what the page shows; it said:\n{terminal.shown()}")
                terminal.read(AGAIN_SECONDS)
            for child in self._children() - before:
                os.kill(child, signal.SIGINT)
            status, _ = self._answer(command)
            self.said.append((command, terminal.shown()))
            return (0 if status == 128 + signal.SIGINT else status), terminal.shown()

    def _write(self, command: str) -> None:
        # The shell itself reads what is typed from its standard input, which is nothing for the commands.
        self._keys.write(f"{{\n{command}\n}} </dev/null\nprintf '\\n{self._mark} %d\\n' $?\n".encode())
        self._keys.flush()

    def _answer(self, command: str) -> tuple[int, str]:
        said = ""
        deadline = time.monotonic() + self.limit
        while (found := re.search(rf"\n{self._mark} (\d+)\n", said)) is None:
            if not self._selector.select(max(0.0, min(1.0, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    raise Wrong(f"`{command}` did not end within {self.limit:g} s; it said:\n{said}")
                continue
            piece = self._out.read()
            if piece == b"":
                raise Wrong(f"the shell ended at `{command}`; it said:\n{said}")
            said += (piece or b"").decode(errors="replace")
        return int(found[1]), said[: found.start()]

    def _children(self) -> set[int]:
        """Of the shell, which is the last of a chain of programs that make its room."""
        pid = self._process.pid
        while True:
            children = _children(pid)
            if len(children) != 1 or Path(f"/proc/{pid}/comm").read_text().strip() == "bash":
                return children
            (pid,) = children


def _heed_interrupts() -> None:
    """What a shell started in the background ignores, as tests may be, all that is started below it would too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _children(pid: int) -> set[int]:
    try:
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return set()
