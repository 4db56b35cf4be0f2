"""The local node: where its state lies, what it adds to environments, and how a daemon's answers become problems."""

from __future__ import annotations

import http.server
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemini.cli import node as module
from gemini.cli.node import (
    HOOK,
    NoDaemon,
    Node,
    ask,
    default_state_dir,
    sim_environment,
    simulation,
    tenant_environment,
)
from gemini.cli.problem import Problem
from tests.gemini.cli.conftest import Place


def test_the_default_state_directory_depends_on_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    assert default_state_dir() == Path("/run/gemini")
    monkeypatch.setattr(module.os, "geteuid", lambda: 7)
    monkeypatch.setattr(module.os, "getuid", lambda: 7)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert default_state_dir() == Path("/run/user/7/gemini")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_state_dir() == Path("/tmp/gemini-7")


def test_the_option_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINI_SIM", raising=False)
    assert (simulation(None), simulation(""), simulation("gpus=2")) == (None, "gpus=1", "gpus=2")
    monkeypatch.setenv("GEMINI_SIM", "gpus=3")
    assert (simulation(None), simulation(""), simulation("gpus=2")) == ("gpus=3", "gpus=3", "gpus=2")


def test_environments_keep_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", f"/lib/other.so:{HOOK}")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    made = tenant_environment(Node(Path("/x"), "gpus=1"), "/x/s", (0.3, 1.0), 5, ["GPU-1"])
    assert made["LD_PRELOAD"].split() == [str(HOOK), "/lib/other.so"]
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
