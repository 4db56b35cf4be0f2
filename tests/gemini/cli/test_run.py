"""gemini run: the command's own exit status, its environment, its signals, and the daemon that comes along."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from gemini.cli.control import answers
from gemini.cli.node import HOOK
from tests.gemini.cli.conftest import Place, read, until


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -9 $$", 137)]
)
def test_the_exit_status_is_the_commands(place: Place, script: str, status: int) -> None:
    done = place.gemini("run", "--", "sh", "-c", script)
    assert done.returncode == status, done.stderr
    assert done.stderr == ""


def test_the_command_sees_its_place(place: Place) -> None:
    done = place.gemini("run", "--name", "a", "--request", "0.25", "--memory", "1GiB", "--", "env")
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert seen["LD_PRELOAD"].split()[0] == str(HOOK)
    assert seen["GEMINI_SOCKET"] == str(place.node.state_dir / "tenants" / "a" / "tenant.sock")
    assert seen["GEMINI_MEMORY_LIMIT"] == str(1 << 30)
    assert (seen["GEMINI_REQUEST"], seen["GEMINI_LIMIT"]) == ("0.25", "1")
    assert seen["GEMINI_SIM"] == place.sim


def test_stdin_and_stdout_are_the_commands(place: Place) -> None:
    done = subprocess.run(
        place.words("run", "--", "cat"), input="through", capture_output=True, text=True, env=place.environment(),
        timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "through"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_command(place: Place, number: signal.Signals) -> None:
    script = f"trap 'echo got; exit 5' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    process = place.start("run", "--", "sh", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == "got\n"
    assert process.wait(60) == 5


def test_no_orphan_stays_when_gemini_run_is_killed(place: Place) -> None:
    process = place.start("run", "--name", "a", "--", "sh", "-c", "echo $$; exec sleep 600")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    until(lambda: not Path(f"/proc/{child}").exists() or Path(f"/proc/{child}/stat").read_text().split()[2] == "Z")
    until(lambda: place.state()["tenants"] == [])


@pytest.mark.parametrize(
    ("program", "begin"), [("my prog", "my-prog-"), ("pr\N{LATIN SMALL LETTER O WITH DIAERESIS}g", "pr-g-")]
)
def test_a_program_of_any_name_gets_a_tenants_name(place: Place, program: str, begin: str) -> None:
    path = place.dir / program
    path.write_text('#!/bin/sh\necho "$GEMINI_SOCKET"\n')
    path.chmod(0o755)
    done = place.gemini("run", "--", str(path))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent.name.startswith(begin)


@pytest.mark.parametrize("name", ["a b", "\N{LATIN SMALL LETTER U WITH DIAERESIS}", "../a", "a?b", "", ".."])
def test_a_name_that_nobody_can_have_is_no_tenant(place: Place, name: str) -> None:
    running = place.start("run", "--name", "a", "--", "sh", "-c", "echo ready; read x")
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    done = place.gemini("set", name, "--request", "0.4")
    assert done.returncode == 1
    assert done.stderr.startswith(f"gemini: there is no tenant {name!r}; "), done.stderr


def test_two_at_once_start_one_daemon(place: Place) -> None:
    both = [place.start("run", "--name", name, "--", "sh", "-c", "echo ready; read x") for name in ("a", "b")]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
    assert sorted(tenant["name"] for tenant in place.state()["tenants"]) == ["a", "b"]
    daemons = [
        entry
        for entry in Path("/proc").glob("[0-9]*")
        if str(place.node.state_dir) in read(entry / "cmdline") and "serve" in read(entry / "cmdline")
    ]
    assert len(daemons) == 1


@pytest.mark.flaky(reruns=2)
def test_the_daemon_ends_after_its_last_tenant(place: Place) -> None:
    assert place.gemini("run", "--", "true").returncode == 0
    assert answers(place.node)
    until(lambda: not answers(place.node))


def test_requests_of_a_gpu_sum_to_at_most_one(place: Place) -> None:
    first = place.start("run", "--name", "a", "--request", "0.7", "--", "sh", "-c", "echo ready; read x")
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n"
    done = place.gemini("run", "--name", "b", "--request", "0.4", "--", "true")
    assert done.returncode == 125
    assert len(done.stderr.splitlines()) == 1
    assert "0.4" in done.stderr
    assert "0.3" in done.stderr  # what may still be asked
    assert [tenant["name"] for tenant in place.state()["tenants"]] == ["a"]


def test_two_of_one_name_are_one_tenant_and_another_share_is_refused(place: Place) -> None:
    holding = ("--", "sh", "-c", "echo ready; read x")
    first = place.start("run", "--name", "a", "--request", "0.5", *holding)
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n"
    assert place.gemini("run", "--name", "a", "--request", "0.5", "--", "true").returncode == 0
    assert [tenant["name"] for tenant in place.state()["tenants"]] == ["a"]  # the first still runs
    other = place.gemini("run", "--name", "a", "--request", "0.6", "--", "true")
    assert other.returncode == 125
    assert len(other.stderr.splitlines()) == 1


def test_a_program_joins_a_tenant_without_its_shares_being_said_again(place: Place) -> None:
    shares = ("--request", "0.3", "--limit", "0.333333", "--memory", "1GiB", "--class", "latency")
    first = place.start("run", "--name", "a", *shares, "--", "sh", "-c", "echo ready; read x")
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n"
    second = place.gemini("run", "--name", "a", "--", "sh", "-c", "echo $GEMINI_REQUEST $GEMINI_LIMIT")
    assert (second.returncode, second.stdout, second.stderr) == (0, "0.3 0.333333\n", "")
    assert [tenant["name"] for tenant in place.state()["tenants"]] == ["a"]


def test_a_second_daemon_is_refused_in_one_line_and_disturbs_nothing(place: Place) -> None:
    first = place.start("run", "--name", "a", "--", "sh", "-c", "echo ready; read x")
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n"
    second = place.gemini("serve")
    assert second.returncode == 1
    assert len(second.stderr.splitlines()) == 1, second.stderr
    assert str(place.node.state_dir) in second.stderr
    assert [tenant["name"] for tenant in place.state()["tenants"]] == ["a"]


@pytest.mark.flaky(reruns=2)
def test_a_daemon_of_another_machine_is_refused(place: Place) -> None:
    assert place.gemini("run", "--", "true").returncode == 0
    place.sim = f"{place.sim}-other"
    other = place.gemini("run", "--", "true")
    assert other.returncode == 125
    assert len(other.stderr.splitlines()) == 1
    assert "another simulated machine" in other.stderr


@pytest.mark.parametrize(
    ("memory", "said"), [("8GiB", ""), ("999PiB", "more than NVIDIA H200 (simulated) has (8 GiB)")]
)
def test_memory_beyond_the_card_is_said_in_one_line(place: Place, memory: str, said: str) -> None:
    done = place.gemini("run", "--memory", memory, "--", "true")
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == bool(said), done.stderr
    assert said in done.stderr


def test_a_simulated_machine_that_is_none_is_refused(place: Place) -> None:
    place.sim = f"nonsense=3,id={place.id}"
    done = place.gemini("run", "--", "true")
    assert done.returncode == 125
    assert len(done.stderr.splitlines()) == 1
    assert "nonsense" in done.stderr


def test_a_stale_socket_is_replaced(place: Place) -> None:
    import socket

    place.node.state_dir.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(place.node.control))
    assert place.gemini("run", "--", "true").returncode == 0


def test_a_load_as_a_tenant_runs_and_shows_in_ps(place: Place) -> None:
    process = place.start(
        "run", "--name", "a", "--request", "0.3", "--", os.path.realpath(str(HOOK.with_name("gemini-load"))),
        "--seconds", "0", "--json", "-",
    )  # fmt: skip
    until(lambda: answers(place.node) and any(t["held_ns"] for t in place.state()["tenants"]))
    shown = place.gemini("ps")
    assert shown.returncode == 0
    assert "(simulated)" in shown.stdout
    assert shown.stdout.splitlines()[2].startswith("a ")
    listed = json.loads(place.gemini("ps", "--json").stdout)
    assert listed["tenants"][0]["name"] == "a"
    assert listed["device"]["simulated"] is True
    assert place.gemini("set", "a", "--request", "0.4", "--limit", "50%").returncode == 0
    changed = place.state()["tenants"][0]
    assert (changed["request"], changed["limit"]) == (0.4, 0.5)
    refused = place.gemini("set", "nobody", "--request", "0.4")
    assert refused.returncode == 1
    assert "nobody" in refused.stderr
    top = place.gemini("top", "--count", "1")
    assert top.returncode == 0
    assert all(word in top.stdout for word in ("REQUEST", "ACHIEVED", "ENFORCED")), "whole words in 80 columns"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert json.loads(out)["launches"] > 0, err
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("request_of_other", "said"),
    [("0.3", "it gets 14.3 % of the GPU while all others are busy"), ("1", "it runs while they have nothing to do")],
)
def test_a_tenant_without_a_request_is_told_what_it_gets(place: Place, request_of_other: str, said: str) -> None:
    other = place.start("run", "--name", "a", "--request", request_of_other, "--", "sh", "-c", "echo ready; read x")
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    done = place.gemini("run", "--name", "b", "--", "true")
    assert done.returncode == 0
    assert done.stderr.startswith("gemini: b has no --request"), done.stderr
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
