"""Memory that was freed is had again without the kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gemini import heap

FAULTS = """
import resource, sys
from gemini import heap
assert not sys.argv[1:] or heap.keep_freed()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def some():  # the last is freed first, at the end of the heap
    return [bytearray(100_000) for _ in range(20)]
for _ in range(3):
    some()
before = faults()
for _ in range(50):
    some()
print(faults() - before)
"""


def faults(*words: str) -> int:
    return int(
        subprocess.run([sys.executable, "-c", FAULTS, *words], check=True, capture_output=True, text=True).stdout
    )


def test_what_was_freed_is_there_for_the_next_call() -> None:
    if not heap.keep_freed():
        pytest.skip("no glibc")
    assert faults("kept") < 500 < faults()
