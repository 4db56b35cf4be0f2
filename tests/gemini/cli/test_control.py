"""What is asked of the daemon: how its answers become problems, and whose daemon is believed."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemini.cli.control import NoDaemon, ask
from gemini.cli.node import Node
from gemini.cli.problem import Problem
from gemini.cli.starting import start_daemon
from scheduler_backend import bounds
from tests.gemini.cli.conftest import Place, Server

NOBODY = 65534


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

        monkeypatch.setattr(time, "sleep", sleep)
        assert ask(place.node, "GET", "/version")["wire"]
    assert waited, "it was told to come again"


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
