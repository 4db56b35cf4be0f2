"""Starting, reloading and ending the daemon as a process."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from libhook.core import lib
from scheduler_backend.problem import Problem
from scheduler_backend.trace import read, replay
from tests.scheduler_backend.rig import PATIENT, ROOT, Rig, is_prepared, wait_for


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


def refusal(rig: Rig) -> str:
    done = subprocess.run(
        rig.command(),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("gemini: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_second_daemon_says_so_in_one_line_and_disturbs_nothing(rig: Rig) -> None:
    rig.tenant("a")
    client = rig.client("a")
    assert "runs on" in refusal(rig)
    client.ask()
    client.grant()


def test_a_daemon_that_waits_is_ready_beside_the_first_and_takes_its_tenants_over(rig: Rig, tmp_path: Path) -> None:
    rig.tenant("a", 0.5)
    ready, log = tmp_path / "ready", tmp_path / "log"
    command = [*rig.command(), "--wait", "--ready-file", str(ready)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("wb") as text:
        second = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=text, stderr=text)
    try:
        wait_for(ready.exists, 60, "ready file")
        rig.tenant("b", 0.3)  # by the first
        assert rig.stop(signal.SIGTERM) == 0
        wait_for(lambda: "ready state_dir" in log.read_text(), 60, "takeover")
        assert {one["name"]: one["request"] for one in rig.state()["tenants"]} == {"a": 0.5, "b": 0.3}
    finally:
        second.terminate()
        assert second.wait(60) == 0, log.read_text()


def test_places_that_will_not_do(tmp_path: Path) -> None:
    rig = Rig(patient=False)
    good = rig.state_dir
    (tmp_path / "file").write_text("")
    rig.state_dir = tmp_path / "file" / "state"
    assert "cannot be written" in refusal(rig)
    rig.state_dir = tmp_path / ("long" * 30)
    assert "too long for a Unix socket (107)" in refusal(rig)
    good.rmdir()


def test_sigterm_ends_it_cleanly_and_leaves_no_socket(rig: Rig) -> None:
    path = rig.tenant("a")
    client = rig.client("a")
    client.ask()
    client.grant()
    assert rig.stop(signal.SIGTERM) == 0
    assert not os.path.exists(path)
    assert not (rig.state_dir / "control.sock").exists()
    assert "Traceback" not in rig.log()
    assert client.shown() == 0


def remove(rig: Rig) -> None:
    """The state directory goes, but for what this test itself keeps there."""
    for path in rig.state_dir.iterdir():
        if path.name not in ("daemon.log", "rig.toml"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def answers(rig: Rig) -> bool:
    with contextlib.suppress(OSError):
        return rig.http("GET", "/healthz")[0] == 200
    return False


def test_a_state_directory_that_somebody_removed_is_had_again(rig: Rig) -> None:
    """Its lock goes with it: another daemon could be started beside this one, and give the same card out twice."""
    path = rig.tenant("a")
    client = rig.client("a")
    client.ask()
    client.grant()
    remove(rig)
    wait_for(lambda: answers(rig), what="answer of the daemon")
    wait_for(lambda: os.path.exists(path) and os.path.exists(f"{path}.page"), what="sockets of the tenant")
    assert "runs on" in refusal(rig)
    assert [tenant["name"] for tenant in rig.state()["tenants"]] == ["a"]
    saved = json.loads((rig.state_dir / "state.json").read_text())
    assert [name for name, *_ in saved["tenants"]] == ["a"]
    late = rig.client("a")
    late.ask()
    late.grant()
    assert rig.stop(signal.SIGTERM) == 0
    assert not (rig.state_dir / "control.sock").exists()
    head, entries = read(rig.state_dir / "trace.jsonl")
    assert head["part"] == 1  # of the one before it nothing is left
    assert list(entries)
    assert replay(rig.state_dir / "trace.jsonl")[1] is None


def test_each_part_of_a_long_trace_replays(rig: Rig) -> None:
    rig.restart(signal.SIGTERM, f"{PATIENT}trace_bytes = 65536\n")
    path = rig.state_dir / "trace.jsonl"
    one, two = [rig.client(name) for name in "ab" if rig.tenant(name, 0.3)]

    def later_part() -> bool:
        one.ask()
        epoch = one.grant().epoch
        two.ask()
        one.give_back(epoch)
        two.give_back(two.grant().epoch)
        with contextlib.suppress(Problem):  # just now
            return bool(read(path)[0]["part"] >= 2)
        return False

    wait_for(later_part, what="third part")
    assert rig.stop() == 0
    for part in (path.with_name("trace.jsonl.1"), path):
        assert read(part)[0]["part"] >= 1
        assert replay(part)[1] is None


def granted(rig: Rig) -> int:
    """The epoch of a grant to the process of tenant a, which says Hello anew."""
    client = rig.client("a", nonce=7)
    client.ask()
    return int(client.grant().epoch)


def test_epochs_do_not_repeat_where_the_state_was_removed(rig: Rig) -> None:
    rig.tenant("a")
    before = granted(rig)
    rig.stop(signal.SIGKILL)
    (rig.state_dir / "state.json").unlink()
    rig.start()
    rig.tenant("a")
    assert granted(rig) > before


def test_epochs_do_not_repeat_where_the_state_cannot_be_written(rig: Rig) -> None:
    """What is on the disk is of a daemon long ago, and says so once more to each that starts."""
    state = rig.state_dir / "state.json"
    rig.tenant("a")
    epochs = [granted(rig)]
    state.with_suffix(".tmp").mkdir()  # what is written to cannot be
    for _ in range(2):
        rig.stop(signal.SIGKILL)
        rig.start()
        epochs.append(granted(rig))
    assert epochs == sorted(set(epochs))
    state.with_suffix(".tmp").rmdir()
    wait_for(lambda: json.loads(state.read_text())["reserved_epoch"] > epochs[-1], what="reserve on the disk")
    assert rig.log().count("state-unwritable") == 2, "once by each daemon"


def test_a_control_socket_that_somebody_removed_is_made_anew(rig: Rig) -> None:
    (rig.state_dir / "control.sock").unlink()
    wait_for(lambda: answers(rig), what="answer of the daemon")


def test_where_another_daemon_has_taken_the_removed_directory_this_one_ends(rig: Rig) -> None:
    rig.tenant("a")
    first = rig.daemon
    assert first is not None
    first.send_signal(signal.SIGSTOP)
    remove(rig)
    rig.start()
    first.send_signal(signal.SIGCONT)
    assert first.wait(60) == 1
    assert "so that no card is given out twice" in rig.log()
    assert "Traceback" not in rig.log()
    assert rig.http("GET", "/healthz")[0] == 200  # and the other one's socket is still there
    assert rig.stop(signal.SIGTERM) == 0


def test_shutdown_by_http(rig: Rig) -> None:
    assert rig.http("POST", "/shutdown")[0] == 200
    assert rig.daemon is not None
    assert rig.daemon.wait(60) == 0


@pytest.mark.flaky(reruns=2)  # it must not end before the first tenant
def test_it_ends_by_itself_some_time_after_the_last_tenant() -> None:
    with Rig("--idle-exit", "1.5") as rig:
        rig.tenant("a")
        rig.http("DELETE", "/tenants/a")
        assert rig.daemon is not None
        assert rig.daemon.wait(60) == 0


def test_options_that_a_reload_cannot_change_are_named(tmp_path: Path) -> None:
    file = tmp_path / "gemini.toml"
    file.write_text("quota_ms = 10\n[tenants.a]\nrequest = 0.5\n")
    with Rig("--config", str(file)) as rig:
        file.write_text("quota_ms = 20\nmetrics_port = 0\n[tenants.a]\nrequest = 0.4\n")
        wait_for(lambda: "needs-restart" in rig.log(), what="word of it")
        assert rig.log().rstrip().endswith(f"needs-restart config={file} keys=metrics_port,quota_ms")
        assert rig.of("a")["request"] == 0.4
        assert rig.state()["quota_ms"] == 10


def test_memory_above_the_cards_in_the_file_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "gemini.toml"
    file.write_text('[tenants.a]\nmemory = "999TiB"\n[tenants.b]\nmemory = "80GiB"\n')
    with Rig("--config", str(file)) as rig:
        said = [line for line in rig.log().splitlines() if "memory-above-card" in line]
        assert [line.split("memory-above-card ")[1] for line in said] == ["tenant=a memory=999TiB card=80GiB"]
        assert rig.of("a")["memory_limit_bytes"] == 999 << 40


def test_wrong_use_is_one_line_and_status_2_and_what_cannot_be_done_1(tmp_path: Path) -> None:
    file = tmp_path / "gemini.toml"
    file.write_text("[tenants.a]\nrequest = 0.6\n[tenants.b]\nrequest = 0.6\n")
    (tmp_path / "file").touch()
    for words, status in (
        (["--nonsense"], 2),
        (["--log", "loud"], 2),
        (["--config", str(file)], 2),
        (["--sim", "--state-dir", str(tmp_path / "file" / "state")], 1),
    ):
        command = [sys.executable, "-m", "scheduler_backend", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr


def test_a_text_that_says_no_simulated_machine_is_named_with_one_that_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scheduler_backend", "--state-dir", str(tmp_path), "--sim=gpus=x"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "--sim='gpus=x' says no machine" in done.stderr
    assert "write it such as gpus=2,memory=80GiB" in done.stderr


def test_shares_of_the_file_are_read_again_when_it_changes_and_on_sighup(tmp_path: Path) -> None:
    file = tmp_path / "gemini.toml"
    file.write_text("[tenants.a]\nrequest = 0.5\n[tenants.b]\nrequest = 0.5\n")
    with Rig("--config", str(file)) as rig:
        client = rig.client("a")
        assert {tenant["name"]: tenant["request"] for tenant in rig.state()["tenants"]} == {"a": 0.5, "b": 0.5}
        file.write_text("[tenants.a]\nrequest = 0.8\n[tenants.b]\nrequest = 0.2\n")  # b must shrink before a can grow
        wait_for(lambda: rig.of("a")["request"] == 0.8, what="changed share")
        file.write_text("[tenants.a]\nrequest = 0.8\n[tenants.b]\nrequest = 0.9\n")  # a mistake changes nothing
        wait_for(lambda: "reload-refused" in rig.log(), what="refusal")
        assert rig.of("b")["request"] == 0.2
        file.write_text("[tenants.a]\nrequest = 0.1\n")
        assert rig.daemon is not None
        rig.daemon.send_signal(signal.SIGHUP)
        wait_for(lambda: len(rig.state()["tenants"]) == 1, what="gone tenant")
        assert rig.of("a")["request"] == 0.1
        client.ask()
        client.grant()


RUN = {"request": 0.5, "gpus": [0], "pid": 1}


@pytest.mark.parametrize("run", [{**RUN, "name": "run"}, {**RUN, "name": "made", "gpus": [1]}])
def test_no_running_tenant_keeps_the_daemon_from_starting_with_its_file(tmp_path: Path, run: dict[str, object]) -> None:
    """One that leaves no room for a larger share of the file, and one that has a name which the file gave later."""
    file = tmp_path / "gemini.toml"
    file.write_text("[tenants.old]\nrequest = 0.5\ngpus = [0]\n")
    with Rig("--config", str(file)) as rig:
        assert rig.http("POST", "/tenants", run)[0] == 200
        file.write_text("[tenants.made]\nrequest = 0.8\ngpus = [0]\n")
        wait_for(lambda: "reload-refused" in rig.log(), what="refusal")
        rig.stop()
        rig.start()
        assert {tenant["name"]: tenant["request"] for tenant in rig.state()["tenants"]} == {"made": 0.8}
        assert f"tenant-not-restored tenant={run['name']}" in rig.log()


def test_a_share_of_the_file_is_not_given_to_who_had_its_name_first(tmp_path: Path) -> None:
    file = tmp_path / "gemini.toml"
    file.write_text("")
    with Rig("--config", str(file)) as rig:
        assert rig.http("POST", "/tenants", {**RUN, "name": "made", "request": 0.1})[0] == 200
        file.write_text("[tenants.made]\nrequest = 0.9\ngpus = [0]\n")
        wait_for(lambda: "reload-refused" in rig.log(), what="refusal")
        assert "while it runs; end it first, or choose another name" in rig.log()
        assert rig.of("made")["request"] == 0.1


def test_sixty_four_tenants_join_and_all_get_their_turn() -> None:
    with Rig("--no-trace") as rig:
        clients = []
        for number in range(64):
            rig.tenant(f"t{number}", 0.015)
            clients.append(rig.client(f"t{number}"))
        for client in clients:
            client.ask()
        waiting = dict(enumerate(clients))

        def served() -> bool:
            for number, client in list(waiting.items()):
                message = client.receive(0)
                if message is not None and message[0] == lib.WIRE_GRANT and not is_prepared(message):
                    client.give_back(message[1].epoch)
                    del waiting[number]
            return not waiting

        wait_for(served, what="turn of everybody")
