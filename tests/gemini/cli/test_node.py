"""The local node: where its state lies, what it adds to environments, and how a daemon's answers become problems."""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemini.cli import node as module
from gemini.cli.node import (
    HOOK,
    SIM,
    NoDaemon,
    Node,
    ask,
    ensure_daemon,
    sim_environment,
    simulated_cards,
    simulation,
    start_daemon,
    tenant_environment,
)
from gemini.cli.problem import Problem
from scheduler_backend import bounds
from scheduler_backend.config import default_state_dir
from tests.gemini.cli.conftest import Place, read, until

NOBODY = 65534


def test_the_default_state_directory_depends_on_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where XDG_RUNTIME_DIR is another user's, as su and sudo leave it."""
    mine = os.getuid()
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    assert default_state_dir() == Path("/run/gemini")
    monkeypatch.setattr(module.os, "geteuid", lambda: 7)
    monkeypatch.setattr(module.os, "getuid", lambda: 7)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_state_dir() == Path("/tmp/gemini-7")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_state_dir() == Path("/tmp/gemini-7")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if mine == 0:
        os.chown(tmp_path, 7, -1)
        assert default_state_dir() == tmp_path / "gemini"


def test_the_option_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINI_SIM", raising=False)
    assert (simulation(None), simulation(""), simulation("gpus=2")) == (None, "gpus=1", "gpus=2")
    monkeypatch.setenv("GEMINI_SIM", "gpus=3")
    assert (simulation(None), simulation(""), simulation("gpus=2")) == ("gpus=3", "gpus=3", "gpus=2")


def test_environments_keep_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    front = [str(SIM / f"libcudart.so.{major}") for major in (12, 13)]
    monkeypatch.setenv("LD_PRELOAD", f"/lib/other.so:{HOOK}:{front[0]}")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    made = tenant_environment(Node(Path("/x"), "gpus=1"), "/x/s", (0.3, 1.0), 5, ["GPU-1"])
    *ours, last = made["LD_PRELOAD"].split()
    assert (ours[0], last, ours.count(front[0])) == (str(HOOK), "/lib/other.so", 1)
    assert set(front) <= set(ours)  # published packages would find NVIDIA's own beside themselves otherwise
    real = tenant_environment(Node(Path("/x")), "/x/s", (0.3, 1.0))
    assert [p for p in real["LD_PRELOAD"].split() if p not in front] == [str(HOOK), "/lib/other.so"]
    assert made["LD_LIBRARY_PATH"].split(":")[1:] == ["/opt/lib"]
    assert (made["GEMINI_MEMORY_LIMIT"], made["CUDA_VISIBLE_DEVICES"]) == ("5", "GPU-1")
    assert "GEMINI_MEMORY_LIMIT" not in tenant_environment(Node(Path("/x")), "/x/s", (0.3, 1.0))
    assert sim_environment("gpus=1")["GEMINI_SIM"] == "gpus=1"


class Server(socketserver.UnixStreamServer):
    def get_request(self) -> tuple[object, tuple[str, int]]:  # type: ignore[override]
        return super().get_request()[0], ("local", 0)


@pytest.fixture
def answering(place: Place) -> Iterator[Node]:
    place.node.state_dir.mkdir()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = {
                "/good": (200, json.dumps({"a": 1})),
                "/refused": (409, json.dumps({"error": "no\nroom"})),
                "/broken": (500, "not json"),
            }[self.path]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with Server(str(place.node.control), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield place.node
        server.shutdown()


def test_answers_and_refusals_of_a_daemon(answering: Node) -> None:
    assert ask(answering, "GET", "/good") == {"a": 1}
    for path, text in (("/refused", "no room"), ("/broken", "not json")):
        with pytest.raises(Problem, match=text):
            ask(answering, "GET", path)


def test_nobody_there_is_another_problem_than_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(NoDaemon):
        ask(Node(tmp_path), "GET", "/state")


def test_a_daemon_that_is_stopped_is_said(place: Place) -> None:
    place.node.state_dir.mkdir()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(place.node.control))
        silent.listen()
        with pytest.raises(Problem, match="does not answer within"):
            ask(place.node, "GET", "/state", timeout=0.2)


