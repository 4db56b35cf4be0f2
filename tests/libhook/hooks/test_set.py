"""Each function that sets memory does so under the library, as its tenant's work by the card's own record."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from bench.bed import ROOT, Bed, wait_for
from tests.headers.compare import Row, table
from tests.libhook.hooks.set_guest import BEFORE, BYTES

OLD = bytes([BEFORE])


class Sample(NamedTuple):
    """The arguments behind the pointer (bytes of each, value), and what memory begins with afterwards."""

    arguments: tuple[tuple[int, int], ...]
    there: bytes


def flat(element: int, value: int) -> Sample:
    return Sample(((element, value), (8, 5)), value.to_bytes(element, "little") * 5)


def rows(element: int, value: int) -> Sample:
    """Two rows of three, 16 bytes apart."""
    row = value.to_bytes(element, "little") * 3
    return Sample(((8, 16), (element, value), (8, 3), (8, 2)), row + OLD * (16 - len(row)) + row)


SAMPLES = {
    "cuMemsetD8": flat(1, 0x12),
    "cuMemsetD16": flat(2, 0x1234),
    "cuMemsetD32": flat(4, 0x12345678),
    "cuMemsetD2D8": rows(1, 0x12),
    "cuMemsetD2D16": rows(2, 0x1234),
    "cuMemsetD2D32": rows(4, 0x12345678),
}
SETS = [row for row in table() if row.name.startswith("cuMemset") and row.kind == "HOOK"]


def sample(row: Row) -> Sample | None:
    """Of a name, or of the one that waits for what its `Async` does not wait for."""
    return SAMPLES.get(row.name) or SAMPLES.get(row.name.removesuffix("Async"))


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed() as bed:
        bed.tenant("sets", 1.0, 1.0)
        yield bed


@pytest.fixture(scope="module")
def guest(bed: Bed) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return bed.spawn("sets", [sys.executable, "-m", "tests.libhook.hooks.set_guest"], cwd=ROOT, text=True, **pipes)


def test_each_of_the_table_has_a_sample() -> None:
    assert [row.symbol for row in SETS if sample(row) is None] == []
    assert len(SETS) >= 24


@pytest.mark.parametrize("row", SETS, ids=[row.symbol for row in SETS])
def test_memory_is_set_and_the_card_was_busy_for_its_tenant(bed: Bed, guest: subprocess.Popen[str], row: Row) -> None:
    asked = sample(row)
    assert asked, f"{row.symbol} has no sample"
    before = bed.timeline.busy()[1].get(guest.pid, 0)
    assert guest.stdin
    assert guest.stdout
    guest.stdin.write(json.dumps([row.symbol, asked.arguments, "Async" in row.name]) + "\n")
    guest.stdin.flush()
    assert guest.stdout.readline().strip() == (asked.there + OLD * (BYTES - len(asked.there))).hex()
    wait_for(lambda: bed.timeline.busy()[1].get(guest.pid, 0) > before, 60, f"work of {row.symbol} on the card")
