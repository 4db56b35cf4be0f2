"""What one user of a daemon may have of what all need: tenants, processes, descriptors; also under the numbers that are
lent to him. On a real daemon, by processes of other users."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import flood
from scheduler_backend import bounds
from scheduler_backend.subids import SubIds
from tests.scheduler_backend.rig import ROOT, Rig, wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
ANN, LENT = 61001, 2_000_000

# Says each line's order as that user: [method, path, body] in, [status, answer] out. It has brought its modules along.
ORDERS = """
import json, os, sys
from pathlib import Path
from tests.scheduler_backend.rig import Rig
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
rig = Rig.__new__(Rig)
rig.state_dir = Path(sys.argv[1])
for line in sys.stdin:
    print(json.dumps(rig.http(*json.loads(line))), flush=True)
"""


class Person:
    """A process of that user. A context manager."""

    def __init__(self, rig: Rig, uid: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", ORDERS, str(rig.state_dir), str(uid)], cwd=ROOT, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def __enter__(self) -> Person:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def register(self, name: str, request: float = 0.0) -> tuple[int, str]:
        """Status and error of a tenant for the lifetime of this process."""
        body = {"name": name, "request": request, "pid": 1, "memory_bytes": 1 << 20, "gpus": [0]}
        return self.order("POST", "/tenants", body)

    def order(self, *words: object) -> tuple[int, str]:
        """Status and error of this order: method, path, body."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        status, answer = json.loads(self._process.stdout.readline())
        return status, answer.get("error", "")


def open_to_all(rig: Rig) -> None:
    rig.state_dir.chmod(0o711)
    (rig.state_dir / "control.sock").chmod(0o666)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    (tmp_path / "subuid").write_text(f"nobody-knows:1:5\n{ANN}:{LENT}:65536\n0:3000000:65536\n")
    with Rig("--subuid", str(tmp_path / "subuid")) as made:
        open_to_all(made)
        yield made


@needs_root
def test_a_user_without_a_bound_has_so_many_tenants_and_others_have_room(rig: Rig) -> None:
    with Person(rig, ANN) as ann, Person(rig, ANN + 1) as ben:
        said = [ann.register(f"t{number}")[0] for number in range(bounds.MOST_TENANTS)]
        assert said == [200] * bounds.MOST_TENANTS
        status, why = ann.register("more")
        assert (status, why) == (403, f"user {ANN} may have 32 tenants at a time; end one first, see gemini ps")
        assert ben.register("ben")[0] == 200
    wait_for(lambda: rig.state()["tenants"] == [], what="end of their tenants")


@needs_root
def test_a_user_has_his_bounds_once_whatever_numbers_are_lent_to_him(rig: Rig) -> None:
    (rig.state_dir / "rig.toml").write_text("[users.default]\nrequest = 0.3\ntenants = 2\n")
    wait_for(lambda: "reloaded" in rig.log(), what="new bounds")
    with Person(rig, ANN) as ann, Person(rig, LENT + 7) as lent, Person(rig, 3_000_007) as roots:
        assert ann.register("a", 0.2)[0] == 200
        status, why = lent.register("b", 0.2)
        assert status == 403
        assert f"user {ANN} may be promised 0.3 of a card, of which 0.1 is left" in why
        assert lent.register("b", 0.1)[0] == 200
        assert ann.register("c")[0] == 403, "that makes three tenants"
        assert roots.register("d", 0.3)[0] == 200, "what root lends to containers is nobody's of these"


def test_lent_numbers_are_read_again_when_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "subuid"
    lent = SubIds(file)
    assert lent.person(LENT) == LENT
    file.write_text(f"{ANN}:{LENT}:2\nwrong\n{ANN}:x:y\n{ANN}:1:2:3\n\xff:5:5\n")
    assert [lent.person(LENT + step) for step in (-1, 0, 1, 2)] == [LENT - 1, ANN, ANN, LENT + 2]
    file.write_text(f"{ANN + 1}:{LENT}:200\n")
    assert lent.person(LENT + 100) == ANN + 1
    file.unlink()
    assert lent.person(LENT) == LENT


@needs_root
def test_so_many_processes_may_have_registered_one_tenant(rig: Rig) -> None:
    """Each costs a descriptor as long as it lives."""
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(Person(rig, ANN)) for _ in range(3)]
        assert [one.register("crowd0")[0] for one in crowd] == [200] * 3
        assert crowds(rig, bounds.MOST_REGISTRANTS) == bounds.MOST_REGISTRANTS - 3
        assert crowd[0].register("crowd0")[0] == 200, "it is one of them already"


def crowds(rig: Rig, processes: int, tenants: int = 1) -> int:
    """How often so many processes of ann's, which end at once, may register each of so many tenants."""
    words = [sys.executable, "-S", "-c", CROWD, str(rig.state_dir / "control.sock"), str(processes), str(tenants)]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    return found.stdout.splitlines().count("200")


