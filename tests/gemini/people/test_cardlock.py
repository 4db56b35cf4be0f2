"""One daemon for a card, whoever asks: users, environments, networks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from bench.bed import LOAD
from bench.hostile.rights import let_go, lingering, pass_along
from gemini.cli.control import answers
from gemini.cli.node import Node, sim_environment
from gemini.cli.starting import holder
from scheduler_backend.cardlock import SEARCH_SECONDS, address, locker
from scheduler_backend.devices import Gpu
from tests.gemini.cli.conftest import Place, read, until
from tests.gemini.cli.conftest import place as place
from tests.gemini.people.conftest import PEOPLE, Workstation

LOCK = """
import fcntl, os, struct, sys
record = struct.pack("@hhqqi0q", fcntl.F_RDLCK, os.SEEK_SET, int(sys.argv[2]), 1, 0)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDONLY), fcntl.F_OFD_SETLK, record)
print("ready", flush=True)
sys.stdin.read()
"""
HOLD = ("sh", "-c", "echo ready; read x")


def begun(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()


def card_file(place: Place) -> Path:
    """Of the simulated card."""
    (path,) = Path("/dev/shm").glob(f"gemini-sim-*-{place.sim.partition('id=')[2].partition(',')[0]}")
    return path


def test_a_second_daemon_says_who_has_the_card(place: Place) -> None:
    first = place.start("serve")
    until(lambda: answers(place.node))
    other = Place()
    try:
        other.sim = place.sim
        second = other.gemini("serve")
        assert second.returncode == 1
        assert len(second.stderr.splitlines()) == 1
        user = f"user root, process {first.pid}" if os.geteuid() == 0 else f"process {first.pid}"
        assert f"{user}, on {place.node.state_dir}" in second.stderr
        assert f"use that one (--state-dir {place.node.state_dir}), or end it first" in second.stderr
        assert "handed out by a daemon" in other.gemini("run", "--", "true").stderr
        check = other.gemini("check")
        assert check.returncode == 1
        assert f"FAIL  GPU 0 ({place.state()['device']['uuid']}) is handed out by a daemon" in check.stdout
        assert "no other daemon than that" in place.gemini("check").stdout
        first.send_signal(signal.SIGKILL)
        first.wait()
        other.start("serve")
        until(lambda: answers(other.node))
    finally:
        other.close()


def test_a_daemon_in_another_network_is_seen_by_the_lock_of_the_card(place: Place) -> None:
    """As one in a container is, that is given the same driver."""
    cut_off = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*cut_off, "true"], capture_output=True).returncode:
        pytest.skip("needs network namespaces")
    first = place.start("serve")
    until(lambda: answers(place.node))
    other = Place()
    try:
        other.sim = place.sim
        words = [*cut_off, *other.words("serve")]
        second = subprocess.run(words, capture_output=True, text=True, env=place.environment(), timeout=60)
        assert second.returncode == 1
        assert "handed out by a daemon in another container, or what has locked its file" in second.stderr
        assert f": process {first.pid} (" in second.stderr
        assert "; use that one, or end it first" in second.stderr
    finally:
        other.close()


class _Stranger:
    """Another user's program that can read the card's file, and holds its record as a daemon would."""

    def __init__(self, place: Place, uuid: str) -> None:
        path = card_file(place)
        words = [sys.executable, "-c", LOCK, str(path), str(zlib.crc32(uuid.encode()))]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        begun(self.process)

    def close(self) -> None:
        self.process.communicate("")


def test_a_tenant_that_locks_the_cards_file_keeps_no_daemon_from_coming_back(place: Place) -> None:
    first = place.start("serve")
    until(lambda: answers(place.node))
    stranger = _Stranger(place, place.state()["device"]["uuid"])
    other = Place()
    try:
        first.terminate()
        assert first.wait(10) == 0
        other.sim = place.sim
        refused = other.gemini("serve")  # this one never had the card: it may be a daemon's
        assert refused.returncode == 1
        assert f"process {stranger.process.pid} (python" in refused.stderr
        again = place.start("serve")
        until(lambda: answers(place.node) or again.poll() is not None)
        again.terminate()
        _, said = again.communicate()
        assert again.returncode == 0, said
        (warning,) = (line for line in said.splitlines() if "card-locked" in line)
        assert f"process {stranger.process.pid} (python" in warning
    finally:
        stranger.close()
        other.close()


NAME = """
import os, socket, sys, time
os.setgid(65534)
os.setuid(65534)
one = socket.socket(socket.AF_UNIX)
one.bind(bytes.fromhex(sys.argv[1]))
one.listen(0)
print("ready", flush=True)
if sys.argv[2]:
    kept = []
    while True:
        asking, _ = one.accept()
        asking.sendall(sys.argv[2].encode())
        if sys.argv[2] == " ":  # a byte now and then, to the one who waits for the end
            kept.append(asking)
            while True:
                try:
                    asking.send(b" ")
                except OSError:
                    break
                time.sleep(0.2)
        asking.close()
