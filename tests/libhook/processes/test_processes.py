"""However a process comes to be, its work is gated, it is a client of its own, and nothing hangs or is lost.

Real processes on the simulated card, as a tenant of a real daemon; what ran is read from the card's own timeline.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.bed import HOOK, LIB, Bed, wait_for
from tests.libhook.processes.conftest import Compile, enter

KERNEL_NS, LAUNCHES = 50_000, 40  # of processes.c
NOBODY = 65534


class Tenant:
    """One of the bed's tenants, and what the daemon's record says of its clients."""

    def __init__(self, bed: Bed, name: str) -> None:
        self.bed = bed
        self.name = name
        bed.tenant(name, 0.01, 1.0, memory=1 << 30)

    def run(self, *command: Path | str, **more: Any) -> tuple[int, list[str], str]:
        """To its end: exit status, lines, stderr."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = self.bed.spawn(self.name, list(command), **pipes, **more)
        out, err = process.communicate(timeout=120)
        return process.returncode, out.splitlines(), err

    def state(self) -> Any:
        return next(found for found in self.bed.state()["tenants"] if found["name"] == self.name)

    def joined(self) -> int:
        """How many clients came."""
        return self.bed.trace.read_text().count(f'"ClientJoined",["{self.name}"')

    def until_joined(self, count: int) -> None:
        wait_for(lambda: self.joined() >= count, 60, f"{count} clients in the daemon's record")
        assert self.joined() == count


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed(sim="gpus=3,memory=8GiB") as bed:
        yield bed


@pytest.fixture
def tenant(bed: Bed, request: pytest.FixtureRequest) -> Tenant:
    return Tenant(bed, f"t{abs(hash(request.node.name)) % 10**9}")


def workers(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines if line.startswith("worked ")]


@pytest.mark.parametrize(
    ("mode", "processes"),
    [("plain", 1), ("fork-before", 2), ("fork-after", 2), ("fork-threads", 5), ("vfork", 2), ("spawn", 2), ("exec", 2),
     ("threads", 1), ("reopen", 1)],
)  # fmt: skip
def test_each_process_is_a_client_of_its_own_and_works(
    tenant: Tenant, compiled: Compile, mode: str, processes: int
) -> None:
    status, lines, err = tenant.run(compiled("processes.c"), mode)
    assert (status, err) == (0, "")
    assert len(workers(lines)) == processes
    tenant.until_joined(processes)  # who execs worked twice under one pid: as two clients


@pytest.mark.parametrize("mode", ["fork-start", "fork-options"])
def test_a_child_forked_while_another_thread_starts_the_library_works(
    tenant: Tenant, compiled: Compile, mode: str
) -> None:
    status, lines, err = tenant.run(compiled("processes.c", "-DFORK_AT_START", "-rdynamic"), mode)
    assert (status, err) == (0, "")
    assert len(workers(lines)) == 2
    tenant.until_joined(2)


def test_a_program_with_many_thread_local_variables_is_a_client_too(tenant: Tenant, compiled: Compile) -> None:
    """They take their place on each thread's stack, the library's own thread's too."""
    status, lines, err = tenant.run(compiled("processes.c", "-DTHREAD_LOCAL_BYTES=1048576"), "plain")
    assert (status, err) == (0, "")
    assert len(workers(lines)) == 1
    tenant.until_joined(1)


@pytest.mark.parametrize(("visible", "cards"), [("2,0", [2, 0]), ("GPU", [1, 2, 0]), ("1", [1]), (None, [0, 1, 2])])
def test_each_card_of_a_process_is_the_one_it_is_named_by(
    bed: Bed, tenant: Tenant, compiled: Compile, visible: str | None, cards: list[int]
) -> None:
    """CUDA_VISIBLE_DEVICES by index, reordered, by UUID; CUDA's numbers are never taken for the daemon's."""
    uuids = [device.uuid for device in bed.timeline.devices()]
    chosen = ",".join(uuids[card] for card in cards) if visible == "GPU" else visible
    env = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}
    status, lines, err = tenant.run(compiled("processes.c"), "devices", env=env)
    assert (status, err) == (0, "")
    said = [line.split()[1] for line in lines if line.startswith("device ")]
    assert said == [uuids[card].removeprefix("GPU-").replace("-", "") for card in cards]
    (worker,) = workers(lines)
    worked = [
        sum(s.end_ns - s.start_ns for s in bed.timeline.segments(card)[1] if s.pid == worker) for card in range(3)
    ]
    expected = [0, 0, 0]
    for device, card in enumerate(cards):  # more kernels on each further device, by CUDA's numbers
        expected[card] = LAUNCHES * (device + 1) * KERNEL_NS
    assert worked == expected
    assert {int(gpu) for gpu, held_ns in tenant.state()["held_ns_by_gpu"].items() if held_ns} == set(cards)


