"""Device memory of a tenant: counted by every family of calls as the card counts it, never above the limit, all back.

What the card holds is read from the observer; what the tenant is told, from its own calls.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.bed import Bed, wait_for
from tests.libhook.hooks.guest import APPS, SIM, Build

MIB, GIB = 1 << 20, 1 << 30
KINDS = ["alloc", "pitch", "managed", "pool", "ptsz", "own", "vmm", "array", "array3d", "mipmap", "unified", "nowhere"]
CONTEXT = 32 * MIB  # of the simulated card, documented in docs/simulator.md
OUT_OF_MEMORY = 2
UNSUPPORTED_LIMIT = 215


class Program:
    """One process of tests/apps/memory.c; call it with a line, get the numbers of its answer."""

    def __init__(self, bed: Bed, tenant: str, path: Path, *descriptors: int) -> None:
        self.child = bed.spawn(
            tenant, [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, pass_fds=descriptors
        )
        self.pid = self.child.pid
        self.started = self._answer()[0]

    def _answer(self) -> list[int]:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, "it ended"
        return [int(word) for word in line.split()]

    def __call__(self, line: str) -> list[int]:
        assert self.child.stdin is not None
        self.child.stdin.write(line + "\n")
        return self._answer()

    def end(self) -> None:
        self.child.kill()
        self.child.wait()

    def used(self) -> int:
        """What the driver says is used of its total."""
        free, total, _device = self("info")
        return total - free


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed(sim="gpus=2,memory=80GiB") as bed:
        yield bed


@pytest.fixture(scope="module")
def app(build: Build) -> Path:
    return build(APPS / "memory.c", "memory", str(SIM / "libcuda.so.1"))


@pytest.fixture
def tenant(bed: Bed, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    bed.tenant(name, 0.01, 1.0, memory=GIB)
    yield name
    for pid, (of, child) in list(bed.children.items()):
        if of == name:
            child.kill()
            child.wait()
            del bed.children[pid]
    bed.http("DELETE", f"/tenants/{name}")


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    """Two ends of a socket, for descriptors of memory."""
    ends = socket.socketpair()
    with ends[0], ends[1]:
        yield ends[0].fileno(), ends[1].fileno()


def on_card(bed: Bed, *programs: Program) -> int:
    """Bytes that the card holds for these processes."""
    held = bed.timeline.memory(0)
    return sum(held.get(program.pid, 0) for program in programs)


def in_ledger(bed: Bed, tenant: str) -> int:
    """Bytes that the daemon counts for the tenant."""
    return next(int(t["memory_bytes"]) for t in bed.state()["tenants"] if t["name"] == tenant)


@pytest.mark.parametrize("kind", KINDS)
def test_each_family_is_counted_as_the_card_counts_it(bed: Bed, app: Path, tenant: str, kind: str) -> None:
    program = Program(bed, tenant, app)
    assert program.started == 0
    assert program.used() == on_card(bed, program) == CONTEXT
    assert program("info")[1:] == [GIB, GIB]
    for bytes_ in (8 * MIB, 300 * 1024, 33 * MIB):
        bytes_ -= bytes_ % 65536
        assert program(f"take {kind} {bytes_ if kind != 'vmm' else (bytes_ + 2 * MIB) >> 21 << 21} 3") == [3, 0]
        assert program.used() == on_card(bed, program)
    assert program(f"give {kind} 9") == [9, 0]
    program("sync")
    assert program.used() == on_card(bed, program) == CONTEXT


def test_a_refusal_is_out_of_memory_whatever_a_driver_calls_sizes_that_are_none(app: Path) -> None:
    """PyTorch frees its cache and tries again for this answer alone; it had INVALID_VALUE from such a driver."""
    with Bed(sim="memory=80GiB,bounds=on") as strict:
        strict.tenant("t", 0.01, 1.0, memory=GIB)
        program = Program(strict, "t", app)
        answers = {kind: program(f"take {kind} {2 * GIB} 1") for kind in KINDS}
        assert answers == {kind: [0, OUT_OF_MEMORY] for kind in KINDS}
        assert program.used() == on_card(strict, program) == CONTEXT


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("kinds", [("alloc", "pool"), ("vmm", "array"), ("own", "managed"), ("mipmap", "pitch")])
def test_two_processes_get_all_of_the_limit_and_no_more(
    bed: Bed, app: Path, tenant: str, kinds: tuple[str, str]
) -> None:
    programs = [Program(bed, tenant, app), Program(bed, tenant, app)]
    for _ in range(3):
        for program in programs:
            for kind in kinds:
                assert program(f"take {kind} {4 * MIB} 17") == [17, 0]
    got = [program(f"take {kind} {4 * MIB} 1000") for program in programs for kind in kinds]
    assert [code for _, code in got] == [OUT_OF_MEMORY] * 4
    assert GIB - 4 * MIB < on_card(bed, *programs) <= GIB
    got = [program(f"take {kind} {2 * MIB} 4") for program in programs for kind in kinds]
    assert on_card(bed, *programs) == GIB  # to the byte
    assert got[-1][1] == OUT_OF_MEMORY
    assert [program("info")[0] for program in programs] == [0, 0]
    assert programs[0]("context")[1] == OUT_OF_MEMORY


@pytest.mark.flaky(reruns=2)
def test_what_one_frees_the_other_can_take(bed: Bed, app: Path, tenant: str) -> None:
    first, second = Program(bed, tenant, app), Program(bed, tenant, app)
    whole = (GIB - 2 * CONTEXT) // (4 * MIB)
    assert first(f"take pool {4 * MIB} {whole}") == [whole, 0]
    assert second(f"take alloc {4 * MIB} 1") == [0, OUT_OF_MEMORY]
    assert first("give pool 100") == [100, 0]
    first("sync")  # the pool shrinks, the library keeps some credit, and gives it up when it is asked
    assert second(f"take alloc {4 * MIB} 101") == [100, OUT_OF_MEMORY]
    assert on_card(bed, first, second) == GIB


@pytest.mark.flaky(reruns=2)
def test_a_killed_process_gives_all_back(bed: Bed, app: Path, tenant: str) -> None:
    victim, heir = Program(bed, tenant, app), Program(bed, tenant, app)
    for kind in ("alloc", "pool", "vmm", "array"):
        victim(f"take {kind} {4 * MIB} 40")
    assert heir(f"take alloc {4 * MIB} 1000")[1] == OUT_OF_MEMORY
    victim.child.kill()
    victim.child.wait()
    wait_for(lambda: in_ledger(bed, tenant) == on_card(bed, heir), 60, "end of the dead process's memory")
    assert heir(f"take alloc {4 * MIB} 1000")[0] >= 160
    assert on_card(bed, heir) == GIB


def test_contexts_are_counted_and_given_back(bed: Bed, app: Path, tenant: str) -> None:
    program = Program(bed, tenant, app)
    assert [program("context")[1] for _ in range(3)] == [0, 0, 0]
    assert program.used() == on_card(bed, program) == 4 * CONTEXT
    assert program("end")[1] == 0
    assert program.used() == on_card(bed, program) == 3 * CONTEXT
    program(f"take alloc {4 * MIB} 10")
    program(f"take array {4 * MIB} 10")
    assert program("primary")[1] == 0  # its end frees what was allocated in it
    assert program.used() == on_card(bed, program) == 3 * CONTEXT
    left = (GIB - 3 * CONTEXT - 16 * MIB) // (4 * MIB)
    assert program(f"take alloc {4 * MIB} {left}") == [left, 0]
    assert program("context")[1] == OUT_OF_MEMORY  # 16 MiB are left
    assert program.used() == on_card(bed, program) == GIB - 16 * MIB


def test_what_a_context_sets_aside_by_its_limits_is_counted(bed: Bed, app: Path, tenant: str) -> None:
    program = Program(bed, tenant, app)
    started = CONTEXT
    stacks = 132 * 2048  # as many threads as the card can hold
    for limit, value, held in [(2, 72 * MIB, 64 * MIB), (1, 7 * MIB + 1000, 1024), (0, 2048, 1024 * stacks),
                               (2, 8 * MIB, -64 * MIB), (2, 4 * MIB, 0), (2, 40 * MIB, 32 * MIB)]:  # fmt: skip
        assert program(f"limit {limit} {value}") == [value, 0]
        started += held
        assert program.used() == on_card(bed, program) == started
    assert program("limit 0 8192") == [2048, OUT_OF_MEMORY]
    assert program(f"limit 2 {1 << 63}") == [40 * MIB, OUT_OF_MEMORY]
    assert program("limit 12 1")[1] == UNSUPPORTED_LIMIT
    assert program.used() == on_card(bed, program) == started
    assert program("primary")[1] == 0  # all goes with the context
    assert program.used() == on_card(bed, program) == CONTEXT


def test_physical_memory_lives_until_the_last_handle_and_mapping(bed: Bed, app: Path, tenant: str) -> None:
    program = Program(bed, tenant, app)
    held = CONTEXT + 64 * MIB
    assert program(f"take vmm {64 * MIB} 1") == [1, 0]
    for step in ("map 3", "release", "retain", "unmap"):
        assert program(step)[1] == 0
        assert program.used() == on_card(bed, program) == held, step
    assert program("release")[1] == 0
    assert program.used() == on_card(bed, program) == CONTEXT
    assert program(f"take vmm {64 * MIB} 1") == [1, 0]
    assert [program(step)[1] for step in ("map 2", "release")] == [0, 0]
    assert program.used() == on_card(bed, program) == held
    assert program("unmap")[1] == 0
    assert program.used() == on_card(bed, program) == CONTEXT


def test_exported_memory_counts_for_its_maker_whatever_becomes_of_its_handles(bed: Bed, app: Path, tenant: str) -> None:
    program, sibling = Program(bed, tenant, app), Program(bed, tenant, app)
    fit = (GIB - 2 * CONTEXT) // (64 * MIB)
    assert program(f"share {64 * MIB} 100") == [fit, OUT_OF_MEMORY]
    assert on_card(bed, program, sibling) == 2 * CONTEXT + fit * 64 * MIB <= GIB
    assert sibling(f"take alloc {64 * MIB} 1") == [0, OUT_OF_MEMORY]
    program.child.kill()
    program.child.wait()
    wait_for(lambda: in_ledger(bed, tenant) == CONTEXT + fit * 64 * MIB, 60, "end of all but the exported memory")
    sibling.child.kill()
    sibling.child.wait()
    wait_for(lambda: in_ledger(bed, tenant) == 0, 60, "end of the tenant's memory")
    assert Program(bed, tenant, app)(f"take alloc {64 * MIB} 1") == [1, 0]


def test_exported_memory_of_children_that_end_counts_for_their_tenant(bed: Bed, app: Path, tenant: str) -> None:
    program = Program(bed, tenant, app)
    fit = (GIB - 2 * CONTEXT) // (128 * MIB)
    assert program(f"adopt {128 * MIB} 100") == [fit, OUT_OF_MEMORY]
    wait_for(lambda: in_ledger(bed, tenant) == CONTEXT + fit * 128 * MIB, 60, "what the children left, and no more")
    held = CONTEXT + fit * 128 * MIB
    wait_for(lambda: program("info") and on_card(bed, program) == held, 60, "all of it on the card")
    program.child.kill()
    program.child.wait()
    wait_for(lambda: in_ledger(bed, tenant) == 0, 60, "end of the tenant's memory")


def test_what_another_tenant_made_counts_for_whoever_imports_it(
    bed: Bed, app: Path, tenant: str, pair: tuple[int, int]
) -> None:
    bed.tenant("maker", 0.01, 1.0, memory=GIB)
    importer = Program(bed, tenant, app, pair[1])
    for at, code in enumerate((0, 0, 0, OUT_OF_MEMORY)):
        maker = Program(bed, "maker", app, pair[0])
        assert maker(f"hand {300 * MIB} {pair[0]}") == [0, 0]
        assert importer(f"get {300 * MIB} {pair[1]}") == [0, code]
        maker.end()
        held = CONTEXT + 300 * MIB * min(at + 1, 3)
        wait_for(lambda: in_ledger(bed, "maker") == 0, 60, "end of the maker's memory")
        assert in_ledger(bed, tenant) == held
        wait_for(lambda held=held: importer("info") and on_card(bed, importer) == held, 60, "the same on the card")
    assert bed.http("DELETE", "/tenants/maker")[0] == 200
    assert in_ledger(bed, tenant) == CONTEXT + 900 * MIB
    importer.end()
    wait_for(lambda: in_ledger(bed, tenant) == 0, 60, "end of the importer's memory")


def test_what_ones_own_tenant_exported_counts_once_as_long_as_it_is_charged_for_it(
    bed: Bed, app: Path, tenant: str, pair: tuple[int, int]
) -> None:
    maker, importer = Program(bed, tenant, app, pair[0]), Program(bed, tenant, app, pair[1])
    for _ in range(3):
        assert maker(f"hand {300 * MIB} {pair[0]}") == [0, 0]
        assert importer(f"get {300 * MIB} {pair[1]}") == [0, 0]
    assert in_ledger(bed, tenant) == 2 * CONTEXT + 900 * MIB
    for program in (maker, importer):
        program.end()
    wait_for(lambda: in_ledger(bed, tenant) == 0, 60, "end of the tenant's memory")


def test_what_was_exported_by_processes_that_have_all_ended_counts_for_whoever_imports_it(
    bed: Bed, app: Path, tenant: str, pair: tuple[int, int]
) -> None:
    for _ in range(4):  # the descriptors wait in the socket, and nobody has them counted
        maker = Program(bed, tenant, app, pair[0])
        assert maker(f"hand {300 * MIB} {pair[0]}") == [0, 0]
        maker.end()
        wait_for(lambda: in_ledger(bed, tenant) == 0, 60, "end of the maker's memory")
    importer = Program(bed, tenant, app, pair[1])
    assert [importer(f"get {300 * MIB} {pair[1]}")[1] for _ in range(4)] == [0, 0, 0, OUT_OF_MEMORY]
    assert in_ledger(bed, tenant) == CONTEXT + 900 * MIB


def test_what_a_tenant_exported_that_is_gone_counts_for_whoever_comes_in_its_place(
    bed: Bed, app: Path, pair: tuple[int, int]
) -> None:
    """As a user's `gemini run` does, one after the other: each makes its tenant, and takes it away at the end."""
    for _ in range(4):
        bed.tenant("passes", 0.01, 1.0, memory=GIB)
        maker = Program(bed, "passes", app, pair[0])
        assert maker(f"hand {300 * MIB} {pair[0]}") == [0, 0]
        maker.end()
        bed.http("DELETE", "/tenants/passes")
    bed.tenant("passes", 0.01, 1.0, memory=GIB)
    importer = Program(bed, "passes", app, pair[1])
    try:
        assert [importer(f"get {300 * MIB} {pair[1]}")[1] for _ in range(4)] == [0, 0, 0, OUT_OF_MEMORY]
        assert in_ledger(bed, "passes") == CONTEXT + 900 * MIB
    finally:
        importer.end()
        bed.http("DELETE", "/tenants/passes")


