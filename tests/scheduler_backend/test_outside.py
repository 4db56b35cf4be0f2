"""Who is on the cards without the library, and whose they are."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.bed import LOAD, Bed, wait_for
from libhook.core import lib
from scheduler_backend import outside
from scheduler_backend.outside import Outside, Stray, tenant_of
from tests.scheduler_backend.rig import Client
from tests.scheduler_backend.serve import GPUS

FOLDER = Path("/run/gemini/tenants")


def process(proc: Path, pid: int, *, parent: int = 1, mounts: str = "", environ: bytes = b"", uid: int = 0) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "status").write_text(f"Name:\tUid: 7\nUid:\t{uid}\t0\t0\t0\n")
    (folder / "stat").write_text(f"{pid} (a ) b) S {parent} 0 0")
    (folder / "mountinfo").write_text(f"22 1 0:20 {mounts} /run/gemini rw - tmpfs tmpfs rw\n" if mounts else "")
    (folder / "environ").write_bytes(environ)


@pytest.mark.parametrize(
    ("told", "tenant"),
    [
        ({"mounts": "/gemini/tenants/a"}, "a"),
        ({"mounts": "/run/gemini/tenants/b"}, "b"),
        ({"mounts": "/elsewhere/tenants/a"}, None),
        ({"mounts": "/gemini/tenants/unknown"}, None),
        ({"environ": b"HOME=/\0GEMINI_SOCKET=ipc:///run/gemini/tenants/a/tenant.sock\0"}, "a"),
        ({"environ": b"GEMINI_SOCKET=/run/gemini/tenants/b/tenant.sock\0"}, "b"),
        ({"environ": b"GEMINI_SOCKET=/run/gemini/tenant.sock\0"}, None),
        ({"environ": b"XGEMINI_SOCKET=/run/gemini/tenants/b/tenant.sock\0"}, None),
        ({"parent": 5}, "b"),
        ({}, None),
    ],
)  # fmt: skip
def test_a_process_is_whose_mount_socket_or_ancestor_says_so(
    tmp_path: Path, told: dict[str, object], tenant: str | None
) -> None:
    process(tmp_path, 4)  # gemini run
    process(tmp_path, 5, parent=4)
    process(tmp_path, 9, **told)  # type: ignore[arg-type]
    assert tenant_of(9, FOLDER, {"a": None, "b": None}, {4: "b"}, tmp_path) == tenant


@pytest.mark.parametrize(("uid", "tenant"), [(1000, "a"), (0, "a"), (1001, None)])
def test_no_users_process_passes_for_another_users_tenants(tmp_path: Path, uid: int, tenant: str | None) -> None:
    told = b"GEMINI_SOCKET=/run/gemini/tenants/a/tenant.sock\0"
    process(tmp_path, 9, mounts="/gemini/tenants/a", environ=told, uid=uid)
    assert tenant_of(9, FOLDER, {"a": 1000, "b": None}, {}, tmp_path) == tenant


def test_a_process_that_ended_or_is_of_another_namespace_is_nobodys(tmp_path: Path) -> None:
    assert tenant_of(9, FOLDER, {"a": None}, {4: "a"}, tmp_path) is None
    seen = Outside(GPUS, FOLDER, lambda: {"a": None}, dict, lambda gpu: [9], tmp_path)
    asyncio.run(seen.look())
    assert seen.strays == []


def test_one_that_says_hello_while_it_is_looked_at_is_none(tmp_path: Path) -> None:
    clients: dict[int, str] = {}

    def running(gpu: object) -> list[int]:
        clients[9] = "a"
        return [9, 10]

    process(tmp_path, 9)
    process(tmp_path, 10)
    seen = Outside(GPUS[:1], FOLDER, lambda: {"a": None}, lambda: dict(clients), running, tmp_path)
    asyncio.run(seen.look())
    assert seen.strays == [Stray(0, 10, None)]
    assert (seen.count(None), seen.count(None, 0), seen.count(None, 1), seen.count("a")) == (1, 1, 0, 0)


def test_a_process_that_cannot_be_read_keeps_nobody_waiting(tmp_path: Path) -> None:
    process(tmp_path, 9)
    process(tmp_path, 10)
    (tmp_path / "9" / "environ").unlink()
    os.mkfifo(tmp_path / "9" / "environ")  # as where its memory is a file of a server that does not answer

    async def look_twice() -> list[Stray]:
        seen = Outside(GPUS[:1], FOLDER, lambda: {"a": None}, dict, lambda gpu: [9, 10], tmp_path)
        await seen.look()
        assert seen.strays == []
        with (tmp_path / "9" / "environ").open("wb") as file:
            file.write(b"GEMINI_SOCKET=/run/gemini/tenants/a/tenant.sock")
        while not seen.strays:
            await asyncio.sleep(0.01)
            await seen.look()
        return seen.strays

    assert asyncio.run(look_twice()) == [Stray(0, 9, "a"), Stray(0, 10, None)]


ZEROS = """
import ctypes, sys
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
begin, end = int(fields[47]), int(fields[48])  # of its environment
ctypes.memset(begin, 0, end - begin)
print(end - begin, flush=True)
sys.stdin.read()
"""
MOST_HELD = 4 << 20


def held_by_a_look(pid: int, proc: Path) -> int:
    """The most bytes that telling whose process this is took at once."""
    tracemalloc.start()
    try:
        assert tenant_of(pid, FOLDER, {"a": None}, {}, proc) is None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_process_fills_the_daemons_memory_with_what_it_says_of_itself(tmp_path: Path) -> None:
    """An environment may be as long as memory is, and its owner writes it as he likes: each zero is a word's end."""
    words = {f"X{number}": "x" * 131_000 for number in range(44)}
    said = subprocess.Popen(
        [sys.executable, "-c", ZEROS], env={**os.environ, **words}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (64 << 20, resource.RLIM_INFINITY)),
    )  # fmt: skip
    with said:
        assert said.stdout is not None
        assert int(said.stdout.readline()) > 5 << 20
        assert held_by_a_look(said.pid, Path("/proc")) < MOST_HELD
        said.kill()
    process(tmp_path, 9, environ=bytes(32 << 20))
    (tmp_path / "9" / "mountinfo").write_text("22 1 0:20 /other/tenants/a /run rw - tmpfs tmpfs rw\n" * 200_000)
    assert held_by_a_look(9, tmp_path) < MOST_HELD