CROWD = """
import os, socket, sys, time
os.setgroups([]); os.setgid(61001); os.setuid(61001)
body = b'{"name": "crowd%d", "request": 0, "pid": 1, "memory_bytes": 1048576, "gpus": [0]}'
head = b"POST /tenants HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n"
children = []
for _ in range(int(sys.argv[2])):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        for number in range(int(sys.argv[3])):
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(sys.argv[1])
                said = body % number
                one.sendall(head % len(said) + said)
                os.write(write, one.recv(65536).split(b" ")[1] + b"\\n")
        os.close(write)
        time.sleep(600)
    os.close(write)
    children.append(child)
    while said := os.read(read, 100):
        sys.stdout.write(said.decode())
    os.close(read)
for child in children:
    os.kill(child, 9)
"""


@needs_root
def test_what_a_tenant_had_too_early_is_its_users_to_wait_for_when_it_ends(rig: Rig) -> None:
    rig.tenant("roots", request=0.9)
    with Person(rig, ANN) as ann, Person(rig, ANN + 1) as ben:
        assert ann.register("small", 0.01)[0] == 200
        roots, small = rig.client("roots"), rig.client("small")
        roots.ask()
        epoch = roots.grant().epoch
        small.ask()  # by another socket than what follows
        wait_for(lambda: rig.of("small")["waiting"], what="small among those that wait")
        roots.give_back(epoch, more=True)
        small.grant()
        wait_for(lambda: rig.of("small")["held_ns"] > 200_000_000, what="time in which it held the token")
        assert ann.order("DELETE", "/tenants/small", None) == (200, "")
        status, error = ann.register("small", 0.01)  # 20 s of its part
        assert (status, error[:50]) == (429, f"tenants of user {ANN} that have ended had more of a GPU"[:50])
        assert ben.register("bens", 0.01)[0] == 200
        assert rig.http("POST", "/tenants", {"name": "more", "request": 0.01})[0] == 200


MOVED = 0xC0  # IN_MOVED_FROM | IN_MOVED_TO: two of the same kind in a row would be told once


class Writes:
    """How often a file of that name was put into a folder. A context manager."""

    def __init__(self, folder: Path, name: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = self._libc.inotify_init1(os.O_NONBLOCK)
        self._name = name
        assert self._libc.inotify_add_watch(self._inotify, os.fsencode(folder), MOVED) >= 0, ctypes.get_errno()
        self._seen = 0

    def __enter__(self) -> Writes:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._inotify)

    def count(self) -> int:
        with contextlib.suppress(BlockingIOError):
            while events := os.read(self._inotify, 65536):
                while events:
                    size = struct.unpack_from("iIII", events)[3]
                    self._seen += events[16 : 16 + size].rstrip(b"\0").decode() == self._name
                    events = events[16 + size :]
        return self._seen


@needs_root
def test_the_ends_of_many_processes_are_written_down_together(rig: Rig) -> None:
    """Else the loop writes for each, and the others' tokens wait meanwhile."""
    with Person(rig, ANN) as stays:
        assert stays.register("crowd0")[0] == 200
        with Writes(rig.state_dir, "state.json") as writes:
            assert crowds(rig, 100) == 100
            wait_for(lambda: len(rig.of("crowd0")["registered_by"]) == 1, what="end of the others")
            assert writes.count() <= 100 + 50, "once for each that came, and a few times for all that went"


@needs_root
def test_one_users_registrations_leave_descriptors_for_others() -> None:
    """Of each of his processes, for each of his tenants."""
    with Few() as few:
        open_to_all(few)
        few.tenant("roots", request=0.5)
        assert 64 < crowds(few, 20, tenants=8) <= 512 // bounds.USERS_PART
        assert "short=True" not in few.log()


class Few(Rig):
    """A daemon that may have 512 descriptors."""

    def command(self) -> list[str]:
        return ["sh", "-c", 'ulimit -n 512; exec "$@"', "sh", *super().command()]


@needs_root
def test_one_users_connections_leave_descriptors_for_others() -> None:
    with Few() as few, contextlib.ExitStack() as stack:
        open_to_all(few)
        few.tenant("roots", request=0.5)
        ann = stack.enter_context(Person(few, ANN))
        for number in range(4):
            assert ann.register(f"t{number}")[0] == 200
        sockets = [few.state_dir / "tenants" / f"t{number}" / "tenant.sock" for number in range(4)]
        for number in range(400):
            one = stack.enter_context(flood.connected(str(sockets[number % 4])))
            one.setblocking(False)
        wait_for(lambda: "reason=descriptors" in few.log(), what="notice")
        client = few.client("roots")
        client.ask()
        assert client.grant()
        assert "short=True" not in few.log()