def test_a_daemon_that_restarts_is_told_again_what_is_exported(app: Path, tmp_path: Path) -> None:
    with Bed(sim="gpus=1,memory=80GiB") as bed:
        bed.tenant("again", 0.1, 1.0, memory=GIB)
        program, sibling = Program(bed, "again", app), Program(bed, "again", app)
        assert program(f"share {64 * MIB} 4") == [4, 0]
        assert bed.daemon is not None
        bed.daemon.kill()
        bed.daemon.wait()
        bed.start_daemon()
        wait_for(lambda: in_ledger(bed, "again") == 2 * CONTEXT + 256 * MIB, 60, "both to be back")
        assert sibling("info")
        program.child.kill()
        program.child.wait()
        wait_for(lambda: in_ledger(bed, "again") == CONTEXT + 256 * MIB, 60, "end of all but the exported memory")


def test_pools_are_counted_by_what_they_hold(bed: Bed, app: Path, tenant: str) -> None:
    program = Program(bed, tenant, app)
    assert program(f"take pool {MIB} 1") == [1, 0]
    assert program.used() == on_card(bed, program) > CONTEXT + MIB  # a pool grows by more than was asked
    assert program("give pool 1") == [1, 0]
    assert program("trim")[1] == 0
    assert program.used() == on_card(bed, program) == CONTEXT
    assert program(f"take own {4 * MIB} 5") == [5, 0]
    assert program("give own 5") == [5, 0]
    assert program("destroy")[1] == 0
    assert program.used() == on_card(bed, program) == CONTEXT