def test_where_the_user_has_all_places_the_daemon_is_asked_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.node.prepare()
    start_daemon(place.node)
    with contextlib.ExitStack() as held:
        for _ in range(bounds.CONTROL_DOOR.of_one):
            held.enter_context(socket.socket(socket.AF_UNIX)).connect(str(place.node.control))
        waited = []

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            held.close()

        monkeypatch.setattr(module.time, "sleep", sleep)
        assert ask(place.node, "GET", "/version")["wire"]
    assert waited, "it was told to come again"


@pytest.fixture
def leaving(place: Place) -> Iterator[list[str]]:
    """A daemon that answers until it is asked for a tenant: each time it breaks off then. Those requests' paths."""
    asked: list[str] = []
    cards = enumerate(simulated_cards(place.sim))
    shown = {"devices": [{"uuid": uuid, "index": i, "simulated": True} for i, uuid in cards], "tenants": []}
    place.node.state_dir.mkdir()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(shown).encode())

        def do_POST(self) -> None:
            asked.append(self.path)
            if (place.node.state_dir / "last").exists():  # it gives up its socket besides
                place.node.control.unlink()

        def log_message(self, *_: object) -> None:
            pass

    with Server(str(place.node.control), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield asked
        server.shutdown()


@pytest.mark.parametrize("name", ["start.lock", "daemon.log"])
def test_a_file_that_cannot_be_written_is_named(place: Place, name: str) -> None:
    (place.node.state_dir / name).mkdir(parents=True)  # root may write to everything else
    with pytest.raises(Problem, match=f"{name} cannot be written: .*; let its owner remove it"):
        ensure_daemon(place.node)


def test_an_interpreter_that_may_not_be_started_is_not_blamed_on_the_state_directory(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.sys, "executable", str(place.dir))
    with pytest.raises(Problem) as raised:
        ensure_daemon(place.node)
    assert f"the daemon did not start: {place.dir}: Permission denied" in str(raised.value)
    assert "--state-dir" not in str(raised.value)


def test_where_a_daemon_ends_before_it_answers_the_next_one_is_asked(place: Place, leaving: list[str]) -> None:
    (place.node.state_dir / "last").touch()
    log = place.node.state_dir / "daemon.log"
    with open(place.node.state_dir / "daemon.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # it still tidies up
        running = place.start("run", "--", "true")
        until(lambda: (log.exists() and "waiting state_dir=" in log.read_text()) or running.poll() is not None)
    _, errors = running.communicate(timeout=60)
    assert leaving == ["/tenants"]
    assert (running.returncode, errors) == (0, "")


def test_the_folder_it_is_started_in_lends_the_daemon_no_module(place: Place) -> None:
    """It may be another user's, as /tmp is everybody's."""
    stranger = place.dir / "gemini"
    stranger.mkdir()
    (stranger / "__init__.py").write_text(f"open({str(place.dir / 'imported')!r}, 'w')\n")
    words = [sys.executable, "-P", *place.words("run", "--", "true")[1:]]
    ran = subprocess.run(words, cwd=place.dir, env=place.environment(), capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not (place.dir / "imported").exists()


def test_a_daemon_that_ends_again_and_again_is_said_in_one_line(place: Place, leaving: list[str]) -> None:
    done = place.gemini("run", "--name", "a", "--", "true")
    assert leaving == ["/tenants"] * module.REGISTER_TRIES
    assert done.returncode == 125
    assert len(done.stderr.splitlines()) == 1
    assert "ended 3 times" in done.stderr
    assert str(place.node.state_dir / "daemon.log") in done.stderr


@pytest.mark.parametrize("words", [("ps",), ("set", "a", "--request", "0.1"), ("top", "--count", "1")])
def test_a_daemon_that_breaks_off_is_none(place: Place, words: tuple[str, ...]) -> None:
    place.node.state_dir.mkdir()

    class Nothing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            pass  # and the connection is closed: reset where something is unread, else at its end

    with Server(str(place.node.control), Nothing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = place.gemini(*words)
        server.shutdown()
    assert done.returncode == 1
    assert done.stderr == (
        f"gemini: no daemon answers at {place.node.control}; start one with gemini serve or gemini run\n"
    )


def test_a_daemon_that_another_was_faster_than_does_not_stay(place: Place) -> None:
    class Faster(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    place.node.state_dir.mkdir()
    log = place.node.state_dir / "daemon.log"
    with open(place.node.state_dir / "daemon.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        starting = threading.Thread(target=ensure_daemon, args=(place.node,), daemon=True)
        starting.start()
        until(lambda: log.exists() and "waiting state_dir=" in log.read_text())
        with Server(str(place.node.control), Faster) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            starting.join(60)
            server.shutdown()
        lines = [read(entry / "cmdline") for entry in Path("/proc").glob("[0-9]*")]
        assert not [line for line in lines if "serve" in line and str(place.node.state_dir) in line]
        assert not starting.is_alive()


LISTENER = """
import http.server, os, socketserver, sys
os.setuid(int(sys.argv[2]))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"tenants": [], "device": {"name": "mine"}, "devices": []}')
        with open(sys.argv[1] + ".asked", "a") as told:
            told.write(self.path)
    def log_message(self, *_): pass
class Server(socketserver.UnixStreamServer):
    def get_request(self):
        return super().get_request()[0], ("local", 0)
with Server(sys.argv[1], Handler) as server:
    print("listens", flush=True)
    server.serve_forever()
"""


@contextlib.contextmanager
def listener(path: Path, user: int) -> Iterator[None]:
    """A process of this user that answers on the socket as a daemon would."""
    command = [sys.executable, "-c", LISTENER, str(path), str(user)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"listens\n"
            yield
        finally:
            process.kill()


def asked(place: Place) -> bool:
    return place.node.control.with_name("control.sock.asked").exists()


COMMANDS = (("ps",), ("set", "a", "--limit", "0.5"), ("top",), ("run", "--name", "a", "--", "true"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a process of another user")
def test_nothing_is_asked_of_another_users_daemon_in_a_folder_that_is_made_for_one(place: Place) -> None:
    place.dir.chmod(0o755)
    folder = place.dir / f"gemini-{os.getuid()}"
    folder.mkdir()
    os.chown(folder, NOBODY, -1)
    place.node = Node(folder, place.sim)
    with listener(place.node.control, NOBODY):
        for command in COMMANDS:
            done = place.gemini(*command)
            assert done.returncode != 0, command
            assert done.stderr.splitlines() == [
                f"gemini: state directory {folder} is user {NOBODY}'s; let that user remove it, "
                "or choose another --state-dir"
            ]
    assert not asked(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a process of another user")
def test_nothing_is_asked_of_a_stranger_who_answers_in_ones_own_folder(place: Place) -> None:
    place.dir.chmod(0o755)
    place.node.state_dir.mkdir()
    place.node.state_dir.chmod(0o777)  # for as long as the stranger needs to listen there
    with listener(place.node.control, NOBODY):
        place.node.state_dir.chmod(0o755)
        for command in COMMANDS:
            done = place.gemini(*command)
            assert done.returncode != 0, command
            assert len(done.stderr.splitlines()) == 1, done.stderr
            assert f"of user {NOBODY} answers in {place.node.state_dir}" in done.stderr
            assert "end that process, or choose another --state-dir" in done.stderr
        with pytest.raises(Problem, match=f"user {NOBODY} answers"):
            ask(place.node, "GET", "/state")
    assert not asked(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a process of another user")
def test_root_may_look_at_the_daemon_of_a_user_in_that_users_folder(place: Place) -> None:
    place.dir.chmod(0o755)
    place.node.state_dir.mkdir()
    os.chown(place.node.state_dir, NOBODY, -1)
    with listener(place.node.control, NOBODY):
        assert ask(place.node, "GET", "/state")["device"] == {"name": "mine"}
    assert asked(place)


def test_a_daemon_whose_queue_is_full_for_now_is_waited_for(tmp_path: Path) -> None:
    node = Node(tmp_path)
    tmp_path.chmod(0o711)
    said: list[object] = []
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(node.control))
        listening.listen(0)
        others = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                one = stack.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                one.connect(str(node.control))
                others += 1
        asking = threading.Thread(target=lambda: said.append(ask(node, "GET", "/version", timeout=60)))
        asking.start()
        asking.join(0.2)  # it stands before a full queue by then
        for _ in range(others):
            listening.accept()[0].close()
        answering, _ = listening.accept()
        answering.recv(4096)
        answering.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{"wire": 1}')
        answering.close()
        asking.join(60)
    assert said == [{"wire": 1}]
