"""What a context takes of the card is learned from the daemon, not by starting NVML in each process."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.arms import GEMINI
from bench.bed import Bed
from bench.startup import start
from tests.libhook.hooks.guest import APPS, SIM, Build
from tests.libhook.hooks.test_memory import GIB, MIB, Program, in_ledger, on_card


@pytest.mark.parametrize("size", [16 * MIB, 80 * MIB])
def test_contexts_are_counted_at_what_they_take_without_nvml_in_the_process(build: Build, size: int) -> None:
    app = build(APPS / "memory.c", "memory", str(SIM / "libcuda.so.1"))
    with Bed(sim=f"memory=8GiB,context={size >> 20}MiB") as bed:
        bed.tenant("t", 0.5, 1.0, memory=GIB)
        programs = [Program(bed, "t", app) for _ in range(2)]
        assert programs[0]("context")[1] == 0
        assert programs[0](f"take alloc {4 * MIB} 10") == [10, 0]
        assert [on_card(bed, program) for program in programs] == [2 * size + 40 * MIB, size]
        assert programs[0].used() == 3 * size + 40 * MIB
        for program in programs:
            assert "libnvidia-ml" not in Path(f"/proc/{program.pid}/maps").read_text()
        for program in programs:
            program.child.kill()
            program.child.wait()
        late = Program(bed, "t", app)
        assert late.used() == on_card(bed, late) == size
        assert in_ledger(bed, "t") >= size


def test_many_processes_of_one_tenant_start_at_once_and_all_run() -> None:
    run = start(GEMINI, 60)
    assert run["failed"] == 0
    assert run["joined"] == 60