def test_memory_in_another_cards_stream_counts_with_that_card(app: Path) -> None:
    """Whichever is current: the driver takes it of the pool of the stream's device."""
    with Bed(sim="gpus=2,memory=80GiB") as both:
        both.tenant("t", 0.01, 1.0, memory=GIB)
        program = Program(both, "t", app)
        count, code = program(f"abroad {64 * MIB} 100")
        assert (count, code) == ((GIB - CONTEXT) // (64 * MIB), OUT_OF_MEMORY)
        held = [both.timeline.memory(device).get(program.pid, 0) for device in (0, 1)]
        assert held == [CONTEXT, CONTEXT + count * 64 * MIB]
        assert program("take pool 1048576 1") == [1, 0]  # of this one it has enough


def test_memory_of_graphs_is_counted(bed: Bed, app: Path, tenant: str) -> None:
    program = Program(bed, tenant, app)
    assert program(f"graph {64 * MIB}") == [1, 0]
    assert program("sync")[1] == 0
    assert program.used() == on_card(bed, program)


def test_a_forked_child_takes_nothing_with_it(bed: Bed, app: Path, tenant: str) -> None:
    program = Program(bed, tenant, app)
    assert program(f"take alloc {4 * MIB} 10") == [10, 0]
    assert program("fork") == [0, 7]
    assert program.used() == on_card(bed, program) == in_ledger(bed, tenant)
    assert program("give alloc 10") == [10, 0]
    assert program.used() == on_card(bed, program) == CONTEXT


NVML = """
import json, sys, pynvml
pynvml.nvmlInit()
seen = []
for i in range(pynvml.nvmlDeviceGetCount()):
    handle = pynvml.nvmlDeviceGetHandleByIndex(i)
    one = pynvml.nvmlDeviceGetMemoryInfo(handle)
    two = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    pids = [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    seen.append([one.total, one.used, one.free, two.total, two.used, two.free, pids])
print(json.dumps(seen), flush=True)
"""


def test_nvml_tells_a_tenant_of_its_own_memory_and_processes(bed: Bed, app: Path, tenant: str) -> None:
    other = f"{tenant}o"
    bed.tenant(other, 0.01, 1.0, memory=GIB)
    stranger = Program(bed, other, app)
    program = Program(bed, tenant, app)
    stranger(f"take alloc {4 * MIB} 7")
    program(f"take alloc {4 * MIB} 10")
    monitor = bed.spawn(tenant, [sys.executable, "-c", NVML], stdout=subprocess.PIPE, text=True)
    seen = json.loads(monitor.communicate(timeout=120)[0])
    used = CONTEXT + 40 * MIB
    assert program.used() == used
    figures = [GIB, used, GIB - used]
    assert seen[0] == [*figures, *figures, [program.pid]]
    stranger.child.kill()
    stranger.child.wait()


MONITOR_THEN_CUDA = """
import ctypes, os, pynvml
pynvml.nvmlInit()
first = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
code = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)]
code.append(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(512 << 20)))
code.append(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(512 << 20)))
print(first, *code, flush=True)
"""


def test_a_process_may_begin_with_nvml(bed: Bed, tenant: str) -> None:
    child = bed.spawn(tenant, [sys.executable, "-c", MONITOR_THEN_CUDA], stdout=subprocess.PIPE, text=True)
    out = child.communicate(timeout=120)[0]
    assert out.split() == [str(GIB), "0", "0", "0", "0", str(OUT_OF_MEMORY)]


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("mib", [4, 40], ids=["with room", "at the limit"])
def test_many_threads_leave_nothing_behind(bed: Bed, build: Build, tenant: str, mib: int) -> None:
    program = build(APPS / "threads.c", "threads", str(SIM / "libcuda.so.1"))
    highest = 0
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [bed.spawn(tenant, [program, "400", str(mib)], **pipes) for _ in range(2)]
    for child in children:  # before either takes what the other's context needs
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    while any(not select.select([child.stdout], [], [], 0.0005)[0] for child in children):
        held = bed.timeline.memory(0)
        highest = max(highest, sum(held.get(child.pid, 0) for child in children))
    for child in children:
        assert child.stdout is not None
        taken, refused, changed, wrong, used = map(int, child.stdout.readline().split())
        assert taken > 5  # how many in 0.4 s is the machine's affair
        assert (refused > 0) == (mib == 40)
        assert (changed, wrong) == (0, 0)
        assert used >= CONTEXT
    assert highest <= GIB
    assert sum(bed.timeline.memory(0).get(child.pid, 0) for child in children) == 2 * CONTEXT
    last = Program(bed, tenant, build(APPS / "memory.c", "memory", str(SIM / "libcuda.so.1")))
    room = (GIB - 3 * CONTEXT) // (4 * MIB)
    assert last(f"take alloc {4 * MIB} 1000") == [room, OUT_OF_MEMORY]  # what the threads' processes kept is recalled


def test_cards_are_told_apart_by_uuid(bed: Bed, app: Path, tenant: str) -> None:
    """CUDA's device 0 is NVML's card 1 here: memory is counted, limited and told on that card, and only there."""
    second = bed.spawn(
        tenant, [app], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"CUDA_VISIBLE_DEVICES": "1"}
    )
    assert second.stdin is not None
    assert second.stdout is not None
    assert second.stdout.readline() == "0\n"
    second.stdin.write(f"take alloc {4 * MIB} 10\n")
    second.stdin.flush()
    assert second.stdout.readline() == "10 0\n"
    assert bed.timeline.memory(1).get(second.pid) == CONTEXT + 40 * MIB
    monitor = bed.spawn(tenant, [sys.executable, "-c", NVML], stdout=subprocess.PIPE, text=True)
    seen = json.loads(monitor.communicate(timeout=120)[0])
    assert [card[1] for card in seen] == [0, CONTEXT + 40 * MIB]
    assert [card[6] for card in seen] == [[], [second.pid]]
    first = Program(bed, tenant, app)  # on card 0, which has a limit of its own
    assert first.used() == CONTEXT
    assert first(f"take alloc {4 * MIB} 1000")[0] == (GIB - CONTEXT) // (4 * MIB)