def test_many_processes_with_much_to_read_have_a_part_of_the_time_and_all_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may make what is read of it as long as it likes; the loop waits for the thread that reads it."""
    monkeypatch.setattr(outside, "LOOK_NS", 0)
    monkeypatch.setattr(outside, "ONE_TAKES_NS", 1 << 40)
    many = list(range(10, 50))
    other, mine = (f"22 1 0:20 {root} /x rw - tmpfs x rw\n" for root in ("/other/tenants/a", "/gemini/tenants/a"))
    for pid in many:
        process(tmp_path, pid)
        (tmp_path / str(pid) / "mountinfo").write_text(other * 5_000 + mine)

    async def look() -> list[int]:
        """How many are known after each look, until all are."""
        seen = Outside(GPUS[:1], FOLDER, lambda: {"a": None}, dict, lambda gpu: many, tmp_path)
        found = []
        while seen.count("a") < len(many):
            await seen.look()
            assert len(seen.strays) == len(many)  # who was not looked at yet is on the card all the same
            found.append(seen.count("a"))
        return found

    found = asyncio.run(look())
    assert 0 < found[0] < len(many) // 2
    assert found == sorted(found)


def test_one_with_very_much_to_read_is_not_read_to_its_end(tmp_path: Path) -> None:
    other, mine = (f"22 1 0:20 {root} /x rw - tmpfs x rw\n" for root in ("/other/tenants/a", "/gemini/tenants/a"))
    process(tmp_path, 9)
    (tmp_path / "9" / "mountinfo").write_text(other * 1000 + mine)
    assert tenant_of(9, FOLDER, {"a": None}, {}, tmp_path) == "a"
    assert tenant_of(9, FOLDER, {"a": None}, {}, tmp_path, until_ns=0) is None


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed() as made:
        yield made


def series(bed: Bed, name: str) -> dict[str, float]:
    """The metric's values by tenant ("": without one)."""
    lines = [line for line in bed.http("GET", "/metrics")[1].splitlines() if line.startswith(name + "{")]
    return {line.partition('tenant="')[2].partition('"')[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_a_tenants_program_without_the_library_is_told_apart_from_a_strangers(bed: Bed, tmp_path: Path) -> None:
    bed.tenant("held", 0.5, 1.0)
    bed.tenant("loose", 0.2, 1.0)
    bed.load("held")
    bed.until_busy("held")
    assert bed.state()["tenants"][0]["enforced"] == "yes"
    assert series(bed, "gemini_outside_processes") == {"held": 0, "loose": 0}
    environment = bed.environment() | {"GEMINI_SOCKET": bed.sockets["loose"]}  # and no LD_PRELOAD
    quiet = {"stdout": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    loose = subprocess.Popen([LOAD], env=environment, **quiet)  # type: ignore[call-overload]
    stranger = subprocess.Popen([LOAD], env=bed.environment(), **quiet)  # type: ignore[call-overload]
    try:
        wait_for(lambda: series(bed, "gemini_outside_processes") == {"held": 0, "loose": 1}, 60, "process outside")
        wait_for(lambda: series(bed, "gemini_stranger_processes") == {"": 1}, 60, "stranger")
        enforced = {tenant["name"]: tenant["enforced"] for tenant in bed.state()["tenants"]}
        assert enforced == {"held": "yes", "loose": "outside"}
        assert {tenant["name"]: tenant["outside"] for tenant in bed.state()["tenants"]} == {
            "held": [],
            "loose": [loose.pid],
        }
        assert series(bed, "gemini_enforced") == {"held": 1, "loose": 0}
    finally:
        for child in (loose, stranger):
            child.kill()
            child.wait()
    wait_for(lambda: series(bed, "gemini_outside_processes")["loose"] == 0, 60, "end of the process outside")


def test_one_that_another_says_hello_for_is_outside_still(bed: Bed) -> None:
    bed.tenant("hidden", 0.1, 1.0)
    environment = bed.environment() | {"GEMINI_SOCKET": bed.sockets["hidden"]}  # and no LD_PRELOAD
    loose = subprocess.Popen([LOAD], env=environment, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    liar = Client(Path(bed.sockets["hidden"]), page=False, hello=False)
    try:
        liar.send(lib.WIRE_HELLO, client_nonce=liar.nonce, pid=loose.pid, program=b"liar")
        liar.expect(lib.WIRE_WELCOME)
        wait_for(lambda: series(bed, "gemini_outside_processes")["hidden"] == 1, 60, "process outside")
        assert series(bed, "gemini_enforced")["hidden"] == 0
        (told,) = (tenant for tenant in bed.state()["tenants"] if tenant["name"] == "hidden")
        assert (told["outside"], told["clients"]) == ([loose.pid], [os.getpid()])
    finally:
        liar.close()
        loose.kill()
        loose.wait()


def test_one_without_a_page_is_not_outside() -> None:
    with Bed(page=False) as bed:
        bed.tenant("plain", 0.5, 1.0)
        child = bed.load("plain")
        bed.until_busy("plain")
        (told,) = bed.state()["tenants"]
        assert [(process["pid"], process["page"]) for process in told["processes"]] == [(child.pid, False)]
        assert (told["outside"], told["enforced"]) == ([], "yes")


def test_a_container_without_preload_is_known_by_its_mount(bed: Bed) -> None:
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("a mount namespace needs root and unshare")
    bed.tenant("mounted", 0.1, 1.0)
    folder = Path(bed.sockets["mounted"]).parent
    inside = bed.state_dir / "inside"
    inside.mkdir()
    script = f"mount --bind {folder} {inside} && exec {LOAD}"
    command = ["unshare", "--mount", "sh", "-c", script]
    if subprocess.run(["unshare", "--mount", "mount", "--bind", folder, inside], check=False).returncode:
        pytest.skip("mounts are forbidden here")
    child = subprocess.Popen(command, env=bed.environment(), stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(lambda: series(bed, "gemini_outside_processes")["mounted"] == 1, 60, "process outside")
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
