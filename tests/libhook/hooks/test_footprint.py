"""What a context takes of the card is learned from the daemon, not by starting NVML in each process."""

from __future__ import annotations

import subprocess
import sys
import threading
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


GREEDY = """
import sys
sys.path.insert(0, sys.argv[1])
from bench.gpu_check.driver_work import Card
from ctypes import byref, c_size_t, c_uint64
try:
    card = Card()
except SystemExit:
    sys.exit(3)  # there was no room for a context
taken = 0
while card.lib.cuMemAlloc_v2(byref(c_uint64()), c_size_t(64 << 20)) == 0:
    taken += 1
card.launch(1_000_000)  # the context grows
card.must("cuCtxSynchronize")
print(taken, flush=True)
sys.stdin.read()
"""


def test_where_nvml_hides_pids_no_context_takes_a_tenant_above_its_limit(build: Build) -> None:
    """Contexts of 500 MiB that grow by 100, as on Hopper; by the card's own record, at any moment."""
    limit = 3 * GIB
    with Bed(sim="memory=16GiB,context=500MiB,growth=100MiB,hidden_pids=on") as bed:
        bed.tenant("t", 0.5, 1.0, memory=limit)
        most, over = [0], threading.Event()

        def watch() -> None:
            while not over.wait(0.001):
                most[0] = max(most[0], sum(bed.timeline.memory().values()))

        def start(*words: object) -> subprocess.Popen[str]:
            command = [str(word) for word in words]
            return bed.spawn("t", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        # The first finds out that nobody can say what a context takes.
        first = start(build(APPS / "memory.c", "memory", str(SIM / "libcuda.so.1")))
        assert first.stdout is not None
        assert first.stdout.readline()
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            children = [start(sys.executable, "-c", GREEDY, Path(__file__).resolve().parents[3]) for _ in range(6)]
            outputs = [child.stdout for child in children]
            assert all(outputs)
            took = [int(output.readline() or -1) for output in outputs if output is not None]
        finally:
            over.set()
            watcher.join()
        assert -1 in took, "for some there was no room"
        assert any(taken > 0 for taken in took)
        assert most[0] <= limit
        assert most[0] >= limit - GIB


def test_many_processes_of_one_tenant_start_at_once_and_all_run() -> None:
    run = start(GEMINI, 60)
    assert run["failed"] == 0
    assert run["joined"] == 60
