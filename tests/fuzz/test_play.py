"""The player of the differential fuzzer calls each hooked function that starts work, copies, or takes memory."""

from __future__ import annotations

import re

from bench.differential import PLAY
from tests.headers.compare import table

CLASSES = ("GATED", "BILLED", "COUNTED")
# What is not played, and why; another test has it.
LEFT_OUT = {
    r"cuLaunch(Grid(Async)?)?": "the oldest launches: their parameters stand in the function, which all threads share",
    r"cuLaunchCooperativeKernelMultiDevice": "a launch on several cards",
    r"cuFabricCpyBatchAsync|cuMemBatchDecompressAsync": "the simulated card has none",
    r"cuMem(Prefetch|Discard|DiscardAndPrefetch)BatchAsync|cuMemcpy(3D)?(Batch|WithAttributes)Async": (
        "lists and attributes: tests/libhook/sim/test_batches.py"
    ),
    r"cuMemcpy(Ato[ADH]|HtoA|DtoA)(Async)?|cuMemcpy3D(Peer)?(Async)?": "arrays and boxes: tests/libhook/sim",
    r"cuMem(Export|Import)\w+": "between processes: tests/libhook/hooks/test_memory.py",
    r"cuCtxSetLimit|cuGreenCtxCreate|cuDeviceGraphMemTrim": "of what all threads share",
    r"cuMemPoolDestroy|cuMemGet(Default)?MemPool": "pools that all threads share: tests/libhook/hooks/test_memory.py",
}


def names() -> set[str]:
    """What a program asks for, without versions and flavours, of the classes that can do harm unseen."""
    return {row.name for row in table() if row.kind == "HOOK" and row.why in CLASSES}


def played() -> set[str]:
    text = PLAY.read_text()
    return {name for name in names() if re.search(rf"\b{name}(_v\d+)?(_pt[ds][sz])?\(", text)}


def left_out(name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in LEFT_OUT)


def test_each_hooked_function_is_played_or_left_out_with_a_reason() -> None:
    assert sorted(name for name in names() - played() if not left_out(name)) == [], "give it a line in play.c"


def test_what_is_left_out_is_not_played_and_is_hooked() -> None:
    assert sorted(name for name in played() if left_out(name)) == []
    assert [pattern for pattern in LEFT_OUT if not any(re.fullmatch(pattern, name) for name in names())] == []
