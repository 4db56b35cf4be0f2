"""What programs do to themselves, or have done to them: allocators, handlers, threads that are stopped one by one.

Real processes on the simulated card, as tenants of a real daemon; who worked is read from the card's own timeline.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.bed import HOOK, Bed, wait_for
from libhook.build import preloaded
from tests.libhook.processes.conftest import Compile
from tests.libhook.processes.test_processes import Tenant, workers
from tests.libhook.processes.test_processes import tenant as tenant

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000
PATIENCE_S, WORKED_NS = 60, 300_000_000


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed(sim="memory=8GiB") as bed:
        yield bed


@pytest.mark.skipif("GEMINI_SANITIZER" in os.environ, reason="a sanitizer brings an allocator of its own")
@pytest.mark.parametrize("first", [True, False], ids=["before the library", "behind it"])
@pytest.mark.parametrize(("mode", "processes"), [("plain", 1), ("fork-after", 2), ("fork-threads", 5), ("reopen", 1)])
def test_a_program_with_an_allocator_of_its_own_is_a_client_like_others(
    tenant: Tenant, compiled: Compile, tmp_path: Path, mode: str, processes: int, first: bool
) -> None:
    allocator = str(compiled("allocator.c", "-shared", "-fPIC", "-fno-builtin"))
    preload = [allocator, preloaded(HOOK)] if first else [preloaded(HOOK), allocator]
    env = {"LD_PRELOAD": ":".join(preload), "ALLOCATOR_COUNT": str(tmp_path / "count")}
    status, lines, err = tenant.run(compiled("processes.c"), mode, env=env)
    assert (status, err) == (0, "")
    assert len(workers(lines)) == processes
    assert int((tmp_path / "count").read_text()) > 0, "it is in use"
    tenant.until_joined(processes)


def test_calls_from_a_handler_that_interrupts_no_other_are_calls_like_others(tenant: Tenant, compiled: Compile) -> None:
    status, lines, err = tenant.run(compiled("processes.c"), "handler")
    assert (status, err) == (0, "")
    assert len(workers(lines)) == 1
    tenant.until_joined(1)


@contextlib.contextmanager
def stopped(thread: int) -> Iterator[None]:
    """This one thread stands still, and no other of its process."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long] * 4
    if ptrace(PTRACE_SEIZE, thread, 0, 0) or ptrace(PTRACE_INTERRUPT, thread, 0, 0):
        pytest.skip(f"ptrace: {os.strerror(ctypes.get_errno())}")
    os.waitpid(thread, WALL)
    try:
        yield
    finally:
        ptrace(PTRACE_DETACH, thread, 0, 0)


def threads(pid: int) -> dict[str, int]:
    """Of a process, by name; its first one is called "first"."""
    found = {"first": pid}
    for task in Path(f"/proc/{pid}/task").iterdir():
        if int(task.name) != pid:
            found[(task / "comm").read_text().strip()] = int(task.name)
    return found


@pytest.mark.parametrize("which", ["first", "library's"])
def test_a_thread_that_is_stopped_holds_up_its_own_tenant_alone(bed: Bed, tenant: Tenant, which: str) -> None:
    other = Tenant(bed, f"other-{tenant.name}")
    held, free = (bed.load(name, "--kernel-us", 100, "--seconds", 0) for name in (tenant.name, other.name))
    bed.until_busy(tenant.name, other.name)

    def busy(pid: int) -> int:
        return bed.timeline.busy()[1].get(pid, 0)

    def until_works(pid: int) -> None:
        before = busy(pid)
        wait_for(lambda: busy(pid) > before + WORKED_NS, PATIENCE_S, "work")

    own = threads(held.pid)
    thread = own["first"] if which == "first" else next(one for name, one in own.items() if name != "first")
    with stopped(thread):
        for _ in range(5):  # far longer than a lease
            until_works(free.pid)
    until_works(held.pid)
    until_works(free.pid)
    for one in (held, free):
        assert one.poll() is None
        one.kill()
        one.wait()
