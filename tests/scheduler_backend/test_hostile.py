"""A hostile client: it floods, lies, writes garbage and opens what it can. Others get their tokens as ever."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import flood
from bench.flood import WAYS
from bench.tenants import cpu_ns, resident_bytes
from libhook.core import ffi, lib
from scheduler_backend.bounds import MOST_PEERS_OF_ONE
from scheduler_backend.page import SIZE
from tests.scheduler_backend.rig import PATIENCE_S, ROOT, Client, Rig, wait_for
from tests.scheduler_backend.serve import GPUS


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        for name in ("victim", "other", "hostile"):
            made.tenant(name, request=0.3, memory_bytes=1 << 30)
        yield made


def take_turns(rig: Rig, grants: int) -> None:
    """Two well-behaved tenants are given so many grants, and hold each for 1 ms."""
    clients = [rig.client("victim"), rig.client("other")]
    for client in clients:
        client.ask()
    count = 0
    deadline = time.monotonic() + PATIENCE_S
    while count < grants:
        assert time.monotonic() < deadline, count
        for client in clients:
            message = client.receive(0.001)
            if message is None or message[0] != lib.WIRE_GRANT or message[1].flags & lib.WIRE_GRANT_PREPARED:
                continue
            time.sleep(0.001)
            client.say_drained(message[1].epoch)
            client.give_back(message[1].epoch, more=True)
            count += 1
    for client in clients:
        client.close()


@contextlib.contextmanager
def flooding(rig: Rig, way: str) -> Iterator[None]:
    """A process of the hostile tenant that does this without end."""
    path = str(rig.state_dir / "tenants" / "hostile" / "tenant.sock")
    words = [sys.executable, "-m", "bench.flood", way, path, GPUS[0].uuid_bytes.hex()]
    child = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("way", [way for way in WAYS if way != "burn"])
def test_a_flood_of_one_tenant_does_not_stop_the_others(rig: Rig, way: str) -> None:
    with flooding(rig, way):
        take_turns(rig, 10)  # what it costs in shares is bench/hostile.py's question
    assert rig.daemon is not None
    assert rig.daemon.poll() is None, rig.log()
    assert len(os.listdir(f"/proc/{rig.daemon.pid}/fd")) < 2500
    assert len(rig.log().splitlines()) < 5000

    def served_again() -> bool:  # once what it said has been worked off it is not shut out
        try:
            late = rig.client("hostile", patience=5)
            late.ask()
            return bool(late.grant(5))
        except (OSError, AssertionError):
            return False

    wait_for(served_again, what="service of the one who flooded")


def test_what_one_tenant_floods_is_read_at_a_bounded_rate(rig: Rig) -> None:
    def pauses() -> float:
        text = rig.http("GET", "/metrics")[1]
        line = 'gemini_flood_pauses_total{tenant="hostile"}'
        return next(float(one.split()[-1]) for one in text.splitlines() if one.startswith(line))

    with flooding(rig, "messages"):
        wait_for(lambda: pauses() > 3, what="pause of the one who floods")


def test_who_has_its_siblings_asked_for_memory_may_say_no_more_for_that(rig: Rig) -> None:
    with flooding(rig, "recalls"):
        wait_for(lambda: rig.of("hostile")["flood_pauses"] > 3, what="pause of the one who floods")


@pytest.mark.flaky(reruns=2)
def test_a_flood_that_is_not_read_costs_no_processor_time(rig: Rig) -> None:
    assert rig.daemon is not None
    with flooding(rig, "messages"):
        wait_for(lambda: rig.of("hostile")["flood_pauses"] > 3, what="pause of the one who floods")
        began_ns, before = time.monotonic_ns(), cpu_ns(rig.daemon.pid)
        time.sleep(1.0)
        spent, elapsed_ns = cpu_ns(rig.daemon.pid) - before, time.monotonic_ns() - began_ns
    assert spent < elapsed_ns / 4, "it looks again and again at what it does not read"


def test_who_floods_is_not_read_and_leaves_does_not_take_the_daemon_along(rig: Rig) -> None:
    with flooding(rig, "messages"):  # more than is read of one connection
        wait_for(lambda: rig.of("hostile")["flood_pauses"] > 3, what="pause of the one who floods")
        time.sleep(0.5)
    assert rig.daemon is not None
    time.sleep(2.2)
    assert rig.daemon.poll() is None, rig.log()


def test_a_daemon_that_ends_while_what_one_says_waits_ends_without_a_fault(rig: Rig) -> None:
    for _ in range(5):
        with flooding(rig, "messages"):
            wait_for(lambda: rig.of("hostile")["flood_pauses"] > 3, what="pause of the one who floods")
            assert rig.stop() == 0
        assert "Traceback" not in rig.log(), rig.log()[-2000:]
        rig.start()


def test_a_tenant_that_connects_without_end_is_shut_out_and_its_processes_are_not(rig: Rig) -> None:
    polite = rig.client("hostile")
    with flooding(rig, "hellos"):
        wait_for(lambda: "shut-out tenant=hostile" in rig.log(), 60, "end of its welcome")
        polite.ask()
        assert polite.grant()


def test_connections_that_stand_and_what_is_unread_in_them_have_an_end(rig: Rig) -> None:
    assert rig.daemon is not None
    pid = rig.daemon.pid
    before, most_fds, most_bytes = resident_bytes(pid), 0, 0
    victim = rig.client("victim")
    with flooding(rig, "standing"):
        deadline = time.monotonic() + PATIENCE_S
        ending = time.monotonic() + 15
        while time.monotonic() < ending:
            assert time.monotonic() < deadline
            most_fds = max(most_fds, len(os.listdir(f"/proc/{pid}/fd")))
            most_bytes = max(most_bytes, resident_bytes(pid) - before)
            victim.ask()
            victim.give_back(victim.grant().epoch)
    assert most_fds < 1000
    assert most_bytes < 10 << 20
    late = rig.client("hostile")
    late.ask()
    assert late.grant()


class Short(Rig):
    """A daemon that may have 450 descriptors."""

    def command(self) -> list[str]:
        return ["sh", "-c", 'ulimit -n 450; exec "$@"', "sh", *super().command()]


@pytest.mark.parametrize("way", ["", ".page"])
def test_a_burst_of_connections_takes_no_descriptor_that_the_daemon_needs(way: str) -> None:
    with Short() as rig:
        assert rig.daemon is not None
        for name in ("victim", "hostile"):
            rig.tenant(name, request=0.3)
        victim = rig.client("victim")
        folder = rig.state_dir / "tenants" / "hostile"
        burst: list[socket.socket] = []
        while len(burst) < 500 and (connection := burst_of_one(folder / f"tenant.sock{way}")):
            burst.append(connection)
            if len(burst) % 40 == 0:  # many in a second, but the loop turns
                victim.ask()
                victim.give_back(victim.grant().epoch)
        burst += [flood.connected(str(folder / "tenant.sock"))]
        wait_for(lambda: "short=True" in rig.log() or rig.daemon.poll() is not None, what="look")  # type: ignore[union-attr]
        assert rig.daemon.poll() is None, rig.log()
        victim.ask()
        assert victim.grant()
        for connection in burst:
            connection.close()
        wait_for(lambda: "short=False" in rig.log(), what="end of the shortage")
        rig.client("victim")


def burst_of_one(path: Path) -> socket.socket | None:
    """A connection, once there is room in the queue; None where nobody listens any more."""
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        try:
            connection.connect(str(path))
            return connection
        except BlockingIOError:
            time.sleep(0)
        except OSError:
            break
    connection.close()
    return None


def test_who_says_that_it_holds_more_than_can_be_told_is_told_the_most(rig: Rig) -> None:
    liars = [rig.client("hostile") for _ in range(2)]
    for liar in liars:
        liar.send(
            lib.WIRE_MEM_RELEASE, device=liar.device(0), flags=lib.WIRE_MEM_RELEASE_WHOLE, **{"bytes": (1 << 64) - 1}
        )
    liars[0].send(lib.WIRE_MEM_RESERVE, device=liars[0].device(0))
    assert liars[0].expect(lib.WIRE_MEM_REPLY).used_bytes == (1 << 64) - 1
    assert rig.client("hostile", page=False), "and others of it are welcome"
    assert "Traceback" not in rig.log()


def a_turn_is_anothers_to_end(rig: Rig, holder: Client, hostile: Client) -> None:
    """The victim holds and the other waits; what the hostile one says of that ends nothing, and the victim's own word
    does."""
    waiter = rig.client("other")
    holder.ask()
    epoch = holder.grant().epoch
    waiter.ask()
    prepared = waiter.expect(lib.WIRE_GRANT, prepared=True).epoch
    hostile.say_drained(epoch, flags=lib.WIRE_DRAINED_IDLE)
    hostile.until_heard()
    assert rig.of("victim")["holding"], "the daemon has judged what was said before"
    assert (holder.shown(), waiter.shown()) == (epoch, 0), "its kernels run"
    holder.say_drained(epoch, flags=lib.WIRE_DRAINED_IDLE)
    wait_for(lambda: waiter.shown() == prepared, what="end of the turn by the holder's own word")


def test_who_comes_back_to_the_page_socket_does_not_speak_for_who_came_meanwhile(rig: Rig) -> None:
    hostile = rig.client("hostile", hello=False)
    hostile.end_page()
    holder = rig.client("victim")
    hostile.open_page()  # under its nonce of before
    a_turn_is_anothers_to_end(rig, holder, hostile)


def test_a_process_that_asks_for_the_page_under_ever_new_nonces_keeps_few_descriptors_of_the_daemon(rig: Rig) -> None:
    assert rig.daemon is not None
    folder = f"/proc/{rig.daemon.pid}/fd"
    before = len(os.listdir(folder))
    for _ in range(40):
        client = rig.client("hostile", hello=False)
        client.end_page()
        client.close()
    most = 3 * MOST_PEERS_OF_ONE  # a pidfd, and the carrier's copy of the connection
    wait_for(lambda: len(os.listdir(folder)) <= before + most, 10, "end of what the daemon had for it")
    assert rig.client("hostile"), "and its next one is served"


def test_the_end_of_a_process_without_a_page_connection_ends_nobody_elses(rig: Rig) -> None:
    path = rig.state_dir / "tenants" / "hostile" / "tenant.sock"
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from pathlib import Path; from tests.scheduler_backend.rig import Client; import sys\n"
            "client = Client(Path(sys.argv[1])); client.end_page(); print('ended', flush=True); sys.stdin.read()",
            str(path),
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ended\n"
        holder = rig.client("victim")
    finally:
        child.communicate()
    wait_for(lambda: rig.of("hostile")["clients"] == [], what="end of the hostile process")
    a_turn_is_anothers_to_end(rig, holder, rig.client("hostile"))


def test_nobody_can_write_shrink_or_grow_the_page(rig: Rig) -> None:
    client = rig.client("hostile")
    fd = client.page_fd
    for size in (0, SIZE * 2):
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(fd, size)
    with pytest.raises(PermissionError):
        mmap.mmap(fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(fd, b"\xff" * 64, 0)
    address = ctypes.c_void_p(int(ffi.cast("uintptr_t", client.page)))
    assert ctypes.CDLL(None, use_errno=True).mprotect(address, SIZE, mmap.PROT_READ | mmap.PROT_WRITE) != 0


def test_a_tenant_of_a_user_turns_other_users_away(rig: Rig) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to be another user")
    owner = {"name": "owned", "request": 0.1, "pid": os.getpid()}
    program = f"""