sys.stdin.read()
"""


class _Named:
    """The card's name as a user who wants it finds it, and the process with which he takes it."""

    def __init__(self, place: Place) -> None:
        path = card_file(place)
        self._name = address(Gpu(0, place.state()["device"]["uuid"], "", 0, simulated=True), path)
        self._processes: list[subprocess.Popen[str]] = []
        environment = {**place.environment(), **sim_environment(place.sim)}
        load = self._start([str(LOAD), "--seconds", "0"], environment)  # so the machine stays, and the name
        until(lambda: path.name in read(Path(f"/proc/{load.pid}/maps")))

    def take(self, says: str) -> int:
        """Another user's process has the name from now on, and tells whoever asks for it this; its pid."""
        taken = self._start([sys.executable, "-c", NAME, self._name.hex(), says], None)
        begun(taken)
        return taken.pid

    def _start(self, words: list[str], environment: dict[str, str] | None) -> subprocess.Popen[str]:
        made = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self._processes.append(made)
        return made

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="a daemon of root's, and a process of another user's")
@pytest.mark.parametrize("says", ['{"state_dir": "/home/ben"}', "", " "], ids=["a-daemon", "nothing", "slowly"])
def test_a_user_who_takes_the_cards_name_meanwhile_keeps_no_daemon_of_root_from_coming_back(
    place: Place, says: str
) -> None:
    first = place.start("serve")
    until(lambda: answers(place.node))
    named = _Named(place)
    other = Place()
    try:
        first.kill()
        first.wait()
        stranger = named.take(says)
        other.sim = place.sim
        assert "is handed out by a daemon" in other.gemini("serve").stderr  # this one never had the card
        again = place.start("serve")
        until(lambda: answers(place.node) or again.poll() is not None)
        again.terminate()
        _, said = again.communicate()
        assert again.returncode == 0, said
        (warning,) = (line for line in said.splitlines() if "card-locked" in line)
        assert not says.strip() or f"process {stranger}, on /home/ben" in warning  # who does not answer is not known
    finally:
        named.close()
        other.close()


def test_who_asks_whose_the_card_is_and_passes_what_lingers_keeps_nobody_waiting(place: Place) -> None:
    daemon = place.start("serve")
    until(lambda: answers(place.node))
    name = address(Gpu(0, place.state()["device"]["uuid"], "", 0, simulated=True), card_file(place))
    for _ in range(3):
        with lingering() as one, socket.socket(socket.AF_UNIX) as asking:
            daemon.send_signal(signal.SIGSTOP)
            asking.connect(name)
            let_go(one, pass_along(asking, b"x", one.fileno()))
            daemon.send_signal(signal.SIGCONT)
            assert b"state_dir" in asking.recv(4096)
            place.state()


@pytest.mark.skipif(os.geteuid() != 0, reason="a daemon of root's, and a process of another user's")
def test_a_daemon_of_root_that_left_for_want_of_tenants_takes_no_card_from_who_came_after(place: Place) -> None:
    first = place.start("serve", "--idle-exit", "5")
    until(lambda: answers(place.node) or first.poll() is not None)
    named = _Named(place)
    try:
        assert first.wait(30) == 0
        named.take('{"state_dir": "/home/ben"}')
        refused = place.gemini("serve")
        assert refused.returncode == 1
        assert "is handed out by a daemon" in refused.stderr
    finally:
        named.close()


