"""A tenant's door: bytes that are no ZMTP, connections without end, and files in a folder that is not ours."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import flood
from bench.tenants import resident_bytes
from scheduler_backend import bounds
from scheduler_backend.endpoint import free_number
from scheduler_backend.sockets import listen_at
from tests.scheduler_backend.rig import PATIENCE_S, Client, Rig, wait_for


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        for name in ("victim", "hostile"):
            made.tenant(name, request=0.3)
        yield made


def door(rig: Rig) -> str:
    return str(rig.state_dir / "tenants" / "hostile" / "tenant.sock")


def serves(rig: Rig, victim: Client) -> None:
    assert rig.daemon is not None
    assert rig.daemon.poll() is None, rig.log()
    victim.ask()
    victim.give_back(victim.grant().epoch)
    assert "Traceback" not in rig.log()


def ended(connection: socket.socket) -> bool:
    """Did the daemon close it? What it said before is thrown away."""
    with contextlib.suppress(BlockingIOError):
        try:
            return connection.recv(65536) == b""
        except ConnectionError:
            return True
    return False


PING = b"\x04\x0b\x04PING\x00\x07ctx!"


def test_a_heartbeat_behind_what_is_unread_and_a_hang_up_do_not_end_the_daemon(rig: Rig) -> None:
    victim = rig.client("victim")
    assert rig.daemon is not None
    for _ in range(3):
        with contextlib.ExitStack() as held:
            ones = [held.enter_context(flood.greeted(door(rig))) for _ in range(8)]
            rig.daemon.send_signal(signal.SIGSTOP)
            for one in ones:
                flood.send(one, flood.frame(b"x" * 20) * 40 + PING)
        rig.daemon.send_signal(signal.SIGCONT)
        serves(rig, victim)


def test_a_heartbeat_without_a_time_is_not_answered_with_memory_of_the_daemons(rig: Rig) -> None:
    with flood.greeted(door(rig)) as one:
        one.sendall(b"\x04\x05\x04PING")
        one.settimeout(PATIENCE_S)
        heard = b""
        with contextlib.suppress(ConnectionError):
            while more := one.recv(4096):
                heard += more
        assert b"PONG" not in heard
    with flood.greeted(door(rig)) as one:
        one.sendall(PING)
        assert one.recv(100) == b"\x04\x09\x04PONGctx!"


def test_a_message_of_frames_without_end_is_ended_at_its_first(rig: Rig) -> None:
    victim = rig.client("victim")
    assert rig.daemon is not None
    before = resident_bytes(rig.daemon.pid)
    for piece in (b"\x01\x01x", b"\x01\xff" + b"y" * 255):
        with flood.greeted(door(rig)) as one:
            with contextlib.suppress(OSError):
                for _ in range(2000):
                    one.sendall(piece * 100)
            wait_for(lambda one=one: ended(one), what="end of the connection")
    assert resident_bytes(rig.daemon.pid) - before < 10 << 20
    serves(rig, victim)


def test_who_does_not_end_its_handshake_in_time_is_cut_off_and_who_did_stays(rig: Rig) -> None:
    victim = rig.client("victim")
    polite = rig.client("hostile")
    slow = [flood.connected(door(rig)) for _ in range(20)]
    for one in slow:
        one.setblocking(False)
    sent = 0

    def all_ended() -> bool:
        nonlocal sent
        for one in slow:  # a byte at a time
            flood.send(one, flood.OPENING[sent % 60 : sent % 60 + 1] if sent < 40 else b"")
        sent += 1
        time.sleep(0.2)
        return all([ended(one) for one in slow])

    began = time.monotonic()
    wait_for(all_ended, what="end of them all")
    assert time.monotonic() - began > bounds.HANDSHAKE_SECONDS - 1
    polite.ask()
    polite.give_back(polite.grant().epoch)
    serves(rig, victim)
    for one in slow:
        one.close()


def test_ten_thousand_connections_leave_nothing(rig: Rig) -> None:
    victim = rig.client("victim")
    assert rig.daemon is not None
    pid = rig.daemon.pid
    fds, before = len(os.listdir(f"/proc/{pid}/fd")), resident_bytes(pid)
    for number in range(10_000):
        with socket.socket(socket.AF_UNIX) as one:
            one.setblocking(False)
            with contextlib.suppress(OSError):  # the queue is full: they are not waited for
                one.connect(door(rig))
                one.send(flood.OPENING[: number % 100])
        if number % 1000 == 0:
            serves(rig, victim)
    assert resident_bytes(pid) - before < 10 << 20
    wait_for(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= fds + 2, what="end of their descriptors")
    serves(rig, victim)


def test_of_connections_that_serve_nobody_the_oldest_makes_room(rig: Rig) -> None:
    polite = rig.client("hostile")
    idle = [flood.greeted(door(rig)) for _ in range(450)]
    for _ in range(bounds.MOST_STANDING - 440):
        idle.append(flood.greeted(door(rig)))
    for one in idle:
        one.setblocking(False)
    wait_for(lambda: ended(idle[0]), what="end of the oldest")
    assert not ended(idle[-1])
    polite.ask()
    assert polite.grant()
    for one in idle:
        one.close()


def test_where_no_descriptor_is_left_nobody_is_taken_in_and_all_is_well_after(rig: Rig) -> None:
    class Short(Rig):
        def command(self) -> list[str]:
            return ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *super().command()]

    with Short("--metrics-port", "0") as short:
        for name in ("victim", "hostile"):
            short.tenant(name, request=0.3)
        victim = short.client("victim")
        port = int(next(line for line in short.log().splitlines() if "metrics address=" in line).rpartition(":")[2])
        idle = []
        for _ in range(300):
            with contextlib.suppress(OSError):
                idle.append(socket.create_connection(("127.0.0.1", port), 1))
        late: list[socket.socket] = []

        def is_short() -> bool:
            """Another one came, where the kernel's queue had room; the daemon has said that it is short."""
            late.append(flood.connected(door(short)))
            return "short=True" in short.log()

        wait_for(is_short, what="notice")
        victim.ask()
        victim.give_back(victim.grant().epoch)
        assert short.daemon is not None
        assert short.daemon.poll() is None
        for one in (*idle, *late):
            one.close()
        wait_for(lambda: "short=False" in short.log(), what="end of the shortage")
        short.client("hostile")