import http.client, json, os, socket, sys
os.setuid(12345)
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX); self.sock.connect({str(rig.state_dir / "control.sock")!r})
c = Unix("x"); c.request("POST", "/tenants", json.dumps({owner!r})); print(c.getresponse().status, flush=True)
sys.stdin.read()
"""
    os.chmod(rig.state_dir, 0o755)
    os.chmod(rig.state_dir / "control.sock", 0o666)
    child = subprocess.Popen(
        [sys.executable, "-c", program], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "200"
        folder = rig.state_dir / "tenants" / "owned"
        assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (0, 0o711), "who could fill the daemon's disk"
        for path in (folder / "tenant.sock", folder / "tenant.sock.page"):
            assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (12345, 0o600)
            path.chmod(0o666)  # even who gets to it
        stranger = (
            "import os, sys; sys.path.insert(0, sys.argv[1])\n"
            "from tests.scheduler_backend.rig import Client\n"
            "from pathlib import Path\n"
            "os.setuid(54321)\n"
            "client = Client(Path(sys.argv[2]), page=False, hello=False)\n"
            "client.hello(); print('answer', client.receive(1.0))\n"
            "try:\n    client.open_page(); print('page')\n"
            "except Exception: print('no page')\n"
        )
        words = [sys.executable, "-c", stranger, str(ROOT), str(folder / "tenant.sock")]
        done = subprocess.run(words, capture_output=True, text=True, cwd="/", timeout=60)
        assert done.stdout.split("\n")[:2] == ["answer None", "no page"], done.stderr
        own = Client(folder / "tenant.sock")  # root may
        own.close()
    finally:
        child.stdin.close()  # type: ignore[union-attr]
        child.wait()
