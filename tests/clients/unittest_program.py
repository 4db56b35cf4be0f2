"""Runs unittest modules and writes one JSON line a test: `python unittest_program.py OUT SECONDS IMPORT NAME...`.

IMPORT is imported once. Each NAME (a module, class or test, as unittest names them) then runs in a forked child of its
own, which is killed after SECONDS of processor time, and of six times as long without that. For a machine that others
use lets it stand still now and then. So a test that hangs or takes its process down costs the rest of its NAME, and
says so, and no state of a module leaks into the next. The import must not start CUDA.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
import unittest
import warnings
from typing import IO, Any


class Outcomes(unittest.TestResult):
    """One line at each start, [name, "unfinished"], and one at each end, which replaces it."""

    def __init__(self, out: IO[str]) -> None:
        super().__init__()
        self.out = out
        self.outcome = ""

    def write(self, name: str, outcome: str) -> None:
        print(json.dumps([name, outcome]), file=self.out, flush=True)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.outcome = "passed"
        self.write(test.id(), "unfinished")

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.write(test.id(), self.outcome)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.outcome = "failed"

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self.outcome = "failed"
        if self.testsRun == 0 or type(test).__name__ == "_ErrorHolder":  # not a test: a module, or a class's set-up
            self.write(str(test), "failed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.outcome = "skipped"

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.outcome = "failed"


IDLE = 6  # times the limit, in which a child need not run at all


def processor_s(pid: int) -> float:
    """What a child has used of the processor, with its own children that have ended."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def run(name: str, seconds: float, out: IO[str]) -> None:
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        unittest.defaultTestLoader.loadTestsFromName(name).run(Outcomes(out))
        out.flush()
        os._exit(0)
    stop = time.monotonic() + IDLE * seconds
    pidfd = os.pidfd_open(child)
    while not select.select([pidfd], [], [], 0.5)[0]:
        if processor_s(child) > seconds or time.monotonic() > stop:
            os.killpg(child, signal.SIGKILL)
            break
    os.close(pidfd)
    os.waitpid(child, 0)


def main() -> None:
    path, seconds, imported, *names = sys.argv[1:]
    warnings.simplefilter("ignore")
    importlib.import_module(imported)
    with open(path, "a") as out:
        for name in names:
            run(name, float(seconds), out)


if __name__ == "__main__":
    main()