SPAWNS = """
import ctypes, os, subprocess, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)] == [0, 0]
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(512 << 20)) == 0
def answers(lines):
    return [lines.splitlines()[i] for i in (0, 1)]
ask = f"take alloc {4 << 20} 1000\\n"
one = subprocess.run([sys.argv[1]], input=ask, capture_output=True, text=True).stdout          # vfork, exec
two = subprocess.run([sys.argv[1]], input=ask, capture_output=True, text=True, preexec_fn=lambda: None).stdout  # fork
read, write = os.pipe()
os.set_inheritable(read, True)
pid = os.posix_spawn("/bin/bash", ["bash", "-c", f"exec {sys.argv[1]} <&{read}"], os.environ)  # spawn, exec twice
os.write(write, ask.encode())
os.close(write)
os.close(read)
print(*answers(one), *answers(two), os.waitpid(pid, 0)[1], flush=True)
print(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(400 << 20)), flush=True)
"""


@pytest.mark.flaky(reruns=2)
def test_children_by_fork_vfork_and_spawn_are_processes_of_their_own(bed: Bed, app: Path, tenant: str) -> None:
    parent = bed.spawn(tenant, [sys.executable, "-c", SPAWNS, app], stdout=subprocess.PIPE, text=True)
    out = parent.communicate(timeout=120)[0].splitlines()
    room = (GIB - 512 * MIB - 2 * CONTEXT) // (4 * MIB)
    # Each child got what the parent left, gave it back at its end, and the parent's own was untouched.
    assert out[-2] == f"0 {room} {OUT_OF_MEMORY} 0 {room} {OUT_OF_MEMORY} 0"
    assert out[-1] == "0"


def test_a_green_context_is_counted_as_the_primary_one_that_it_holds(bed: Bed, app: Path) -> None:
    bed.tenant("green", 0.1, 1.0, memory=CONTEXT + 8 * MIB)
    program = Program(bed, "green", app)
    assert program("elsewhere") == [0, 0]
    assert program("green") == [0, 0]
    assert program("elsewhere") == [0, OUT_OF_MEMORY]  # there is room for one context on each card
    assert program("ungreen") == [0, 0]
    assert program("elsewhere") == [0, 0]
