"""The cases of a program that is run with and without Gemini: each prints a line, the same with both.

Values are printed where bytes are moved, never where a kernel computed: the simulated card computes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

CASES: list[Callable[[], object]] = []


def case(function: Callable[[], object]) -> Callable[[], object]:
    CASES.append(function)
    return function


def main() -> int:
    """Run the cases that the command line names, else all; VERBOSE shows where one failed. The exit status."""
    wanted = sys.argv[1:]
    failed = 0
    for function in CASES:
        if wanted and function.__name__ not in wanted:
            continue
        try:
            print(f"{function.__name__}: {function()}", flush=True)
        except Exception as error:
            failed += 1
            print(f"{function.__name__}: FAILED {type(error).__name__}: {str(error)[:600]}", flush=True)
            if os.environ.get("VERBOSE"):
                raise
    return int(failed > 0)
