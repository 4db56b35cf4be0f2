"""A daemon is started where none answers, once; and what keeps one from starting is said in a line."""

from __future__ import annotations

import fcntl
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemini.cli import starting
from gemini.cli.problem import Problem
from gemini.cli.starting import ensure_daemon, simulated_cards
from tests.gemini.cli.conftest import Place, Server, read, until


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
    monkeypatch.setattr(sys, "executable", str(place.dir))
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
    assert leaving == ["/tenants"] * starting.REGISTER_TRIES
    assert done.returncode == 125
    assert len(done.stderr.splitlines()) == 1
    assert "ended 3 times" in done.stderr
    assert str(place.node.state_dir / "daemon.log") in done.stderr


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
