"""What keeps its tenant: a program after the logout of its user, work of a launcher, a job of cron."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from gemini.cli import keeper
from gemini.cli.node import LOAD
from tests.gemini.cli.conftest import Place, until

LOADING = f"{LOAD} --seconds 0"


def log_in(place: Place, commands: str) -> None:
    """A session with a terminal of its own, in which an interactive shell gets these commands; its terminal is hung up
    when it has done them."""
    shell, terminal = pty.fork()
    if shell == 0:
        os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], {**place.environment(), "PS1": "$ "})
    os.write(terminal, f"{commands}\nexit\n".encode())
    with suppress(OSError):  # the terminal's end
        while os.read(terminal, 4096):
            pass
    os.close(terminal)
    os.waitpid(shell, 0)


def holds(place: Place, name: str) -> bool:
    """Does that tenant get more of the card yet?"""

    def held() -> int:
        return next((int(one["held_ns"]) for one in place.state()["tenants"] if one["name"] == name), 0)

    before = held()
    until(lambda: held() > before + 50_000_000)
    return True


def end(place: Place, name: str) -> None:
    [tenant] = [one for one in place.state()["tenants"] if one["name"] == name]
    for pid in [*tenant["clients"], *tenant["registered_by"]]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until(lambda: place.state()["tenants"] == [])


@pytest.mark.parametrize("way", ["nohup {} > {}/out 2>&1 &", "setsid {} > {}/out 2>&1 < /dev/null &", "{}"])
def test_a_program_goes_on_after_its_users_logout(place: Place, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(place.dir / "kept"))
    detach = ["--detach"] if way == "{}" else []
    run = place.words("run", "--name", "a", "--request", "0.5", *detach)
    words = way.format(f"{shlex.join(run)} -- {LOADING}", place.dir)
    wait = f"until {shlex.join(place.words('ps'))} 2> /dev/null | grep -q '^a '; do sleep 0.1; done"
    log_in(place, f"{words}\n{wait}")
    assert holds(place, "a")
    end(place, "a")


LAUNCHER = """
import os, subprocess, sys
workers = [subprocess.Popen([sys.executable, "-m", "gemini", "load", "--seconds", seconds],
                            env={**os.environ, "RANK": str(rank)})
           for rank, seconds in enumerate(sys.argv[1:])]
print("ready", *[worker.pid for worker in workers], flush=True)
while all(worker.poll() is None for worker in workers):
    try:
        workers[0].wait(0.1)
    except subprocess.TimeoutExpired:
        pass
for worker in workers:  # the first that ends takes the others along, as torchrun does
    worker.terminate()
sys.exit(max(abs(worker.wait()) for worker in workers))
"""


def started(place: Place, *words: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A launcher under gemini run, and its workers."""
    process = place.start("run", "--name", "a", "--request", "0.5", "--", *words)
    assert process.stdout is not None
    return process, [int(pid) for pid in process.stdout.readline().split()[1:]]


def clients(place: Place) -> Sequence[int]:
    return next((one["clients"] for one in place.state()["tenants"]), ())


def test_workers_of_a_launcher_are_one_tenant_and_end_with_it(place: Place) -> None:
    process, workers = started(place, sys.executable, "-c", LAUNCHER, "0", "0")
    until(lambda: len(clients(place)) == 2)
    assert holds(place, "a")
    os.kill(workers[1], signal.SIGKILL)
    assert process.wait(60) == signal.SIGKILL
    until(lambda: place.state()["tenants"] == [])


def test_workers_whose_launcher_was_killed_keep_the_tenant(place: Place) -> None:
    process, workers = started(place, sys.executable, "-c", "import os\nos.setpgrp()\n" + LAUNCHER, "0", "0")
    until(lambda: len(clients(place)) == 2)
    launcher = int(Path(f"/proc/{workers[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(launcher, signal.SIGKILL)
    assert process.wait(60) == 128 + signal.SIGKILL
    assert holds(place, "a")
    end(place, "a")


def test_a_job_of_cron_runs_in_its_bare_environment(place: Place) -> None:
    """No terminal, no session of the user, next to no environment, in the home folder."""
    log = place.dir / "out"
    job = f"{shlex.join(place.words('run', '--name', 'a', '--request', '0.5'))} -- {LOAD} --seconds 0.3 > {log} 2>&1"
    bare = {"HOME": str(place.dir), "LOGNAME": "root", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", job], env=bare, cwd=place.dir, stdin=subprocess.DEVNULL, start_new_session=True, umask=0o022
    )
    assert (done.returncode, "launches" in log.read_text()) == (0, True), log.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may read what all say of themselves")
def test_nobody_elses_process_keeps_a_tenant_of_roots() -> None:
    mark = "/nowhere/tenants/a/tenant.sock"
    ways = [[], ["setpriv", "--reuid=65534", "--clear-groups"], ["unshare", "--pid", "--fork"]]
    ours: set[int] = set()  # unshare itself is, and its child is not
    with ExitStack() as stack:
        for way in ways:
            words = [*way, "sh", "-c", "echo here; exec sleep 600"]
            child = subprocess.Popen(
                words, env={**os.environ, "GEMINI_SOCKET": mark}, stdout=subprocess.PIPE, start_new_session=True
            )
            stack.callback(child.wait)
            stack.callback(os.killpg, child.pid, signal.SIGKILL)
            assert child.stdout is not None
            assert child.stdout.readline() == b"here\n"
            ours = ours | {child.pid} if way[:1] != ["setpriv"] else ours
        assert keeper.left_behind(mark) == ours
