"""What a process says that it used beside others: the daemon charges a limit by it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.arms import compile_program
from bench.bed import ROOT, Bed
from bench.hostbound import LINK

LIMIT = 0.3
WATCHED_S = 4.0


@pytest.mark.alone
@pytest.mark.flaky(reruns=3)
def test_programs_with_pauses_of_the_host_stay_within_their_limits_beside_each_other(tmp_path: Path) -> None:
    """Others delay an event on an idle stream, and what follows it seems shorter than it is."""
    program = compile_program(ROOT / "bench" / "hostbound.c", tmp_path / "hostbound", *LINK)
    with Bed(sim="memory=8GiB") as bed:
        names = ["a", "b", "c"]
        for name in names:
            bed.tenant(name, LIMIT, LIMIT)
            bed.spawn(name, [program, "200", "200", "20", "0", "0", "0"], stdout=subprocess.DEVNULL)
        bed.until_busy(*names)
        bed.sample(1.0)
        record = bed.sample(WATCHED_S)
        highest = max(float(record.windows(name, 1.0).max()) for name in names)
    assert highest <= LIMIT + 0.015  # a second has a quota beyond it, and what was in flight