def test_where_membarrier_is_refused_the_gate_still_closes(bed: Bed, tenant: Tenant, compiled: Compile) -> None:
    """Two busy tenants in turn, both without membarrier: the gates close by atomics, and shares hold."""
    other = Tenant(bed, "other")
    load = [compiled("without.c"), "membarrier", LIB / "gemini-load", "--seconds", "0"]
    loads = [bed.spawn(name, load) for name in (tenant.name, other.name)]
    bed.until_busy(tenant.name, other.name)
    bed.until_shares({tenant.name: 0.5, other.name: 0.5}, 0.08, window_s=0.8)
    for one in loads:
        assert one.poll() is None
        one.kill()
        one.wait()


@pytest.mark.parametrize("way", ["--pid", "--pid --mount-proc", "--mount"])
def test_in_a_pid_namespace_or_without_proc_it_works_and_its_end_is_seen(
    bed: Bed, tenant: Tenant, compiled: Compile, may_mount: None, way: str
) -> None:
    command: list[Path | str] = [compiled("processes.c"), "fork-after"]
    if way == "--mount":
        command = ["unshare", way, "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh", *command]
    else:
        command = ["unshare", *way.split(), "--fork", "--kill-child", *command]
    status, lines, err = tenant.run(*command)
    assert (status, err) == (0, "")
    assert len(workers(lines)) == 2
    tenant.until_joined(2)

    def gone() -> bool:
        return tenant.state()["clients"] == []

    wait_for(gone, 60, "end of both processes in the daemon's state")


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory, may_mount: None) -> Path:
    """A root with nothing but the C library and the driver in its own place, and /etc/ld.so.preload."""
    root = tmp_path_factory.mktemp("room")
    root.chmod(0o755)
    for folder in ("lib64", "lib", "etc", "tmp"):
        (root / folder).mkdir()
    shutil.copy(LIB / "sim" / "libcuda.so.1", root / "lib")
    (root / "etc" / "ld.so.preload").write_text("/opt/gemini/libgemini_hook.so\n")
    return root


def binds(bed: Bed, tenant: str, program: Path) -> list[tuple[Path | str, str]]:
    """What of this machine is in a room: a C library, devices, our library, the tenant's own socket folder."""
    linker = "/lib64/ld-linux-x86-64.so.2"
    system = Path("/lib/x86_64-linux-gnu")
    return [
        (linker, linker),
        (system, str(system)),
        ("/dev", "/dev"),
        ("/proc", "/proc"),
        (HOOK.parent, "/opt/gemini"),
        (Path(bed.sockets[tenant]).parent, "/run/gemini"),
        (program, "/app"),
    ]


@pytest.mark.skipif(not Path("/lib/x86_64-linux-gnu/libc.so.6").exists(), reason="another layout of libraries")
def test_in_a_chroot_by_ld_so_preload_with_no_environment_at_all(
    bed: Bed, tenant: Tenant, compiled: Compile, room: Path
) -> None:
    """As after `kubectl exec` or `env -i`: the library comes by the file, the socket is the well-known one."""
    command = enter(room, binds(bed, tenant.name, compiled("processes.c")), "/app", "fork-before")
    clean = {name: "" for name in ("GEMINI_SOCKET", "LD_PRELOAD", "LD_LIBRARY_PATH")}
    status, lines, err = tenant.run(*command, env=clean)
    assert (status, err) == (0, "")
    assert len(workers(lines)) == 2
    tenant.until_joined(2)


@pytest.mark.skipif(not Path("/lib/x86_64-linux-gnu/libc.so.6").exists(), reason="another layout of libraries")
def test_a_setuid_program_takes_no_word_of_who_started_it(
    bed: Bed, tenant: Tenant, compiled: Compile, room: Path
) -> None:
    """It is loaded into it by the file, but reads no option, connects nowhere and writes nothing."""
    program = room / "setuid"
    shutil.copy(compiled("processes.c"), program)
    os.chown(program, 0, 0)
    program.chmod(0o4755)
    (room / "tmp").chmod(0o777)
    words = enter(room, binds(bed, tenant.name, program), "/setuid", "secure", user=NOBODY)
    env = {"GEMINI_SOCKET": bed.sockets[tenant.name], "GEMINI_LOG": "debug", "GEMINI_LOG_FILE": "/tmp/log"}
    status, lines, err = tenant.run(*words, env={**env, "LD_PRELOAD": "", "LD_LIBRARY_PATH": ""})
    assert (status, err) == (0, "")
    assert lines[0] == "secure"
    assert len(workers(lines)) == 1
    assert not (room / "tmp" / "log").exists()
    assert tenant.joined() == 0