MANY = """
import fcntl, os, select, struct, sys
watched = select.epoll()
for number in range(3000):
    watched.register(os.eventfd(0), select.EPOLLIN)
for number in range(6000):
    os.dup(watched.fileno())  # each is 3,000 lines to who reads of it
record = struct.pack("@hhqqi0q", fcntl.F_RDLCK, os.SEEK_SET, int(sys.argv[2]), 1, 0)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDONLY), fcntl.F_OFD_SETLK, record)
print("ready", flush=True)
sys.stdin.read()
"""


def test_who_has_a_cards_record_is_not_sought_for_long(tmp_path: Path) -> None:
    """A tenant that opens all it may beside its lock holds up neither the daemon that comes back nor a command."""
    file, gpu = tmp_path / "driver", Gpu(0, "GPU-00000000-1111-2222-3333-444444444444", "Paper GPU", 80 << 30)
    file.touch()
    words = [sys.executable, "-c", MANY, str(file), str(zlib.crc32(gpu.uuid.encode()))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as many:
        begun(many)
        since = time.monotonic()
        found = locker(file, gpu)
        took = time.monotonic() - since
        many.kill()
    assert took < 4 * SEARCH_SECONDS
    assert found.pid in (0, many.pid)


def test_two_users_do_not_promise_one_card_twice(workstation: Workstation) -> None:
    run = workstation.gemini("run", "--gpu", "all", "--request", "0.8", "--", *HOLD)
    begun(workstation.start("ann", *run))
    second = workstation.run("ben", *run)
    assert second.returncode == 125
    assert len(second.stderr.splitlines()) == 1
    assert f"handed out by a daemon of user {PEOPLE['ann']}, process" in second.stderr


def test_a_user_without_a_session_joins_the_daemon_of_the_one_with_it(workstation: Workstation) -> None:
    """cron, su and sudo -u have no XDG_RUNTIME_DIR, or another user's."""
    own = Path(f"/run/user/{PEOPLE['ann']}")
    if own.exists():
        pytest.skip(f"{own} is there")
    own.mkdir(parents=True, mode=0o700)
    os.chown(own, PEOPLE["ann"], PEOPLE["ann"])
    try:
        held = workstation.gemini("run", "--name", "a", "--gpu", "0", "--request", "0.8", "--", *HOLD)
        begun(workstation.start("ann", *held, more={"XDG_RUNTIME_DIR": str(own)}))
        for folder in ("", "/nowhere", str(workstation.homes["ben"])):
            more = {"XDG_RUNTIME_DIR": folder}
            second = workstation.gemini("run", "--gpu", "0", "--request", "0.8", "--", "true")
            refused = workstation.run("ann", *second, more=more)
            assert refused.returncode == 125
            assert "request 0.8 does not fit on GPU 0: 0.8 is promised already" in refused.stderr
            check = workstation.run("ann", *workstation.gemini("check"), more=more)
            assert (check.returncode, check.stderr) == (0, ""), check.stdout
            assert f"daemon: answers at {own}/gemini/control.sock" in check.stdout
    finally:
        pid = holder(Node(own / "gemini"))
        if pid:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not pid or read(Path(f"/proc/{pid}/stat")) == "" or " Z " in read(Path(f"/proc/{pid}/stat")))
        subprocess.run(["rm", "-rf", str(own)], check=True)


def test_check_in_a_session_whose_folder_is_another_users_ends_in_lines(workstation: Workstation) -> None:
    """As sudo -u and su leave XDG_RUNTIME_DIR: the folder may not be entered."""
    said = workstation.run("ben", *workstation.gemini("check"), more={"XDG_RUNTIME_DIR": str(workstation.homes["ann"])})
    assert said.returncode in (0, 1), said.stderr
    assert not said.stderr
    assert {line.split()[0] for line in said.stdout.splitlines()} <= {"ok", "warn", "FAIL"}
