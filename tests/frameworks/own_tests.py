"""PyTorch's own tests by own_tests_program.py: all of a list, also where one ends the process or stands.

A test that ends its process has crashed, one that says nothing for too long hangs; in both cases a new process goes on
behind it. What it says goes to the log too. Answers come as a word for each test: passed, aside (but for
values), failed, skipped, crashed, hangs; with why, where that was said.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PROGRAM = Path(__file__).parent / "own_tests_program.py"
ENDS = ("passed", "aside", "failed", "skipped")


class Ended(NamedTuple):
    how: str
    why: str = ""


class Runner:
    """Words that come before the program, such as `gemini run`; its interpreter; where the tests lie."""

    def __init__(self, before: Sequence[str], python: Path, folder: Path, environment: dict[str, str]) -> None:
        self.command = [*before, str(python), str(PROGRAM), str(folder)]
        self.environment = {**os.environ, **environment}

    def names(self, modules: Sequence[str]) -> list[str]:
        listed = subprocess.run(
            [*self.command, "list", *modules], env=self.environment, capture_output=True, text=True, timeout=240
        )
        assert listed.returncode == 0, listed.stderr[-3000:]
        return [line for line in listed.stdout.splitlines() if line.partition(".")[0] in modules]

    def run(self, names: Sequence[str], errors: Path, seconds: float) -> dict[str, Ended]:
        """Each class in a process of its own; `seconds` is the longest that one may be silent."""
        found: dict[str, Ended] = {}
        classes = itertools.groupby(names, key=lambda name: name.rpartition(".")[0])
        for wanted in [list(members) for _, members in classes]:
            while missing := [name for name in wanted if name not in found]:
                before = len(found)
                self._some(missing, found, errors, seconds)
                assert len(found) > before, f"it says nothing of any test: {errors.read_text()[-3000:]}"
        return found

    def _some(self, names: Sequence[str], found: dict[str, Ended], errors: Path, seconds: float) -> None:
        """Until the process ends, by itself or because a test hangs."""
        begun = ""
        with (
            errors.open("ab") as log,
            subprocess.Popen(
                [*self.command, "run"],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            ) as process,
            selectors.DefaultSelector() as selector,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n".join(names).encode())
            process.stdin.close()
            selector.register(process.stdout, selectors.EVENT_READ)
            text, hangs = b"", False
            while True:
                if not selector.select(seconds):
                    hangs = True
                    break
                more = os.read(process.stdout.fileno(), 1 << 16)
                if not more:
                    break
                *lines, text = (text + more).split(b"\n")
                for line in lines:
                    log.write(line + b"\n")
                    log.flush()
                    word, name, *why = line.decode(errors="replace").split(" ", 2)
                    if word == "begin":
                        begun = name
                    elif word in ENDS:
                        found[name], begun = Ended(word, *why), ""
            with contextlib.suppress(ProcessLookupError):  # with what the tests started
                os.killpg(process.pid, signal.SIGKILL)
        if begun:
            found[begun] = Ended("hangs" if hangs else "crashed", f"status {process.returncode}")
