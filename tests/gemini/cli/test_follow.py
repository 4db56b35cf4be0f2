"""Programs in the background: gemini run --detach, gemini logs, gemini wait."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemini.cli import detached
from gemini.cli.control import answers
from gemini.cli.follow import begin_of_last
from gemini.cli.starting import holder
from tests.gemini.cli.conftest import Place, until


@pytest.fixture
def kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("XDG_STATE_HOME", str(place.dir / "kept"))
    yield place
    for name in detached.names():
        run = detached.find(name)
        if run is not None and run.lives():
            os.kill(run.pid, signal.SIGKILL)


def begun(place: Place, name: str, script: str, *words: str) -> None:
    done = place.gemini("run", "--detach", "--name", name, *words, "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, f"{name}\n"), done.stderr


def watches(pid: int) -> bool:
    """Does that process wait for another's end?"""
    with contextlib.suppress(OSError):
        return any("pidfd" in os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd"))
    return False


@pytest.mark.parametrize("linked", ["gemini", "gemini/runs", "gemini/runs/a"])
def test_no_link_leads_its_output_elsewhere(kept: Place, linked: str) -> None:
    """Who made it may be somebody else, where XDG_STATE_HOME is a folder like /tmp."""
    elsewhere, link = kept.dir / "elsewhere", kept.dir / "kept" / linked
    elsewhere.mkdir()
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    done = kept.gemini("run", "--detach", "--name", "a", "--", "true")
    told = f"gemini: {link} is no folder of this user's alone; set XDG_STATE_HOME to one that is\n"
    assert (done.returncode, done.stderr) == (125, told)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_no_folder_of_another_user_has_its_output(kept: Place) -> None:
    runs = kept.dir / "kept/gemini/runs"
    runs.mkdir(parents=True)
    os.chown(runs, 65534, 65534)
    done = kept.gemini("run", "--detach", "--name", "a", "--", "true")
    assert done.returncode == 125
    assert list(runs.iterdir()) == []


def test_a_program_goes_on_in_the_background_and_its_end_is_known(kept: Place) -> None:
    go = kept.dir / "go"
    os.mkfifo(go)
    begun(kept, "a", f"echo first; read x < {go}; echo $x >&2; exit 7", "--request", "0.3")
    assert [tenant["name"] for tenant in kept.state()["tenants"]] == ["a"]
    until(lambda: kept.gemini("logs", "a").stdout == "first\n")
    slow = kept.gemini("wait", "a", "--timeout", "0")
    assert (slow.returncode, slow.stderr) == (124, "gemini: a still runs after 0 s; wait on, or see gemini ps\n")
    twice = kept.gemini("run", "--detach", "--name", "a", "--request", "0.3", "--", "true")
    assert (twice.returncode, twice.stderr) == (
        125, "gemini: a runs already; gemini logs a shows it, or choose another --name\n")  # fmt: skip
    following = kept.start("logs", "a", "--follow")
    waiting = kept.start("wait", "a")
    assert following.stdout is not None
    assert following.stdout.readline() == "first\n"
    go.write_text("last\n")
    assert following.communicate(timeout=60)[0] == "last\n"
    assert waiting.wait(60) == 7
    assert kept.gemini("wait", "a").returncode == 7  # it is known later, too
    assert kept.gemini("logs", "a", "--tail", "1").stdout == "last\n"


def test_what_keeps_it_from_starting_is_said_to_who_started_it(kept: Place) -> None:
    begun(kept, "a", "read x < /dev/zero", "--request", "0.7")
    refused = kept.gemini("run", "--detach", "--name", "b", "--request", "0.4", "--", "true")
    assert refused.returncode == 125
    assert len(refused.stderr.splitlines()) == 1
    assert "0.4" in refused.stderr
    nothing = kept.dir / "nothing"
    nothing.write_bytes(b"\x7fELF")
    nothing.chmod(0o755)
    broken = kept.gemini("run", "--detach", "--name", "b", "--", str(nothing))
    assert broken.returncode == 125
    assert len(broken.stderr.splitlines()) <= 2, broken.stderr
    assert "b" not in [tenant["name"] for tenant in kept.state()["tenants"]]
    none = kept.gemini("logs", "b")
    assert (none.returncode, none.stderr) == (1, "gemini: no gemini run --detach of the name 'b'; there are a\n")
    assert kept.gemini("wait", "b").returncode == 1


def test_it_outlives_its_session_and_signals_of_its_terminal(kept: Place) -> None:
    command = kept.words("run", "--detach", "--name", "a", "--", "sh", "-c", "echo ready; read x")
    session = subprocess.Popen(command, env=kept.environment(), stdout=subprocess.PIPE, start_new_session=True)
    assert session.wait(60) == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(session.pid, signal.SIGHUP)
    assert kept.gemini("wait", "a").returncode == 1  # it read the end of /dev/null


def test_a_run_that_was_killed_is_told_as_lost(kept: Place) -> None:
    begun(kept, "a", "exec sleep 1000")
    run = detached.find("a")
    assert run is not None
    os.kill(run.pid, signal.SIGKILL)
    until(lambda: not run.lives())
    lost = kept.gemini("wait", "a")
    assert lost.returncode == 1
    assert "it was killed" in lost.stderr


def test_of_a_tenant_in_the_foreground_its_end_is_awaited_over_a_restart_of_the_daemon(kept: Place) -> None:
    process = kept.start("run", "--name", "a", "--", "sh", "-c", "echo ready; read x; exit 3")
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    waiting = kept.start("wait", "a")
    until(lambda: watches(waiting.pid))
    before = holder(kept.node)
    os.kill(before, signal.SIGKILL)
    until(lambda: answers(kept.node) and holder(kept.node) != before)
    assert waiting.poll() is None
    process.stdin.write("\n")
    process.stdin.flush()
    assert waiting.wait(60) == 0
    assert process.wait(60) == 3


def test_logs_of_the_daemon_are_found_and_of_others_their_place_is_said(kept: Place) -> None:
    nowhere = kept.gemini("logs")
    assert nowhere.returncode == 1
    assert "gemini run started no daemon here" in nowhere.stderr
    assert kept.gemini("run", "--", "true").returncode == 0
    log = kept.node.state_dir / "daemon.log"
    assert kept.gemini("logs").stdout == log.read_text()


@pytest.mark.parametrize(
    ("text", "lines", "last"),
    [("a\nb\nc\n", 2, "b\nc\n"), ("a\nb\nc", 2, "b\nc"), ("a\n", 5, "a\n"), ("", 3, ""), ("a\nb\n", 0, ""),
     ("x\n" * 100_000, 99_999, "x\n" * 99_999)],
)  # fmt: skip
def test_the_last_lines_of_a_file_are_found(text: str, lines: int, last: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    with path.open("rb") as source:
        source.seek(begin_of_last(source.fileno(), lines))
        assert source.read().decode() == last


def test_only_so_many_that_have_ended_are_kept(kept: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached, "KEPT", 2)
    for name in ("a", "b", "c"):
        (detached.folder() / name).mkdir(parents=True)
        detached.note(detached.Run(name, 1, "never", ["true"], "/", 0))
    detached.note(detached.Run("c", os.getpid(), detached.begin_of(os.getpid()), ["true"], "/"))  # the last one runs
    detached.note(detached.Run("a", 1, "never", ["true"], "/", 1))
    (detached.folder() / "d").mkdir()
    detached.note(detached.Run("d", 1, "never", [sys.executable], "/", 0))
    detached.forget()
    assert sorted(detached.names()) == ["a", "c", "d"]
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert detached.folder() == Path.home() / ".local/state/gemini/runs"