def test_a_file_that_somebody_removed_is_made_anew_until_it_can_be(rig: Rig) -> None:
    polite = rig.client("hostile")
    folder = rig.state_dir / "tenants" / "hostile"
    (folder / "tenant.sock").unlink()
    (folder / "tenant.sock").mkdir()
    (folder / "tenant.sock" / "full").touch()
    wait_for(lambda: rig.log().count("sockets-lost tenant=hostile") >= 2, what="second try")
    (folder / "tenant.sock" / "full").unlink()
    (folder / "tenant.sock").rmdir()
    wait_for((folder / "tenant.sock").is_socket, what="the socket anew")
    rig.client("hostile")
    polite.ask()
    assert polite.grant()


@pytest.mark.parametrize("target", ["/" + 300 * "a", "another's"])
def test_a_link_in_a_sockets_place_is_not_followed_and_others_are_looked_after(rig: Rig, target: str) -> None:
    """Each failed look for the one ended that for all who came behind it: their sockets were not made anew, and who
    said nothing was never closed."""
    rig.tenant("behind", request=0.1)
    folder, behind = (rig.state_dir / "tenants" / name for name in ("hostile", "behind"))
    (folder / "tenant.sock").unlink()
    (folder / "tenant.sock").symlink_to(behind / "tenant.sock" if target == "another's" else target)
    (behind / "tenant.sock.page").unlink()
    wait_for((behind / "tenant.sock.page").is_socket, what="the other's socket anew")
    wait_for(lambda: not (folder / "tenant.sock").is_symlink(), what="its own anew")
    rig.client("hostile")
    assert "Traceback" not in rig.log()


SWAP = """
import ctypes, os, sys
os.setgid(12345), os.setuid(12345)
libc = ctypes.CDLL(None)
here, trap = (name.encode() for name in sys.argv[1:3])
print("ready", flush=True)
while True:
    libc.renameat2(-100, here, -100, trap, 2)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_what_another_user_left_under_a_tenants_name_does_not_keep_the_tenant_away(rig: Rig) -> None:
    left = rig.state_dir / "tenants" / "named"
    (left / "tenant.sock").mkdir(parents=True)  # where the socket is to be
    (left / "tenant.sock" / "file").touch()
    os.chown(left, 65534, -1)
    rig.tenant("named", request=0.1)
    client = rig.client("named")
    client.ask()
    assert client.grant()


def test_whose_folder_it_is_has_no_other_file_opened_by_it(tmp_path: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    secret, folder = tmp_path / "secret", tmp_path / "tenants" / "mine"
    folder.mkdir(parents=True)
    os.chown(folder, 12345, 12345)
    secret.write_text("root's own")
    secret.chmod(0o600)
    (folder / "trap").symlink_to(secret)
    words = [sys.executable, "-c", SWAP, str(folder / "s"), str(folder / "trap")]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd="/")
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for _ in range(1000):
            listen_at(folder / "s", 1, 12345).close()
            assert secret.stat().st_mode & 0o777 == 0o600
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert secret.read_text() == "root's own"


def test_tenants_that_are_there_have_numbers_of_their_own_however_many_have_been() -> None:
    """The carrier counts for 4,096 of them: whoever came as the 4,097th shared the bounds of the first."""
    taken = {1, 2, 4}
    assert free_number(taken) == 3
    assert free_number(()) == 1
    for _ in range(5000):
        number = free_number(taken)
        taken.add(number)
        taken.discard(number)
    assert number == 3
