"""Runs tests of PyTorch's own files, one after the other, and says of each how it ended.

    python own_tests_program.py FOLDER list MODULE...
    python own_tests_program.py FOLDER run < names

FOLDER holds the modules. `list` prints the name of each test, MODULE.CLASS.TEST. `run` prints `begin NAME` and then
`passed NAME`, `aside NAME`, `failed NAME WHY` or `skipped NAME WHY`: who reads can tell in which test it ended, or
stands. What a test prints goes to standard error.

The simulated card computes nothing. So a test that compares what a kernel wrote goes on where the values differ, and is
said to have passed with that left aside: values of tensors, and floating-point numbers, which come out of tensors.
Shapes, types, devices, and whole numbers such as those of the allocator's statistics have to be right.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import unittest
from collections.abc import Callable
from typing import Any, TextIO

import torch
from torch.testing._internal.common_utils import TestCase

WHY = 200  # characters
# How a comparison's text begins where values of tensors or floating-point numbers differ, as PyTorch has it.
COMPARED = ("Tensor-likes are not close!", "Tensor-likes are not equal!", "Scalars are not close!", "Comparing\n")


class Values:
    """Whether the test that runs has met values that differ."""

    differ = False


def aside(error: Exception, one: Any, other: Any) -> bool:
    """Whether the comparison of the two failed for what somebody would have computed."""
    compared = str(error).startswith(COMPARED)
    return compared or isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor)


def leave_values_aside() -> None:
    equal: Callable[..., None] = TestCase.assertEqual
    true: Callable[..., None] = TestCase.assertTrue

    def assert_equal(self: TestCase, one: Any, other: Any, *more: Any, **named: Any) -> None:
        try:
            equal(self, one, other, *more, **named)
        except (AssertionError, RuntimeError) as error:
            if not aside(error, one, other):
                raise
            Values.differ = True

    def assert_true(self: TestCase, what: Any, *more: Any) -> None:
        if isinstance(what, torch.Tensor) and not what:
            Values.differ = True
        else:
            true(self, what, *more)

    TestCase.assertEqual, TestCase.assertTrue = assert_equal, assert_true


class Said(unittest.TestResult):
    """Says at once how each test ended."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self.out = out
        self.ended = ""

    def say(self, word: str, test: unittest.TestCase, why: str = "") -> None:
        print(" ".join([word, test.id(), *why.split()])[: WHY + len(test.id())], file=self.out, flush=True)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.ended, Values.differ = "passed", False
        self.say("begin", test)

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        if self.ended == "passed":
            self.say("aside" if Values.differ else "passed", test)

    def ends(self, word: str, test: unittest.TestCase, why: str) -> None:
        if self.ended == "passed":  # the first that is said of it
            self.say(word, test, why)
        self.ended = word

    def addError(self, test, err) -> None:  # type: ignore[no-untyped-def]
        self.ends("failed", test, f"{err[0].__name__}: {err[1]}")

    def addFailure(self, test, err) -> None:  # type: ignore[no-untyped-def]
        self.ends("failed", test, f"{err[0].__name__}: {err[1]}")

    def addSkip(self, test, reason) -> None:  # type: ignore[no-untyped-def]
        self.ends("skipped", test, reason)

    def addSubTest(self, test, subtest, err) -> None:  # type: ignore[no-untyped-def]
        if err is not None:
            self.ends("failed", test, f"{err[0].__name__}: {err[1]}")

    def addExpectedFailure(self, test, err) -> None:  # type: ignore[no-untyped-def]
        pass

    def addUnexpectedSuccess(self, test) -> None:  # type: ignore[no-untyped-def]
        self.ends("failed", test, "passed where it was to fail")


def tests_of(module: str) -> list[unittest.TestCase]:
    def flat(suite: unittest.TestSuite) -> list[unittest.TestCase]:
        return [test for part in suite for test in (flat(part) if isinstance(part, unittest.TestSuite) else [part])]

    found = importlib.import_module(module)
    classes = [kind for kind in vars(found).values() if isinstance(kind, type) and issubclass(kind, unittest.TestCase)]
    own = [kind for kind in classes if kind.__module__ == module]
    return [test for kind in own for test in flat(unittest.defaultTestLoader.loadTestsFromTestCase(kind))]


def main() -> int:
    folder, does, *modules = sys.argv[1:]
    sys.path.insert(0, folder)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.argv[1:] = []
    if does == "list":
        for module in modules:
            for test in tests_of(module):
                print(test.id(), file=out)
        out.flush()
        return 0
    leave_values_aside()
    wanted = sys.stdin.read().split()
    every: dict[str, unittest.TestCase] = {}
    for name in wanted:
        module = name.split(".")[0]
        if name not in every:
            every |= {test.id(): test for test in tests_of(module)}
            gc.freeze()  # each capture of a graph collects: not all of PyTorch's modules each time
        every[name].run(Said(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
